"""Zones for pods that rules between pods count by zone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Requirement, Spread
from autoscaler.model.labels import ZONE
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.cutting_stock.zone_assignment import Zones
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.fleet import NEVER
from tests.builders import a_group, a_pod, later, selects
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_market

WEB = (Requirement("app", "In", ("web",)),)
EVEN = {"labels": {"app": "web"}, "spread": (Spread(ZONE, 1, WEB),)}
A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"


def in_zones(
    *pods: Pod, maximum: int = 9, in_b: int | None = None, failed: Mapping[str, datetime] | None = None
) -> tuple[Zones, Market]:
    """With nodes to be had in three zones, so many of each group."""
    most = {A: maximum, B: maximum if in_b is None else in_b, C: maximum}
    groups = [a_group("cpu", zone, maximum=most[zone]) for zone in (B, C, A)]
    market = a_market(pods, groups, failed={group.name: (failed or {}).get(group.zone, NEVER) for group in groups})
    market.snapshot.rules.expect([market.sample(offering) for offering in market.offerings])
    return Zones(market), market


def test_no_zone_matters_where_no_rule_counts_by_zone() -> None:
    """Any will do."""
    zones, market = in_zones(pod := a_pod())
    assert zones.assign(market.snapshot.shape(pod)) == ""


def test_pods_that_are_counted_are_spread_and_others_go_where_fewest_go() -> None:
    """Those that none counts even out what is asked of each zone."""
    zones, market = in_zones(even := a_pod("even", **EVEN), plain := a_pod("plain"))
    shape, other = market.snapshot.shape(even), market.snapshot.shape(plain)
    assert [zones.assign(shape) for _ in range(4)] == [A, B, C, A]
    assert [zones.assign(other) for _ in range(5)] == [B, C, A, B, C]
    assert [zones.assign(shape) for _ in range(2)] == [B, C]
    assert zones.assign(shape) == A


def test_of_zones_with_as_many_of_its_like_the_one_with_least_load_is_taken() -> None:
    """Two that none counts went to the first two."""
    zones, market = in_zones(even := a_pod("even", **EVEN), plain := a_pod("plain"))
    assert [zones.assign(market.snapshot.shape(plain)) for _ in range(2)] == [A, B]
    assert zones.assign(market.snapshot.shape(even)) == C
    assert zones.assign(market.snapshot.shape(plain)) == A
    assert zones.assign(market.snapshot.shape(even)) == B


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
    assert [zones.assign(market.snapshot.shape(plain)) for _ in range(2)] == [C, C]


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
    """Nine pods in three zones: three each."""
    zones, market = in_zones(even := a_pod("even", **EVEN), plain := a_pod("plain"))
    shapes = [market.snapshot.shape(one) for one in (even, plain, plain)] * 3
    assert Counter(map(zones.assign, shapes)) == {A: 3, B: 3, C: 3}
