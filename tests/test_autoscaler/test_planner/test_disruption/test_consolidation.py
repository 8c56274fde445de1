"""Nodes that are emptied to save their price: which, when, and what is never moved."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.policy import Consolidation, Policy
from autoscaler.kube.memory_configmap import as_memory, as_text
from autoscaler.model import labels as words
from autoscaler.model.actions import Cordon, Evict, Grow, Memory, Plan, Remove, Step, Uncordon
from autoscaler.model.cluster import Cluster, GangRef, Group, Node, Notice, Pod
from autoscaler.model.pauses import Pause
from autoscaler.planner.disruption.consolidation_candidates import why_not_emptied, why_not_moved
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.fleet import survey
from tests.builders import (
    NOW,
    TOLERATES_GPU,
    a_cluster,
    a_group,
    a_pod,
    a_policy,
    an_entry,
    an_on_prem_node,
    later,
    nodes_of,
)

LATER = later(hours=2)


def web(name: str = "web", **given: Any) -> Pod:
    """A pod of a Deployment that has run for two hours, on a GPU node if need be."""
    ordinary = {"owner": "ReplicaSet/web", "phase": "Running", "started": NOW, "tolerations": (TOLERATES_GPU,)}
    return a_pod(name, **ordinary | given)


def decide(cluster: Cluster, policy: Policy | None = None, memory: Memory | None = None) -> Plan:
    """The plan for it."""
    return plan(cluster, policy or a_policy(), memory or Memory())


def standing(entry: str = "gpu-a100", **given: Any) -> tuple[Group, Node]:
    """A group of one node."""
    group = a_group(entry, joined=1)
    return group, nodes_of(group, **given)[0]


def evicted(steps: tuple[Step, ...]) -> list[str]:
    """Keys of all pods that are."""
    return [key for step in steps if isinstance(step, Evict) for key in step.pods]


def test_a_small_pod_does_not_keep_a_large_node_for_ever() -> None:
    """It has room on a machine that we own: the node is closed, then emptied; what is saved is said."""
    group, node = standing()
    home = an_on_prem_node(gpus=0)
    decided = decide(a_cluster(pods=[web(node=node.name)], nodes=[node, home], groups=[group], seen_at=LATER))
    cordon, evict = decided.steps
    assert isinstance(cordon, Cordon)
    assert isinstance(evict, Evict)
    assert (cordon.node, evict.node, evict.pods) == (node.name, node.name, ("team/web",))
    assert "saves 21.96 $/h" in cordon.because
    assert "dgx-01" in cordon.because


@pytest.mark.parametrize(
    "kept",
    [
        {"owner": ""},
        {"owner": "Job/train"},
        {"gpus": 1},
        {"do_not_disrupt": True, "safe_to_evict": True},
        {"gang": GangRef("team", "g", size=1), "safe_to_evict": True},
        {"not_understood": ("resource claims (g)",)},
        {"started": later(hours=1, minutes=55)},
        {"started": None},
        {"started": NOW, "duration": timedelta(hours=2, minutes=5)},
        {"selector": {"host": "ip-i-local-gpu-a100-us-east-1a-0"}},
    ],
    ids=str,
)
def test_what_may_not_be_moved_keeps_its_node(kept: dict[str, Any]) -> None:
    """Also beside a pod that may be, and though there is room for both."""
    group, node = standing()
    pods = [web(node=node.name), web("kept", node=node.name, **kept)]
    home = an_on_prem_node()
    assert decide(a_cluster(pods=pods, nodes=[node, home], groups=[group], seen_at=LATER)).steps == ()


@pytest.mark.parametrize("moved", [{"owner": "Job/train"}, {"owner": ""}, {"gpus": 2}], ids=str)
def test_its_owner_may_say_that_a_pod_may_be_moved(moved: dict[str, Any]) -> None:
    """With the word of the Kubernetes autoscaler."""
    group, node = standing()
    pods = [web(node=node.name, safe_to_evict=True, **moved)]
    decided = decide(a_cluster(pods=pods, nodes=[node, an_on_prem_node()], groups=[group], seen_at=LATER))
    assert evicted(decided.steps) == ["team/web"]


@pytest.mark.parametrize(
    ("group", "node", "rules"),
    [
        ({"minimum": 1}, {}, {}),
        ({}, {"do_not_disrupt": True}, {}),
        ({}, {"cordoned": True, "cordoned_by": "ada"}, {}),
        ({}, {}, {"enabled": False}),
        ({}, {}, {"saving_usd_per_hour": 22.0}),
    ],
    ids=str,
)
def test_a_node_that_is_to_stay_is_not_emptied(
    group: dict[str, Any], node: dict[str, Any], rules: dict[str, Any]
) -> None:
    """By its group's minimum, a mark, another's cordon, the policy."""
    there = a_group(joined=1, **group)
    (one,) = nodes_of(there, **node)
    policy = a_policy(scale_down={"consolidation": Consolidation(**rules)})
    look = a_cluster(pods=[web(node=one.name)], nodes=[one, an_on_prem_node()], groups=[there], seen_at=LATER)
    assert evicted(decide(look, policy).steps) == []


def test_a_cheaper_node_is_bought_first_and_the_pods_are_moved_when_it_is_there() -> None:
    """Bought once; while it boots, and while its devices are missing, nothing moves and nothing more is bought."""
    group, node = standing()
    cpu = a_group("cpu")
    pods = [web(node=node.name)]
    first = decide(a_cluster(pods=pods, nodes=[node], groups=[group, cpu], seen_at=LATER))
    (grow,) = first.steps
    assert isinstance(grow, Grow)
    assert (grow.group, grow.to) == (cpu.name, 1)
    assert "saves 21.19 $/h" in grow.because

    ordered = replace(cpu, desired=1)
    assert decide(a_cluster(pods=pods, nodes=[node], groups=[group, ordered], seen_at=LATER)).steps == ()

    joined = a_group("cpu", joined=1)
    unready = nodes_of(joined, ready=False, created=LATER)
    assert decide(a_cluster(pods=pods, nodes=[node, *unready], groups=[group, joined], seen_at=LATER)).steps == ()

    ready = nodes_of(joined, created=LATER)
    last = decide(a_cluster(pods=pods, nodes=[node, *ready], groups=[group, joined], seen_at=LATER))
    assert [type(step) for step in last.steps] == [Cordon, Evict]
    assert evicted(last.steps) == ["team/web"]


def test_pods_are_not_moved_onto_an_idle_node_that_would_save_as_much_by_going() -> None:
    """Neither evicted for it, nor does the idle node stay for them."""
    group = a_group(joined=2)
    used, idle = nodes_of(group)
    steps = decide(a_cluster(pods=[web(node=used.name)], nodes=[used, idle], groups=[group], seen_at=LATER)).steps
    assert [(type(step), getattr(step, "node", "")) for step in steps] == [(Cordon, idle.name)]


@pytest.mark.parametrize("kept", ["by a mark", "by its minimum", "by a pause"])
def test_pods_are_moved_onto_an_idle_node_that_stays_anyway(kept: str) -> None:
    """What is saved is the whole price."""
    group, node = standing()
    other = a_group("gpu-a10g", joined=1, minimum=int(kept == "by its minimum"))
    idle = nodes_of(other, do_not_disrupt=kept == "by a mark")
    pauses = (Pause("group.gpu-a10g"),) if kept == "by a pause" else ()
    pods = [web(node=node.name)]
    look = a_cluster(pods=pods, nodes=[node, *idle], groups=[group, other], seen_at=LATER, pauses=pauses)
    cordon, evict = decide(look).steps
    assert isinstance(cordon, Cordon)
    assert "saves 21.96 $/h" in cordon.because
    assert evicted((evict,)) == ["team/web"]


def test_pods_are_not_moved_to_and_fro_between_nodes_of_the_headroom() -> None:
    """The scheduler may put them on its node, in whose place theirs would be kept, which saves nothing."""
    group, node = standing()
    free = a_group("gpu-a100", "us-east-1b", joined=1, minimum=1)
    small = a_group("gpu-a10g", joined=1, minimum=1)
    nodes = [node, *nodes_of(free), *nodes_of(small)]
    look = a_cluster(pods=[web(node=node.name)], nodes=nodes, groups=[group, free, small], seen_at=LATER)
    entries = an_entry(), an_entry("gpu-a10g")
    assert evicted(decide(look, a_policy(*entries)).steps) == ["team/web"]
    assert evicted(decide(look, a_policy(an_entry(headroom=1), entries[1])).steps) == []
    cheap = a_group("cpu", joined=1)
    with_cheap = replace(look, nodes=(*look.nodes, *nodes_of(cheap)), groups=(*look.groups, cheap))
    both = a_policy(an_entry(headroom=1), entries[1], an_entry("cpu", headroom=1))
    assert evicted(decide(with_cheap, both).steps) == []


def test_a_node_that_the_headroom_lacks_is_emptied_for_it() -> None:
    """No other may be bought: nothing is saved, and that is not said."""
    group, node = standing()
    look = a_cluster(pods=[web(node=node.name)], nodes=[node, an_on_prem_node()], groups=[group], seen_at=LATER)
    cordon, evict = decide(look, a_policy(an_entry(max=1, headroom=1))).steps
    assert isinstance(cordon, Cordon)
    assert cordon.because == "its pods (1) have room on dgx-01: it is kept for the headroom of group gpu-a100"
    assert evicted((evict,)) == ["team/web"]


def test_pods_that_do_not_go_onto_a_node_of_the_headroom_are_moved_elsewhere() -> None:
    """As they do not tolerate its taint."""
    small, free = a_group("cpu", joined=1), a_group(joined=1)
    (node,) = nodes_of(small)
    look = a_cluster(
        pods=[web(node=node.name, tolerations=())],
        nodes=[node, *nodes_of(free), an_on_prem_node(gpus=0)],
        groups=[small, free],
        seen_at=LATER,
    )
    policy = a_policy(an_entry(headroom=1), an_entry("cpu"))
    assert evicted(decide(look, policy).steps) == ["team/web"]
    tolerates = replace(look, pods=(web(node=node.name),))
    assert evicted(decide(tolerates, policy).steps) == []


def test_pods_are_moved_onto_an_idle_node_that_is_cheaper_and_what_that_saves_is_said() -> None:
    """The difference, for the idle node goes otherwise; and only where that is enough."""
    group, node = standing()
    cheaper = a_group("cpu", joined=1)
    look = a_cluster(
        pods=[web(node=node.name)], nodes=[node, *nodes_of(cheaper)], groups=[group, cheaper], seen_at=LATER
    )
    cordon, evict = decide(look).steps
    assert isinstance(cordon, Cordon)
    assert "saves 21.19 $/h" in cordon.because
    assert evicted((evict,)) == ["team/web"]
    enough = a_policy(scale_down={"consolidation": Consolidation(saving_usd_per_hour=21.5)})
    assert evicted(decide(look, enough).steps) == []


def test_pods_are_not_moved_onto_a_node_above_a_limit() -> None:
    """Not even a cheaper one, which would stay for them, while the limit is exceeded: it goes at once."""
    group, node = standing()
    cheaper = a_group("cpu", joined=1)
    (idle,) = nodes_of(cheaper)
    look = a_cluster(pods=[web(node=node.name)], nodes=[node, idle], groups=[group, cheaper], seen_at=LATER)
    steps = decide(look, a_policy(limits={"nodes": 1})).steps
    assert [(type(step), getattr(step, "node", "")) for step in steps] == [(Cordon, idle.name)]


def test_no_replacement_is_bought_beside_a_node_for_the_headroom() -> None:
    """Each of the two counts with what is left under the limits before the plan."""
    group, node = standing()
    groups = [group, a_group("cpu"), a_group("gpu-a10g")]
    look = a_cluster(pods=[web(node=node.name)], nodes=[node], groups=groups, seen_at=LATER)
    policy = a_policy(an_entry(), an_entry("cpu"), an_entry("gpu-a10g", headroom=1))
    assert [step.group for step in decide(look, policy).steps if isinstance(step, Grow)] == [groups[2].name]


def test_no_replacement_is_bought_above_the_limit_of_money() -> None:
    """For a while both run."""
    group, node = standing()
    policy = a_policy(limits={"usd_per_hour": 22.0})
    assert (
        decide(
            a_cluster(pods=[web(node=node.name)], nodes=[node], groups=[group, a_group("cpu")], seen_at=LATER), policy
        ).steps
        == ()
    )


def test_so_many_are_emptied_at_a_time_and_in_each_window() -> None:
    """The next one follows when the window is over, also where the plan's memory is all that tells."""
    group = a_group(joined=3)
    nodes = nodes_of(group)
    pods = [web(f"web-{number}", node=node.name) for number, node in enumerate(nodes)]
    home = an_on_prem_node()
    first = decide(a_cluster(pods=pods, nodes=[*nodes, home], groups=[group], seen_at=LATER))
    assert evicted(first.steps) == ["team/web-0"]
    assert first.memory.draining == {nodes[0].name: LATER}

    closed = replace(nodes[0], cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=LATER)
    emptied = [replace(pods[0], node=home.name), *pods[1:]]
    soon = a_cluster(
        pods=emptied, nodes=[closed, *nodes[1:], home], groups=[group], seen_at=LATER + timedelta(minutes=9)
    )
    again = decide(soon, memory=first.memory)
    assert again.steps == ()
    assert again.wake_at == LATER + timedelta(minutes=10)
    third = decide(replace(soon, seen_at=LATER + timedelta(minutes=10)), memory=again.memory)
    assert evicted(third.steps) == ["team/web-1"]
    assert [step.node for step in third.steps if isinstance(step, Remove)] == [nodes[0].name]


