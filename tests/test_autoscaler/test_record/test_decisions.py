"""What is written of a decision is read as it was, value for value."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.documents import parse_document
from autoscaler.config.policy import Policy, read_policy
from autoscaler.model.actions import (
    IMPOSSIBLE,
    Assignment,
    Backoff,
    Cancel,
    DeleteNode,
    Evict,
    FreeGpus,
    Grow,
    Memory,
    Nominate,
    Order,
    Plan,
    Release,
    Unused,
    Waiting,
)
from autoscaler.model.cluster import Cluster, GangSize, GpuHealth, GpuUse, Refusal
from autoscaler.model.constraints import PodTerm, Requirement, Spread, Toleration
from autoscaler.model.jobs import EarlyStep, LingeringJob, WaitingStep
from autoscaler.model.needed_changes import NeededChange
from autoscaler.model.pauses import Pause
from autoscaler.model.pod_index import pod_index_of
from autoscaler.model.resources import Resources
from autoscaler.model.volumes import NodeDrivers, Storage, Volume, VolumeClaim, VolumeClass
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.node_cache import NodeCache
from autoscaler.record.decisions import Decision, Reader, Scribe
from autoscaler.record.replay import again, differences
from tests import ROOT
from tests.builders import (
    NOW,
    a_cluster,
    a_daemon_set,
    a_gang,
    a_group,
    a_pod,
    a_policy,
    an_on_prem_node,
    later,
    nodes_of,
    selects,
)
from tests.test_autoscaler.test_planner.test_plan_properties import TICK, UNHURRIED, worlds, written
from tests.test_autoscaler.test_planner.test_supply.test_node_cache import Keeper
from tests.world import World

TERM = PodTerm("zone", (Requirement("app", "In", ("web",)),), frozenset({"team"}), namespace_selector=())
FULL = a_cluster(
    pods=[
        a_pod(
            affinity=(selects(zone="us-east-1a"),),
            apart_from=(TERM,),
            near_to=(replace(TERM, namespace_selector=None),),
            spread=(Spread("zone", 1, (), min_domains=2),),
            host_ports=frozenset({("TCP", 80)}),
            claims=("data",),
            ties=((selects(zone="a"), ()),),
            duration=timedelta(hours=1.5, microseconds=1),
            patience=timedelta(0),
            started=NOW,
            unread=("spillway.dev/duration: soon",),
            requests=Resources({"cpu": -5, "memory": 2**53}),
        ),
        *a_gang(minimum=1, topology="zone"),
    ],
    nodes=[an_on_prem_node(unready_since=NOW, cordoned=True, cordoned_by="us", cordoned_at=NOW)],
    groups=[a_group(joined=1, refusals=(Refusal(NOW, "InsufficientInstanceCapacity", "no"),), quota_left=0)],
    daemon_sets=(a_daemon_set(),),
    lingering=(LingeringJob("team", "ps", "job"),),
    workflow_steps=(WaitingStep("team", "train", "flow", ("prepare",), ("prepare",), failed="prepare"),),
    early_steps=(EarlyStep("team", "serve", ("train",), NOW),),
    gang_sizes={("team", "PodGroup/x"): GangSize(4, 2), ("team", "y"): GangSize(one_by_one=True)},
    storage=Storage(
        claims={("team", "data"): VolumeClaim("team", "data", modes=frozenset({"ReadWriteOnce"}), bytes=2**40)},
        volumes={"v": Volume("v", affinity=(selects(zone="a"),))},
        classes={"gp3": VolumeClass("gp3", topologies=(selects(zone="a"),))},
        drivers={"n": NodeDrivers("n", {"ebs": 25, "efs": None})},
    ),
    namespaces={"team": {"a": "b"}, "empty": {}},
    pauses=(Pause("group.cpu", "why", "me", NOW, None),),
    gpu_use=(GpuUse("team/pod", "dgx-01", 0.03),),
    gpu_health=(GpuHealth("dgx-01", "GPU 0: Xid 79", NOW), GpuHealth("dgx-02", None)),
)
MEMORY = Memory(
    backoffs={"g": Backoff(later(minutes=3), 2, NOW, "InsufficientInstanceCapacity")},
    assignments={"team/pod": Assignment("n", "g"), "team/other": Assignment("dgx-01")},
    draining={"n": NOW},
    orders={"g": Order(0, 2, NOW)},
    leftovers=frozenset({"i-1", "i-2"}),
    unused={"team/pod": Unused(NOW, later(minutes=5))},
)
STEPS = (
    Grow("g", 0, 2, 0.1 + 0.2, ("team/pod",), "because", at=NOW),
    Nominate((("team/pod", "n"), ("team/other", "")), "because"),
    Cancel("g", 2, 0, "because"),
    Evict("n", ("a/b",), "because"),
    FreeGpus(("a/b",), "because"),
    DeleteNode("n", "i-1", "because"),
    Release("g", "i-1", None, "because"),
)
TERM = PodTerm("zone", (Requirement("app", "In", ("db",)),), frozenset({"team"}))
CHANGES = (
    NeededChange("pod", pod="tolerations", toleration=Toleration("a", "Exists")),
    NeededChange("pod", pod="nodeAffinity", requirement=Requirement("b", "In", ("c",)), to="d"),
    NeededChange("policy", path="limits.gpus", to=12),
    NeededChange("money", path="limits.usd_per_hour", to=33.31),
    NeededChange("other", other="a pod runs", term=TERM, labels=(("zone", "a"),)),
)
PLAN = Plan(
    STEPS, (Waiting("team/pod", "é", CHANGES, cause=IMPOSSIBLE),), MEMORY, 1e-7, 0.0, ("warning",), later(hours=1)
)


def as_read(*decisions: Decision) -> list[Decision]:
    """What a reader makes of what a scribe writes of them."""
    scribe, reader = Scribe(), Reader()
    found = [reader.read(scribe.decided(one)) for one in decisions]
    assert all(isinstance(one, Decision) for one in found)
    return found  # type: ignore[return-value]


def in_full(decision: Decision) -> dict[str, Any]:
    """Every value; pods in their order, steps with what comparing leaves out."""
    cluster, memory = decision.cluster, decision.plan.memory
    return {
        "cluster": replace(cluster, pods=tuple(cluster.pods)),
        "policy": decision.policy,
        "memory": decision.memory,
        "plan": decision.plan,
        "repr": [repr(step) for step in decision.plan.steps],
        "order": [list(memory.assignments), list(decision.memory.assignments), list(cluster.gang_sizes)],
        "doubt": decision.doubt,
    }


def test_every_value_is_read_as_it_was_written() -> None:
    """Amounts, times, sets, tuples as keys; and none of them is another kind of thing."""
    decision = Decision(FULL, a_policy(limits={"gpus": 8}), MEMORY, PLAN, doubt="half of it is gone")
    [found] = as_read(decision)
    assert in_full(found) == in_full(decision)
    assert repr(found.cluster) == repr(decision.cluster)
    assert hash(next(iter(found.cluster.pods)).requests) == hash(next(iter(FULL.pods)).requests)


def test_what_has_not_changed_is_not_written_again() -> None:
    """A look that shows nothing new takes a line of a few dozen bytes, whatever the cluster holds."""
    many = [a_pod(f"p{number}", node="dgx-01") for number in range(500)]
    one = Decision(a_cluster(pods=many, nodes=[an_on_prem_node()]), a_policy(), Memory(), Plan())
    new = [*many[:100], replace(many[100], phase="Succeeded"), *many[102:], a_pod("new")]
    quiet = replace(one, cluster=replace(one.cluster, seen_at=later(minutes=1), pods=tuple(many)))
    changed = replace(one, cluster=replace(one.cluster, seen_at=later(minutes=2), pods=tuple(new)))
    scribe = Scribe()
    sizes = [len(scribe.decided(decision)) for decision in (one, quiet, changed)]
    assert sizes[0] > 100_000
    assert sizes[1] < 64
    assert sizes[2] < 2000
    assert [in_full(found) for found in as_read(one, quiet, changed)] == [in_full(d) for d in (one, quiet, changed)]


def test_things_that_were_made_anew_and_say_the_same_are_not_written_again() -> None:
    """Groups are, at each look at AWS."""
    one = Decision(a_cluster(), a_policy(), Memory(), Plan())
    same = Decision(a_cluster(), a_policy(), Memory(), Plan())
    scribe = Scribe()
    scribe.decided(one)
    assert scribe.decided(same) == b"{}\n"


@given(looks=st.lists(st.lists(st.integers(0, 9), unique=True), min_size=1, max_size=6), empty=st.booleans())
def test_lists_keep_their_order_whatever_comes_goes_and_changes(looks: list[list[int]], *, empty: bool) -> None:
    """Also where a thing moved, and where nothing is left."""
    pods = [a_pod(f"p{number}") for number in range(5)]
    made = [
        [pods[n] if n < 5 else a_pod(f"p{n - 5}", cpu=9) for n in look] for look in [*looks, *([[]] if empty else [])]
    ]
    decisions = [Decision(a_cluster(pods=look, groups=()), a_policy(), Memory(), Plan()) for look in made]
    assert [tuple(one.cluster.pods) for one in as_read(*decisions)] == [tuple(one.cluster.pods) for one in decisions]


@pytest.mark.parametrize("name", ["lab", "local"])
def test_policies_are_read_as_they_were(name: str) -> None:
    """Those that come with Spillway, and what a schedule makes of one."""
    policy = read_policy(ROOT / "autoscaler" / "policies" / f"{name}.yaml")
    text = (
        "{cluster: c, groups: [{name: a, instance_type: m5.large, zones: [us-east-1a], max: 3, idle_after: 1.5s,"
        " taints: [{key: example.com/a, value: b}]}], schedules: [{name: n, from: '20:00', to: '7:00', days: [sat],"
        " time_zone: Europe/Berlin, limits: {gpus: 4}, groups: {a: {max: 0}}}]}"
    )
    scheduled = parse_document(text, Policy, what="policy", source="text")
    for one in (policy, scheduled, scheduled.at(later(hours=15))):
        assert as_read(Decision(FULL, one, Memory(), Plan()))[0].policy == one


@given(world=worlds(operator=True))
@UNHURRIED
def test_what_is_read_is_decided_the_same_again(world: World) -> None:
    """Through a morning of trouble, bit for bit; what was found of the nodes before (a cache) has no say."""
    memory, decisions, keeper, cache = Memory(), [], Keeper(), NodeCache()
    for tick in range(8):
        look = replace(world.look(), pods=keeper.index(world.pods))
        decided = plan(look, world.policy, memory, cache=cache)
        decisions.append(Decision(look, world.policy, memory, decided))
        world.carry_out(decided)
        memory = written(decided)
        world.pass_time(TICK)
        if tick > 3:
            world.finish(0.5)
    for was, found in zip(decisions, as_read(*decisions), strict=True):
        assert in_full(found) == in_full(was)
        assert list(differences(found.plan, again(found))) == []


def test_a_file_that_does_not_begin_with_a_whole_decision_is_refused() -> None:
    """Values that were never read are not made up."""
    scribe = Scribe()
    scribe.decided(Decision(FULL, a_policy(), Memory(), Plan()))
    second = scribe.decided(Decision(a_cluster(), a_policy(), Memory(), Plan()))
    with pytest.raises(ValueError, match="does not begin with a whole decision"):
        Reader().read(second)


def test_sorted_pods_are_written_like_any_others() -> None:
    """The store hands over an index."""
    look = replace(FULL, pods=pod_index_of(FULL.pods), nodes=nodes_of(a_group(joined=2)))
    [found] = as_read(Decision(look, a_policy(), Memory(), Plan()))
    assert isinstance(found.cluster, Cluster)
    assert tuple(found.cluster.pods) == tuple(FULL.pods)
