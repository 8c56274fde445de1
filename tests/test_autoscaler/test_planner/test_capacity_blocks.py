"""Capacity Blocks for ML: bought in within their time, filled with what ends in it, emptied before EC2 does."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.config.group_entry import GroupEntry
from autoscaler.model import labels as words
from autoscaler.model.actions import PAUSED, Assignment, Cordon, Evict, Grow, Memory, Plan, Remove, Reserve, Unreserve
from autoscaler.model.cluster import CapacityBlock, Cluster, Group, Pod
from autoscaler.model.constraints import Taint, Toleration
from autoscaler.planner.explanation.explain import explain
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.node_cache import NodeCache
from tests import examples
from tests.builders import NOW, a_cluster, a_daemon_set, a_gang, a_group, a_pod, a_policy, an_entry, later, nodes_of

ID = "cr-0123456789abcdef0"
A_DAY = CapacityBlock(starts=later(hours=-1), ends=later(hours=23))
TAKEN_BACK = A_DAY.ends - timedelta(minutes=30)
BOOT, WARNED, CLOCKS = timedelta(minutes=15), timedelta(minutes=10), timedelta(seconds=5)
RESERVED = Taint(words.RESERVED)


def entry(**given: Any) -> GroupEntry:
    """Of the policy."""
    of_block = {"capacity_type": "capacity-block", "capacity_reservation": ID, "zones": ("us-east-1a",)}
    return an_entry("block", **of_block | given)


POLICY = a_policy(entry(), an_entry("gpu-a100"))
ON_DEMAND = a_group("gpu-a100", vcpus=96, quota="L-417A185B")


def of_block(block: CapacityBlock | None = A_DAY, *, room: int = 2, **given: Any) -> Group:
    """Its group, with room for so many more nodes."""
    terms = {"capacity_type": "capacity-block", "reservation": ID, "block": block, "usd_per_hour": 0.0}
    return a_group("block", **terms | {"vcpus": 96, "quota": ID, "quota_left": 96 * room} | given)


def decide(*pods: Pod, groups: Any = None, at: datetime = NOW, memory: Memory | None = None, **look: Any) -> Plan:
    """The plan for pods that wait."""
    cluster = a_cluster(pods=pods, groups=groups or (of_block(), ON_DEMAND), seen_at=at, **look)
    return plan(cluster, POLICY, memory or Memory())


def bought(done: Plan) -> dict[str, int]:
    """Nodes that are ordered, by entry."""
    return {step.group.removeprefix("local-").removesuffix("-us-east-1a"): step.by for step in grows(done)}


def grows(done: Plan) -> list[Grow]:
    """All purchases."""
    return [step for step in done.steps if isinstance(step, Grow)]


def job(name: str = "p", **given: Any) -> Pod:
    """Takes a node, for two hours if not said otherwise."""
    return a_pod(name, **{"gpus": 8, "duration": timedelta(hours=2)} | given)


def test_a_job_that_ends_in_its_time_is_bought_for_in_the_block_at_no_price() -> None:
    """It is paid for; what has no room there is bought beside it."""
    done = decide(job("a"), job("b"), job("c"))
    assert bought(done) == {"block": 2, "gpu-a100": 1}
    assert done.usd_per_hour == pytest.approx(ON_DEMAND.usd_per_hour)


LONG = timedelta(hours=22, minutes=30) - BOOT - WARNED


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"duration": LONG}, "block"),
        ({"duration": LONG + timedelta(seconds=1)}, "gpu-a100"),
        ({"duration": None}, "gpu-a100"),
        ({"duration": None, "safe_to_evict": True}, "block"),
        ({"duration": None, "tolerations": (Toleration("nvidia.com/gpu", "Exists"),)}, "gpu-a100"),
    ],
    ids=["to the second", "a second longer", "not said", "its owner lets it be evicted", "as most GPU pods"],
)
def test_nothing_is_placed_in_it_that_may_outlast_it(given: dict[str, Any], where: str) -> None:
    """Ten minutes before EC2 takes it back it is emptied, and a node needs time to join."""
    assert bought(decide(job(**given))) == {where: 1}


def test_a_job_says_that_it_may_be_cut_off() -> None:
    """By a toleration of this very block, or of any."""
    gpu = Toleration("nvidia.com/gpu", "Exists")
    for mine in (Toleration(words.CAPACITY_BLOCK, "Equal", ID), Toleration(words.CAPACITY_BLOCK, "Exists")):
        assert bought(decide(job(duration=None, tolerations=(gpu, mine)))) == {"block": 1}
    other = Toleration(words.CAPACITY_BLOCK, "Equal", "cr-0123456789abcdef1")
    assert bought(decide(job(duration=None, tolerations=(gpu, other)))) == {"gpu-a100": 1}


def test_what_it_was_planned_in_is_kept_for_it_while_the_node_joins() -> None:
    """The time for that was left when it was planned first."""
    held = of_block(joined=1)
    home = {"team/p": Assignment(held.name + "~1", held.name)}
    pod = job(duration=LONG)
    late = later(minutes=10)
    coming = replace(held, instances=(), desired=1)
    assert not grows(decide(pod, groups=(coming, ON_DEMAND), at=late, memory=Memory(assignments=home)))
    assert bought(decide(pod, groups=(coming, ON_DEMAND), at=late)) == {"gpu-a100": 1}


def test_nothing_is_bought_before_it_begins_and_that_is_what_is_told() -> None:
    """It is looked at again then."""
    tomorrow = CapacityBlock(later(hours=5), later(hours=29))
    only = a_policy(entry())
    cluster = a_cluster(pods=[job()], groups=(of_block(tomorrow),))
    done = plan(cluster, only, Memory())
    (waits,) = done.waiting
    assert not grows(done)
    assert done.wake_at == tomorrow.starts + CLOCKS
    assert waits.cause == PAUSED
    assert f"buying in group block waits: Capacity Block {ID} begins at 2026-11-21 14:00:00 UTC" in waits.because
    assert waits.would_fit_if == f"the time comes: Capacity Block {ID} begins at 2026-11-21 14:00:00 UTC"
    assert bought(plan(replace(cluster, seen_at=tomorrow.starts + CLOCKS), only, Memory())) == {"block": 1}
    lines = "\n".join(explain("group", "block", cluster, only, done))
    assert f"Capacity Block {ID}: from 2026-11-21 14:00:00 UTC, until EC2 takes back what is in it" in lines
    assert "nothing is bought: buying in group block waits" in lines


def test_nothing_is_bought_when_a_node_would_not_be_of_use_any_more() -> None:
    """Nor where it is not known when the block is."""
    last = TAKEN_BACK - WARNED - BOOT
    may_be_cut = job(safe_to_evict=True)
    assert bought(decide(may_be_cut, at=last - timedelta(seconds=1))) == {"block": 1}
    assert bought(decide(may_be_cut, at=last)) == {"gpu-a100": 1}
    assert bought(decide(may_be_cut, groups=(of_block(None), ON_DEMAND))) == {"gpu-a100": 1}


def test_what_would_let_a_job_in_is_told() -> None:
    """To say how long it runs, or that it may be cut off."""
    done = plan(a_cluster(pods=[job(duration=None)], groups=(of_block(),)), a_policy(entry()), Memory())
    (waits,) = done.waiting
    assert f"the pod does not say that it ends before Capacity Block {ID} does" in waits.because
    assert waits.would_fit_if.startswith("the pod says by spillway.dev/expected-duration that it ends before")
    assert waits.changes[0].as_json()["add"] == {
        "key": words.CAPACITY_BLOCK,
        "operator": "Equal",
        "value": ID,
        "effect": "NoSchedule",
    }


def test_its_nodes_are_emptied_and_ended_before_ec2_does() -> None:
    """From when EC2 warns, as for scheduled maintenance."""
    group = of_block(joined=1)
    (node,) = nodes_of(group)
    runs = job("r", node=node.name, phase="Running", started=NOW, owner="Job/r")

    def at(when: datetime, *pods: Pod) -> Plan:
        return decide(*pods, groups=(group, ON_DEMAND), nodes=(node,), at=when)

    before = at(TAKEN_BACK - WARNED - timedelta(seconds=1), runs)
    assert not [step for step in before.steps if isinstance(step, Cordon | Evict | Remove)]
    assert before.wake_at == TAKEN_BACK - WARNED
    cordon, evict = at(TAKEN_BACK - WARNED, runs).steps
    said = "its Capacity Block ends, and EC2 takes it back at 2026-11-22 07:30:00 UTC"
    assert cordon == Cordon(node.name, said)
    assert evict == Evict(node.name, ("team/r",), said)
    closed = replace(node, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=TAKEN_BACK - WARNED)
    ended = decide(groups=(group, ON_DEMAND), nodes=(closed,), at=TAKEN_BACK - timedelta(minutes=9))
    assert [step.instance for step in ended.steps if isinstance(step, Remove)] == [group.instances[0].id]


def test_its_nodes_stay_reserved_and_let_in_what_is_planned_there() -> None:
    """The scheduler puts nothing else on them; pods of another group's node are let loose."""
    group = of_block(joined=1)
    (node,) = nodes_of(group, taints=(*group.taints, RESERVED))
    done = decide(job(), groups=(group, ON_DEMAND), nodes=(node,))
    (let_in,) = [step for step in done.steps if isinstance(step, Reserve)]
    assert let_in.placements == (("team/p", node.name),)
    for block, opened in ((A_DAY, 0), (None, 1)):
        empty = decide(groups=(of_block(block, joined=1), ON_DEMAND), nodes=(node,))
        assert len([step for step in empty.steps if isinstance(step, Unreserve)]) == opened


