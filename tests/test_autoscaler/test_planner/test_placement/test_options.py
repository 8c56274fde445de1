"""The ways to hold a gang's pods: which there are, what each costs, and that each can be done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.cluster import Group, Pod
from autoscaler.model.constraints import PodTerm, Requirement, Spread
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.placement.options import Cost, Within, fill_standing, options_for
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import COMING_TIER, CORDONED_TIER, Place
from autoscaler.planner.supply.node_places import new_place
from tests.builders import a_gang, a_pod
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_market, groups_of, own_place

WEB = (Requirement("app", "In", ("web",)),)
SMALL, MEDIUM = ("small", 4, 1, 1.0), ("medium", 16, 2, 1.9)
"""One GPU and two GPUs a node."""


def ways(
    pods: Sequence[Pod], market: Market, within: Within = None, *, buy: bool = True, own: Sequence[str] = ()
) -> list[tuple[Cost, list[str]]]:
    """Of each way its cost, and where it puts each of the pods: ``small+1`` is the first node bought of that group."""
    start = market.snapshot.mark()
    items = [(pod.key, market.snapshot.shape(pod)) for pod in pods]
    found = []
    for cost, redo in options_for(items, market, within, buy=buy, own=own):
        market.snapshot.undo(start)
        done = redo()
        assert done is not None
        where = {key: place for key, _, place in done}
        assert all(where[key].guests.count(key) == 1 for key, _ in items)
        found.append((cost, [_short(where[pod.key]) for pod in pods]))
    market.snapshot.undo(start)
    return found


def _short(place: Place) -> str:
    return place.name if place.group is None else place.name.replace(place.group.name, place.group.entry)


def at_hand(group: Group, *names: str, tier: int = CORDONED_TIER) -> list[Place]:
    """Nodes of the group that the bill has already."""
    return [replace(new_place(group, name, dict(group.allocatable)), tier=tier, standing=False) for name in names]


def test_what_stands_is_filled_and_costs_nothing() -> None:
    """No way is looked for where all pods fit; else the rest is bought for."""
    pods = a_gang(pods=2, gpus=2, cpu=1)
    market = a_market(pods, groups_of(), [own_place("n1")])
    assert ways(pods, market) == [((0.0, 0.0), ["n1", "n1"])]
    more = a_gang(pods=3, gpus=2, cpu=1)
    found = ways(more, a_market(more, groups_of(), [own_place("n1")]))
    assert found == [((3.1, 3.1), ["n1", "n1", "medium+1"]), ((9.0, 9.0), ["n1", "n1", "large+1"])]


def test_one_pod_goes_to_each_kind_that_holds_it() -> None:
    """The cheapest first; where one way is enough, that one alone; none where nothing holds it or may be bought."""
    pods = [a_pod("p", gpus=1)]
    groups = groups_of()
    assert ways(pods, a_market(pods, groups)) == [
        ((1.0, 1.0), ["small+1"]),
        ((3.1, 3.1), ["medium+1"]),
        ((9.0, 9.0), ["large+1"]),
    ]
    offerings = a_market(pods, groups).offerings
    hasty = Market(Snapshot((), (), pods), offerings, Ceilings(), thorough=False)
    assert ways(pods, hasty) == [((1.0, 1.0), ["small+1"])]
    assert ways(pods, a_market(pods, groups), buy=False) == []
    assert ways([a_pod("p", gpus=9)], a_market(pods, groups)) == []
    assert ways(pods, a_market(pods, groups, usd=3.0)) == [((1.0, 1.0), ["small+1"])]
    assert ways(pods, a_market(pods, groups_of(maximum=0))) == []


def test_no_more_than_twelve_kinds_are_tried() -> None:
    """The dearest are left out."""
    pods = [a_pod("p", gpus=1)]
    groups = groups_of([(f"kind-{number:02}", 4, 1, 1.0 + number) for number in range(14)])
    found = ways(pods, a_market(pods, groups))
    assert [cost for cost, _ in found] == [(1.0 + number, 1.0 + number) for number in range(12)]
    several = a_gang(pods=2, gpus=1, cpu=1)
    kinds = {name.partition("+")[0] for _, names in ways(several, a_market(several, groups)) for name in names}
    assert kinds == {f"kind-{number:02}" for number in range(12)}


def test_pods_share_nodes_and_the_rest_of_a_node_goes_to_a_smaller_one() -> None:
    """Three pods: what is cheapest for all of them in turn, then each kind once, twice and always."""
    pods = a_gang(pods=3, gpus=1, cpu=1)
    assert ways(pods, a_market(pods, groups_of((SMALL, MEDIUM)))) == [
        ((2.9, 2.9), ["small+1", "medium+1", "medium+1"]),
        ((3.0, 3.0), ["small+1", "small+2", "small+3"]),
        ((2.9, 2.9), ["medium+1", "medium+1", "small+1"]),
        ((3.8, 3.8), ["medium+1", "medium+1", "medium+2"]),
    ]


def test_a_kind_is_opened_before_others_once_twice_or_always() -> None:
    """Seven pods, on one, two and all medium nodes that they fill; what is left over goes to the small ones."""
    pods = a_gang(pods=7, gpus=1, cpu=1)
    groups = groups_of((SMALL, ("medium", 16, 2, 2.5)))
    counts = {
        (sum(name.startswith("medium") for name in set(names)), cost)
        for cost, names in ways(pods, a_market(pods, groups))
    }
    assert counts == {(0, (7.0, 7.0)), (1, (7.5, 7.5)), (2, (8.0, 8.0)), (3, (8.5, 8.5)), (4, (10.0, 10.0))}


def test_pods_of_different_sizes_are_bought_a_common_node() -> None:
    """What the first was bought for holds the others too; each kind that any of them wants is tried."""
    pods = [a_pod("large", gpus=2, cpu=2), a_pod("none", cpu=8)]
    market = a_market(pods, groups_of((("medium", 16, 2, 3.0), ("cpu", 32, 0, 0.5))))
    assert ways(pods, market) == [((3.0, 3.0), ["medium+1", "medium+1"])]
    market = a_market(pods, groups_of((("medium", 9, 2, 3.0), ("cpu", 32, 0, 0.5))))
    assert ways(pods, market) == [((3.5, 3.5), ["medium+1", "cpu+1"]), ((6.0, 6.0), ["medium+1", "medium+2"])]


def test_a_node_at_hand_costs_nothing_but_is_told_from_a_cheaper_one() -> None:
    """It is taken first, and alone where nothing may be bought; what was planned for others they must buy again."""
    pods = [a_pod("p", gpus=1)]
    small, medium = groups_of((SMALL, MEDIUM))
    there = at_hand(medium, "idle")
    found = ways(pods, a_market(pods, [small, medium], there))
    assert found == [((0.0, 1.9), ["idle"]), ((1.0, 1.0), ["small+1"])]
    assert ways(pods, a_market(pods, [small, medium], at_hand(medium, "idle")), buy=False) == [((0.0, 1.9), ["idle"])]
    coming = at_hand(medium, "coming", tier=COMING_TIER)
    assert ways(pods, a_market(pods, [small, medium], coming), buy=False) == []


@pytest.mark.parametrize(("own", "usd"), [((), 1.9), (("kept",), 0.0)])
def test_a_node_that_was_planned_for_others_is_paid_for_again(own: Sequence[str], usd: float) -> None:
    """By them; not where it was planned for these very pods."""
    pods = [a_pod("p", gpus=1)]
    (medium,) = groups_of((MEDIUM,))
    offerings = a_market(pods, [medium]).offerings
    market = Market(Snapshot(at_hand(medium, "kept"), (), pods), offerings, Ceilings(), kept={"kept"})
    assert ways(pods, market, own=own) == [((usd, 1.9), ["kept"])]


def test_one_at_hand_and_one_to_buy() -> None:
    """Of two pods that need a node each, the second is bought for, in the kind that is cheapest then."""
    pods = a_gang(pods=2, gpus=1, cpu=3)
    small, medium = groups_of((SMALL, ("medium", 5, 2, 1.9)))
    found = ways(pods, a_market(pods, [small, medium], at_hand(medium, "idle")))
    assert min(found) == ((1.0, 2.9), ["idle", "small+1"])
    assert ways(pods, a_market(pods, [small, medium], at_hand(medium, "idle")), buy=False) == []
    assert ways(pods, a_market(pods, [small, medium], at_hand(medium, "idle"), nodes=0)) == []
    two = a_market(pods, [small, medium], at_hand(medium, "idle", "idle-2"), nodes=0)
    assert ways(pods, two) == [((0.0, 3.8), ["idle", "idle-2"])]


ZONED = [replace(one, zone=zone, name=f"{one.entry}-{zone}") for one in groups_of((SMALL, MEDIUM)) for zone in "ab"]


def zones(market: Market, pods: Sequence[Pod], within: Within) -> set[tuple[Cost, str]]:
    """Cost and zones of each way."""
    items = [(pod.key, market.snapshot.shape(pod)) for pod in pods]
    start, found = market.snapshot.mark(), set()
    for cost, redo in options_for(items, market, within, buy=True):
        market.snapshot.undo(start)
        found.add((cost, "".join(sorted({place.labels[words.ZONE] for _, _, place in redo() or ()}))))
    return found


def test_within_a_zone_only_its_groups_are_bought_in() -> None:
    """And only its machines are filled; a node that is left half empty is no cheaper one of another zone either."""
    pods = [a_pod("p", gpus=1)]
    both = {((1.0, 1.0), "b"), ((1.9, 1.9), "b")}
    assert zones(a_market(pods, ZONED, [own_place("n1", "a")]), pods, (words.ZONE, "b")) == both
    assert zones(a_market(pods, ZONED, [own_place("n1", "a")]), pods, (words.ZONE, "a")) == {((0.0, 0.0), "a")}
    assert zones(a_market(pods, ZONED), pods, (words.ZONE, "c")) == set()
    three = a_gang(pods=3, gpus=1, cpu=1)
    only = [one for one in ZONED if one.name != ZONED[1].name]
    assert zones(a_market(three, only), three, (words.ZONE, "b")) == {((3.8, 3.8), "b")}
    assert zones(a_market(three, only), three, (words.ZONE, "a")) == {
        ((2.9, 2.9), "a"),
        ((3.0, 3.0), "a"),
        ((3.8, 3.8), "a"),
    }


def test_a_node_goes_to_no_other_zone_at_the_same_price() -> None:
    """Each way is one zone's nodes first; the cheaper kind of the other is not a way of its own."""
    pods = a_gang(pods=3, gpus=1, cpu=1)
    market = a_market(pods, ZONED)
    items = [(pod.key, market.snapshot.shape(pod)) for pod in pods]
    start, found = market.snapshot.mark(), []
    for _, redo in options_for(items, market, None, buy=True):
        market.snapshot.undo(start)
        done = redo() or ()
        found.append(list(dict.fromkeys(place.group.name for *_, place in done if place.group is not None)))
    assert found == [
        ["small-a", "medium-a"],
        ["small-a"],
        ["small-b", "medium-a"],
        ["small-b", "small-a"],
        ["small-b"],
        ["medium-a", "small-a"],
        ["medium-a"],
        ["medium-b", "small-a"],
        ["medium-b"],
    ]


