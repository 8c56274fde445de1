"""Shapes and offerings -> the cheapest set of nodes for whole gangs, in the order in which they are to be served.

A gang's pods first fill the standing places (:mod:`autoscaler.scene`), which cost nothing more. What is left needs
fresh nodes: those at hand (idle, cordoned by us, on their way; the bill has them already) before those that would be
bought. Of several ways to hold the whole gang the cheapest is kept; where there is none, all of it is taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from autoscaler.labels import HOSTNAME
from autoscaler.market import CENT, Market, Offering
from autoscaler.places import Place, Shape
from autoscaler.scene import Scene

Cost = tuple[float, float]
"""Dollars per hour bought, then list price of the fresh nodes used: two ways that cost the same are told apart."""

_RULES_AT_MOST = 12


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
    meant: Mapping[str, Place] = field(default_factory=dict)
    """Pod key -> where it was planned before: taken again where that is possible at no price."""


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


Item = tuple[str, Shape]
Way = list[tuple[str, Shape, Place]]
Within = tuple[str, str] | None


def pack(demands: Iterable[Demand], market: Market, *, buy: bool = True) -> Packing:
    """Place each demand as a whole, in order; what fits nowhere as a whole leaves no trace on the scene."""
    placed = {demand.name: _place_elastic(demand, market, buy=buy) for demand in demands}
    return Packing(placed=placed, usd_per_hour=sum(one.usd for one in placed.values() if one is not None))


def _place_elastic(demand: Demand, market: Market, *, buy: bool) -> Placed | None:
    """All of the gang; else as many as must be together, and of the others those that fit at no price."""
    kept = _as_meant(demand, market) if demand.meant else None
    if kept is not None:
        return kept
    whole = _place(demand, market, buy=buy)
    if whole is not None or demand.minimum is None or demand.minimum >= len(demand.pods):
        return whole
    core = _place(replace(demand, pods=demand.pods[: demand.minimum]), market, buy=buy) if demand.minimum else None
    if core is None and demand.minimum:
        return None
    places = list(core.places) if core else []
    anchor = demand.anchor
    if demand.topology and anchor is None and places:
        anchor = places[0][1].labels.get(demand.topology)
    for item in demand.pods[demand.minimum :]:
        extra = _place(replace(demand, pods=(item,), anchor=anchor), market, buy=False)
        places += extra.places if extra else ()
    return Placed(places=tuple(places), bought=core.bought if core else ()) if places else None


def _as_meant(demand: Demand, market: Market) -> Placed | None:
    """Every pod where it was planned before, those that were not on standing places; ``None`` if one fails.

    Without this, pods would move to whatever joins first, and what was bought for them would serve others or nobody.
    """
    scene, start = market.scene, market.scene.mark()
    items = sorted(demand.pods, key=lambda item: (item[1].rank, item[0]))
    places = _settled([item for item in items if item[0] in demand.meant], demand, market)
    if places is None:
        scene.undo(start)
        return None
    for key, shape in items:
        place = None if key in demand.meant else scene.find(shape)
        if place is not None:
            scene.put(shape, place, key)
            places.append((key, place))
    least = len(demand.pods) if demand.minimum is None else demand.minimum
    if len(places) < max(1, least) or _is_torn(demand, places):
        scene.undo(start)
        return None
    return Placed(places=tuple(places))


def _settled(items: Sequence[Item], demand: Demand, market: Market) -> list[tuple[str, Place]] | None:
    """Each pod where it was planned, in whatever order the rules between them allow; ``None`` if one fails."""
    places: list[tuple[str, Place]] = []
    left = list(items)
    while left:
        stuck = []
        for key, shape in left:
            home = demand.meant[key]
            if market.settle(home, shape):
                market.scene.put(shape, home, key)
                places.append((key, home))
            else:
                stuck.append((key, shape))
        if len(stuck) == len(left):
            return None
        left = stuck
    return places


def _is_torn(demand: Demand, places: Sequence[tuple[str, Place]]) -> bool:
    """Whether the places do not share what the gang wants to share."""
    if demand.topology is None:
        return False
    values = {place.labels.get(demand.topology) for _, place in places}
    return len(values) > 1 or None in values or (demand.anchor is not None and values != {demand.anchor})


def _place(demand: Demand, market: Market, *, buy: bool) -> Placed | None:
    """The cheapest of all ways over all values of the gang's topology, done on the scene."""
    items = sorted(demand.pods, key=lambda item: (item[1].rank, item[0]))
    best: tuple[Cost, Callable[[], Way | None]] | None = None
    start = market.scene.mark()
    for within in _domains(demand, market):
        for cost, redo in _ways(items, market, within, buy=buy):
            if best is None or cost < best[0]:
                best = (cost, redo)
        market.scene.undo(start)
        if best is not None and best[0] <= (CENT, CENT):
            break
    opened = len(market.opened)
    way = best[1]() if best is not None else None
    if way is None:
        market.scene.undo(start)
        return None
    return Placed(
        places=tuple((key, place) for key, _, place in way),
        bought=tuple(place for place in market.opened[opened:] if place.price),
    )


