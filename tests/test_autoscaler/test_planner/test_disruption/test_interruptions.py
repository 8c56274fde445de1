"""Nodes that EC2 is about to take back: closed and emptied ahead, and ended before their group starts a successor."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model import node_states as states
from autoscaler.model.actions import Cancel, Cordon, Evict, Grow, Memory, Plan, Remove, Step
from autoscaler.model.cluster import Group, Node, Notice, Pod, Refusal
from autoscaler.model.pauses import Pause
from autoscaler.planner.explanation.explain import explain
from autoscaler.planner.explanation.node_states import standings
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, later, nodes_of
from tests.test_autoscaler.test_loop import bench

OURS = {"cordoned": True, "cordoned_by": words.AUTOSCALER, "cordoned_at": NOW}


SOON = later(minutes=2)


def noticed(kind: Any = "interruption", *, ends: datetime = SOON, **given: Any) -> tuple[Any, ...]:
    """A group with one node, and what EC2 says of it now."""
    group = a_group(joined=1)
    (node,) = nodes_of(group, **given)
    return group, node, Notice(group.instances[0].id, kind, NOW, None if kind == "rebalance" else ends)


def decide(group: Group, node: Node, notice: Notice, *pods: Pod, policy: Any = None, **given: Any) -> Plan:
    """The plan for them, now if not said otherwise."""
    look = a_cluster(pods=pods, nodes=(node,), groups=[group], notices=(notice,), **given)
    return plan(look, policy or a_policy(), Memory())


def on(node: Node, name: str = "pod", **given: Any) -> Pod:
    """A pod that runs there."""
    return a_pod(name, **{"node": node.name, "phase": "Running", "started": NOW, "gpus": 1, "owner": "Job/j"} | given)


def steps_of(found: Plan) -> tuple[Step, ...]:
    """Of the node's life."""
    return tuple(step for step in found.steps if isinstance(step, Cordon | Evict | Remove))


def test_at_a_spot_interruption_the_node_is_closed_and_every_pod_evicted() -> None:
    """Also those that are never moved to save money: in two minutes they would end without their grace."""
    group, node, notice = noticed()
    gang = a_gang(pods=1, node=node.name, phase="Running", gpus=1)
    decided = decide(group, node, notice, on(node, "a"), *gang)
    cordon, evict = steps_of(decided)
    assert cordon == Cordon(node.name, "EC2 takes its spot instance back at 2026-11-21 09:02:00 UTC")
    assert isinstance(evict, Evict)
    assert evict.pods == ("team/a", "team/mnist-worker-0")
    assert decided.wake_at == later(minutes=1, seconds=55)


def test_a_pod_that_is_on_its_way_out_is_not_evicted_again() -> None:
    """Nor is the instance ended under it before its time."""
    group, node, notice = noticed(**OURS)
    assert steps_of(decide(group, node, notice, on(node, deleting=True))) == ()


@pytest.mark.parametrize(
    ("kinds", "minimum", "ends"),
    [
        (("interruption", None), 0, 2),
        (("interruption", None), 1, 1),
        (("interruption", "interruption"), 1, 2),
        (("rebalance", "rebalance"), 0, 2),
        (("rebalance", "rebalance"), 1, 1),
    ],
)
def test_no_more_nodes_of_a_group_end_in_one_plan_than_leave_its_minimum(
    kinds: tuple[Any, Any], minimum: int, ends: int
) -> None:
    """AWS would refuse, but for those that EC2 takes back: it launches successors. The idle one is above a limit."""
    group = a_group(joined=2, minimum=minimum)
    told = zip(group.instances, kinds, strict=True)
    notices = [Notice(one.id, kind, NOW, SOON if kind == "interruption" else None) for one, kind in told if kind]
    look = a_cluster(nodes=nodes_of(group, **OURS), groups=[group], notices=tuple(notices))
    found = steps_of(plan(look, a_policy(limits={"nodes": 0}), Memory()))
    assert [type(step) for step in found] == [Remove] * ends


@pytest.mark.parametrize("minimum", [0, 1])
def test_an_empty_one_ends_before_ec2_ends_it(minimum: int) -> None:
    """Its group desires one less then, and starts no successor; at the minimum it must start one."""
    group, node, notice = noticed(**OURS)
    (end,) = steps_of(decide(replace(group, minimum=minimum), node, notice))
    assert isinstance(end, Remove)
    assert (end.instance, end.node, end.is_taken_back) == (group.instances[0].id, node.name, True)


def test_just_before_the_end_it_goes_with_what_is_on_it() -> None:
    """A pod that does not end in time is lost either way."""
    group, node, notice = noticed(**OURS)
    pod = on(node, deleting=True)
    assert steps_of(decide(group, node, notice, pod, seen_at=later(minutes=1, seconds=54))) == ()
    (end,) = steps_of(decide(group, node, notice, pod, seen_at=later(minutes=1, seconds=55)))
    assert isinstance(end, Remove)
    assert "1 pods have not ended" in end.because