def test_the_next_node_waits_for_one_that_is_not_empty_yet() -> None:
    """Also when its window is over: so many at a time."""
    group = a_group(joined=2)
    going, other = nodes_of(group)
    closed = replace(going, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=LATER)
    pods = [web("web-0", node=going.name), web("web-1", node=other.name)]
    nodes = [closed, other, an_on_prem_node()]
    look = a_cluster(pods=pods, nodes=nodes, groups=[group], seen_at=LATER + timedelta(minutes=11))
    assert evicted(decide(look, memory=Memory(draining={going.name: LATER})).steps) == ["team/web-0"]


def test_a_node_that_does_not_get_empty_is_opened_again_and_left_alone() -> None:
    """A PodDisruptionBudget forbids it, for example; until then its pods are tried again and again."""
    group, node = standing()
    closed = replace(node, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=LATER)
    memory = Memory(draining={node.name: LATER})
    look = a_cluster(pods=[web(node=node.name)], nodes=[closed, an_on_prem_node()], groups=[group], seen_at=LATER)
    going = decide(replace(look, seen_at=LATER + timedelta(minutes=14)), memory=memory)
    assert [type(step) for step in going.steps] == [Evict]
    ended = decide(replace(look, seen_at=LATER + timedelta(minutes=15)), memory=memory)
    assert ended.steps == (Uncordon(node=node.name, because="team/web runs on it"),)
    opened = replace(look, nodes=(node, an_on_prem_node()), seen_at=LATER + timedelta(minutes=59))
    assert decide(opened, memory=ended.memory).steps == ()
    assert evicted(decide(replace(opened, seen_at=LATER + timedelta(hours=1)), memory=ended.memory).steps) == [
        "team/web"
    ]


