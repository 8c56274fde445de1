"""For how long a pod that the scheduler has said nothing of may still be bound where there is room."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.model.actions import Grow, Memory
from autoscaler.model.cluster import Pod
from autoscaler.planner.demand.gangs import gangs_of
from autoscaler.planner.handoff.scheduler_grace import are_held, is_left_alone, not_tried_yet
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import survey
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later, nodes_of


def untried(pods: list[Pod], places: list[Place], now: Any = NOW) -> dict[str, float]:
    """Pod -> seconds after ``NOW`` until which it may still be bound."""
    found = not_tried_yet(gangs_of(pods), Snapshot(places, (), pods), now)
    return {key: (until - NOW).total_seconds() for key, until in found.items()}


def a_machine(**given: Any) -> Place:
    """Of the lab, empty."""
    (place,) = survey(a_cluster(nodes=[an_on_prem_node("dgx-1", gpus=0, **given)]), a_policy(), {}).places
    return place


@pytest.mark.parametrize(("others", "seconds"), [(0, 3.02), (49, 4.0), (1348, 29.98), (1349, 30.0), (5000, 30.0)])
def test_a_scheduler_with_many_pods_to_try_has_more_time(others: int, seconds: float) -> None:
    """Three seconds, and a fiftieth for each of them; half a minute at most."""
    old = [a_pod(f"o{number}", created=NOW - timedelta(days=1)) for number in range(others)]
    found = untried([a_pod(created=NOW), *old], [a_machine()])
    assert found == {"team/pod": pytest.approx(seconds)}


@pytest.mark.parametrize(("age", "is_young"), [(3.019, True), (3.02, False), (3.021, False)])
def test_what_the_scheduler_has_had_its_time_for_is_bought_for(age: float, is_young: bool) -> None:  # noqa: FBT001
    """From that moment on."""
    pod = a_pod(created=NOW - timedelta(seconds=age))
    assert bool(untried([pod], [a_machine()])) == is_young


@pytest.mark.parametrize("given", [{"gates": ("another/gate",)}, {"unschedulable_because": "0/1 nodes are available"}])
def test_what_the_scheduler_has_spoken_of_or_cannot_bind_is_not_waited_for(given: dict[str, Any]) -> None:
    """Nor is it among those that it still has to try."""
    assert untried([a_pod(created=NOW, **given)], [a_machine()]) == {}
    spoken = [a_pod(f"s{number}", created=NOW, **given) for number in range(50)]
    assert untried([a_pod(created=NOW), *spoken], [a_machine()]) == {"team/pod": pytest.approx(3.02)}


def test_no_room_is_nothing_to_wait_for() -> None:
    """A machine that is too small, or a node that has registered and is not ready yet."""
    assert untried([a_pod(created=NOW, cpu=129)], [a_machine()]) == {}
    group = a_group("cpu", joined=1)
    found = [
        untried([a_pod(created=NOW)], list(survey(a_cluster(groups=[group], nodes=nodes), a_policy(), {}).places))
        for nodes in (nodes_of(group), nodes_of(group, ready=False, created=NOW))
    ]
    assert [len(one) for one in found] == [1, 0]


@pytest.mark.parametrize(("seconds", "is_told"), [(59.999, False), (60, True), (61, True)])
def test_another_scheduler_has_left_a_pod_alone_after_a_minute(seconds: float, is_told: bool) -> None:  # noqa: FBT001
    """Not before; Kubernetes' own is told of in other ways, and so is what waits for a gate or was looked at."""
    silent = a_pod(created=NOW, scheduler="volcano")
    assert is_left_alone(silent, later(seconds=seconds)) == is_told
    for other in ({"scheduler": ""}, {"gates": ("x/y",)}, {"unschedulable_because": "no"}):
        assert not is_left_alone(a_pod(created=NOW, **{"scheduler": "volcano"} | other), later(hours=1))


def test_purchases_wait_all_or_not_at_all() -> None:
    """One is for a pod that may still find room: the others of the plan wait as well."""
    steps = [
        Grow(group=name, was=0, to=1, usd_per_hour=1.0, demand=(f"team/{name}",), because="") for name in ("a", "b")
    ]
    assert not are_held(steps, {"team/c": NOW})
    assert are_held(steps, {"team/b": NOW})
    assert not are_held([], {"team/b": NOW})


def test_neither_pods_nor_headroom_are_bought_for_until_the_scheduler_has_tried_a_pod_that_may_find_room() -> None:
    """Of two pods that the machine could take one may go there; what is bought before may be for the other one.

    A node that was bought for the headroom would be taken by it, and another one bought.
    """
    policy = a_policy(an_entry("gpu-a100", headroom=1, max=3))
    pods = [
        a_pod(name, gpus=gpus, created=NOW, unschedulable_because="") for name, gpus in (("small", 1), ("large", 8))
    ]
    look = a_cluster(pods=pods, nodes=[an_on_prem_node()], groups=[a_group()])
    held = plan(look, policy, Memory())
    assert [step for step in held.steps if isinstance(step, Grow)] == []
    [told] = [one for one in held.waiting if one.pod == "team/small"]
    assert told.because == (
        "a new p4d.24xlarge in us-east-1a is asked of EC2 for it once the scheduler has tried the pods that have just "
        "come (group gpu-a100)"
    )
    assert held.wake_at is not None
    after = plan(replace(look, seen_at=held.wake_at), policy, held.memory)
    [step] = [step for step in after.steps if isinstance(step, Grow)]
    assert (step.to, step.demand) == (2, ("team/small",))
