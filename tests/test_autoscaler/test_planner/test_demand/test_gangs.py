"""Pods -> gangs: which belong together, which are missing, which run already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.model.cluster import GangRef, GangSize
from autoscaler.model.constraints import Requirement
from autoscaler.model.labels import GATE, HOSTNAME
from autoscaler.planner.demand.gangs import foreign_gates, gangs_of, pinned_to
from tests.builders import a_gang, a_pod, later, selects


def test_a_lone_pod_is_a_gang_of_one() -> None:
    """It is complete by itself."""
    (gang,) = gangs_of([a_pod()])
    assert (gang.name, gang.is_lone, gang.missing, gang.minimum) == ("team/pod", True, 0, 1)


def test_a_gang_half_created_misses_the_others() -> None:
    """Its size is said on every pod."""
    (gang,) = gangs_of(a_gang(pods=5)[:3])
    assert (gang.missing, gang.arrived, gang.size) == (2, 3, 5)


def test_a_gang_whose_size_is_not_said_is_what_is_seen() -> None:
    """Better than waiting for ever."""
    (gang,) = gangs_of(a_gang(pods=3, size=None))
    assert (gang.missing, gang.minimum) == (0, 3)


def test_a_gang_that_runs_misses_no_pod() -> None:
    """A member that was made anew is placed alone, next to those that run."""
    first, second, third = a_gang(pods=3)
    running = [replace(pod, node="dgx-1", phase="Running") for pod in (first, second)]
    (gang,) = gangs_of([*running, third])
    assert (gang.missing, gang.minimum, gang.waiting, gang.nodes) == (0, 1, (third,), ("dgx-1",))


def test_a_failed_pod_and_one_that_goes_are_no_members() -> None:
    """Their successors are."""
    pods = a_gang(pods=2)
    failed = replace(pods[0], name="mnist-worker-0-old", phase="Failed", node="dgx-1")
    going = replace(pods[1], name="mnist-worker-1-old", deleting=True)
    (gang,) = gangs_of([*pods, failed, going])
    assert (gang.arrived, gang.settled) == (2, 0)


def test_a_worker_that_has_succeeded_still_counts() -> None:
    """The others need not wait for it to come back."""
    first, second = a_gang(pods=2)
    (gang,) = gangs_of([replace(first, phase="Succeeded", node="dgx-1"), second])
    assert (gang.missing, gang.minimum) == (0, 1)


def test_an_elastic_gang_needs_its_minimum_only() -> None:
    """Once that many exist it may be placed."""
    (gang,) = gangs_of(a_gang(pods=6, minimum=4)[:4])
    assert (gang.missing, gang.minimum) == (0, 4)


@pytest.mark.parametrize(
    ("running", "waiting", "missing", "together"),
    [
        (0, 1, 1, 1),
        (0, 2, 0, 2),
        (2, 2, 2, 2),
        (2, 4, 0, 4),
        (2, 5, 0, 5),
        (1, 4, 0, 4),  # one of those that came first is made anew
        (3, 2, 0, 2),
        (6, 1, 0, 1),
    ],
)
def test_pods_that_are_created_once_others_run_are_not_waited_for_before(
    running: int, waiting: int, missing: int, together: int
) -> None:
    """Two, then four more, then one: each stage is placed as a whole."""
    ref = GangRef("team", "mnist", size_source="js")
    pods = [replace(pod, gang=ref) for pod in a_gang(pods=7, size=None)]
    runs = [replace(pod, node="dgx-1", phase="Running") for pod in pods[:running]]
    (gang,) = gangs_of([*runs, *pods[running : running + waiting]], {("team", "js"): GangSize(7, stages=(2, 6, 7))})
    assert (gang.missing, gang.minimum) == (missing, together)


def test_a_gang_that_is_placed_in_part_waits_for_no_more_than_that_part_at_first() -> None:
    """An elastic one whose first pods are more than it needs."""
    ref = GangRef("team", "mnist", minimum=2, size_source="js")
    pods = [replace(pod, gang=ref) for pod in a_gang(pods=2, size=None)]
    (gang,) = gangs_of(pods, {("team", "js"): GangSize(7, stages=(4, 7))})
    assert (gang.missing, gang.minimum) == (0, 2)


def test_gangs_are_served_by_priority_then_age_then_name() -> None:
    """The oldest pod gives a gang its age."""
    pods = [
        *a_gang("young", 2, created=later(seconds=9)),
        *a_gang("old", 2, created=later(seconds=1)),
        a_pod("b", created=later(seconds=5)),
        a_pod("a", created=later(seconds=5)),
        *a_gang("urgent", 2, created=later(seconds=60), priority=10),
    ]
    assert [gang.name for gang in gangs_of(reversed(pods))] == [
        "team/urgent",
        "team/old",
        "team/a",
        "team/b",
        "team/young",
    ]


def test_one_name_in_two_namespaces_is_two_gangs() -> None:
    """Names are unique in a namespace only."""
    assert len(gangs_of([*a_gang(), *a_gang(namespace="other")])) == 2


@pytest.mark.parametrize("odd", [{"is_daemon": True}, {"deleting": True}, {"node": "dgx-1"}, {"phase": "Succeeded"}])
def test_pods_that_want_no_place_make_no_gang(odd: dict[str, object]) -> None:
    """Daemons come with their node; the others have had their place."""
    assert gangs_of([a_pod(**odd)]) == ()


def test_a_pod_pinned_to_a_host_is_as_good_as_bound() -> None:
    """Admitted, and not bound yet: it counts as settled, and is not planned again."""
    first, second = a_gang(pods=2)
    admitted = replace(first, gates=(), affinity=(selects(host="dgx-1"),))
    (gang,) = gangs_of([admitted, second])
    assert (pinned_to(admitted), gang.nodes, gang.waiting) == ("dgx-1", ("dgx-1",), (second,))
    zoned = replace(admitted, affinity=((*selects(host="dgx-1"), *selects(zone="a")),))
    assert pinned_to(zoned) == "dgx-1", "whatever else is asked of the host"


@pytest.mark.parametrize(
    "free",
    [
        {},
        {"affinity": (selects(zone="a"),)},
        {"affinity": (selects(host="dgx-1"), selects(host="dgx-2"))},
        {"affinity": (selects(host="dgx-1"), selects(zone="a"))},
        {"affinity": ((Requirement(HOSTNAME, "NotIn", ("dgx-1",)),),)},
        {"affinity": (selects(host="dgx-1"),), "gates": (GATE,)},
    ],
)
def test_a_pod_that_has_a_choice_or_a_gate_is_not_pinned(free: dict[str, object]) -> None:
    """Only one host, in every term, and free to go."""
    assert pinned_to(a_pod(**free)) is None


def test_gates_of_others_are_told_apart_from_ours() -> None:
    """Ours is for us to lift."""
    assert foreign_gates(a_pod(gates=(GATE, "kueue.x-k8s.io/admission"))) == ("kueue.x-k8s.io/admission",)


def test_pods_that_disagree_on_their_gang_are_taken_at_the_larger_word() -> None:
    """Waiting for one more is safer than starting one short."""
    first, second = a_gang(pods=2)
    odd = replace(second, gang=GangRef("team", "mnist", size=3))
    (gang,) = gangs_of([first, odd])
    assert gang.missing == 1


def test_a_member_that_ended_before_it_had_a_node_leaves_none() -> None:
    """A Job that was suspended and ended: its pod was on no node."""
    first, second, third = a_gang(pods=3)
    ended, running = replace(first, phase="Succeeded"), replace(second, node="dgx-1", phase="Running")
    (gang,) = gangs_of([ended, running, third])
    assert gang.nodes == ("dgx-1",)