def test_a_daemon_that_registers_its_devices_opens_it() -> None:
    """Without them no job could ever run there."""
    group = of_block(joined=1)
    lacking = {name: amount for name, amount in group.allocatable.items() if name != words.GPU}
    (node,) = nodes_of(group, taints=(*group.taints, RESERVED), allocatable=type(group.allocatable)(lacking))
    plugin = (a_daemon_set("nvidia-device-plugin", tolerations=(Toleration("nvidia.com/gpu", "Exists"),)),)
    done = decide(groups=(group, ON_DEMAND), nodes=(node,), daemon_sets=plugin)
    assert [step for step in done.steps if isinstance(step, Unreserve)]


def test_a_block_that_is_prolonged_is_seen_by_what_is_kept_from_look_to_look() -> None:
    """Its nodes promise something else then."""
    cache, pod = NodeCache(), job(duration=timedelta(hours=30))
    (node,) = nodes_of(of_block(joined=1))

    def look(block: CapacityBlock | None) -> Plan:
        cluster = a_cluster(pods=[pod], nodes=(node,), groups=(of_block(block, joined=1),))
        return plan(cluster, a_policy(entry()), Memory(), cache=cache)

    assert look(A_DAY).waiting
    assert look(replace(A_DAY, ends=later(hours=48))).memory.assignments["team/p"].node == node.name


