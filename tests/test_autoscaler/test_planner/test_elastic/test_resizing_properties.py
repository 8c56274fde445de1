"""Elastic jobs from the planner through executor and doors, in a world of controllers and a scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Memory
from autoscaler.model.constraints import Taint, Toleration
from autoscaler.model.jobs import ElasticRole
from autoscaler.model.pauses import Pause, budget_of
from autoscaler.model.resources import CPU, Resources
from autoscaler.planner.plan import plan
from tests import examples
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node
from tests.elastic_world import Submitted, an_elastic_world, arrive, sizes_of


def test_a_job_starts_at_its_least_grows_into_what_is_free_and_gives_it_back() -> None:
    """Survivors keep their pods: what ends are the highest indexes."""
    world = an_elastic_world(4, 4)
    world.submit(Submitted("a", workers=(2, 4), cpu=2))
    world.settle(1)
    assert sizes_of(world) == {"a-worker": 2}
    world.settle(4)
    assert sizes_of(world) == {"a-worker": 4}
    before = {pod.uid for pod in world.tasks("team/a-worker") if int(pod.labels[words.COMPLETION_INDEX]) < 2}
    urgent = a_pod("urgent", cpu=4, priority=10, created=world.now)
    world.pods[urgent.key] = urgent
    world.settle(6)
    assert world.pods["team/urgent"].node is not None
    assert {pod.uid for pod in world.tasks("team/a-worker")} == before


def test_nothing_is_bought_for_pods_that_get_the_room_of_elastic_tasks() -> None:
    """Neither before the tasks have ended nor after."""
    world = an_elastic_world(4, groups=(a_group("cpu", maximum=3),))
    world.submit(Submitted("a", workers=(1, 4)))
    world.settle(6)
    assert sizes_of(world) == {"a-worker": 4}
    waits = a_pod("waits", cpu=2, gates=(words.GATE,), created=world.now)
    world.pods[waits.key] = waits
    world.settle(6)
    assert (world.bought, world.pods["team/waits"].node) == (0, "own-0")


def test_nothing_is_bought_for_growth_unless_the_job_says_what_it_may_cost() -> None:
    """A job that may spend the price of one node grows onto one, and not onto two."""
    group = a_group("cpu", maximum=3)
    per_node = int(group.allocatable["cpu"] / 1000)
    for usd, nodes in ((0.0, 0), (1.5 * group.usd_per_hour, 1)):
        world = an_elastic_world(1, groups=(group,))
        world.submit(Submitted("a", workers=(1, 3 * per_node), usd=usd))
        world.settle(20)
        assert (world.bought, sizes_of(world)["a-worker"]) == (nodes, 1 + nodes * per_node)


@pytest.mark.parametrize(
    ("budget", "is_spent"),
    [
        (budget_of(namespace="team"), True),
        (budget_of(owner="ada"), True),
        (budget_of(namespace="other"), False),
        (budget_of(owner="bob"), False),
    ],
)
def test_a_spent_budget_ends_growth_for_money_and_keeps_what_is_paid_for(budget: str, is_spent: bool) -> None:  # noqa: FBT001
    """Of the job's namespace or owner; it still grows into what is there."""
    group = a_group("cpu", maximum=3)
    per_node = int(group.allocatable["cpu"] / 1000)
    world = an_elastic_world(1, groups=(group,))
    world.submit(Submitted("a", workers=(1, 3 * per_node), usd=1.5 * group.usd_per_hour, owner="ada"))
    world.settle(20)
    assert (world.bought, sizes_of(world)["a-worker"]) == (1, 1 + per_node)
    world.pauses = (Pause(budget),)
    world.api.jobs["team/a-worker"]["metadata"]["annotations"][words.ELASTIC_USD] = f"{9 * group.usd_per_hour:g}"
    world.settle(20)
    assert world.bought == (1 if is_spent else 3)
    world.nodes["own-1"] = replace(world.nodes["own-0"], name="own-1", labels={words.HOSTNAME: "own-1"})
    world.settle(20)
    assert sizes_of(world)["a-worker"] == (2 + per_node if is_spent else 3 * per_node)


def test_a_job_grows_onto_nodes_that_it_tolerates_and_onto_none_that_is_kept_for_others() -> None:
    """What let its first pod onto a node that was kept for it, lets the next ones onto no other such node."""
    world = an_elastic_world(1, 4, 8)
    for name, key in (("own-1", "team"), ("own-2", words.RESERVED)):
        world.nodes[name] = replace(world.nodes[name], taints=(Taint(key),))
    world.submit(Submitted("a", workers=(1, 20)))
    tolerates = (Toleration("team", "Exists"), Toleration(words.RESERVED, "Exists"))
    [first] = world.tasks("team/a-worker")
    world.pods[first.key] = replace(first, node="own-0", phase="Running", gates=(), tolerations=tolerates)
    world.settle(1)
    assert [(step.was, step.to) for step in world.resized] == [(1, 5)]