def _domains(demand: Demand, market: Market) -> Iterable[Within]:
    """The values of the gang's topology key that are worth trying."""
    key = demand.topology
    if key is None:
        return (None,)
    if demand.anchor is not None:
        return ((key, demand.anchor),)
    values = {place.labels[key] for place in market.scene.places if key in place.labels}
    for offering in market.offerings:
        if key == HOSTNAME:
            values.add(market.next_name(offering))
        elif key in market.sample(offering).labels:
            values.add(market.sample(offering).labels[key])
    return tuple((key, value) for value in sorted(values))


@dataclass(frozen=True, slots=True)
class _Script:
    """A way that can be done again: fresh nodes to open, and which pod goes where."""

    bins: tuple[Offering, ...]
    puts: tuple[tuple[str, Shape, int | Place], ...]
    """(pod key, shape, number of the fresh node or a standing place)"""

    def contents(self) -> list[list[Shape]]:
        """What each fresh node holds."""
        held: list[list[Shape]] = [[] for _ in self.bins]
        for _, shape, target in self.puts:
            if isinstance(target, int):
                held[target].append(shape)
        return held


def _ways(
    items: Sequence[Item], market: Market, within: Within, *, buy: bool
) -> list[tuple[Cost, Callable[[], Way | None]]]:
    """Each way found: its cost, and how to do it again from the same state. The scene is left dirty."""
    scene = market.scene
    _, rest = fill_standing(items, scene, within)
    if not rest:
        return [((0.0, 0.0), lambda: fill_standing(items, scene, within)[0])]
    found: list[tuple[Cost, Callable[[], Way | None]]] = []
    filled = scene.mark()
    seen = set()
    for prefer in _preferences(rest, market, within, buy=buy):
        script = _open_for(rest, market, within, prefer, buy=buy)
        scene.undo(filled)
        for one in (script, _shrunk(script, market, within, buy=buy)) if script else ():
            names = tuple(offering.group.name for offering in one.bins)
            if (names, one.puts) in seen:
                continue
            seen.add((names, one.puts))
            first = len(market.opened)
            if _replay(one, market, within) is not None:
                found.append((_cost(market.opened[first:]), _redo(items, one, market, within)))
            scene.undo(filled)
    return found


def fill_standing(items: Iterable[Item], scene: Scene, within: Within) -> tuple[Way, list[Item]]:
    """Put what fits on standing places; what does not is the rest."""
    way: Way = []
    rest: list[Item] = []
    hopeless: set[int] = set()
    for key, shape in items:
        place = scene.find(shape, within) if shape.number not in hopeless else None
        if place is None:
            rest.append((key, shape))
            if not shape.near_to and not shape.spread:
                hopeless.add(shape.number)
            continue
        scene.put(shape, place, key)
        way.append((key, shape, place))
    return way, rest


Preference = tuple[Offering | None, int | None]
"""An offering to open before others, and so many times at most (``None``: always)."""


def _preferences(rest: Sequence[Item], market: Market, within: Within, *, buy: bool) -> list[Preference]:
    """What to open first: nothing in particular; then, for each shape, the few that hold it cheapest."""
    if not market.thorough:
        return [(None, None)]
    left = Counter(shape for _, shape in rest)
    found: dict[str, Offering] = {}
    for shape in sorted(left, key=lambda shape: shape.rank):
        for offering in _by_cost(shape, left[shape], market, within, buy=buy)[:_RULES_AT_MOST]:
            found.setdefault(offering.group.name, offering)
    preferred = list(found.values())[:_RULES_AT_MOST]
    times: tuple[int | None, ...] = (1, 2, None) if len(rest) > 1 else (1,)
    return [(None, None), *((offering, many) for offering in preferred for many in times)]


def _by_cost(shape: Shape, left: int, market: Market, within: Within, *, buy: bool) -> list[Offering]:
    """Offerings that hold the shape, the one first that holds so many of it for the least money."""
    ranked = []
    for offering in market.offerings:
        at_hand = len(market.at_hand(offering))
        if not at_hand and not (buy and market.buyable(offering)):
            continue
        if within is not None and within[0] != HOSTNAME and _label(market, offering, within[0]) != within[1]:
            continue
        holds = market.capacity(offering, shape)
        if holds:
            nodes = ceil(left / holds)
            ranked.append((max(0, nodes - at_hand) * offering.usd, nodes * offering.usd, offering.group.name, offering))
    return [offering for *_, offering in sorted(ranked, key=lambda entry: entry[:3])]


