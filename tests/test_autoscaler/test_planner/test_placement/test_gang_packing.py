"""The cheapest set of nodes for whole gangs, measured against every way there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model import labels as words
from autoscaler.model.cluster import Group, Pod
from autoscaler.model.resources import Resources
from autoscaler.planner.placement.gang_packing import (
    Demand,
    Placed,
    as_assigned,
    pack,
    still_to_come,
    taken_from_others,
)
from autoscaler.planner.placement.offerings import Ceilings, Market, Offering
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import NEVER
from autoscaler.planner.supply.node_places import new_place
from tests import examples
from tests.builders import a_gang, a_group, a_pod, an_on_prem_node

PRICES = (("small", 4, 1, 1.0), ("medium", 16, 2, 3.1), ("large", 64, 8, 9.0), ("cpu", 32, 0, 0.9))
"""(name, CPUs, GPUs, dollars per hour)"""


def a_market(
    pods: Sequence[Pod],
    groups: Sequence[Group],
    places: Sequence[Place] = (),
    *,
    failed: Mapping[str, datetime] = MappingProxyType({}),
    **ceilings: float,
) -> Market:
    """A market over an empty cluster, or over these places. ``failed``: when groups failed last, by name."""
    offerings = [
        Offering(one, new_place=partial(_new, one), buyable=one.maximum, failed=failed.get(one.name, NEVER))
        for one in groups
    ]
    return Market(Snapshot(places, (), pods), offerings, Ceilings(**ceilings))


def _new(group: Group, name: str) -> Place:
    return new_place(group, name, dict(group.allocatable))


def groups_of(prices: Sequence[tuple[str, int, int, float]] = PRICES, maximum: int = 20) -> list[Group]:
    """One group for each."""
    return [
        replace(
            a_group(name, taints=(), maximum=maximum),
            allocatable=Resources.parse({"cpu": cpus, "memory": "1Ti", "pods": 110, words.GPU: gpus}),
            usd_per_hour=usd,
        )
        for name, cpus, gpus, usd in prices
    ]


def a_demand(market: Market, pods: Sequence[Pod], name: str = "gang") -> Demand:
    """The pods as one gang."""
    return Demand(name=name, pods=tuple((pod.key, market.snapshot.shape(pod)) for pod in pods))


def cheapest(pods: Sequence[Pod], groups: Sequence[Group]) -> float:
    """The least that any way of sharing nodes costs, by trying them all."""
    best = float("inf")
    for parts in _partitions(list(pods)):
        usd = 0.0
        for part in parts:
            asked = Resources.total(pod.requests for pod in part)
            usd += min((one.usd_per_hour for one in groups if asked.fits_in(one.allocatable)), default=float("inf"))
        best = min(best, usd)
    return best


def _partitions(pods: list[Pod]) -> Iterator[list[list[Pod]]]:
    if not pods:
        yield []
        return
    for parts in _partitions(pods[1:]):
        yield [[pods[0]], *parts]
        for number, part in enumerate(parts):
            yield [*parts[:number], [pods[0], *part], *parts[number + 1 :]]


tasks = st.lists(st.tuples(st.sampled_from((1, 3, 10, 30)), st.sampled_from((0, 0, 1, 2, 4))), min_size=1, max_size=6)


@given(tasks=tasks)
@settings(deadline=None, max_examples=examples(100))
def test_a_small_gang_is_bought_for_at_about_the_least_cost(tasks: list[tuple[int, int]]) -> None:
    """Seldom is another way of sharing nodes cheaper, and never by half."""
    pods = [a_pod(f"p{n}", cpu=cpu, gpus=gpus) for n, (cpu, gpus) in enumerate(tasks)]
    market = a_market(pods, groups_of())
    packing = pack([a_demand(market, pods)], market)
    least = cheapest(pods, groups_of())
    assert least - 1e-6 <= packing.usd_per_hour <= 1.5 * least


def test_nothing_is_left_behind_by_a_gang_that_does_not_fit() -> None:
    """The snapshot and the market are as before."""
    pods = a_gang(pods=3, gpus=8)
    market = a_market(pods, groups_of(maximum=2))
    packing = pack([a_demand(market, pods)], market)
    assert packing.placed == {"gang": None}
    assert (market.opened, market.snapshot.places, +market.bought) == ([], [], {})


def test_ceilings_are_given_back_with_what_was_tried() -> None:
    """Only what is kept counts."""
    pods = a_gang(pods=2, gpus=8)
    market = a_market(pods, groups_of(), usd=18.0, nodes=2, gpus=16)
    assert pack([a_demand(market, pods)], market).usd_per_hour == 18.0
    assert (market.ceilings.usd, market.ceilings.nodes, market.ceilings.gpus) == (0.0, 0, 0)


def test_a_second_gang_uses_what_was_bought_for_the_first() -> None:
    """A node is shared, and paid once."""
    first, second = a_gang("first", 1, gpus=4), a_gang("second", 1, gpus=4)
    market = a_market([*first, *second], groups_of((("large", 64, 8, 9.0),)))
    packing = pack([a_demand(market, first, "first"), a_demand(market, second, "second")], market)
    assert packing.usd_per_hour == 9.0


def test_free_room_is_used_before_anything_is_bought() -> None:
    """Two pods fit on the machine that is there."""
    pods = a_gang(pods=3, gpus=4)
    node = an_on_prem_node()
    place = Place(node.name, node.labels, node.taints, dict(node.allocatable), tier=0, node=node)
    market = a_market(pods, groups_of(), places=[place])
    placed = pack([a_demand(market, pods)], market).placed["gang"]
    assert placed is not None
    assert [place.name for _, place in placed.places].count(node.name) == 2
    assert placed.usd == 9.0


ZONED = [replace(one, name=f"{one.name}-{zone}", zone=zone) for one in groups_of(maximum=2) for zone in ("a", "b")]


def own_place(name: str, zone: str = "a", **given: int) -> Place:
    """A machine of ours with sixteen CPUs and four GPUs free."""
    free = {"cpu": 16_000, "memory": 2**40, "pods": 110, words.GPU: 4} | given
    labels = {words.HOSTNAME: name, words.ZONE: zone}
    return Place(name, labels, (), free, 0, node=an_on_prem_node(name))


def hosts(placed: Placed | None) -> dict[str, str]:
    """Pod -> node."""
    return {} if placed is None else {key.removeprefix("team/gang-worker-"): one.name for key, one in placed.places}


def packed(market: Market, demand: Demand, *, buy: bool = True) -> Placed | None:
    """The gang's outcome."""
    return pack([demand], market, buy=buy).placed[demand.name]


