"""Places that cost nothing more as kinds, and how much is searched for how many pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.model.constraints import PodTerm, Requirement, Spread, Taint
from autoscaler.model.feasibility import NODE_NAME
from autoscaler.model.labels import GPU, HOSTNAME, ZONE
from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds, put_jointly
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import CORDONED_TIER, ON_PREM_TIER, Place
from autoscaler.planner.supply.node_places import new_place
from tests.builders import a_pod
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_market, groups_of, own_place

(NODE,) = groups_of((("node", 16, 4, 2.0),))
POD = a_pod("p", gpus=1, cpu=2)


def kinds(*places: Place, most: int = 9, pods: Any = (POD,), kept: frozenset[str] = frozenset()) -> Any:
    """Names of the places of each kind, in order; ``None`` where there are none, or too many."""
    offerings = a_market(pods, [NODE]).offerings
    market = Market(Snapshot(places, (), pods), offerings, Ceilings(), kept=kept)
    shapes = [market.snapshot.shape(pod) for pod in pods]
    found = AtHandKinds.of(shapes, market, most=most)
    return found and {kind: [place.name for place in several] for kind, several in found.places.items()}


def idle(name: str, **given: Any) -> Place:
    """A node of the group that the bill has already."""
    return replace(new_place(NODE, name, dict(NODE.allocatable)), **{"tier": CORDONED_TIER, "standing": False} | given)


def test_places_that_no_pod_can_tell_apart_are_one_kind() -> None:
    """The one to be filled first stands last; what the pods do not ask for makes no difference."""
    assert kinds(own_place("b"), own_place("a"), own_place("c")) == {"at hand 0": ["c", "b", "a"]}
    other = own_place("b", zone="z")
    other.free["example.com/fpga"] = 7
    assert kinds(own_place("a"), other) == {"at hand 0": ["b", "a"]}


@pytest.mark.parametrize(
    "change",
    [
        {"free": {"cpu": 16_000, "memory": 2**40, "pods": 110, GPU: 3}},
        {"taints": (Taint("team", "NoExecute"),)},
        {"tier": ON_PREM_TIER + 1},
        {"labels": {"disk": "ssd"}},
    ],
)
def test_room_taints_tier_and_labels_that_are_asked_about_make_kinds(change: dict[str, Any]) -> None:
    """In order of their tiers, then of their names; more kinds than are wanted are none."""
    pods = (replace(POD, affinity=((Requirement("disk", "DoesNotExist", ()),),)),)
    places = [own_place("b"), replace(own_place("a"), **change), own_place("c")]
    first, second = (["a"], ["c", "b"]) if "tier" not in change else (["c", "b"], ["a"])
    assert kinds(*places, pods=pods) == {"at hand 0": first, "at hand 1": second}
    assert kinds(*places, pods=pods, most=2) is not None
    assert kinds(*places, pods=pods, most=1) is None


def test_what_has_no_room_for_the_least_that_any_pod_asks_is_no_place() -> None:
    """Of each resource; just enough is enough."""
    assert kinds(own_place("a", cpu=1999)) is None
    assert kinds(own_place("a", cpu=2000)) == {"at hand 0": ["a"]}
    small = a_pod("small", cpu=1)
    assert kinds(own_place("a", cpu=1000, **{GPU: 0}), pods=(POD, small)) == {"at hand 0": ["a"]}
    assert kinds() is None


def test_nodes_that_cost_more_are_not_at_hand() -> None:
    """Idle ones are, a kind of their own, also those that pods were planned on."""
    places = [
        own_place("own"),
        idle("idle"),
        idle("kept"),
        idle("new", price=2.0),
        replace(own_place("odd"), standing=False),
    ]
    found = kinds(*places, kept=frozenset({"kept"}))
    assert found == {"at hand 0": ["own"], "at hand 1": ["kept", "idle"]}


def test_where_a_pod_asks_for_a_node_by_name_each_place_is_a_kind() -> None:
    """Its name tells it apart."""
    pods = (replace(POD, affinity=((Requirement(NODE_NAME, "In", ("a",)),),)),)
    assert kinds(own_place("a"), own_place("b"), pods=pods) == {"at hand 0": ["a"], "at hand 1": ["b"]}


WEB = (Requirement("app", "In", ("web",)),)
TEAM = frozenset({"team"})
DB = (Requirement("app", "In", ("db",)),)
LABELS: dict[str, Any] = {"labels": {"app": "web"}}
APART: dict[str, Any] = LABELS | {"apart_from": (PodTerm(HOSTNAME, WEB, TEAM),)}


@pytest.mark.parametrize(
    ("rules", "jointly"),
    [
        (({}, {}), (True, True)),
        ((LABELS, {}), (True, True)),
        ((APART, LABELS), (True, True)),
        (({"host_ports": frozenset({("TCP", 80)})}, {}), (True, True)),
        ((LABELS | {"apart_from": (PodTerm(ZONE, WEB, TEAM),)}, {}), (False, True)),
        ((LABELS | {"apart_from": (PodTerm(ZONE, WEB, TEAM),)}, LABELS), (False, False)),
        ((LABELS | {"apart_from": (PodTerm("rack", WEB, TEAM),)}, {}), (False, True)),
        ((LABELS | {"spread": (Spread(HOSTNAME, 1, WEB),)}, {}), (False, True)),
        ((LABELS | {"spread": (Spread(HOSTNAME, 1, WEB),)}, LABELS), (False, False)),
        ((LABELS | {"spread": (Spread(ZONE, 1, WEB),)}, LABELS), (False, False)),
        ((LABELS | {"spread": (Spread("rack", 1, WEB),)}, LABELS), (False, False)),
        (({"labels": {"app": "db"}, "spread": (Spread("rack", 1, DB),)}, APART), (False, True)),
        (({"near_to": (PodTerm(ZONE, WEB, TEAM),)}, LABELS), (False, False)),
        (({"near_to": (PodTerm(ZONE, WEB, TEAM),)}, {}), (False, True)),
    ],
)
def test_pods_are_put_jointly_unless_a_spread_or_a_zone_counts_them(
    rules: tuple[dict[str, Any], dict[str, Any]], jointly: tuple[bool, bool]
) -> None:
    """Those that keep off hosts are, where no spread counts by host."""
    pods = [a_pod(f"p{number}", **rule) for number, rule in enumerate(rules)]
    market = a_market(pods, [NODE], [own_place("own")])
    shapes = [market.snapshot.shape(pod) for pod in pods]
    found = put_jointly(set(shapes), market)
    assert tuple(shape in found for shape in shapes) == jointly


def test_of_many_places_none_is_asked_which_pods_it_admits() -> None:
    """Pods that keep off hosts are put there in their turn then."""
    alone = a_pod("alone", **APART)
    for many, both in ((10_000, True), (10_001, False)):
        market = a_market([POD, alone], [NODE], [own_place(f"n{number}") for number in range(many)])
        shapes = {market.snapshot.shape(pod) for pod in (POD, alone)}
        assert (put_jointly(shapes, market) == shapes) == both


def test_places_that_admit_other_pods_are_other_kinds() -> None:
    """By the pods that run there, and the host ports that they use."""
    alone = a_pod("alone", **APART)
    listens = a_pod("listens", host_ports=frozenset({("TCP", 80)}))
    runs = a_pod("runs", node="a", phase="Running", **LABELS)
    places = [own_place("a"), own_place("b"), replace(own_place("c"), ports=frozenset({("TCP", 80)})), own_place("d")]
    pods = [POD, alone, listens]
    market = Market(Snapshot(places, [runs], pods), a_market(pods, [NODE]).offerings, Ceilings())
    shapes = [market.snapshot.shape(pod) for pod in pods]
    found = AtHandKinds.of(shapes, market, most=9)
    assert found is not None
    assert list(found.places.values()) == [[places[0]], [places[3], places[1]], [places[2]]]
    assert found.admitting == {
        shapes[1]: {"at hand 1", "at hand 2"},
        shapes[2]: {"at hand 0", "at hand 1"},
    }
    assert found.untaken().admitting == found.admitting
    assert AtHandKinds.of(shapes, market, most=2) is None


def test_places_are_taken_one_by_one_and_a_copy_keeps_its_own() -> None:
    """An idle node is opened; none is left at the end."""
    market = Market(
        Snapshot([own_place("own"), idle("idle")], (), [POD]), a_market([POD], [NODE]).offerings, Ceilings()
    )
    found = AtHandKinds.of([market.snapshot.shape(POD)], market, most=9)
    assert found is not None
    again = found.untaken()
    for kind, name, opened in (("at hand 0", "own", 0), ("at hand 1", "idle", 1)):
        place = found.take(kind, market)
        assert place is not None
        assert (place.name, len(market.opened)) == (name, opened)
        assert found.take(kind, market) is None
    assert [len(several) for several in again.places.values()] == [1, 1]
