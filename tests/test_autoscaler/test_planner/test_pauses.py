"""What operators paused is left alone: nothing is bought or terminated there, and pods are told why they wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.model.actions import Admit, Cordon, Grow, Memory, Plan, Remove, Step
from autoscaler.model.pauses import ALL, BUYING, Pause, in_force
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later, nodes_of

A10G, A100 = "group.gpu-a10g", "group.gpu-a100"


def idle(entry: str, **given: Any) -> tuple[Any, Any]:
    """A group with a node that has stood idle for long enough."""
    group = a_group(entry, joined=1)
    marks = {"cordoned": True, "cordoned_by": "spillway-autoscaler", "cordoned_at": NOW - timedelta(hours=1)}
    return group, nodes_of(group, **marks | given)


def decided(*pauses: Pause, **look: Any) -> Plan:
    """What is done under these pauses."""
    return plan(a_cluster(pauses=pauses, **look), a_policy(), Memory())


def kinds(steps: tuple[Step, ...]) -> set[type]:
    """Of steps."""
    return {type(step) for step in steps}


@pytest.mark.parametrize(
    ("scope", "buys", "terminates"),
    [
        (ALL, False, False),
        (BUYING, False, True),
        (A10G, False, False),
        (A100, True, True),
        ("buying.gpu-a10g", False, True),
        ("buying.gpu-a100", True, True),
        ("budget", False, True),
        ("budget.gpu-a10g", False, True),
        ("budget.namespace/team", False, True),
        ("budget.namespace/other", True, True),
        ("budget.owner/ada", True, True),
        ("", True, True),
    ],
)
def test_a_pause_stops_what_it_is_of(*, scope: str, buys: bool, terminates: bool) -> None:
    """All, buying alone, or one group."""
    group, nodes = idle("gpu-a10g")
    pauses = (Pause(scope, "audit"),) if scope else ()
    large = [a_pod("p", gpus=4, selector={"zone": "us-east-1b"}, cpu=40)]
    groups = (group, a_group("gpu-a10g", "us-east-1b"))
    done = decided(*pauses, pods=large, nodes=nodes, groups=groups)
    assert (Grow in kinds(done.steps)) is buys
    assert (Remove in kinds(done.steps)) is terminates


def test_an_open_idle_node_of_a_paused_group_is_not_even_closed() -> None:
    """Nor is one that has died, or an instance that did not join in time; after it, they are."""
    group, nodes = idle("gpu-a10g", cordoned=False, cordoned_by="", cordoned_at=None)
    late = a_group("gpu-a100", joined=1)
    late = replace(late, instances=(replace(late.instances[0], launched=NOW - timedelta(hours=1)),))
    look: dict[str, Any] = {"nodes": nodes, "groups": (group, late)}
    assert kinds(decided(**look).steps) == {Cordon, Remove}
    assert not decided(Pause(ALL), **look).steps
    assert kinds(decided(Pause(A10G), **look).steps) == {Remove}


def test_a_dead_node_of_a_paused_group_is_told_and_left() -> None:
    """With its pods on it."""
    group, nodes = idle(
        "gpu-a10g", ready=False, created=NOW - timedelta(hours=2), unready_since=NOW - timedelta(hours=1)
    )
    pods = [a_pod("p", node=nodes[0].name, phase="Running")]
    assert Remove in kinds(decided(pods=pods, nodes=nodes, groups=(group,)).steps)
    done = decided(Pause(ALL), pods=pods, nodes=nodes, groups=(group,))
    assert Remove not in kinds(done.steps)
    assert any("its group is paused" in line for line in done.warnings)


def test_a_pod_that_waits_for_a_pause_is_told_why_by_whom_and_until_when() -> None:
    """And what would change it."""
    pause = Pause(BUYING, "budget review", "ada", NOW, later(hours=2))
    done = decided(pause, pods=[a_pod("p", gpus=8)])
    (waits,) = done.waiting
    assert "but buying is paused until 2026-11-21 11:00:00 UTC by ada: budget review" in waits.because
    assert waits.would_fit_if == "it is resumed (spillway autoscale resume --buying)"
    assert not waits.hopeless
    assert done.wake_at == later(hours=2)


def test_under_a_pause_pods_are_placed_on_what_is_there() -> None:
    """A gang starts on a machine that we own."""
    done = decided(Pause(ALL), pods=a_gang(pods=2, gpus=4), nodes=[an_on_prem_node()])
    assert Admit in kinds(done.steps)


def test_a_pause_whose_time_is_over_is_none() -> None:
    """At that very moment."""
    pause = Pause(ALL, until=later(hours=1))
    assert in_force([pause], later(minutes=59)) == (pause,)
    assert in_force([pause], later(hours=1)) == ()


def test_idle_times_are_by_group_where_the_group_says_so() -> None:
    """And are told with the node that goes."""
    group, nodes = idle("gpu-a10g", cordoned_at=NOW - timedelta(minutes=5))
    look = a_cluster(nodes=nodes, groups=(group,))
    assert not plan(look, a_policy(an_entry("gpu-a10g")), Memory()).steps
    entry = an_entry("gpu-a10g", idle_after="3m")
    (step,) = plan(look, a_policy(entry), Memory()).steps
    assert isinstance(step, Remove)
    assert "idle for 180 s" in step.because
    patient = a_policy(an_entry("gpu-a10g", idle_after="1h"), scale_down={"idle_after": "1m"})
    assert not plan(look, patient, Memory()).steps