def test_of_two_kinds_at_hand_the_one_of_the_lower_price_is_taken_first() -> None:
    """Nothing is paid for either; nor is more taken than there is of it."""
    pods = a_gang(pods=2, gpus=1, cpu=3)
    small, medium = groups_of((SMALL, ("medium", 5, 2, 1.9)))
    there = [*at_hand(small, "s1", "s2"), *at_hand(medium, "m1", "m2")]
    assert ways(pods[:1], a_market(pods, [small, medium], there)) == [((0.0, 1.0), ["s1"]), ((0.0, 1.9), ["m1"])]
    free = [((0.0, 2.0), ["s1", "s2"]), ((0.0, 2.9), ["m1", "s1"]), ((0.0, 3.8), ["m1", "m2"])]
    assert ways(pods, a_market(pods, [small, medium], there)) == free
    assert ways(pods, a_market(pods, [small, medium], there, nodes=0)) == free
    fewer = [((0.0, 2.9), ["m1", "s2"]), ((0.0, 2.9), ["s2", "m1"]), ((0.0, 3.8), ["m1", "m2"])]
    assert ways(pods, a_market(pods, [small, medium], there[1:], nodes=0)) == fewer
    one_more = [*fewer, ((1.0, 2.0), ["s2", "small+1"])]
    assert ways(pods, a_market(pods, [small, medium], there[1:])) == one_more


