"""New nodes that are kept for the pods that they were bought for, and purchases that wait for the scheduler."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from autoscaler.model import labels as words
from autoscaler.model.actions import Admit, Assignment, Grow, Memory, Nominate, Plan, Reserve, Step, Unreserve
from autoscaler.model.cluster import CapacityBlock, Cluster, DaemonSet, Node, Pod
from autoscaler.model.constraints import Spread, Taint, Toleration
from autoscaler.model.resources import Resources
from autoscaler.planner.plan import plan
from tests.builders import (
    NOW,
    a_cluster,
    a_gang,
    a_group,
    a_pod,
    a_policy,
    an_on_prem_node,
    later,
    nodes_of,
    selects,
)

T = TypeVar("T", bound=Step)
NO_PLACE = "0/1 nodes are available: 1 node had an untolerated taint."
BINDS_NEXT = "is reserved for it, and it tolerates spillway.dev/reserved: kube-scheduler binds it next"
GROUP = a_group("gpu-a10g", joined=1)


def reserved(node: Node, *, whose: str = "") -> Node:
    """The node with our taint, as it comes, or when pods have been let in."""
    return replace(node, taints=(*node.taints, Taint(words.RESERVED, whose)))


(BARE,) = nodes_of(GROUP)
NEW = reserved(BARE)
OURS = reserved(BARE, whose=BARE.instance_id or "")


def loose(name: str = "pod", **given: Any) -> Pod:
    """A pod without our gate that the scheduler has tried in vain."""
    return a_pod(name, **{"gpus": 1, "unschedulable_because": NO_PLACE} | given)


def let_in(pod: Pod, node: Node = BARE) -> Pod:
    """The pod when it tolerates what the node is reserved by."""
    own = Toleration(key=words.RESERVED, value=node.instance_id or "")
    return replace(pod, tolerations=(*pod.tolerations, own))


def decide(cluster: Cluster) -> Plan:
    """With the builders' policy."""
    return plan(cluster, a_policy(), Memory())


def steps(decided: Plan, kind: type[T]) -> list[T]:
    """The plan's steps of a kind."""
    return [step for step in decided.steps if isinstance(step, kind)]


def test_pods_are_let_onto_the_node_that_is_reserved_for_them_and_not_nominated() -> None:
    """When it is ready: no other pod can take their room."""
    pods = [loose("a", gpus=2), loose("b", gpus=2)]
    decided = decide(a_cluster(pods=pods, nodes=[NEW], groups=[GROUP]))
    assert [step.placements for step in steps(decided, Reserve)] == [(("team/a", NEW.name), ("team/b", NEW.name))]
    assert steps(decided, Nominate) == steps(decided, Unreserve) == steps(decided, Grow) == []
    assert {one.because for one in decided.waiting} == {
        f"its node {NEW.name} is reserved for it: it is given a toleration of spillway.dev/reserved now"
    }
    waits = decide(a_cluster(pods=pods, nodes=[replace(NEW, ready=False)], groups=[GROUP]))
    assert waits.steps == ()


def test_pods_that_were_let_in_stay_planned_there_and_the_node_stays_reserved() -> None:
    """Nothing is to be done but by the scheduler."""
    decided = decide(a_cluster(pods=[let_in(loose())], nodes=[OURS], groups=[GROUP]))
    assert decided.steps == ()
    (told,) = decided.waiting
    assert told.because == f"its node {OURS.name} {BINDS_NEXT}"


def test_a_taint_that_keeps_no_pod_off_is_not_taken_for_the_reservation() -> None:
    """A pod that was let in is not let in again where the node has another ``PreferNoSchedule`` taint besides."""
    other = Taint("team", "vision", "PreferNoSchedule")
    node = replace(OURS, taints=(*OURS.taints, other))
    assert decide(a_cluster(pods=[let_in(loose())], nodes=[node], groups=[GROUP])).steps == ()