def _label(market: Market, offering: Offering, key: str) -> str | None:
    return market.sample(offering).labels.get(key)


def _open_for(rest: Sequence[Item], market: Market, within: Within, prefer: Preference, *, buy: bool) -> _Script | None:
    """Open fresh nodes until every pod has a place, filling each before the next; ``None`` where some pod has none."""
    scene = market.scene
    left = Counter(shape.number for _, shape in rest)
    bins: list[Offering] = []
    opened: dict[str, int] = {}
    puts: list[tuple[str, Shape, int | Place]] = []
    for key, shape in rest:
        place = scene.find(shape, within)
        if place is None:
            for offering in _tries(shape, left[shape.number], market, within, prefer=prefer, bins=bins, buy=buy):
                place = market.open(offering, lambda fresh, shape=shape: _suits(scene, fresh, [shape], within), buy=buy)  # type: ignore[misc]
                if place is not None:
                    opened[place.name] = len(bins)
                    bins.append(offering)
                    break
        if place is None:
            return None
        scene.put(shape, place, key)
        puts.append((key, shape, opened.get(place.name, place)))
        left[shape.number] -= 1
    return _Script(bins=tuple(bins), puts=tuple(puts))


def _tries(
    shape: Shape, left: int, market: Market, within: Within, *, prefer: Preference, bins: Sequence[Offering], buy: bool
) -> list[Offering]:
    ranked = _by_cost(shape, left, market, within, buy=buy)
    first, times = prefer
    if first is None or first not in ranked or (times is not None and bins.count(first) >= times):
        return ranked
    return [first, *(one for one in ranked if one is not first)]


def _suits(scene: Scene, place: Place, contents: Sequence[Shape], within: Within) -> bool:
    """Whether a fresh place can hold all of this, as far as it can be told before the pods are put."""
    if within is not None and place.labels.get(within[0]) != within[1]:
        return False
    if len(contents) > 1:
        wanted: Counter[str] = Counter()
        for shape in contents:
            for name, amount in shape.amounts:
                wanted[name] += amount
        if any(amount > place.free.get(name, 0) for name, amount in wanted.items()):
            return False
    return scene.why_not(contents[0], place) is None


def _shrunk(script: _Script, market: Market, within: Within, *, buy: bool) -> _Script:
    """The same contents, each on the cheapest offering that holds it."""
    used: Counter[str] = Counter()
    bins = []
    for kept, contents in zip(script.bins, script.contents(), strict=True):
        best = kept
        for offering in market.offerings:
            if _price(offering, used, market) < _price(best, used, market) and _holds(
                offering, contents, used, market, within, buy=buy
            ):
                best = offering
        used[best.group.name] += 1
        bins.append(best)
    return _Script(bins=tuple(bins), puts=script.puts)


def _price(offering: Offering, used: Mapping[str, int], market: Market) -> Cost:
    bought = used[offering.group.name] >= len(market.at_hand(offering))
    return (offering.usd if bought else 0.0, offering.usd)


def _holds(
    offering: Offering, contents: Sequence[Shape], used: Mapping[str, int], market: Market, within: Within, *, buy: bool
) -> bool:
    bought = used[offering.group.name] - len(market.at_hand(offering))
    if bought >= 0 and not (buy and bought < market.buyable(offering)):
        return False
    sample = market.sample(offering)
    if within is not None and within[0] != HOSTNAME and sample.labels.get(within[0]) != within[1]:
        return False
    if any(not market.capacity(offering, shape) for shape in contents):
        return False
    return _suits(market.scene, sample, contents, None) if len(contents) > 1 else True


def _replay(script: _Script, market: Market, within: Within) -> Way | None:
    """Do what the script says; ``None`` where the scene does not allow it after all."""
    scene = market.scene
    contents = script.contents()
    opened: dict[int, Place] = {}
    way: Way = []
    for key, shape, target in script.puts:
        place = opened.get(target) if isinstance(target, int) else target
        if place is None and isinstance(target, int):
            held = contents[target]
            place = market.open(script.bins[target], lambda fresh, held=held: _suits(scene, fresh, held, within))  # type: ignore[misc]
            if place is not None:
                opened[target] = place
        if place is None or scene.why_not(shape, place) is not None:
            return None
        scene.put(shape, place, key)
        way.append((key, shape, place))
    return way


def _cost(opened: Iterable[Place]) -> Cost:
    places = list(opened)
    listed = sum(place.group.usd_per_hour for place in places if place.group)
    return (round(sum(place.price for place in places), 9), round(listed, 9))


def _redo(items: Sequence[Item], script: _Script, market: Market, within: Within) -> Callable[[], Way | None]:
    def redo() -> Way | None:
        standing, _ = fill_standing(items, market.scene, within)
        fresh = _replay(script, market, within)
        return None if fresh is None else standing + fresh

    return redo