def test_servers_follow_the_workers() -> None:
    """Of 1 to 4 workers and 1 to 2 servers: two workers need the second server."""
    world = an_elastic_world(4)
    world.submit(Submitted("a", workers=(1, 4), servers=(1, 2)))
    world.settle(6)
    assert sizes_of(world) == {"a-ps": 2, "a-worker": 2}
    other = a_pod("other", cpu=2, priority=1, created=world.now)
    world.pods[other.key] = other
    world.settle(6)
    assert sizes_of(world) == {"a-ps": 1, "a-worker": 1}


def test_servers_catch_up_where_the_change_of_their_size_was_refused() -> None:
    """The API server refuses it where their Job has changed meanwhile, and the workers have grown all the same."""
    world = an_elastic_world(4)
    world.submit(Submitted("a", workers=(1, 4), servers=(1, 3)))
    world.settle(6)
    assert sizes_of(world) == {"a-ps": 2, "a-worker": 2}
    for size in (1, 3):
        world.api.jobs["team/a-ps"]["spec"] |= {"parallelism": size, "completions": size}
        world.control()
        world.resized.clear()
        world.settle(6)
        assert [(step.name, step.was, step.to) for step in world.resized] == [("a-ps", size, 2)]
        assert sizes_of(world) == {"a-ps": 2, "a-worker": 2}


def test_gangs_and_growth_go_where_the_least_is_wasted() -> None:
    """Where each pod goes to the fullest node that has room, 56 of these workers find a place, of 66 at most."""
    world = an_elastic_world(*(12,) * 14, *(24,) * 12)
    for name, node in world.nodes.items():
        world.nodes[name] = replace(node, allocatable=node.allocatable - Resources({CPU: 379}))
    for name in ("a", "b"):
        world.submit(Submitted(name, workers=(2, 60), servers=(10, 10), cpu=5, server_cpu=4))
        world.settle(2)
    world.settle(6)
    assert sum(count for name, count in sizes_of(world).items() if name.endswith("-worker")) == 66


def test_a_job_does_not_grow_onto_machines_of_which_a_gang_that_is_bought_for_takes_the_rest() -> None:
    """Seven of the gang have room here, and a node is bought for the others: none of it is there to grow into."""
    group = a_group("cpu", maximum=3)
    per_node = int(group.allocatable["cpu"] / 1000)
    world = an_elastic_world(8, groups=(group,))
    world.submit(Submitted("a", workers=(1, 8)))
    world.settle(1)
    arrive(world, "gang", 7 + per_node)
    world.settle(8)
    assert (world.bought, world.resized, sizes_of(world)) == (1, [], {"a-worker": 1})
    assert all(pod.node for pod in world.pods.values())


def test_growth_that_pays_takes_what_the_limits_leave_after_the_purchase_of_others() -> None:
    """Of two nodes that may be bought the gang gets the first; of one, the only one, and nothing grows."""
    for maximum in (1, 2):
        group = a_group("cpu", maximum=maximum)
        per_node = int(group.allocatable["cpu"] / 1000)
        world = an_elastic_world(2, groups=(group,))
        world.submit(Submitted("a", workers=(2, 2 + 2 * per_node), usd=10))
        world.settle(1)
        arrive(world, "gang", per_node)
        world.settle(12)
        assert world.bought == maximum
        assert all(pod.node for pod in world.pods.values())
        assert [(step.was, step.to) for step in world.resized] == [(2, 2 + per_node)] * (maximum - 1)