def test_nothing_is_planned_on_it() -> None:
    """A pod that would fit there gets another node."""
    group, node, notice = noticed()
    decided = decide(group, node, notice, a_pod("new", gpus=8))
    assert [step.to for step in decided.steps if isinstance(step, Grow)] == [2]
    assert not [step for step in decided.steps if isinstance(step, Remove)], (
        "the order starts from the size that it saw"
    )


def test_no_size_is_changed_twice_in_one_plan() -> None:
    """Nor while an order has no answer: lowered to the size that it started from, it would be made again."""
    group, node, notice = noticed(**OURS)
    refused = replace(group, desired=2, refusals=(Refusal(NOW, "VcpuLimitExceeded"),))
    kinds = [type(step) for step in decide(refused, node, notice).steps if isinstance(step, Cancel | Remove)]
    assert kinds == [Cancel]
    look = a_cluster(nodes=(node,), groups=[group], notices=(notice,), pods=(a_pod("new", gpus=8),))
    first = plan(look, a_policy(), Memory())
    again = plan(look, a_policy(), first.memory)
    assert [type(step) for step in again.steps if isinstance(step, Grow | Remove)] == [Grow]


def test_at_a_rebalance_recommendation_only_what_may_be_moved_goes() -> None:
    """The interruption is likely, not certain: work that would begin again stays."""
    group, node, notice = noticed("rebalance")
    web = on(node, "web", owner="ReplicaSet/web", gpus=0, cpu=1)
    _, evict = steps_of(decide(group, node, notice, on(node, "train"), web))
    assert isinstance(evict, Evict)
    assert evict.pods == ("team/web",)
    assert steps_of(decide(replace(group, minimum=1), replace(node, **OURS), notice)) == (), "another would come for it"
    (end,) = steps_of(decide(group, replace(node, **OURS), notice))
    assert isinstance(end, Remove)
    assert not end.is_taken_back


def test_scheduled_maintenance_lets_work_run_until_shortly_before() -> None:
    """Ten minutes."""
    group, node, notice = noticed("maintenance", ends=later(hours=5))
    early = decide(group, node, notice, on(node))
    assert [type(step) for step in steps_of(early)] == [Cordon]
    assert early.wake_at == later(hours=4, minutes=50)
    assert Evict in [type(step) for step in steps_of(decide(group, node, notice, on(node), seen_at=early.wake_at))]


def test_a_recommendation_is_forgotten_after_an_hour() -> None:
    """The node is one like others then: open again for the pod that is on it."""
    group, node, notice = noticed("rebalance", **OURS)
    decided = decide(group, node, notice, on(node), seen_at=later(hours=1))
    assert [type(step).__name__ for step in decided.steps] == ["Uncordon"]


@pytest.mark.parametrize(
    ("given", "node_is", "said"),
    [
        ({"pauses": (Pause("all"),)}, {}, "terminating in group gpu-a100 is paused"),
        ({}, {"cordoned": True, "cordoned_by": "admin"}, "it was cordoned by admin"),
    ],
    ids=["paused", "closed by another"],
)
def test_what_is_to_be_left_alone_is_told(given: dict[str, Any], node_is: dict[str, Any], said: str) -> None:
    """With what EC2 says of it."""
    group, node, notice = noticed(**node_is)
    decided = decide(group, node, notice, on(node), **given)
    assert steps_of(decided) == ()
    assert any(said in line and "EC2 takes its spot instance back" in line for line in decided.warnings)


def test_where_nodes_are_never_ended_ec2_ends_it() -> None:
    """Its pods are saved all the same."""
    group, node, notice = noticed()
    policy = a_policy(scale_down={"enabled": False})
    assert [type(step) for step in steps_of(decide(group, node, notice, on(node), policy=policy))] == [Cordon, Evict]
    assert steps_of(decide(group, replace(node, **OURS), notice, policy=policy)) == ()


def test_its_state_says_so() -> None:
    """In `top`, and to whoever asks why."""
    group, node, notice = noticed()
    look = a_cluster(pods=[on(node)], nodes=(node,), groups=[group], notices=(notice,))
    decided = plan(look, a_policy(), Memory())
    (standing,) = standings(look, a_policy(), decided).nodes
    assert (standing.state, standing.until) == (states.INTERRUPTED, notice.ends)
    assert any(
        "EC2 takes its spot instance back" in line for line in explain("node", node.name, look, a_policy(), decided)
    )


@pytest.mark.parametrize(("closed", "ends"), [(True, True), (False, False)])
def test_it_ends_with_pods_on_it_only_while_it_is_closed_by_us(*, closed: bool, ends: bool) -> None:
    """One more look, as before every end."""
    made = bench(Remove(a_group().name, "i-1", "n", "r", is_taken_back=True))
    made.fakes.ready, made.fakes.closed = True, closed
    loop = made.loop()
    made.knows_aws()
    loop.once()
    assert ("terminate" in made.did()) == ends


def test_another_instance_of_the_group_is_not_meant() -> None:
    """A notice names one."""
    group, node, notice = noticed()
    other = replace(notice, instance="i-other")
    assert steps_of(decide(group, node, other, on(node), seen_at=NOW + timedelta(seconds=1))) == ()
