"""Shapes and offerings -> the cheapest set of nodes for whole gangs, in the order in which they are to be served.

A gang's pods first fill the standing places (:mod:`autoscaler.planner.placement.snapshot`), which cost nothing more.
What is left needs fresh nodes: those at hand (idle, cordoned by us, on their way; the bill has them already) before
those that would be bought. Of several ways to hold the whole gang the cheapest is kept; where there is none, all of it
is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.model.labels import HOSTNAME
from autoscaler.planner.placement.offerings import CENT, Market
from autoscaler.planner.placement.options import Cost, Item, Option, Within, options_for
from autoscaler.planner.supply.candidate_nodes import Place, Shape


@dataclass(frozen=True, slots=True)
class Demand:
    """A gang's pods that want a place: all, or at least ``minimum`` of them, or none."""

    name: str
    pods: tuple[tuple[str, Shape], ...]
    """(pod key, shape)"""
    minimum: int | None = None
    """``None``: all. The first ones are placed together, each further one where it fits at no price."""
    topology: str | None = None
    """Label key of which all places must have one value."""
    anchor: str | None = None
    """That value, where other pods of the gang have settled it."""
    assignments: Mapping[str, Place] = field(default_factory=dict)
    """Pod key -> where it was planned before: taken again where that is possible at no price."""

    @property
    def ranked(self) -> list[Item]:
        """Its pods in the order in which they are placed."""
        return sorted(self.pods, key=lambda item: (item[1].rank, item[0]))


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a gang's pods would go, and what was bought for it."""

    places: tuple[tuple[str, Place], ...]
    bought: tuple[Place, ...] = ()

    @property
    def usd(self) -> float:
        """Dollars per hour of what was bought."""
        return sum(place.price for place in self.bought)


@dataclass(frozen=True, slots=True)
class Packing:
    """Every demand's outcome, by name; ``None`` where the whole of it has no place."""

    placed: Mapping[str, Placed | None]
    usd_per_hour: float
    """Of what would be bought."""

    @property
    def homes(self) -> dict[str, Place]:
        """Pod key -> where it would go."""
        return {key: place for one in self.placed.values() if one is not None for key, place in one.places}

    @property
    def bought(self) -> list[Place]:
        """Returns the nodes that would be bought."""
        return [place for one in self.placed.values() if one is not None for place in one.bought]


def packing_of(placed: Mapping[str, Placed | None]) -> Packing:
    """Returns these outcomes with their price."""
    return Packing(placed=placed, usd_per_hour=sum(one.usd for one in placed.values() if one is not None))


def pack(demands: Iterable[Demand], market: Market, *, buy: bool = True) -> Packing:
    """Place each demand as a whole, in order; what fits nowhere as a whole leaves no trace on the snapshot."""
    return packing_of({demand.name: _place_elastic(demand, market, buy=buy) for demand in demands})


def taken_from_others(placed: Placed, demand: Demand, market: Market) -> dict[str, Place]:
    """Nodes of it, by name, that were bought for others: those would have to buy again."""
    own = {place.name for place in demand.assignments.values()}
    return {
        place.name: place
        for _, place in placed.places
        if place.group is not None and not place.price and place.name not in own and market.is_spoken_for(place)
    }


def _place_elastic(demand: Demand, market: Market, *, buy: bool) -> Placed | None:
    """All of the gang; else as many as must be together, and of the others those that fit at no price.

    For what is left then nodes may be bought, as the next plan would that remembers these.
    """
    kept = as_assigned(demand, market) if demand.assignments else None
    if kept is not None:
        more = _place_elastic(still_to_come(demand, kept), market, buy=buy)
        return replace(kept, places=(*kept.places, *more.places), bought=more.bought) if more is not None else kept
    if demand.minimum is None or demand.minimum >= len(demand.pods):
        return _nearly_as_assigned(demand, market, buy=buy) if demand.assignments else _place(demand, market, buy=buy)
    whole = _grown(demand, market, buy=buy)
    if whole is not None:
        return whole
    core = _place(replace(demand, pods=demand.pods[: demand.minimum]), market, buy=buy) if demand.minimum else None
    if core is None and demand.minimum:
        return None
    places = list(core.places) if core else []
    anchor = _anchor(demand, places)
    for item in demand.pods[demand.minimum :]:
        extra = _place(replace(demand, pods=(item,), anchor=anchor), market, buy=False)
        places += extra.places if extra else ()
    if not places:
        return None
    placed = Placed(places=tuple(places), bought=core.bought if core else ())
    more = _grown(still_to_come(demand, placed), market, buy=buy)
    return (
        placed
        if more is None
        else replace(placed, places=(*places, *more.places), bought=(*placed.bought, *more.bought))
    )


def _grown(rest: Demand, market: Market, *, buy: bool) -> Placed | None:
    """All of the other pods; ``None``: there are none, or that fails, or takes nodes that were bought for others."""
    start = market.snapshot.mark()
    whole = _place(rest, market, buy=buy) if rest.pods else None
    if whole is not None and not taken_from_others(whole, rest, market):
        return whole
    market.snapshot.undo(start)
    return None