def test_a_node_that_was_begun_with_and_never_closed_is_begun_with_again() -> None:
    """Who wrote that down was killed before it closed the node: it is not one that could not be emptied."""
    group, node = standing()
    look = a_cluster(pods=[web(node=node.name)], nodes=[node, an_on_prem_node()], groups=[group], seen_at=LATER)
    first = decide(look)
    assert [type(step) for step in first.steps] == [Cordon, Evict]
    later = replace(look, seen_at=LATER + timedelta(minutes=10))
    assert evicted(decide(later, memory=as_memory(as_text(first.memory))).steps) == ["team/web"]


def test_a_node_that_a_pending_pod_needs_is_not_emptied_any_further() -> None:
    """It is opened for the pod."""
    group, node = standing()
    closed = replace(node, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=LATER)
    pods = [web(node=node.name), a_pod("train", gpus=8)]
    look = a_cluster(pods=pods, nodes=[closed, an_on_prem_node(gpus=0)], groups=[group], seen_at=LATER)
    steps = decide(look, memory=Memory(draining={node.name: LATER})).steps
    assert evicted(steps) == []
    assert [step.node for step in steps if isinstance(step, Uncordon)] == [node.name]


@given(st.data())
def test_after_an_eviction_every_pod_has_a_place_and_nothing_is_bought_for_it(data: st.DataObject) -> None:
    """Nothing is moved that may not be, and no move costs money later."""
    group, cpu = a_group(joined=2), a_group("cpu", joined=2)
    nodes = [*nodes_of(group), *nodes_of(cpu), an_on_prem_node(cpu=8)]
    kinds = st.fixed_dictionaries(
        {
            "node": st.sampled_from([node.name for node in nodes]),
            "cpu": st.integers(1, 6),
            "owner": st.sampled_from(["ReplicaSet/web", "ReplicaSet/web", "StatefulSet/db", "Job/train", ""]),
            "gpus": st.sampled_from([0, 0, 0, 1]),
            "do_not_disrupt": st.sampled_from([False, False, False, True]),
        }
    )
    pods = [web(f"pod-{number}", **one) for number, one in enumerate(data.draw(st.lists(kinds, max_size=8)))]
    look = a_cluster(pods=pods, nodes=nodes, groups=[group, cpu], seen_at=LATER)
    decided = decide(look)
    moved = set(evicted(decided.steps))
    assert not any(why_not_moved(pod) for pod in pods if pod.key in moved)
    closed = {step.node for step in decided.steps if isinstance(step, Cordon)}
    after = replace(
        look,
        pods=tuple(
            replace(pod, uid="new", node=None, phase="Pending", started=None) if pod.key in moved else pod
            for pod in pods
        ),
        nodes=tuple(
            replace(node, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=LATER)
            if node.name in closed
            else node
            for node in nodes
        ),
    )
    if moved:
        follows = decide(after, memory=decided.memory)
        assert not [step for step in follows.steps if isinstance(step, Grow)]
        assert moved <= set(follows.memory.assignments)
        emptied = {step.node for step in decided.steps if isinstance(step, Evict)}
        assert not emptied & {home.node for home in follows.memory.assignments.values()}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, ""),
        ({"do_not_disrupt": True}, "it is marked do-not-disrupt"),
        ({"gang": GangRef("team", "g", size=1)}, "it is of a gang"),
        ({"not_understood": ("x",)}, "it has rules that Spillway does not plan for"),
        ({"not_understood": ("x",), "safe_to_evict": True}, "it has rules that Spillway does not plan for"),
        ({"owner": ""}, "no controller would make it anew"),
        ({"gpus": 1}, "it holds a GPU"),
        ({"owner": "Job/train"}, "it is of a Job, and would begin again"),
        ({"owner": "Job/train", "safe_to_evict": True}, ""),
    ],
)
def test_why_a_pod_is_not_moved_is_said(given: dict[str, Any], why: str) -> None:
    """In words, by the first reason."""
    assert why_not_moved(web(**given)) == why


