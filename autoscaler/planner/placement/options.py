"""The ways to hold a gang's pods: on standing places first, the rest on fresh nodes, each way with its cost.

Fresh nodes are opened one after the other, each filled before the next: the cheapest for what is left, or for each
shape one that holds it cheaply before others; then each node's contents go to the cheapest offering that holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

from autoscaler.model.feasibility import Amounts, why_no_room
from autoscaler.model.labels import HOSTNAME
from autoscaler.planner.placement.offerings import Market, Offering
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place, Shape

Cost = tuple[float, float]
"""Dollars per hour bought, by us or anew by those whose nodes we take; then list price of the fresh nodes used: two
ways that cost the same are told apart."""

Item = tuple[str, Shape]
Option = list[tuple[str, Shape, Place]]
Within = tuple[str, str] | None


_RULES_AT_MOST = 12
_OPENED_AT_MOST = 2_000
"""Fresh nodes that are opened in search of ways to hold one gang: no other way is begun when so many were."""
_MANY = 64
"""Of more pods of a shape that are left, so many at a time are held by what is cheapest for all that are left."""


@dataclass(frozen=True, slots=True)
class _Script:
    """A way that can be done again: fresh nodes to open, and which pod goes where."""

    bins: tuple[Offering, ...]
    puts: tuple[tuple[str, Shape, int | Place], ...]
    """(pod key, shape, number of the fresh node or a standing place)"""

    @property
    def key(self) -> object:
        """Returns what tells it from other ways."""
        return tuple(offering.group.name for offering in self.bins), self.puts

    def contents(self) -> list[list[Shape]]:
        """What each fresh node holds."""
        held: list[list[Shape]] = [[] for _ in self.bins]
        for _, shape, target in self.puts:
            if isinstance(target, int):
                held[target].append(shape)
        return held


def options_for(
    items: Sequence[Item], market: Market, within: Within, *, buy: bool, own: Collection[str] = ()
) -> list[tuple[Cost, Callable[[], Option | None]]]:
    """Each way found: its cost, and how to do it again from the same state. The snapshot is left dirty.

    ``own``: names of fresh nodes that were bought for these very pods.
    """
    snapshot = market.snapshot
    _, rest = fill_standing(items, snapshot, within)
    if not rest:
        return [((0.0, 0.0), lambda: fill_standing(items, snapshot, within)[0])]
    found: list[tuple[Cost, Callable[[], Option | None]]] = []
    filled, first = snapshot.mark(), len(market.opened)
    ranking, seen, opened = _Ranking(market, within, buy, opened=first), set(), 0
    for prefer in _preferences(rest, ranking):
        script = _open_for(rest, ranking, prefer)
        many = len(market.opened) - first
        opened += many
        cost = _cost(market.opened[first:], market, own)
        snapshot.undo(filled)
        if script is None and not many:  # it is hopeless, whichever offering were opened first
            break
        for one in (script, _shrunk(script, market, within)) if script else ():
            if one.key in seen:
                continue
            seen.add(one.key)
            if one is script:  # it has just been done
                found.append((cost, _redo(items, one, market, within)))
                continue
            if _replay(one, market, within) is not None:
                found.append((_cost(market.opened[first:], market, own), _redo(items, one, market, within)))
            snapshot.undo(filled)
        if opened >= _OPENED_AT_MOST:
            break
    return found


def fill_standing(items: Iterable[Item], snapshot: Snapshot, within: Within) -> tuple[Option, list[Item]]:
    """Put what fits on standing places; what does not is the rest."""
    option: Option = []
    rest: list[Item] = []
    hopeless: set[int] = set()
    for key, shape in items:
        place = snapshot.find(shape, within) if shape.number not in hopeless else None
        if place is None:
            rest.append((key, shape))
            if not shape.near_to and not shape.spread:
                hopeless.add(shape.number)
            continue
        snapshot.put(shape, place, key)
        option.append((key, shape, place))
    return option, rest


Preference = tuple[Offering | None, int | None]
"""An offering to open before others, and so many times at most (``None``: always)."""


def _preferences(rest: Sequence[Item], ranking: _Ranking) -> Iterator[Preference]:
    """What to open first: nothing in particular; then, for each shape, the few that hold it cheapest."""
    yield None, None
    if not ranking.market.thorough:
        return
    left = Counter(shape for _, shape in rest)
    found: dict[str, Offering] = {}
    for shape in sorted(left, key=lambda shape: shape.rank):
        for offering in ranking.by_cost(shape, left[shape])[:_RULES_AT_MOST]:
            found.setdefault(offering.group.name, offering)
    preferred = list(found.values())[:_RULES_AT_MOST]
    times: tuple[int | None, ...] = (1, 2, None) if len(rest) > 1 else (1,)
    yield from ((offering, many) for offering in preferred for many in times)


@dataclass(slots=True)
class _Ranking:
    """What may be opened, the cheapest first."""

    market: Market
    within: Within
    buy: bool
    opened: int
    """Fresh nodes that are open before any is for these pods: as long as there are no more, what was found stands."""
    _found: dict[tuple[int, int], Sequence[Offering]] = field(default_factory=dict)
    _of_many: dict[tuple[int, int], Sequence[Offering]] = field(default_factory=dict)
    """In this way: by shape and how many times ``_MANY`` pods are left."""
    _held_by: dict[int, list[tuple[Offering, int]]] = field(default_factory=dict)
    """By shape the offerings that hold it, and how many of it."""

    def of_a_way(self) -> _Ranking:
        """Returns a ranking for one way: what is found while its nodes are opened stands for no other."""
        return replace(self, _of_many={})

    def by_cost(self, shape: Shape, left: int) -> Sequence[Offering]:
        """Offerings that hold the shape, the one first that holds so many of it for the least money."""
        if len(self.market.opened) == self.opened:
            return self._kept(self._found, (shape.number, left), shape, left)
        if left > _MANY:
            return self._kept(self._of_many, (shape.number, left // _MANY), shape, left)
        return self._by_cost(shape, left)

    def _kept(
        self, known: dict[tuple[int, int], Sequence[Offering]], key: tuple[int, int], shape: Shape, left: int
    ) -> Sequence[Offering]:
        if key not in known:
            known[key] = self._by_cost(shape, left)
        return known[key]

    def _by_cost(self, shape: Shape, left: int) -> Sequence[Offering]:
        market, ranked = self.market, []
        for offering, holds in self._holders(shape):
            at_hand = len(market.at_hand(offering))
            if at_hand or (self.buy and market.buyable(offering)):
                nodes = ceil(left / holds)
                ranked.append((max(0, nodes - at_hand) * offering.usd, nodes * offering.usd, offering.rank, offering))
        return [offering for *_, offering in sorted(ranked, key=lambda entry: entry[:3])]

    def _holders(self, shape: Shape) -> list[tuple[Offering, int]]:
        if shape.number not in self._held_by:
            market = self.market
            there = (one for one in market.with_room(shape.amounts) if _is_there(market.sample(one), self.within))
            holds = ((one, market.capacity(one, shape)) for one in there)
            self._held_by[shape.number] = [(one, many) for one, many in holds if many]
        return self._held_by[shape.number]


def _is_there(sample: Place, within: Within) -> bool:
    """Whether new nodes like it are where the gang is to be; each new node is a host of its own."""
    return within is None or within[0] == HOSTNAME or sample.labels.get(within[0]) == within[1]


def _open_for(rest: Sequence[Item], ranking: _Ranking, prefer: Preference) -> _Script | None:
    """Open fresh nodes until every pod has a place, filling each before the next; ``None`` where some pod has none."""
    market, within, snapshot, ranking = ranking.market, ranking.within, ranking.market.snapshot, ranking.of_a_way()
    left = Counter(shape.number for _, shape in rest)
    bins: list[Offering] = []
    used: Counter[str] = Counter()
    opened: dict[str, int] = {}
    puts: list[tuple[str, Shape, int | Place]] = []
    for key, shape in rest:
        place = snapshot.find(shape, within)
        if place is None:
            for offering in _tries(ranking.by_cost(shape, left[shape.number]), prefer=prefer, used=used):
                fits = partial(_suits, snapshot, shape, shape.amounts, within)
                place = market.open(offering, fits, buy=ranking.buy)
                if place is not None:
                    opened[place.name] = len(bins)
                    bins.append(offering)
                    used[offering.group.name] += 1
                    break
        if place is None:
            return None
        snapshot.put(shape, place, key)
        puts.append((key, shape, opened.get(place.name, place)))
        left[shape.number] -= 1
    return _Script(bins=tuple(bins), puts=tuple(puts))


def _tries(ranked: Sequence[Offering], *, prefer: Preference, used: Mapping[str, int]) -> Sequence[Offering]:
    first, times = prefer
    if first is None or (times is not None and used[first.group.name] >= times) or first not in ranked:
        return ranked
    return [first, *(offering for offering in ranked if offering is not first)]


def _suits(snapshot: Snapshot, first: Shape, amounts: Amounts, within: Within, place: Place) -> bool:
    """Whether a fresh place can hold so much and the first pod of it, as far as can be told before pods are put."""
    if within is not None and place.labels.get(within[0]) != within[1]:
        return False
    return why_no_room(amounts, place.free) is None and snapshot.why_not(first, place) is None


def _shrunk(script: _Script, market: Market, within: Within) -> _Script:
    """The same contents, each on the cheapest offering that holds it."""
    used: Counter[str] = Counter()
    bins = []
    for kept, contents in zip(script.bins, script.contents(), strict=True):
        best = kept
        for offering in market.with_room(_sum(contents)):
            is_cheaper = _price(offering, used, market) < _price(best, used, market)
            if is_cheaper and _holds(offering, contents, used, market, within):
                best = offering
        used[best.group.name] += 1
        bins.append(best)
    return _Script(bins=tuple(bins), puts=script.puts)


def _sum(contents: Sequence[Shape]) -> Amounts:
    wanted: Counter[str] = Counter()
    for shape in contents:
        wanted.update(dict(shape.amounts))
    return tuple(wanted.items())


def _price(offering: Offering, used: Mapping[str, int], market: Market) -> Cost:
    bought = used[offering.group.name] >= len(market.at_hand(offering))
    return (offering.usd if bought else 0.0, offering.usd)


def _holds(
    offering: Offering, contents: Sequence[Shape], used: Mapping[str, int], market: Market, within: Within
) -> bool:
    """Whether one more of it may be had, and would hold all of this."""
    bought = used[offering.group.name] - len(market.at_hand(offering))
    if bought >= 0 and bought >= market.buyable(offering):
        return False
    sample = market.sample(offering)
    if not _is_there(sample, within) or not all(market.capacity(offering, shape) for shape in contents):
        return False
    return len(contents) == 1 or market.snapshot.why_not(contents[0], sample) is None


def _replay(script: _Script, market: Market, within: Within) -> Option | None:
    """Do what the script says; ``None`` where the snapshot does not allow it after all."""
    snapshot = market.snapshot
    contents = script.contents()
    opened: dict[int, Place] = {}
    option: Option = []
    for key, shape, target in script.puts:
        place = opened.get(target) if isinstance(target, int) else target
        if place is None and isinstance(target, int):
            held = contents[target]
            fits = partial(_suits, snapshot, held[0], _sum(held), within)
            place = market.open(script.bins[target], fits)
            if place is not None:
                opened[target] = place
        if place is None or snapshot.why_not(shape, place) is not None:
            return None
        snapshot.put(shape, place, key)
        option.append((key, shape, place))
    return option


def _cost(opened: Iterable[Place], market: Market, own: Collection[str]) -> Cost:
    paid, listed = 0.0, 0.0
    for place in opened:
        usd = place.group.usd_per_hour if place.group is not None else 0.0
        listed += usd
        if place.price or (market.is_kept(place) and place.name not in own):
            paid += usd
    return round(paid, 9), round(listed, 9)


def _redo(items: Sequence[Item], script: _Script, market: Market, within: Within) -> Callable[[], Option | None]:
    def redo() -> Option | None:
        standing, _ = fill_standing(items, market.snapshot, within)
        fresh = _replay(script, market, within)
        return None if fresh is None else standing + fresh

    return redo
