"""Part of a gang was bought, the rest is refused: what came is given back at once, and what others use stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.model import labels as words
from autoscaler.model.actions import Assignment, Cordon, Grow, Memory, Order, Remove
from autoscaler.model.cluster import Cluster, Node, Refusal
from autoscaler.model.constraints import Taint
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_gang, a_group, a_policy, later, nodes_of
from tests.test_autoscaler.test_planner.test_purchases import BOTH, NO_CAPACITY, Buyer

HERE, THERE = a_group(maximum=2), a_group(zone="us-east-1b", maximum=2)


@BOTH
@pytest.mark.parametrize("late", [5.0, 40.0])
def test_what_came_for_a_gang_that_is_refused_the_rest_goes_at_once(at_once: bool, late: float) -> None:  # noqa: FBT001
    """Also when the refusal comes late; nothing of it is paid for, and it is bought anew when the back-off ends."""
    made = Buyer(HERE, THERE, pods=a_gang(pods=4, gpus=8), at_once=at_once, says=NO_CAPACITY)
    made.cloud.late, made.cloud.dry = (late, late), frozenset({THERE.name})
    made.turn()
    made.after(late + 1)
    assert len(made.cloud.launched) == 2
    for _ in range(3):
        made.turn(made.memory)
    made.after(1)
    assert made.desired() == [0, 0]
    assert made.cloud.usd_per_hour == 0
    made.cloud.dry = frozenset()
    assert [type(step) for step in made.decide(made.memory)] == []
    made.after(made.policy.scale_up.refusal_backoff.total_seconds())
    made.turn(made.memory)
    assert made.desired() == [2, 2]


def reserved(count: int) -> tuple[Node, ...]:
    """Nodes of the first group that nothing was ever put on."""
    return tuple(replace(node, taints=(Taint(words.RESERVED),)) for node in nodes_of(a_group(joined=count)))


def looked(nodes: tuple[Node, ...], *gangs: str, refused: bool = True) -> Cluster:
    """Two nodes of the first group, of which the other has been refused, or has not."""
    refusals = (Refusal(later(seconds=-1), "InsufficientInstanceCapacity"),) if refused else ()
    groups = (replace(a_group(joined=2), maximum=2), replace(THERE, refusals=refusals, maximum=2 if refused else 0))
    pods = [pod for name in gangs for pod in a_gang(name, pods=4 if name == "large" else 2, gpus=8)]
    return Cluster(seen_at=NOW, pods=tuple(pods), nodes=nodes, groups=groups)


def assignments(gang: str, nodes: tuple[Node, ...]) -> Memory:
    """Where the last plan meant its four pods to go."""
    where = [Assignment(node.name, HERE.name) for node in nodes] + [
        Assignment(f"{THERE.name}~{n}", THERE.name) for n in (1, 2)
    ]
    return Memory(assignments={f"team/{gang}-worker-{number}": one for number, one in enumerate(where)})


def test_nodes_that_have_joined_are_closed_and_ended_by_the_next_plan() -> None:
    """Without their idle time; that they are left over is remembered."""
    nodes = reserved(2)
    first = plan(looked(nodes, "large"), a_policy(), assignments("large", nodes))
    assert [step.node for step in first.steps if isinstance(step, Cordon)] == [node.name for node in nodes]
    assert first.memory.leftovers == {node.instance_id for node in nodes}
    closed = tuple(replace(node, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=NOW) for node in nodes)
    second = plan(looked(closed, "large"), a_policy(), first.memory)
    assert [step.node for step in second.steps if isinstance(step, Remove)] == [node.name for node in nodes]
    assert all("was bought for a gang of which EC2 refused the rest" in step.because for step in second.steps)


@pytest.mark.parametrize(("minimum", "closed"), [(0, 2), (1, 1), (2, 0)])
def test_of_a_group_its_minimum_stays_though_it_is_left_over(minimum: int, closed: int) -> None:
    """Auto Scaling would launch others."""
    nodes = reserved(2)
    look = looked(nodes, "large")
    groups = (replace(look.groups[0], minimum=minimum), *look.groups[1:])
    decided = plan(replace(look, groups=groups), a_policy(), assignments("large", nodes))
    assert sum(isinstance(step, Cordon) for step in decided.steps) == closed
    assert len(decided.memory.leftovers) == closed


def test_a_gang_that_fits_on_what_is_left_over_has_it() -> None:
    """Nothing is given back that is wanted."""
    nodes = reserved(2)
    decided = plan(looked(nodes, "large", "small"), a_policy(), assignments("large", nodes))
    assert not [step for step in decided.steps if isinstance(step, Cordon | Remove | Grow)]
    assert decided.memory.leftovers == frozenset()


def test_what_no_refusal_has_left_over_has_its_idle_time() -> None:
    """A gang that waits for another reason, or that is gone, may come back for its nodes."""
    nodes = reserved(2)
    for cluster in (looked(nodes, "large", refused=False), looked(nodes)):
        decided = plan(cluster, a_policy(), assignments("large", nodes))
        assert decided.memory.leftovers == frozenset()
        assert not [step for step in decided.steps if "refused" in step.because]


@pytest.mark.parametrize(("minimum", "ended"), [(0, 1), (1, 0)])
def test_an_order_that_is_not_answered_leaves_no_room_above_the_minimum(minimum: int, ended: int) -> None:
    """Its node may never come, and AWS refuses to end the one that is there."""
    look = looked((), "large")
    here = a_group(joined=1, minimum=minimum, maximum=2)
    memory = replace(
        assignments("large", nodes_of(a_group(joined=2))),
        orders={here.name: Order(was=1, to=2, at=later(seconds=-35))},
    )
    decided = plan(replace(look, groups=(here, *look.groups[1:])), a_policy(), memory)
    assert sum(isinstance(step, Remove) for step in decided.steps) == ended
