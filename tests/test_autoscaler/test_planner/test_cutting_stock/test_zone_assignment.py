"""Zones for pods that rules between pods count by zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Requirement, Spread
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.cutting_stock.zone_assignment import Zones, _level
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Shape
from autoscaler.planner.supply.fleet import NEVER
from tests.builders import a_group, a_pod, later, selects
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_market

WEB = (Requirement("app", "In", ("web",)),)
APART = (Requirement("app", "In", ("apart",)),)
EVEN = {"labels": {"app": "web"}, "spread": (Spread(ZONE, 1, WEB),)}
OTHERS = {"labels": {"app": "other"}, "spread": (Spread(ZONE, 1, (Requirement("app", "In", ("other",)),)),)}
A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"


def in_zones(
    *pods: Pod, maximum: int = 9, in_b: int | None = None, failed: Mapping[str, datetime] | None = None
) -> tuple[Zones, Market]:
    """With nodes to be had in three zones, so many of each group."""
    most = {A: maximum, B: maximum if in_b is None else in_b, C: maximum}
    groups = [a_group("cpu", zone, maximum=most[zone]) for zone in (B, C, A)]
    market = a_market(pods, groups, failed={group.name: (failed or {}).get(group.zone, NEVER) for group in groups})
    market.snapshot.rules.expect([market.sample(offering) for offering in market.offerings], market.may_come)
    return Zones(market), market


def test_no_zone_matters_where_no_rule_counts_by_zone() -> None:
    """Any will do."""
    zones, market = in_zones(pod := a_pod())
    assert zones.assign(market.snapshot.shape(pod)) == ""


def divided(zones: Zones, counts: Mapping[Want, int], **planned: int) -> dict[Shape, Counter[str]]:
    """How many pods of each shape go to each zone."""
    before = {Want(want.shape, f"us-east-1{zone}"): many for want in counts for zone, many in planned.items()}
    return {want.shape: Counter(given) for want, given in zones.divide(counts, before)}


def test_pods_that_are_counted_are_spread_and_others_even_out_what_is_asked_of_each_zone() -> None:
    """Of large and small ones each zone has its part."""
    zones, market = in_zones(even := a_pod("even", **EVEN), plain := a_pod("plain"), large := a_pod("large", cpu=2))
    shape, *others = (market.snapshot.shape(one) for one in (even, plain, large))
    assert [zones.assign(shape) for _ in range(4)] == [A, B, C, A]
    assert [zones.assign(other) for other in others] == ["", ""]
    counts = {Want(shape, A): 2, Want(shape, B): 1, Want(shape, C): 1} | {Want(other, ""): 6 for other in others}
    assert divided(zones, counts) == {other: Counter({A: 2, B: 2, C: 2}) for other in others}
    counts = {Want(shape, A): 6, Want(others[0], ""): 9}
    assert divided(zones, counts) == {others[0]: Counter({B: 5, C: 4})}
    assert divided(zones, {Want(shape, A): 6, Want(others[0], ""): 18}) == {others[0]: Counter({A: 2, B: 8, C: 8})}


def test_pods_that_keep_apart_by_host_go_where_most_others_are() -> None:
    """They share nodes with them; the plain ones go elsewhere."""
    one_a_node = a_pod("apart", labels={"app": "apart"}, apart_from=(PodTerm(HOSTNAME, APART, frozenset({"team"})),))
    zones, market = in_zones(even := a_pod("even", **EVEN), plain := a_pod("plain"), one_a_node)
    shape, other, apart = (market.snapshot.shape(one) for one in (even, plain, one_a_node))
    counts = {Want(shape, A): 6, Want(shape, B): 3, Want(shape, C): 3, Want(apart, ""): 8, Want(other, ""): 2}
    assert divided(zones, counts) == {apart: Counter({A: 4, B: 2, C: 2}), other: Counter({B: 1, C: 1})}


def test_pods_stay_in_the_zones_that_a_plan_of_before_has_them_in() -> None:
    """It is bought for fewer: some are left out."""
    zones, market = in_zones(even := a_pod("even", **EVEN), plain := a_pod("plain"))
    shape, other = market.snapshot.shape(even), market.snapshot.shape(plain)
    assert divided(zones, {Want(shape, A): 1, Want(other, ""): 4}, a=4, b=1) == {other: Counter({A: 3, B: 1})}


def test_nothing_is_divided_where_no_rule_counts_by_zone() -> None:
    """The solver chooses."""
    zones, market = in_zones(pod := a_pod())
    assert divided(zones, {Want(market.snapshot.shape(pod), ""): 4}) == {}


@given(st.lists(st.floats(0, 10), min_size=1, max_size=5), st.floats(0, 30))
def test_what_is_filled_up_to_a_level_is_all_of_it(loads: list[float], more: float) -> None:
    """Nothing is lost, and no zone above the level gets any."""
    level = _level(loads, more)
    assert sum(max(0.0, level - load) for load in loads) == pytest.approx(more, abs=1e-6)


def test_of_zones_with_as_many_of_its_like_the_one_with_least_load_is_taken() -> None:
    """Two pods that others count went to the first two."""
    zones, market = in_zones(even := a_pod("even", **EVEN), other := a_pod("other", **OTHERS))
    assert [zones.assign(market.snapshot.shape(other)) for _ in range(2)] == [A, B]
    assert zones.assign(market.snapshot.shape(even)) == C
    assert zones.assign(market.snapshot.shape(other)) == C
    assert zones.assign(market.snapshot.shape(even)) == A


def test_pods_that_keep_apart_by_zone_get_a_zone_each_and_the_fourth_none() -> None:
    """What was counted and is taken back makes room again."""
    alone = a_pod("alone", labels={"app": "web"}, apart_from=(PodTerm(ZONE, WEB, frozenset({"team"})),))
    zones, market = in_zones(alone)
    shape = market.snapshot.shape(alone)
    assert [zones.assign(shape) for _ in range(4)] == [A, B, C, None]
    zones.leave(Want(shape, B), 1)
    assert zones.assign(shape) == B
    zones.leave(Want(shape, C), 1)
    zones.keep(Want(shape, C), 1)
    assert zones.assign(shape) is None
    zones.leave(Want(shape, ""), 1)
    zones.leave(Want(shape, A), 0)
    zones.keep(Want(shape, ""), 1)
    assert zones.assign(shape) is None


def test_a_zone_that_has_failed_of_late_comes_after_others_that_the_rules_allow_as_well() -> None:
    """Of two that have failed the one of which it is longer ago; a spread is kept all the same."""
    zones, market = in_zones(
        even := a_pod("even", **EVEN), plain := a_pod("plain"), failed={A: later(seconds=-60), B: later(seconds=-90)}
    )
    assert [zones.assign(market.snapshot.shape(even)) for _ in range(4)] == [C, B, A, C]
    assert divided(zones, {Want(market.snapshot.shape(plain), ""): 2}) == {
        market.snapshot.shape(plain): Counter({C: 2})
    }


def test_only_zones_with_nodes_for_the_pod_count() -> None:
    """Those that it selects, that are large enough, and that may be bought."""
    there = a_pod("there", **EVEN | {"affinity": (selects(zone=C),)})
    large = a_pod("large", cpu=99, **EVEN)
    zones, market = in_zones(there, large)
    assert zones.assign(market.snapshot.shape(there)) == C
    assert zones.assign(market.snapshot.shape(large)) is None
    zones, market = in_zones(even := a_pod("even", **EVEN), in_b=0)
    assert [zones.assign(market.snapshot.shape(even)) for _ in range(2)] == [A, C]
    zones, market = in_zones(even := a_pod("even", **EVEN), plain := a_pod("plain"), maximum=0)
    assert zones.assign(market.snapshot.shape(even)) is None
    assert zones.assign(market.snapshot.shape(plain)) == ""


def test_the_load_of_a_zone_is_counted_once_a_pod() -> None:
    """Nine pods of two spreads in three zones: three each."""
    zones, market = in_zones(even := a_pod("even", **EVEN), other := a_pod("other", **OTHERS))
    shapes = [market.snapshot.shape(one) for one in (even, other, other)] * 3
    assert Counter(map(zones.assign, shapes)) == {A: 3, B: 3, C: 3}