def test_a_way_that_cannot_be_done_is_none() -> None:
    """What is on a node would go to a cheaper kind, but for a rule against what runs in its zone."""
    web = a_pod("web", labels={"app": "web"}, selector={"host": "n1"}, cpu=16)
    apart = {"apart_from": (PodTerm(words.ZONE, WEB, frozenset({"team"})),)}
    alone, plain, other = a_pod("alone", gpus=1, **apart), a_pod("plain", gpus=1), a_pod("other", cpu=1, **apart)
    market = a_market([web, alone, plain, other], [ZONED[0], ZONED[3]], [own_place("n1", "a")])
    market.snapshot.put(market.snapshot.shape(web), market.snapshot.places[0], web.key)
    assert ways([alone], market) == [((1.9, 1.9), ["medium+1"])]
    assert ways([plain], market) == [((1.0, 1.0), ["small+1"]), ((1.9, 1.9), ["medium+1"])]
    assert ways([plain, other], market) == [
        ((2.9, 2.9), ["small+1", "medium+1"]),
        ((1.9, 1.9), ["medium+1", "medium+1"]),
    ]


def test_on_one_host_all_are_bought_one_node() -> None:
    """A new node is a host of its own, by the name that it will have; no second one will do."""
    pods = a_gang(pods=2, gpus=1, cpu=1)
    market = a_market(pods, groups_of((SMALL, MEDIUM)))
    names = {one.group.entry: market.next_name(one) for one in market.offerings}
    assert ways(pods, market, (words.HOSTNAME, names["medium"])) == [((1.9, 1.9), ["medium+1", "medium+1"])]
    assert ways(pods, market, (words.HOSTNAME, names["small"])) == []
    assert ways(pods[:1], market, (words.HOSTNAME, names["small"])) == [((1.0, 1.0), ["small+1"])]


