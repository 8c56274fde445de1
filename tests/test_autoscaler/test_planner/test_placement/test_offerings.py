"""What may be bought within the ceilings, and that whatever is opened goes back with the snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.model.cluster import Group
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import GPU, HOSTNAME, ZONE
from autoscaler.model.resources import Resources
from autoscaler.planner.placement.offerings import PREPAID, Ceilings, Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import COMING_TIER, CORDONED_TIER, Place
from tests.builders import a_group, a_pod
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_market

GROUP = a_group("gpu-a10g", vcpus=48, quota="L-1", usd_per_hour=2.0)
"""Four GPUs a node."""


@pytest.mark.parametrize(
    ("ceilings", "left"),
    [
        ({}, 9),
        ({"entries": {"gpu-a10g": 3}}, 3),
        ({"entries": {"gpu-a10g": -1}}, 0),
        ({"entries": {"cpu": 0}}, 9),
        ({"nodes": 4}, 4),
        ({"gpus": 11}, 2),
        ({"usd": 7.9}, 3),
        ({"usd": 8.0 - 1e-10}, 4),
        ({"quotas": {"L-1": 47}}, 0),
        ({"quotas": {"L-1": 100}}, 2),
        ({"quotas": {"L-2": 0}}, 9),
        ({"nodes": 4, "gpus": 12, "usd": 4.0}, 2),
    ],
)
def test_how_many_nodes_of_one_group_are_left(ceilings: dict[str, Any], left: int) -> None:
    """The tightest ceiling says; one of another entry or quota says nothing. So many, one by one, break none."""
    found = Ceilings(**ceilings)
    assert found.nodes_left(GROUP, 9) == left
    for _ in range(left):
        assert not found.why_not(GROUP)
        found.take(GROUP)
    assert bool(found.why_not(GROUP)) is (left < 9)


def test_the_smallest_node_counts_too() -> None:
    """One of a single GPU and vCPU, for less than a dollar."""
    small = replace(GROUP, usd_per_hour=0.5, vcpus=1, allocatable=Resources({GPU: 1}))
    for ceilings in (Ceilings(usd=1.2), Ceilings(gpus=2), Ceilings(quotas={"L-1": 2})):
        assert ceilings.nodes_left(small, 9) == 2


@pytest.mark.parametrize(
    ("gives", "ceilings"),
    [
        ({"usd_per_hour": 0.0}, {"usd": 0.0}),
        ({"allocatable": a_group("cpu").allocatable}, {"gpus": 0}),
        ({"vcpus": 0}, {"quotas": {"L-1": 0}}),
    ],
)
def test_what_a_node_does_not_take_does_not_bound_it(gives: dict[str, Any], ceilings: dict[str, Any]) -> None:
    """A node that is paid for, has no GPU or no vCPUs that the quota counts."""
    assert Ceilings(**ceilings).nodes_left(replace(GROUP, **gives), 9) == 9


def test_what_an_entry_leaves_of_one_group() -> None:
    """No more than there is, and never less than nothing."""
    assert [Ceilings(entries={"gpu-a10g": many}).of_entry(GROUP, 5) for many in (9, 3, -1)] == [5, 3, 0]
    assert Ceilings().of_entry(GROUP, 5) == 5


def test_ceilings_are_taken_from_and_given_back() -> None:
    """A copy is one of its own."""
    kinds: dict[str, Any] = {"usd": 10.0, "nodes": 5, "gpus": 20}
    full = Ceilings(**kinds, entries={"gpu-a10g": 4}, quotas={"L-1": 200})
    copy = full.copy()
    copy.take(GROUP, 2)
    assert copy == Ceilings(6.0, 3, 12, {"gpu-a10g": 2}, {"L-1": 104})
    assert full == Ceilings(**kinds, entries={"gpu-a10g": 4}, quotas={"L-1": 200})
    copy.take(GROUP, -2)
    assert copy == full
    free = Ceilings()
    free.take(GROUP)
    assert free == Ceilings()


A, B = (replace(GROUP, name=f"g-{zone}", zone=zone) for zone in ("a", "b"))
CPU = a_group("cpu", vcpus=16, quota="L-2", usd_per_hour=1.0)
NAMES = {"a": "g-a", "b": "g-b", "cpu": CPU.name}


@pytest.mark.parametrize(
    ("ceilings", "limits"),
    [
        ({}, []),
        ({"usd": 9.0}, [({"a": 2.0, "b": 2.0, "cpu": 1.0}, 9.0)]),
        ({"nodes": 4}, [({"a": 1.0, "b": 1.0, "cpu": 1.0}, 4)]),
        ({"nodes": 5}, []),
        ({"gpus": 40}, [({"a": 4.0, "b": 4.0, "cpu": 0.0}, 40)]),
        ({"entries": {"gpu-a10g": 4, "cpu": 1}}, [({"a": 1.0, "b": 1.0}, 4)]),
        ({"entries": {"gpu-a10g": 5}}, []),
        ({"quotas": {"L-1": 239, "L-2": 80, "L-3": 0}}, [({"a": 48.0, "b": 48.0}, 239)]),
        ({"quotas": {"L-1": 240}}, []),
    ],
)
def test_limits_that_groups_share_are_told_where_five_nodes_could_break_them(
    ceilings: dict[str, Any], limits: list[tuple[dict[str, float], float]]
) -> None:
    """An entry of one group bounds that group alone: no limit is shared."""
    found = [(dict(one.uses), one.most) for one in Ceilings(**ceilings).shared([A, B, CPU], 5)]
    assert found == [({NAMES[key]: value for key, value in uses.items()}, most) for uses, most in limits]


def fresh(name: str, group: Group, tier: int = CORDONED_TIER) -> Place:
    """A node of the group that the bill has already."""
    labels = {HOSTNAME: name, ZONE: group.zone}
    return Place(name, labels, group.taints, dict(group.allocatable), tier, group=group, standing=False)


def any_place(_: Place) -> bool:
    """Any will do."""
    return True


def state(market: Market) -> tuple[Any, ...]:
    """All that opening a node changes."""
    at_hand = {one.group.name: [place.name for place in market.at_hand(one)] for one in market.offerings}
    return +market.bought, market.ceilings.copy(), list(market.opened), list(market.snapshot.places), at_hand


def test_nodes_at_hand_are_opened_first_then_bought_and_all_is_taken_back() -> None:
    """The readiest first, those that a pod was planned on last."""
    places = [fresh("coming", GROUP, COMING_TIER), fresh("kept", GROUP), fresh("b", GROUP), fresh("a", GROUP)]
    offered = a_market([], [replace(GROUP, maximum=2)], places, nodes=9, usd=3.0).offerings
    market = Market(Snapshot(places, (), ()), offered, Ceilings(nodes=9, usd=3.0), kept={"kept"})
    [offering] = market.offerings
    before, start = state(market), market.snapshot.mark()
    names = [place.name if (place := market.open(offering, any_place)) else None for _ in range(6)]
    assert names == ["a", "b", "coming", "kept", f"{GROUP.name}+1", None]
    assert (market.opened[-1].price, market.opened[0].price) == (2.0, 0.0)
    assert (market.bought, market.ceilings.nodes, market.ceilings.usd) == ({GROUP.name: 1}, 8, 1.0)
    market.snapshot.undo(start)
    assert state(market) == before


def test_a_node_that_does_not_suit_is_not_opened() -> None:
    """Neither one at hand nor one that was bought to be looked at."""
    market = a_market([], [GROUP], [fresh("a", GROUP), fresh("b", GROUP)])
    [offering] = market.offerings
    before = state(market)
    assert market.open(offering, lambda _: False) is None
    assert state(market) == before
    found = market.open(offering, lambda place: place.name == "b")
    assert found is not None
    assert [place.name for place in market.at_hand(offering)] == ["a"]
    market.snapshot.undo(0)
    assert state(market) == before


def test_what_may_not_be_bought_for_takes_no_node_of_another() -> None:
    """Nor is anything bought; what wants a new one gets none at hand."""
    places = [fresh("coming", GROUP, COMING_TIER), fresh("kept", GROUP), fresh("idle", GROUP)]
    offered = a_market([], [GROUP]).offerings
    market = Market(Snapshot(places, (), ()), offered, Ceilings(), kept={"kept"})
    [offering] = market.offerings
    assert [market.is_spoken_for(place) for place in places] == [True, True, False]
    assert [market.is_kept(place) for place in places] == [False, True, False]
    found = [market.open(offering, any_place, buy=False) for _ in range(2)]
    assert found == [places[2], None]
    new = market.open(offering, any_place, at_hand=False)
    assert new is not None
    assert new.name == f"{GROUP.name}+1"
    none = a_market([], [replace(GROUP, maximum=0)], places)
    assert none.open(none.offerings[0], any_place, at_hand=False) is None


def test_that_very_node_is_taken_and_goes_back_to_its_position() -> None:
    """Whatever is beside it."""
    places = [fresh(name, GROUP) for name in ("a", "b", "c")]
    market = a_market([pod := a_pod(gpus=1)], [GROUP], places)
    before, [offering] = state(market), market.offerings
    market.take(places[1])
    assert [place.name for place in market.at_hand(offering)] == ["a", "c"]
    market.snapshot.undo(0)
    assert state(market) == before
    shape = market.snapshot.shape(pod)
    assert market.settle(places[2], shape)
    assert market.opened == [places[2]]
    places[0].free["cpu"] = 0
    assert not market.settle(places[0], shape)
    standing = replace(fresh("d", GROUP), standing=True)
    market.snapshot.add(standing)
    assert market.settle(standing, shape)
    assert market.opened == [places[2]]


def test_what_is_cancelled_may_be_bought_again_under_a_name_of_its_own() -> None:
    """All but those that are kept."""
    market = a_market([], [replace(GROUP, maximum=3)], nodes=3)
    [offering] = market.offerings
    assert market.buyable(offering) == 3
    bought = [place for _ in range(3) if (place := market.open(offering, any_place)) is not None]
    assert (len(bought), market.buyable(offering), market.ceilings.nodes) == (3, 0, 0)
    assert market.cancel(bought, but=bought[1:2]) == [bought[0], bought[2]]
    assert (market.buyable(offering), market.ceilings.nodes, market.snapshot.places) == (2, 2, [bought[1]])
    assert market.next_name(offering) == f"{GROUP.name}+4"


def test_offerings_come_the_cheapest_first_and_what_is_paid_for_costs_next_to_nothing() -> None:
    """Of one price by name; those with too little room are left out."""
    paid = replace(GROUP, name="paid", usd_per_hour=0.0)
    market = a_market([small := a_pod(cpu=1), large := a_pod(cpu=40)], [B, CPU, A, paid])
    assert [one.group.name for one in market.offerings] == ["paid", CPU.name, "g-a", "g-b"]
    assert market.offerings[0].usd == PREPAID
    shapes = [market.snapshot.shape(pod) for pod in (small, large)]
    assert [one.group.name for one in market.with_room(shapes[0].amounts)] == ["paid", CPU.name, "g-a", "g-b"]
    assert [one.group.name for one in market.with_room(shapes[1].amounts)] == ["paid", "g-a", "g-b"]
    gpus = market.snapshot.shape(a_pod(gpus=4))
    assert [one.group.name for one in market.with_room(gpus.amounts)] == ["paid", "g-a", "g-b"]
    assert market.offering("g-b").group is B


@pytest.mark.parametrize(
    ("given", "many"),
    [
        ({"cpu": 5}, 3),
        ({"cpu": 1, "memory": "25Gi"}, 2),
        ({"cpu": 16}, 0),
        ({"cpu": 1, "host_ports": frozenset({("TCP", 80)})}, 1),
        ({"cpu": 1, "apart_from": (PodTerm(HOSTNAME, (Requirement("a", "Exists"),), frozenset({"team"})),)}, 1),
        ({"cpu": 1, "apart_from": (PodTerm(ZONE, (Requirement("a", "Exists"),), frozenset({"team"})),)}, 15),
        ({"cpu": 1, "affinity": ((Requirement(ZONE, "In", ("moon",)),),)}, 0),
    ],
)
def test_how_many_pods_of_a_shape_a_new_node_holds(given: dict[str, Any], many: int) -> None:
    """Fifteen CPUs and 60 GiB; one of those that keep apart by host, or share a host's port."""
    market = a_market([pod := a_pod(**given)], [CPU])
    assert market.capacity(market.offerings[0], market.snapshot.shape(pod)) == many