def as_assigned(demand: Demand, market: Market, *, completes: bool = True) -> Placed | None:
    """Pods where they were planned before, if all of those can be there and they are enough; else ``None``.

    Without this, pods would move to whatever joins first, and what was bought for them would serve others or none.
    Those that were not planned before go to standing places, if it takes them to be enough, and it ``completes``.
    """
    snapshot, start = market.snapshot, market.snapshot.mark()
    places, moved = _settled(demand, market)
    least = len(demand.pods) if demand.minimum is None else demand.minimum
    for key, shape in demand.ranked if completes and not moved and len(places) < least else ():
        place = None if key in demand.assignments else snapshot.find(shape)
        if place is not None:
            snapshot.put(shape, place, key)
            places.append((key, place))
    if moved or len(places) < max(1, least) or _is_torn(demand, places):
        snapshot.undo(start)
        return None
    return Placed(places=tuple(places))


def still_to_come(demand: Demand, placed: Placed) -> Demand:
    """The other pods of a gang that is placed with as many as it must have."""
    there = dict(placed.places)
    rest = tuple(item for item in demand.pods if item[0] not in there)
    return replace(demand, pods=rest, minimum=0, anchor=_anchor(demand, placed.places), assignments={})


def _nearly_as_assigned(demand: Demand, market: Market, *, buy: bool) -> Placed | None:
    """Those whose planned place is taken go elsewhere, the others stay; all of them anew only where that is cheaper."""
    start = market.snapshot.mark()
    stay = _stay(demand, market, buy=buy)
    if stay is not None and stay.usd <= CENT:
        return stay
    market.snapshot.undo(start)
    anew = _place(demand, market, buy=buy)
    if stay is None or (anew is not None and anew.usd < stay.usd - CENT):
        return anew
    market.snapshot.undo(start)
    return _stay(demand, market, buy=buy)


def _stay(demand: Demand, market: Market, *, buy: bool) -> Placed | None:
    """Places as many as possible where they were planned before, and the rest where it is cheapest; else ``None``."""
    snapshot, start = market.snapshot, market.snapshot.mark()
    places, _ = _settled(demand, market)
    settled = {key for key, _ in places}
    rest = tuple(item for item in demand.pods if item[0] not in settled)
    others = _place(replace(demand, pods=rest, anchor=_anchor(demand, places)), market, buy=buy)
    if not places or others is None or _is_torn(demand, (*places, *others.places)):
        snapshot.undo(start)
        return None
    return Placed(places=(*places, *others.places), bought=others.bought)


def _settled(demand: Demand, market: Market) -> tuple[list[tuple[str, Place]], list[Item]]:
    """Each pod where it was planned, in whatever order the rules between them allow; and those whose place is taken."""
    places: list[tuple[str, Place]] = []
    left = [item for item in demand.ranked if item[0] in demand.assignments]
    while left:
        stuck = []
        for key, shape in left:
            home = demand.assignments[key]
            if market.settle(home, shape):
                market.snapshot.put(shape, home, key)
                places.append((key, home))
            else:
                stuck.append((key, shape))
        if len(stuck) == len(left):
            break
        left = stuck
    return places, left


def _anchor(demand: Demand, places: Sequence[tuple[str, Place]]) -> str | None:
    """The value that the gang's topology is settled on, by pods that run or by those that have a place."""
    if demand.anchor is None and demand.topology and places:
        return places[0][1].labels.get(demand.topology)
    return demand.anchor


def _is_torn(demand: Demand, places: Sequence[tuple[str, Place]]) -> bool:
    """Whether the places do not share what the gang wants to share."""
    if demand.topology is None:
        return False
    values = {place.labels.get(demand.topology) for _, place in places}
    return len(values) > 1 or None in values or (demand.anchor is not None and values != {demand.anchor})


def _place(demand: Demand, market: Market, *, buy: bool) -> Placed | None:
    """The cheapest of all ways over all values of the gang's topology, done on the snapshot."""
    items, start = demand.ranked, market.snapshot.mark()
    own = {place.name for place in demand.assignments.values()}
    best: tuple[Cost, Callable[[], Option | None]] | None = None
    for within in _domains(demand, market):
        for cost, redo in options_for(items, market, within, buy=buy, own=own):
            if best is None or cost < best[0]:
                best = (cost, redo)
        market.snapshot.undo(start)
        if best is not None and best[0] <= (CENT, CENT):
            break
    opened = len(market.opened)
    option = best[1]() if best is not None else None
    if option is None:
        market.snapshot.undo(start)
        return None
    return Placed(
        places=tuple((key, place) for key, _, place in option),
        bought=tuple(place for place in market.opened[opened:] if place.price),
    )


def _domains(demand: Demand, market: Market) -> Iterable[Within]:
    """The values of the gang's topology key that are worth trying."""
    key = demand.topology
    if key is None:
        return (None,)
    if demand.anchor is not None:
        return ((key, demand.anchor),)
    values = {place.labels[key] for place in market.snapshot.places if key in place.labels}
    for offering in market.offerings:
        if key == HOSTNAME:
            values.add(market.next_name(offering))
        elif key in market.sample(offering).labels:
            values.add(market.sample(offering).labels[key])
    return tuple((key, value) for value in sorted(values))