def test_a_node_goes_to_a_cheaper_kind_only_where_that_holds_all_that_is_on_it() -> None:
    """Together, and each of them; and where one of it may still be had."""
    pods = a_gang(pods=2, gpus=1, cpu=2)
    wide = ("wide", 3, 2, 1.5)
    found = ways(pods, a_market(pods, groups_of((MEDIUM, wide))))
    assert found == [((1.9, 1.9), ["medium+1", "medium+1"]), ((3.0, 3.0), ["wide+1", "wide+2"])]


def test_costs_are_told_to_a_billionth_of_a_dollar() -> None:
    """So that sums of the same prices are one cost."""
    pods = [a_pod("p", gpus=1)]
    (small,) = groups_of((("small", 4, 1, 0.12345678949),))
    assert ways(pods, a_market(pods, [small])) == [((0.123456789, 0.123456789), ["small+1"])]


NEAR = {"near_to": (PodTerm(words.HOSTNAME, WEB, frozenset({"team"})),)}
SPREAD = {"spread": (Spread(words.HOSTNAME, 1, WEB),), "labels": {"app": "web"}}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (NEAR, {"web": "n2", "third": "n2"}),
        (SPREAD, {"first": "n1", "web": "n2", "third": "n1"}),
        ({"selector": {"disk": "ssd"}}, {"web": "n2"}),
    ],
)
def test_a_pod_with_a_rule_is_asked_for_again_when_others_have_a_place(
    given: dict[str, Any], found: dict[str, str]
) -> None:
    """Of pods alike, those find a place that come behind the pod which makes it one."""
    first, second, third = (a_pod(name, cpu=2, **given) for name in ("first", "second", "third"))
    web = a_pod("web", labels={"app": "web"}, selector={"host": "n2"})
    cpus = 3000 if given is NEAR else 1000
    market = a_market([first, second, web, third], [], [own_place("n1"), own_place("n2", cpu=cpus)])
    items = [(pod.name, market.snapshot.shape(pod)) for pod in (first, second, web, third)]
    done, rest = fill_standing(items, market.snapshot, None)
    assert {key: place.name for key, _, place in done} == found
    assert [key for key, _ in rest] == [key for key, _ in items if key not in found]


def test_of_a_large_gang_few_ways_are_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as have opened so many nodes; offerings are not ranked anew for each of them."""
    asked = Counter[str]()
    for name in ("open", "with_room"):
        ask = getattr(Market, name)

        def counted(*args: Any, ask: Any = ask, name: str = name, **kwargs: Any) -> Any:
            asked[name] += 1
            return ask(*args, **kwargs)

        monkeypatch.setattr(Market, name, counted)
    kinds = [(f"one-{number}", 4, 1, 1 + number / 100) for number in range(12)]
    pods = a_gang(pods=500, gpus=1, cpu=1)
    market = a_market(pods, groups_of(kinds, maximum=1_000))
    items = [(pod.key, market.snapshot.shape(pod)) for pod in pods]
    found = options_for(items, market, None, buy=True)
    assert min(cost for cost, _ in found) == (500.0, 500.0)
    assert asked["open"] < 5_000  # 37 ways of 500 nodes would be opened and done again: 37,000
    assert asked["with_room"] < 3_000  # and be ranked for once each, and once to be shrunk: 37,000
