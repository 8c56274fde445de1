"""Pods that can go to one node only: those with room take it, and of the others some are made anew."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from autoscaler.model.actions import STARTING, STUCK, Recreate
from autoscaler.model.cluster import Node, Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import HOSTNAME
from autoscaler.planner.pinned_pods import Settled, settle
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.fleet import survey
from tests.builders import a_cluster, a_pod, a_policy, an_on_prem_node

WEB = (Requirement("app", "In", ("web",)),)
APART: dict[str, Any] = {"labels": {"app": "web"}, "apart_from": (PodTerm(HOSTNAME, WEB, frozenset({"team"})),)}


def pinned(name: str = "p", host: str = "n1", **given: Any) -> Pod:
    """A pod that may go to that node only."""
    return a_pod(name, selector={"host": host}, **given)


def settled(
    *pods: Pod, nodes: Sequence[Node] = (), residents: Sequence[Pod] = (), at_home: Collection[str] = ()
) -> tuple[Settled, dict[str, list[str]]]:
    """What became of them, and the pods put on each node; one machine of four CPUs if not said."""
    nodes = nodes or (an_on_prem_node("n1", gpus=0, cpu=4),)
    cluster = a_cluster(pods=[*pods, *residents], nodes=nodes, groups=())
    fleet = survey(cluster, a_policy(), {})
    snapshot = Snapshot(fleet.places, [*residents], [*pods])
    found = settle(pods, snapshot, fleet, at_home={f"team/{name}" for name in at_home})
    return found, {place.name: [key.removeprefix("team/") for key in place.guests] for place in snapshot.places}


def test_those_with_room_take_it_in_turn() -> None:
    """Nothing is said of those that the scheduler has not tried in vain."""
    found, put = settled(pinned("a", cpu=3), pinned("b", cpu=1), pinned("c", cpu=1))
    assert put == {"n1": ["a", "b"]}
    assert (found.waiting, found.again) == ([], [])
    assert [(pod.name, why) for pod, why in found.stuck] == [
        ("c", "is bound for node n1, where it does not fit: not enough cpu")
    ]


def test_what_the_scheduler_says_of_one_with_room_is_told() -> None:
    """It is stuck there."""
    found, put = settled(pinned(unschedulable_because="a webhook does not answer"))
    assert put == {"n1": ["p"]}
    (said,) = found.waiting
    assert (said.because, said.cause) == ("the scheduler says: a webhook does not answer", STUCK)


def test_those_whose_node_is_kept_for_them_go_there_whatever_speaks_against_it() -> None:
    """The scheduler has been told; others find what they leave."""
    first = a_pod("first", node="n1", phase="Running", **APART)
    given = {"residents": [first], "at_home": ["p"]}
    found, put = settled(pinned(**APART), pinned("q", **APART), **given)
    assert put == {"n1": ["p"]}
    assert [(one.pod, one.because, one.cause) for one in found.waiting] == [
        (
            "team/p",
            "its node n1 is reserved for it, and it tolerates spillway.dev/reserved: kube-scheduler binds it next",
            STARTING,
        )
    ]
    assert [pod.name for pod, _ in found.stuck] == ["q"]


@pytest.mark.parametrize(
    ("given", "is_anew"),
    [
        ({"admitted_to": "n1", "owner": "Job/a"}, True),
        ({"admitted_to": "n1"}, False),
        ({"owner": "Job/a"}, False),
        ({"admitted_to": "n2", "owner": "Job/a"}, False),
    ],
)
def test_a_pod_that_we_sent_to_a_node_without_room_is_made_anew_by_its_job(
    given: dict[str, str], *, is_anew: bool
) -> None:
    """Not one that nothing makes anew, or that another scheduler bound there: that one is stuck."""
    found, put = settled(pinned(cpu=5, **given))
    why = "is bound for node n1, where it does not fit: not enough cpu"
    assert put == {"n1": []}
    if not is_anew:
        assert (found.again, found.waiting, [(pod.name, because) for pod, because in found.stuck]) == (
            [],
            [],
            [("p", why)],
        )
        return
    assert (found.again, found.stuck) == ([Recreate(pod="team/p", because=f"it {why}")], [])
    (said,) = found.waiting
    assert (said.because, said.cause) == (why, STUCK)
    (change,) = said.changes
    assert (change.kind, change.run) == ("other", "kubectl delete pod --namespace team p")


def test_a_node_that_is_gone_is_waited_for_by_no_pod_of_ours_but_one_that_is_closed_is() -> None:
    """It may open again."""
    ours = {"admitted_to": "n9", "owner": "Job/a"}
    found, _ = settled(pinned(host="n9", **ours))
    assert [step.because for step in found.again] == ["it is bound for node n9: not there"]
    closed = an_on_prem_node("n9", cordoned=True, cordoned_by="kubectl")
    found, _ = settled(pinned(host="n9", **ours), nodes=[closed])
    assert found.again == []
    (said,) = found.waiting
    assert said.because.startswith("is bound for node n9: ")
    assert not said.because.endswith("not there")
