"""Which pods are nominated for the nodes that the plan has them on, and which nominations are taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.model.cluster import Node, Pod
from autoscaler.model.constraints import Taint
from autoscaler.model.labels import GATE, RESERVED
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.demand.gangs import gangs_of
from autoscaler.planner.handoff.nominations import homes_of, is_contended, nominations, overstayed
from autoscaler.planner.placement.gang_packing import Placed
from autoscaler.planner.supply.candidate_nodes import Place
from tests.builders import NOW, a_group, a_pod, an_on_prem_node, nodes_of

TRIED: dict[str, Any] = {"unschedulable_because": "0/1 nodes are available"}
GATED: dict[str, Any] = {"gates": (GATE,)}


def at(name: str, **given: Any) -> Place:
    """A machine of ours that has joined."""
    node = an_on_prem_node(name, **given)
    return Place(name, node.labels, node.taints, dict(node.allocatable), 0, node=node)


def told(
    *pods: Pod,
    homes: Mapping[str, Place] | None = None,
    residents: Sequence[Pod] = (),
    contended: bool = False,
) -> list[tuple[str, str]]:
    """(pod, node, empty where it is taken back) of the step, where there is one; all pods are on ``n1`` if not said."""
    where = {pod.name: at("n1") for pod in pods} if homes is None else homes
    placed = {name: Placed(((f"team/{name}", place),)) for name, place in where.items()}
    there: dict[str, list[Pod]] = {}
    for pod in residents:
        there.setdefault(pod.node or "", []).append(pod)
    steps = nominations(gangs_of(pods), {**placed, "refused": None}, there, contended=contended)
    assert len(steps) <= 1
    return [(key.removeprefix("team/"), node) for step in steps for key, node in step.placements]


@pytest.mark.parametrize(
    ("pod", "nominated"),
    [
        (a_pod("p", **TRIED), [("p", "n1")]),
        (a_pod("p"), []),
        (a_pod("p", **GATED), []),
        (a_pod("p", **GATED, **TRIED), []),
        (a_pod("p", **TRIED, nominated="n1"), []),
        (a_pod("p", nominated="n1"), []),
        (a_pod("p", **TRIED, nominated="n9"), [("p", "n1")]),
        (a_pod("p", nominated="n9"), [("p", "n1")]),
    ],
)
def test_a_pod_that_the_scheduler_has_tried_in_vain_is_nominated_for_its_node(
    pod: Pod, nominated: list[tuple[str, str]]
) -> None:
    """Others it binds at this moment; one that is nominated for another node is put right."""
    assert told(pod) == nominated


def test_where_pods_without_our_gate_come_those_behind_it_are_nominated_too() -> None:
    """Their room would be taken before their gates are lifted; nodes in order, then pods."""
    gated, free, tried = a_pod("c", **GATED), a_pod("b"), a_pod("a", **TRIED)
    homes = {"c": at("n1"), "b": at("n1"), "a": at("n2")}
    assert told(gated, free, tried, homes=homes, contended=True) == [("c", "n1"), ("a", "n2")]
    assert told(gated, a_pod("d", **GATED)) == []


def test_a_nomination_that_the_plan_has_left_is_taken_back() -> None:
    """No place, one that is closed, that has not joined, or that is reserved anyhow."""
    group = a_group(joined=1)
    (node,) = nodes_of(group, taints=(Taint(RESERVED),))
    reserved = Place(node.name, node.labels, node.taints, {}, 0, node=node, group=group)
    for homes in ({}, {"p": at("n1", cordoned=True)}, {"p": replace(at("n1"), node=None)}, {"p": reserved}):
        assert told(a_pod("p", **TRIED, nominated="n1"), homes=homes) == [("p", "")]
        assert told(a_pod("p", **TRIED), homes=homes) == []


def test_a_nomination_for_which_pods_are_going_is_left_alone() -> None:
    """The scheduler sends them away in its favour."""
    pod = a_pod("p", **TRIED, nominated="n9")
    goes = a_pod("goes", node="n9", phase="Running", deleting=True)
    assert told(pod, residents=[goes]) == []
    assert told(pod, residents=[replace(goes, deleting=False)]) == [("p", "n1")]
    assert told(pod, residents=[replace(goes, node="n1")]) == [("p", "n1")]


def test_where_pods_come_that_the_scheduler_may_put_anywhere_places_are_contended() -> None:
    """One that waits, or that has been put somewhere a short time ago. Gates of others keep it back as well."""
    gated = gangs_of([a_pod("p", **GATED)])

    def with_one(**given: Any) -> bool:
        return is_contended(gated, pod_index_of([a_pod("there", **{"node": "n1", "created": NOW} | given)]), NOW)

    empty = pod_index_of(())
    assert not is_contended(gated, empty, NOW)
    assert not is_contended(gangs_of([a_pod("p", gates=("other",))]), empty, NOW)
    assert is_contended(gangs_of([a_pod("p", **GATED), a_pod("q")]), empty, NOW)
    assert not is_contended((), empty, NOW)
    assert with_one()
    assert with_one(created=NOW - timedelta(minutes=4))
    assert not with_one(created=NOW - timedelta(minutes=5))
    assert not with_one(admitted_to="n1")
    assert not with_one(is_daemon=True)
    assert not with_one(phase="Succeeded")


def test_nodes_on_which_a_nomination_that_the_plan_has_left_keeps_room() -> None:
    """Not where pods are going for it, nor where the plan has the pod there."""
    homes: dict[str, Node | None] = {"team/a": an_on_prem_node("n1"), "team/b": None}
    pods = [a_pod("a", nominated="n1"), a_pod("b", nominated="n2"), a_pod("c", nominated="n3"), a_pod("d")]
    assert overstayed(pods, homes, {}) == {"n2", "n3"}
    assert overstayed([a_pod("a", nominated="n4")], homes, {}) == {"n4"}
    goes = a_pod("goes", node="n2", deleting=True)
    assert overstayed(pods, homes, {"n2": [goes]}) == {"n3"}
    assert homes_of({"gang": Placed((("team/a", at("n1")), ("team/b", replace(at("n2"), node=None)))), "x": None}) == {
        "team/a": at("n1").node,
        "team/b": None,
    }