def test_a_gang_stays_in_one_zone_where_it_must_though_two_would_be_cheaper() -> None:
    """Where it runs already, if it does; nowhere else."""
    pods = a_gang("gang", 3, gpus=4, cpu=1)
    places = [own_place("n1", "a"), own_place("n2", "b")]
    market = a_market(pods, ZONED, places)
    demand = replace(a_demand(market, pods), topology=words.ZONE)
    placed = packed(market, demand)
    assert placed is not None
    zones = {place.labels[words.ZONE] for _, place in placed.places}
    assert len(zones) == 1
    assert placed.usd == 9.0
    for anchor in ("a", "b"):
        market = a_market(pods, ZONED, places=[own_place("n1", "a"), own_place("n2", "b")])
        placed = packed(market, replace(a_demand(market, pods), topology=words.ZONE, anchor=anchor))
        assert placed is not None
        assert {place.labels[words.ZONE] for _, place in placed.places} == {anchor}
    market = a_market(pods, ZONED)
    assert packed(market, replace(a_demand(market, pods), topology=words.ZONE, anchor="c")) is None
    nowhere = own_place("n1", "a")
    del nowhere.labels[words.ZONE]
    market = a_market(pods, ZONED, [nowhere])
    placed = packed(market, replace(a_demand(market, pods), topology=words.ZONE))
    assert placed is not None
    assert "n1" not in hosts(placed).values(), "a node that is in no zone"