@pytest.mark.parametrize(
    "wrong", [{"capacity_reservation": None}, {"min": 1}, {"zones": ("us-east-1a", "us-east-1b")}], ids=str
)
def test_an_entry_of_a_block_names_it_and_keeps_no_node(wrong: dict[str, Any]) -> None:
    """One zone, one type, none that would be launched again after its end."""
    with pytest.raises(ValueError, match="capacity"):
        entry(**wrong)


MINUTES = st.integers(-60 * 26, 60 * 50).map(lambda minutes: timedelta(minutes=minutes))
DURATIONS = st.none() | st.integers(1, 60 * 60).map(lambda minutes: timedelta(minutes=minutes))


@settings(max_examples=examples(60))
@example(now=timedelta(minutes=1470), days=1, gangs=[(None, True, 1)], joined=1, caches=False)
@given(
    now=MINUTES,
    days=st.integers(1, 2),
    gangs=st.lists(st.tuples(DURATIONS, st.booleans(), st.integers(1, 3)), min_size=1, max_size=3),
    joined=st.integers(0, 2),
    caches=st.booleans(),
)
def test_no_plan_buys_outside_its_time_or_places_what_outlasts_it(
    now: timedelta, days: int, gangs: list[tuple[timedelta | None, bool, int]], joined: int, *, caches: bool
) -> None:
    """Whatever waits, and whenever; from the warning on, nothing is placed there at all."""
    block = CapacityBlock(NOW, NOW + timedelta(days=days))
    group = of_block(block, joined=joined, room=3 - joined)
    pods: list[Pod] = []
    for number, (duration, safe, many) in enumerate(gangs):
        pods += a_gang(f"g{number}", pods=many, gpus=8, duration=duration, safe_to_evict=safe)
    cluster: Cluster = a_cluster(pods=pods, nodes=nodes_of(group), groups=(group, ON_DEMAND), seen_at=NOW + now)
    done = plan(cluster, POLICY, Memory(), cache=NodeCache() if caches else None)
    emptied = block.taken_back - WARNED
    for step in grows(done):
        if step.group == group.name:
            assert block.starts + CLOCKS <= cluster.seen_at < emptied - BOOT
    for key, home in done.memory.assignments.items():
        pod = next(one for one in pods if one.key == key)
        if home.group == group.name:
            assert cluster.seen_at < emptied
            assert pod.safe_to_evict or (pod.duration and cluster.seen_at + pod.duration + BOOT <= emptied)
    closed = {step.node for step in done.steps if isinstance(step, Cordon)}
    assert cluster.seen_at < emptied or closed == {node.name for node in cluster.nodes}
