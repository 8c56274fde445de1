"""The order of gangs: what was bought for one stays its own, unless one of higher priority has nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autoscaler.model import labels as words
from autoscaler.model.actions import Assignment, Grow, Memory, Plan
from autoscaler.model.cluster import Pod
from autoscaler.planner.plan import plan
from tests.builders import a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later, nodes_of

COMING = a_group("gpu-a100", desired=1, maximum=1)


def planned(*gangs: tuple[Pod, ...], assignments: tuple[Pod, ...] = ()) -> tuple[Plan, dict[str, str]]:
    """One machine is on its way, bought for those in ``assignments``, and no other may be bought."""
    memory = Memory(assignments={pod.key: Assignment(f"{COMING.name}~1", COMING.name) for pod in assignments})
    pods = [pod for gang in gangs for pod in gang]
    decided = plan(a_cluster(pods=pods, groups=[COMING]), a_policy(limits={"nodes": 1}), memory)
    assert not [step for step in decided.steps if isinstance(step, Grow)]
    return decided, {said.pod.split("/")[1].split("-")[0]: said.because for said in decided.waiting}


def test_what_was_refused_takes_nothing_that_was_bought_for_others() -> None:
    """Though it is older, and would have been served first; without memory it is."""
    early = a_gang("early", pods=1, gpus=8)
    late = a_gang("late", pods=2, gpus=4, created=later(seconds=1))
    _, told = planned(early, late, assignments=late)
    assert told["late"].startswith("its node is on its way")
    assert "limits.nodes" in told["early"]
    _, told = planned(early, late)
    assert told["early"].startswith("its node is on its way")


def test_what_is_of_higher_priority_takes_it_where_nothing_else_is_to_be_had() -> None:
    """The money is spent on what matters most."""
    urgent = a_gang("urgent", pods=1, gpus=8, priority=10, created=later(seconds=5))
    late = a_gang("late", pods=2, gpus=4)
    _, told = planned(urgent, late, assignments=late)
    assert told["urgent"].startswith("its node is on its way")
    assert "limits.nodes" in told["late"]


def test_no_gang_loses_a_place_to_one_that_has_none_anywhere() -> None:
    """Of higher priority, but too large for any machine."""
    giant = a_gang("giant", pods=1, gpus=64, priority=10)
    late = a_gang("late", pods=2, gpus=4)
    decided, told = planned(giant, late, assignments=late)
    assert told["late"].startswith("its node is on its way")
    assert decided.memory.assignments.keys() == {pod.key for pod in late}


def test_a_gang_does_not_grow_onto_what_was_bought_for_others() -> None:
    """It runs with one pod; the other would fit where the later gang's are planned."""
    elastic = a_gang("elastic", pods=2, gpus=4, minimum=1)
    other = a_gang("other", pods=1, gpus=4, created=later(seconds=1))
    decided, told = planned(elastic, other, assignments=(elastic[0], *other))
    assert decided.memory.assignments.keys() == {elastic[0].key, other[0].key}
    assert "runs with fewer pods" in told["elastic"]


def test_a_gang_does_not_become_whole_with_what_was_bought_for_others() -> None:
    """Its second pod was to be bought for in a group that had not answered; a model check found what it took then."""
    early = a_gang("early", pods=2, gpus=4)
    late = a_gang("late", pods=1, gpus=4, created=later(seconds=1))
    decided, told = planned(early, late, assignments=(early[0], *late))
    assert decided.memory.assignments.keys() == {late[0].key}
    assert told["late"].startswith("its node is on its way")
    assert "limits.nodes" in told["early"]


@pytest.mark.parametrize("rivals", [0, 1])
def test_what_waits_for_room_that_others_have_taken_is_bought_for_at_once(rivals: int) -> None:
    """Four of our GPUs are free and four more in half a minute: unless another takes one of them now."""
    busy = a_pod("busy", gpus=4, node="dgx-01", phase="Running", started=later(), duration=timedelta(seconds=30))
    patient = a_gang("patient", pods=1, gpus=8, patience=timedelta(hours=1))
    rival = a_gang("rival", pods=rivals, gpus=1, created=later(seconds=1))
    cluster = a_cluster(pods=[busy, *patient, *rival], nodes=[an_on_prem_node()])
    decided = plan(replace(cluster, seen_at=later(seconds=2)), a_policy(), Memory())
    bought = [step.demand for step in decided.steps if isinstance(step, Grow)]
    assert bought == [(patient[0].key,)] * rivals


def test_a_gang_grows_when_others_have_taken_what_is_on_its_way() -> None:
    """It runs with one of its two pods: the other may not take what may be others', and is bought for once that is."""
    elastic = a_gang("elastic", pods=2, gpus=8, minimum=1)
    other = a_gang("other", pods=1, gpus=8, created=later(seconds=1))
    small = a_gang("small", pods=1, cpu=12, created=later(seconds=2))
    groups = [a_group(joined=1), a_group("cpu")]
    policy = a_policy(an_entry(), an_entry("cpu"))
    cluster = a_cluster(pods=[*elastic, *other, *small], nodes=[an_on_prem_node()], groups=groups)
    cluster = replace(cluster, seen_at=later(seconds=30))
    decided = plan(cluster, policy, Memory())
    demand = [pod for step in decided.steps if isinstance(step, Grow) for pod in step.demand]
    assert demand == [small[0].key, elastic[1].key]
    for added in (2, 3):  # of the gang
        more = a_gang("elastic", pods=added, gpus=8, minimum=1)
        within = a_policy(an_entry(max=2), an_entry("cpu"))
        decided = plan(replace(cluster, pods=(*more, *other, *small)), within, Memory())
        demand = [pod for step in decided.steps if isinstance(step, Grow) for pod in step.demand]
        assert demand == [small[0].key, elastic[1].key][: 4 - added]


def test_a_gang_that_finds_no_place_says_nothing_of_one_with_pods_elsewhere() -> None:
    """They ask for the same, each in the zone that its first pod runs in; nodes are to be had in one of these."""
    groups = [
        a_group("gpu-a100", zone, joined=1, desired=1, maximum=most)
        for zone, most in (("us-east-1a", 1), ("us-east-1b", 2))
    ]
    nodes = [node for group in groups for node in nodes_of(group)]
    pods: list[Pod] = []
    for seconds, (name, node) in enumerate(zip(("early", "late"), nodes, strict=True)):
        first, second = a_gang(name, pods=2, gpus=8, created=later(seconds=seconds), topology=words.ZONE)
        pods += [replace(first, node=node.name, phase="Running"), second]
    decided = plan(a_cluster(pods=pods, nodes=nodes, groups=groups), a_policy(), Memory())
    assert {step.group for step in decided.steps if isinstance(step, Grow)} == {groups[1].name}
    assert decided.memory.assignments.keys() == {pods[3].key}