def test_a_gang_on_one_host_is_bought_one_that_holds_all_of_it() -> None:
    """Or waits."""
    pods = a_gang("gang", 4, gpus=2, cpu=1)
    market = a_market(pods, groups_of(), [own_place("n1")])
    placed = packed(market, replace(a_demand(market, pods), topology=words.HOSTNAME))
    assert placed is not None
    assert len(set(hosts(placed).values())) == 1
    assert placed.usd == 9.0
    more = a_gang("gang", 5, gpus=2, cpu=1)
    market = a_market(more, groups_of(), [own_place("n1")])
    assert packed(market, replace(a_demand(market, more), topology=words.HOSTNAME)) is None


def test_a_gang_that_may_not_buy_takes_what_is_there_or_nothing() -> None:
    """It leaves no trace where that is too little."""
    pods = a_gang("gang", 2, gpus=4, cpu=1)
    one, two = [own_place("n1")], [own_place("n1"), own_place("n2")]
    market = a_market(pods, groups_of(), two)
    assert sorted(hosts(packed(market, a_demand(market, pods), buy=False)).values()) == ["n1", "n2"]
    market = a_market(pods, groups_of(), one)
    assert packed(market, a_demand(market, pods), buy=False) is None
    assert one[0].guests == []


@pytest.mark.parametrize(
    ("own", "maximum", "count", "usd"),
    [(3, 9, 3, 0.0), (1, 9, 3, 18.0), (2, 0, 2, 0.0), (1, 0, 0, 0.0), (0, 2, 2, 18.0)],
)
def test_an_elastic_gang_has_its_least_and_grows_where_it_can(own: int, maximum: int, count: int, usd: float) -> None:
    """Three whole nodes' worth, of which two must be together; all of it is bought for where that may be."""
    pods = a_gang("gang", 3, gpus=4, cpu=1)
    large = groups_of((("large", 64, 4, 9.0),), maximum=maximum)
    market = a_market(pods, large, [own_place(f"n{number}") for number in range(own)])
    placed = packed(market, replace(a_demand(market, pods), minimum=2))
    assert len(hosts(placed)) == count
    assert (placed.usd if placed is not None else 0.0) == usd


@pytest.mark.parametrize(("more", "maximum", "count", "usd"), [(1, 0, 3, 0.0), (0, 2, 3, 9.0), (0, 0, 2, 0.0)])
def test_an_elastic_gang_that_keeps_its_places_grows_beside_them(
    more: int, maximum: int, count: int, usd: float
) -> None:
    """Into free room, else onto a node that is bought; where there is neither, it is left as it was planned."""
    pods = a_gang("gang", 3, gpus=4, cpu=1)
    places = [own_place(f"n{number}") for number in range(2 + more)]
    market = a_market(pods, groups_of((("large", 64, 4, 9.0),), maximum=maximum), places)
    meant = {pods[0].key: places[1], pods[1].key: places[0]}
    placed = packed(market, replace(a_demand(market, pods), minimum=2, assignments=meant))
    assert placed is not None
    found = hosts(placed)
    assert (found["0"], found["1"], len(found), placed.usd) == ("n1", "n0", count, usd)


def test_those_that_a_gang_can_do_without_stay_with_the_others() -> None:
    """In the zone where its least is; no other node is bought for them."""
    pods = a_gang("gang", 3, gpus=4, cpu=1)
    places = [own_place("n1", "a"), own_place("n2", "b"), own_place("n3", "b")]
    market = a_market(pods, [], places)
    placed = packed(market, replace(a_demand(market, pods), minimum=1, topology=words.ZONE))
    assert placed is not None
    assert len({place.labels[words.ZONE] for _, place in placed.places}) == 1
    assert market.snapshot.mark() == len(placed.places)


def test_pods_go_where_they_were_planned_and_the_rest_where_it_is_free() -> None:
    """Also where another place would do less harm."""
    pods = a_gang("gang", 3, gpus=1, cpu=1)
    places = [own_place("n1"), own_place("n2"), own_place("n3")]
    market = a_market(pods, groups_of(), places)
    meant = {pods[0].key: places[2], pods[1].key: places[1]}
    placed = packed(market, replace(a_demand(market, pods), assignments=meant))
    found = hosts(placed)
    assert (found["0"], found["1"]) == ("n3", "n2")
    assert len(found) == 3
    assert placed is not None
    assert placed.usd == 0.0