def test_growth_takes_no_room_that_is_kept_for_a_gang_until_all_of_it_is_free() -> None:
    """Half of what the gang gets is free, the rest held by a task that ends; so is the place of the new worker.

    Placed wherever there is room now, it would take that half, and the gang would wait for another one's end.
    """
    role = ElasticRole("team", "a-worker", size=2, minimum=1, maximum=2, created=NOW)
    worker = a_pod("a-0", cpu=4, node="own-2", phase="Running", owner=role.owner, labels={words.COMPLETION_INDEX: "0"})
    more = replace(worker, name="a-1", node=None, phase="Pending", labels={words.COMPLETION_INDEX: "1"})
    more = replace(more, uid="uid-more", gates=(words.GATE,))
    other = replace(role, name="b-worker", size=1, maximum=4)
    ending = [
        a_pod(f"b-{number}", cpu=4, node=node, phase="Running", owner=other.owner, deleting=number > 0)
        for number, node in enumerate(("own-3", "own-0", "own-1"))
    ]
    ending = [replace(pod, labels={words.COMPLETION_INDEX: pod.name[-1]}) for pod in ending]
    gang = a_gang("gang", 2, cpu=4, selector={"disk": "fast"})
    nodes = [an_on_prem_node(f"own-{n}", gpus=0, cpu=cpu) for n, cpu in enumerate((8, 4, 4, 4))]
    nodes[0] = replace(nodes[0], labels={**nodes[0].labels, "disk": "fast"})
    look = a_cluster(pods=[worker, more, *ending, *gang], nodes=nodes, groups=(), elastic=(role, other))

    told = plan(look, a_policy(), Memory())
    assert [step for step in told.steps if isinstance(step, Admit)] == []
    assert "own-1" in next(one.because for one in told.waiting if one.pod == more.key)

    ended = plan(replace(look, pods=tuple(pod for pod in look.pods if not pod.deleting)), a_policy(), told.memory)
    placements = dict(pair for step in ended.steps if isinstance(step, Admit) for pair in step.placements)
    assert placements == {more.key: "own-1"} | {pod.key: "own-0" for pod in gang}


@settings(max_examples=examples(30), deadline=None)
@given(
    machines=st.lists(st.integers(2, 8), min_size=1, max_size=3),
    workers=st.tuples(st.integers(1, 2), st.integers(1, 40)),
    servers=st.sampled_from([(0, 0), (1, 1), (1, 2)]),
    cpu=st.integers(1, 3),
    usd=st.sampled_from([0.0, 1.0, 10.0]),
    maximum=st.integers(0, 3),
    gangs=st.lists(st.tuples(st.integers(1, 24), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=3),
)
def test_growth_and_purchases_agree(
    *,
    machines: list[int],
    workers: tuple[int, int],
    servers: tuple[int, int],
    cpu: int,
    usd: float,
    maximum: int,
    gangs: list[tuple[int, int, int]],
) -> None:
    """After each gang that comes the job may shrink, and then grow: what it grew by is not given back for want of room.

    An older gang may get places by it that it could not have been bought, and then gets them.
    """
    world = an_elastic_world(*machines, groups=(a_group("cpu", maximum=maximum),) if maximum else ())
    world.submit(Submitted("a", workers=(workers[0], sum(workers)), servers=servers, cpu=cpu, usd=usd))
    for number, (pods, size, ticks) in enumerate(gangs):
        world.settle(ticks)
        arrive(world, f"gang{number}", pods, size)
        world.resized.clear()
        world.settle(12)
        steps = [step for step in world.resized if step.name == "a-worker"]
        first = next((number for number, step in enumerate(steps) if step.to > step.was), len(steps))
        assert not any("no room" in step.because for step in steps[first:]), steps


submitted = st.builds(
    Submitted,
    name=st.just(""),
    workers=st.tuples(st.integers(1, 3), st.integers(0, 5)).map(lambda one: (one[0], one[0] + one[1])),
    servers=st.sampled_from([(0, 0), (1, 1), (1, 2)]),
    cpu=st.integers(1, 3),
    priority=st.integers(0, 2),
    usd=st.sampled_from([0.0, 0.0, 1.0]),
)
others = st.tuples(st.integers(1, 4), st.integers(0, 3), st.booleans())


@settings(max_examples=examples(20), deadline=None)
@given(
    machines=st.lists(st.integers(2, 8), min_size=1, max_size=3),
    jobs=st.lists(submitted, min_size=1, max_size=3),
    events=st.lists(others, max_size=4),
    maximum=st.sampled_from([0, 2]),
)
def test_whatever_comes_sizes_keep_their_bounds_and_gangs_stay_whole(
    machines: list[int], jobs: list[Submitted], events: list[tuple[int, int, bool]], maximum: int
) -> None:
    """Jobs come, then pods of others, with a gate and without, of any priority; then those end, and all may grow."""
    world = an_elastic_world(*machines, groups=(a_group("cpu", maximum=maximum),) if maximum else ())
    for number, job in enumerate(jobs):
        world.submit(replace(job, name=f"job{number}"))
        world.settle(2)
    for number, (cpu, priority, gated) in enumerate(events):
        gates = (words.GATE,) if gated else ()
        pod = a_pod(f"other-{number}", cpu=cpu, priority=priority, gates=gates, created=world.now)
        world.pods[pod.key] = pod
        world.settle(2)
    for key in [key for key in world.pods if key.startswith("team/other-")]:
        del world.pods[key]
    world.settle(8)