def test_pods_spread_evenly_stay_where_they_were_let_in_whatever_the_others_do() -> None:
    """One at a time they are uneven; all together they are not, and to move them would go on for ever."""
    even = Spread(words.ZONE, max_skew=1, selector=selects(job="j"))
    group = a_group("gpu-a10g", "us-east-1b", joined=1)
    (other,) = nodes_of(group)
    pods = [let_in(loose(name, labels={"job": "j"}, spread=(even,)), other) for name in ("a", "b")]
    ours = reserved(other, whose=other.instance_id or "")
    decided = decide(a_cluster(pods=pods, nodes=[OURS, ours], groups=[GROUP, group]))
    assert steps(decided, Grow) == steps(decided, Reserve) == steps(decided, Nominate) == []
    assert {one.because for one in decided.waiting} == {f"its node {ours.name} {BINDS_NEXT}"}


def test_a_pod_that_was_let_in_where_there_is_no_room_any_more_is_planned_anew() -> None:
    """A pod that tolerates everything came first."""
    everything = (Toleration(operator="Exists"),)
    thief = loose("thief", gpus=4, node=OURS.name, phase="Running", tolerations=everything)
    decided = decide(a_cluster(pods=[thief, let_in(loose())], nodes=[OURS], groups=[GROUP]))
    assert [step.demand for step in steps(decided, Grow)] == [("team/pod",)]


def test_a_gang_behind_our_gate_is_let_in_before_its_gate_is_lifted() -> None:
    """With no pod nominated, though a pod without the gate waits as well."""
    gang = a_gang("g", 2, gpus=1)
    decided = decide(a_cluster(pods=[*gang, loose()], nodes=[NEW], groups=[GROUP]))
    kinds = [type(step) for step in decided.steps]
    assert kinds.index(Reserve) < kinds.index(Admit)
    assert {key for step in steps(decided, Reserve) for key, _ in step.placements} == {
        "team/g-worker-0",
        "team/g-worker-1",
        "team/pod",
    }
    assert steps(decided, Nominate) == []


def test_a_gang_without_our_gate_is_let_in_together() -> None:
    """Not before as many as must be together have a node that is ready."""
    gang = [replace(pod, gates=(), unschedulable_because=NO_PLACE) for pod in a_gang("g", 2, gpus=4)]
    group = a_group("gpu-a10g", joined=2)
    one, two = map(reserved, nodes_of(group))
    early = decide(a_cluster(pods=gang, nodes=[one, replace(two, ready=False)], groups=[group]))
    assert early.steps == ()
    assert "waits for its gang team/g: 1 of at least 2 pods have a node that is ready" in {
        one.because for one in early.waiting
    }
    decided = decide(a_cluster(pods=gang, nodes=[one, two], groups=[group]))
    assert [len(step.placements) for step in steps(decided, Reserve)] == [2]


def test_a_pod_that_was_pinned_and_not_let_in_is_let_in_later() -> None:
    """We were stopped in between."""
    pinned = a_pod(gpus=1, selector={"host": NEW.name}, admitted_to=NEW.name)
    decided = decide(a_cluster(pods=[pinned], nodes=[NEW], groups=[GROUP]))
    assert [step.placements for step in steps(decided, Reserve)] == [(("team/pod", NEW.name),)]
    early = decide(a_cluster(pods=[pinned], nodes=[replace(NEW, ready=False)], groups=[GROUP]))
    assert steps(early, Reserve) == []


def test_a_gang_whose_gate_is_not_lifted_yet_is_not_let_in() -> None:
    """The room of one of its pods on a machine of ours is not yet kept from a pod without the gate."""
    gang = a_gang("g", 2, gpus=4)
    machine = an_on_prem_node(gpus=4)
    decided = decide(a_cluster(pods=[*gang, loose(gpus=3)], nodes=[machine, NEW], groups=[GROUP]))
    assert [key for step in steps(decided, Nominate) for key, _ in step.placements] == ["team/g-worker-0"]
    assert steps(decided, Admit) == steps(decided, Reserve) == []


def test_a_pod_whose_node_is_on_its_way_is_not_sent_to_what_is_left_over_on_a_reserved_one() -> None:
    """The scheduler would not send it there either."""
    group = a_group("gpu-a10g", joined=1, desired=2)
    others = let_in(loose("others", gpus=3, node=OURS.name, phase="Running"))
    memory = Memory(assignments={"team/late": Assignment("to come", group.name)})
    cluster = a_cluster(pods=[others, loose("late")], nodes=[OURS], groups=[group])
    decided = plan(cluster, a_policy(), memory)
    assert steps(decided, Reserve) == []
    assert decided.memory.assignments["team/late"].node != OURS.name