def test_a_relaxed_market_has_the_same_nodes_and_names_and_other_ceilings() -> None:
    """What was bought counts in it, and what is bought in it does not count here."""
    market = a_market([pod := a_pod(gpus=1)], [A, B], [fresh("idle", A)], nodes=1)
    a, b = market.offerings
    first = market.open(b, any_place)
    assert first is not None
    market.snapshot.put(market.snapshot.shape(pod), first, pod.key)
    assert market.buyable(b) == 0
    other = market.relaxed([replace(one, buyable=20) for one in market.offerings], Ceilings(), thorough=False)
    assert (other.thorough, market.thorough) == (False, True)
    assert other.buyable(other.offering("g-b")) == 19
    assert other.sample(a) is market.sample(a)
    assert [place.name for place in other.at_hand(a)] == ["idle"]
    found = other.open(other.offering("g-b"), any_place)
    assert found is not None
    assert found.name == "g-b+2"
    assert market.bought == {"g-b": 1}
    others = market.relaxed([replace(a, new_place=lambda name: fresh(name, A)), b], Ceilings(), thorough=True)
    assert others.sample(others.offering("g-a")).price == 0.0
    assert others.sample(others.offering("g-a")) is not market.sample(a)
    more = market.with_more(a_market([], [CPU]).offerings)
    assert [one.group.name for one in more.offerings] == [CPU.name, "g-a", "g-b"]
    assert more.ceilings is market.ceilings
    assert more.sample(a) is market.sample(a)
