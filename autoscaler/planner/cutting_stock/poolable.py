"""Which gangs may be bought for together: those about which nothing decides but room, or rules by host or zone."""

from __future__ import annotations

from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.offerings import Market


def may_be_pooled(demand: Demand, market: Market) -> bool:
    """Says whether nothing but room decides where its pods go, and all of them go or none."""
    return _is_free(demand) and all(map(market.snapshot.stands_alone, {shape for _, shape in demand.pods}))


def may_be_bought_jointly(demand: Demand, market: Market) -> bool:
    """The same, or rules by host or zone, with which a purchase for many pods of many gangs knows how to deal."""
    snapshot = market.snapshot
    return _is_free(demand) and all(
        snapshot.stands_alone(shape) or snapshot.rules.are_by_host_or_zone(shape)
        for shape in {shape for _, shape in demand.pods}
    )


def _is_free(demand: Demand) -> bool:
    whole = demand.minimum is None or demand.minimum >= len(demand.pods)
    return whole and not (demand.topology or demand.assignments)