def test_a_node_is_opened_when_those_that_it_was_reserved_for_are_there() -> None:
    """Or no pod is expected at all."""
    there = let_in(loose(node=OURS.name, phase="Running"))
    decided = decide(a_cluster(pods=[there], nodes=[OURS], groups=[GROUP]))
    assert [step.nodes for step in steps(decided, Unreserve)] == [(OURS.name,)]
    empty = decide(a_cluster(nodes=[NEW], groups=[GROUP]))
    assert [step.nodes for step in steps(empty, Unreserve)] == [(NEW.name,)]


def test_a_node_stays_reserved_while_a_pod_without_our_gate_waits_for_another_and_would_fit() -> None:
    """It would leave its own node empty. Where it does not fit, it is no reason."""
    group = a_group("gpu-a10g", joined=2)
    one, two = nodes_of(group)
    full = loose("full", gpus=3, node=one.name, phase="Running")
    nodes = [reserved(one, whose=one.instance_id or ""), reserved(two, whose=two.instance_id or "")]
    small = let_in(loose("small", gpus=1), two)
    kept = decide(a_cluster(pods=[full, small], nodes=nodes, groups=[group]))
    assert steps(kept, Unreserve) == []
    large = let_in(loose("large", gpus=2), two)
    opened = decide(a_cluster(pods=[full, large], nodes=nodes, groups=[group]))
    assert [step.nodes for step in steps(opened, Unreserve)] == [(one.name,)]
    (behind,) = a_gang("g", 1, gpus=1)
    elsewhere = Memory(assignments={behind.key: Assignment(two.name, group.name)})
    nodes[1] = replace(nodes[1], ready=False)
    gated = plan(a_cluster(pods=[full, behind], nodes=nodes, groups=[group]), a_policy(), elsewhere)
    assert [step.nodes for step in steps(gated, Unreserve)] == [(one.name,)]


def test_no_node_is_reserved_for_longer_than_a_machine_has_to_join() -> None:
    """Whatever keeps those from binding that it is reserved for."""
    cluster = a_cluster(pods=[let_in(loose())], nodes=[OURS], groups=[GROUP])
    decided = decide(replace(cluster, seen_at=later(minutes=16)))
    assert [step.because for step in steps(decided, Unreserve)] == ["it has been reserved for long enough"]


def test_a_node_whose_devices_a_daemon_set_may_register_is_opened_for_it() -> None:
    """One that tolerates everything is there already."""
    lacking = Resources({name: amount for name, amount in NEW.allocatable.items() if name != words.GPU})
    node = replace(NEW, allocatable=lacking)
    plugin = DaemonSet("kube-system", "plugin", Resources(), tolerations=(Toleration(words.GPU, "Exists"),))
    decided = decide(a_cluster(pods=[loose()], nodes=[node], groups=[GROUP], daemon_sets=[plugin]))
    (step,) = steps(decided, Unreserve)
    assert step.because == "its devices are not there yet, and DaemonSet kube-system/plugin is kept off it"
    everywhere = replace(plugin, tolerations=(Toleration(operator="Exists"),))
    waits = decide(a_cluster(pods=[loose()], nodes=[node], groups=[GROUP], daemon_sets=[everywhere]))
    assert steps(waits, Unreserve) == []


def test_a_node_of_a_capacity_block_stays_reserved_unless_that_keeps_its_devices_away() -> None:
    """For whatever ends within the block; once its devices are there, nothing keeps them away."""
    block = CapacityBlock(later(hours=-1), later(hours=23))
    group = replace(GROUP, block=block)
    plugin = DaemonSet("kube-system", "plugin", Resources(), tolerations=(Toleration(words.GPU, "Exists"),))
    lacking = Resources({name: amount for name, amount in NEW.allocatable.items() if name != words.GPU})
    for node, daemon_sets, opened in (
        (NEW, [], False),
        (NEW, [plugin], False),
        (replace(NEW, allocatable=lacking), [], False),
        (replace(NEW, allocatable=lacking), [plugin], True),
    ):
        decided = decide(a_cluster(pods=[], nodes=[node], groups=[group], daemon_sets=daemon_sets))
        assert bool(steps(decided, Unreserve)) is opened, (node.allocatable, daemon_sets)