def test_one_node_is_begun_with_at_a_look_also_where_two_could_be_replaced() -> None:
    """What is bought for the first is seen by the next look."""
    group = a_group(joined=2)
    nodes = nodes_of(group)
    pods = [web(f"web-{node.name}-{number}", node=node.name, cpu=14) for number in range(4) for node in nodes]
    decided = decide(a_cluster(pods=pods, nodes=nodes, groups=[group, a_group("cpu")], seen_at=LATER))
    [grow] = [step for step in decided.steps if isinstance(step, Grow)]
    assert (grow.to - grow.was, evicted(decided.steps)) == (2, [])
    assert grow.because == f"the pods of {nodes[0].name} (p4d.24xlarge) need no more than that: saves 20.42 $/h"


@pytest.mark.parametrize("is_taken_back", [True, False])
def test_no_node_is_bought_in_a_group_that_loses_one_to_ec2_first(is_taken_back: bool) -> None:  # noqa: FBT001
    """The order would start from a desired capacity that is another by then: it waits for the next look."""
    dear, node = standing()
    cheap = a_group("cpu", joined=1)
    (taken,) = nodes_of(cheap, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=LATER)
    notice = Notice(cheap.instances[0].id, "interruption", LATER, LATER + timedelta(minutes=1))
    pods, nodes = [web(node=node.name, cpu=4)], [node, taken] if is_taken_back else [node]
    cheap = cheap if is_taken_back else a_group("cpu")
    policy = a_policy(an_entry(), an_entry("cpu"))
    look = a_cluster(pods=pods, nodes=nodes, groups=[dear, cheap], notices=(notice,), seen_at=LATER)
    steps = decide(look, policy).steps
    assert [type(step) for step in steps] == ([Remove] if is_taken_back else [Grow])