def test_a_pod_whose_planned_place_is_taken_goes_elsewhere_and_the_others_stay() -> None:
    """Nothing is bought for it where there is room."""
    pods = a_gang("gang", 2, gpus=4, cpu=1)
    places = [own_place("n1"), own_place("n2", **{words.GPU: 0}), own_place("n3")]
    market = a_market(pods, groups_of(), places)
    meant = {pods[0].key: places[0], pods[1].key: places[1]}
    placed = packed(market, replace(a_demand(market, pods), assignments=meant))
    assert hosts(placed) == {"0": "n1", "1": "n3"}
    market = a_market(pods, groups_of(), [own_place("n1"), own_place("n2", **{words.GPU: 0})])
    meant = {pods[0].key: market.snapshot.places[0], pods[1].key: market.snapshot.places[1]}
    placed = packed(market, replace(a_demand(market, pods), assignments=meant))
    assert placed is not None
    assert (hosts(placed)["0"], placed.usd) == ("n1", 9.0)


def test_a_gang_is_not_where_it_was_planned_if_that_is_torn_apart_by_now() -> None:
    """It is placed anew in one zone, or not at all."""
    pods = a_gang("gang", 2, gpus=4, cpu=1)
    places = [own_place("n1", "a"), own_place("n2", "b"), own_place("n3", "b")]
    market = a_market(pods, [], places)
    meant = {pods[0].key: places[0], pods[1].key: places[1]}
    demand = replace(a_demand(market, pods), assignments=meant, topology=words.ZONE)
    assert as_assigned(demand, market) is None
    assert market.snapshot.mark() == 0
    assert sorted(hosts(packed(market, demand)).values()) == ["n2", "n3"]
    for anchor, count in (("b", 2), ("a", 0), (None, 2)):
        there = [own_place("n2", "b"), own_place("n3", "b")]
        market = a_market(pods, [], there)
        meant = {pod.key: place for pod, place in zip(pods, there, strict=True)}
        kept = as_assigned(replace(demand, pods=a_demand(market, pods).pods, assignments=meant, anchor=anchor), market)
        assert len(kept.places if kept else ()) == count


def test_nodes_that_were_bought_for_others_are_named() -> None:
    """Not its own, nor what is standing, nor what it buys itself."""
    pods = a_gang("gang", 1, gpus=4)
    market = a_market(pods, ZONED)
    group = ZONED[0]
    coming, own, idle = (replace(new_place(group, name, dict(group.allocatable))) for name in ("coming", "own", "idle"))
    idle.tier = 1
    new = replace(new_place(group, "new", dict(group.allocatable)), price=1.0)
    placed = Placed(tuple((f"p{number}", one) for number, one in enumerate((coming, own, idle, new, own_place("n1")))))
    demand = replace(a_demand(market, pods), assignments={"x": own})
    assert taken_from_others(placed, demand, market) == {"coming": coming}


def test_what_is_still_to_come_of_a_gang_follows_those_that_are_placed() -> None:
    """Without a least of its own, nor where it was planned, and in the same zone."""
    pods = a_gang("gang", 3, gpus=1)
    market = a_market(pods, ZONED)
    demand = replace(a_demand(market, pods), minimum=2, topology=words.ZONE, assignments={"x": own_place("n9")})
    rest = still_to_come(demand, Placed(((pods[1].key, own_place("n1", "b")),)))
    assert [key for key, _ in rest.pods] == [pods[0].key, pods[2].key]
    assert (rest.minimum, rest.anchor, rest.assignments, rest.topology) == (0, "b", {}, words.ZONE)
    assert still_to_come(replace(demand, topology=None), Placed(((pods[1].key, own_place("n1", "b")),))).anchor is None
    assert still_to_come(replace(demand, anchor="a"), Placed(((pods[1].key, own_place("n1", "b")),))).anchor == "a"