def test_the_taint_on_a_machine_that_is_no_group_s_is_a_taint_like_any_other() -> None:
    """Whoever put it there takes it off."""
    node = replace(an_on_prem_node(), taints=(Taint(words.RESERVED),))
    decided = decide(a_cluster(pods=[loose()], nodes=[node], groups=[replace(GROUP, desired=0, instances=())]))
    assert [type(step) for step in decided.steps] == [Grow]


def not_tried_yet(name: str, **given: Any) -> Pod:
    """A pod that has come this moment."""
    return loose(name, **{"created": NOW, "unschedulable_because": ""} | given)


def test_nothing_is_bought_for_a_pod_that_the_scheduler_may_find_room_for_at_this_moment() -> None:
    """The plan has another in that room. When the scheduler has spoken, or is not heard of, it is bought for."""
    pods = [not_tried_yet("a", gpus=8), not_tried_yet("b", gpus=8)]
    cluster = a_cluster(pods=pods, nodes=[an_on_prem_node()], groups=[a_group("gpu-a100")])
    decided = decide(cluster)
    assert steps(decided, Grow) == []
    assert decided.wake_at == later(seconds=3.04)
    assert len(steps(decide(replace(cluster, seen_at=later(seconds=3.04))), Grow)) == 1
    tried = [replace(pod, unschedulable_because=NO_PLACE) for pod in pods]
    assert len(steps(decide(a_cluster(pods=tried, nodes=cluster.nodes, groups=cluster.groups)), Grow)) == 1


def test_a_scheduler_with_hundreds_of_pods_to_try_is_heard_for_longer() -> None:
    """It binds some 50 in a second; half a minute is the most."""
    groups = [a_group("gpu-a100", maximum=9999)]
    for many, seconds in ((500, 13), (3000, 30)):
        pods = [not_tried_yet(f"p-{number}", gpus=8) for number in range(many)]
        decided = decide(a_cluster(pods=pods, nodes=[an_on_prem_node()], groups=groups))
        assert decided.wake_at == later(seconds=seconds)


def test_a_plan_of_which_a_part_must_wait_buys_nothing() -> None:
    """What is bought for one alone could be taken by another, and be bought again."""
    pods = [not_tried_yet("a", gpus=8), not_tried_yet("b", gpus=8), a_pod("cpu", cpu=200)]
    cluster = a_cluster(pods=pods, nodes=[an_on_prem_node(cpu=8)], groups=[a_group("gpu-a100"), a_group("cpu")])
    pods[2] = a_pod("cpu", cpu=12)
    assert steps(decide(replace(cluster, pods=tuple(pods))), Grow) == []
    alone = replace(cluster, pods=(pods[2],))
    assert len(steps(decide(alone), Grow)) == 1


def test_a_pod_that_fits_nowhere_is_bought_for_at_once() -> None:
    """The scheduler need not have tried it."""
    pods = [not_tried_yet("a", gpus=8)]
    cluster = a_cluster(pods=pods, nodes=[an_on_prem_node(gpus=4)], groups=[a_group("gpu-a100")])
    assert len(steps(decide(cluster), Grow)) == 1
    gang = a_gang("g", 2, gpus=8, created=NOW)
    behind = a_cluster(pods=gang, nodes=[an_on_prem_node()], groups=[a_group("gpu-a100")])
    assert len(steps(decide(behind), Grow)) == 1


def test_the_boot_timeout_of_the_policy_is_how_long_a_node_may_be_reserved() -> None:
    """As long as a machine may take to join."""
    policy = a_policy().model_copy(
        update={"scale_up": a_policy().scale_up.model_copy(update={"boot_timeout": timedelta(0)})}
    )
    decided = plan(a_cluster(pods=[let_in(loose())], nodes=[OURS], groups=[GROUP]), policy, Memory())
    assert [step.nodes for step in steps(decided, Unreserve)] == [(OURS.name,)]