@pytest.mark.parametrize(("limit", "bought"), [(2, []), (3, ["local-gpu-a10g-us-east-1a"])])
def test_nodes_of_a_group_that_loses_one_count_under_the_limits(limit: int, bought: list[str]) -> None:
    """What EC2 takes back is there until it has."""
    dear, node = standing()
    cheap = a_group("cpu", joined=1)
    (taken,) = nodes_of(cheap, cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=LATER)
    notice = Notice(cheap.instances[0].id, "interruption", LATER, LATER + timedelta(minutes=1))
    groups = [dear, cheap, a_group("gpu-a10g")]
    look = a_cluster(
        pods=[web(node=node.name, cpu=4)], nodes=[node, taken], groups=groups, notices=(notice,), seen_at=LATER
    )
    policy = a_policy(an_entry(), an_entry("cpu"), an_entry("gpu-a10g"), limits={"nodes": limit})
    assert [step.group for step in decide(look, policy).steps if isinstance(step, Grow)] == bought


NOTICED = (Notice(a_group(joined=1).instances[0].id, "rebalance", LATER),)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "its pods have room nowhere else"),
        ({"down": {"enabled": False}}, "scale_down.enabled is false"),
        ({"rules": {"enabled": False}}, "scale_down.consolidation.enabled is false"),
        ({"group": {"minimum": 1}}, "local-gpu-a100-us-east-1a has no more nodes than its minimum, 1"),
        ({"rules": {"saving_usd_per_hour": 50.0}}, "its price is not above .*, 50 \\$/h"),
        ({"node": {"do_not_disrupt": True}}, "it is marked do-not-disrupt"),
        ({"look": {"notices": NOTICED}}, "EC2 warns that its spot capacity is likely to be interrupted"),
        ({"node": {"cordoned": True}}, "it is closed, not ready, or on its way out"),
        ({"pod": {"owner": ""}}, "team/web: no controller would make it anew"),
        ({"pod": {"started": LATER}}, "its pods have run for less than"),
        ({"pod": {"duration": timedelta(hours=2, minutes=1)}}, "a pod on it is expected to end by"),
    ],
    ids=str,
)
def test_why_a_node_is_not_emptied_is_said(given: dict[str, Any], why: str) -> None:
    """By the first thing in the way."""
    group = a_group(joined=1, **given.get("group", {}))
    (node,) = nodes_of(group, **given.get("node", {}))
    policy = a_policy(scale_down={"consolidation": Consolidation(**given.get("rules", {})), **given.get("down", {})})
    pods = [web(node=node.name, **given.get("pod", {}))]
    look = a_cluster(pods=pods, nodes=[node], groups=[group], seen_at=LATER, **given.get("look", {}))
    fleet = survey(look, policy, {})
    assert re.match(why, why_not_emptied(node, look, policy, fleet, Memory(), wanted=()))


def test_a_node_that_pods_are_planned_on_or_that_was_begun_with_is_not_emptied() -> None:
    """Nor another in the window of one that was begun with."""
    group, node = standing()
    look = a_cluster(pods=[web(node=node.name)], nodes=[node], groups=[group], seen_at=LATER)
    fleet = survey(look, a_policy(), {})
    for memory, wanted, why in (
        (Memory(), {node.name}, "more pods are to come onto it"),
        (Memory(resting={node.name: later(minutes=90)}), (), "it was begun with at 2026-11-21 10:30:00 UTC"),
        (Memory(draining={"other": LATER}), (), "other was begun with: 1 in each window of"),
    ):
        assert why_not_emptied(node, look, a_policy(), fleet, memory, wanted=wanted).startswith(why)


def test_nodes_whose_pods_have_room_nowhere_keep_no_cheaper_one_from_being_emptied() -> None:
    """However many they are: within a few looks, whatever lies between two of them, the one that can be is."""
    group, cheaper = a_group(joined=6), a_group("cpu", joined=1)
    stuck, (node,) = nodes_of(group), nodes_of(cheaper)
    pods = [web(f"stuck-{n}", node=one.name, gpus=8, safe_to_evict=True) for n, one in enumerate(stuck)]
    pods.append(web(node=node.name))
    look = a_cluster(pods=pods, nodes=[*stuck, node, an_on_prem_node(gpus=0)], groups=[group, cheaper])
    for seconds in (1, 7, 10, 60):
        looks = (replace(look, seen_at=LATER + n * timedelta(seconds=seconds)) for n in range(20))
        assert ["team/web"] in [evicted(decide(one).steps) for one in looks]
