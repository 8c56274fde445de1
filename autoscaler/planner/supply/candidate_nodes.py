"""Where pods may land, what placing a pod depends on, and in which order places are filled.

Pods that placing cannot tell apart share one :class:`Shape`: questions are asked and answered once for all of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from operator import itemgetter
from typing import Final

from autoscaler.model.cluster import Group, Node, Pod
from autoscaler.model.constraints import PodTerm, Spread, Taint, Term, Toleration
from autoscaler.model.feasibility import Amounts
from autoscaler.model.resources import ATTACHMENTS, CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources

_COMMON: Final = frozenset({CPU, MEMORY, PODS, EPHEMERAL_STORAGE})
_CPU_UNIT: Final = 64_000
_MEMORY_UNIT: Final = 256 * 2**30
_ROUNDING: Final = 1e-9
ON_PREM_TIER, EC2_TIER, ENDING_TIER, CORDONED_TIER, COMING_TIER = range(5)
_FEW: Final = 100
"""Places that are put in order one by one; more are sorted with all others."""
_CHANGES: Final = 32
_PLACES_PER_CHANGE: Final = 64
"""A shelf is kept for so many changes, and one more for so many places: with 30,000 shapes on 1,000 places a tenth of
the time of one shelf for all of them, and no more than 75 us a change on 15,000 places."""

Harm = tuple[int, int, float]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What placing a pod depends on. Made by :meth:`Snapshot.shape`; pods that are alike get the same object."""

    requests: Resources
    amounts: Amounts
    affinity: tuple[Term, ...]
    ties: tuple[tuple[Term, ...], ...]
    tolerations: tuple[Toleration, ...]
    namespace: str
    labels: Mapping[str, str]
    """Only those that some rule asks about."""
    apart_from: tuple[PodTerm, ...]
    near_to: tuple[PodTerm, ...]
    spread: tuple[Spread, ...]
    host_ports: frozenset[tuple[str, int]]
    asked_keys: tuple[str, ...]
    """Label keys that its node affinity and its volumes ask about, then those that a node must have at all."""
    number: int
    rank: tuple[float, ...]
    """Biggest first when sorted: devices, then the larger share of cpu or memory."""

    @property
    def devices(self) -> dict[str, int]:
        """Extended resources asked for: GPUs and the like."""
        return {name: amount for name, amount in self.amounts if is_device(name)}


@dataclass(slots=True, eq=False)
class Place:
    """Somewhere a pod may land: a node that is there, one that is on its way, or one that would be bought."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: dict[str, int]
    tier: int
    """Places of a lower tier are filled first."""
    node: Node | None = None
    group: Group | None = None
    standing: bool = True
    """Open to every pod; a fresh node becomes so with its first pod."""
    ports: frozenset[tuple[str, int]] = frozenset()
    guests: list[str] = field(default_factory=list)
    """Keys of the pods put here in this snapshot."""
    index: int = -1
    version: int = 0
    harm: tuple[int, Harm] | None = None
    """As of a version."""
    price: float = 0.0
    """Dollars per hour that using it adds to the bill."""


def is_device(resource: str) -> bool:
    """GPUs and the like: what machines differ in, and what should not be stranded."""
    return resource not in _COMMON and not resource.startswith(ATTACHMENTS)


def shape_of(pod: Pod, namespace: str, labels: Mapping[str, str], *, number: int) -> Shape:
    """The shape of a pod, of which only these labels are asked about."""
    requests = pod.requests if pod.requests[PODS] else pod.requests + Resources({PODS: 1})
    devices = sum(amount for name, amount in requests.items() if is_device(name))
    rank = (-devices, -max(requests[CPU] / _CPU_UNIT, requests[MEMORY] / _MEMORY_UNIT), number)
    return Shape(
        requests=requests,
        amounts=tuple(sorted((name, amount) for name, amount in requests.items() if amount > 0)),
        affinity=pod.affinity,
        ties=pod.ties,
        tolerations=pod.tolerations,
        namespace=namespace,
        labels=labels,
        apart_from=pod.apart_from,
        near_to=pod.near_to,
        spread=pod.spread,
        host_ports=pod.host_ports,
        asked_keys=_asked_keys(pod),
        number=number,
        rank=rank,
    )


def _asked_keys(pod: Pod) -> tuple[str, ...]:
    selected = [one.key for terms in (pod.affinity, *pod.ties) for term in terms for one in term]
    needed = [*(term.topology_key for term in pod.near_to), *(one.topology_key for one in pod.spread)]
    return tuple(dict.fromkeys([*selected, *needed]))


def harm(place: Place) -> Harm:
    """How much use of a place is lost to others when a pod goes there: its tier, free devices stranded, what is left.

    A pod takes the same from every place, so the order is the same for all pods, and is kept until the place changes.
    """
    known = place.harm
    if known is None or known[0] != place.version:
        free = place.free
        devices = sum([amount for name, amount in free.items() if amount > 0 and is_device(name)])
        rest = max(0, free.get(CPU, 0)) / _CPU_UNIT + max(0, free.get(MEMORY, 0)) / _MEMORY_UNIT
        known = place.harm = (place.version, (place.tier, devices, rest))
    return known[1]


_Ranked = tuple[Harm, str, int, Place]
"""How much is lost when a pod goes to a place, its name, which version of it was ranked, and the place."""


class FillOrder:
    """Standing places in the order in which they are to be filled, kept while they do not change."""

    def __init__(self) -> None:
        self._entries: list[_Ranked] = []

    @property
    def is_empty(self) -> bool:
        """Whether none is known of."""
        return not self._entries

    def of(self, places: Iterable[Place]) -> list[_Ranked]:
        """Returns the standing places in order, as they are now."""
        left = {id(place): place for place in places if place.standing}
        entries = [one for one in self._entries if one[2] == one[3].version and left.pop(id(one[3]), None) is not None]
        new = [(harm(place), place.name, place.version, place) for place in left.values()]
        if len(new) > _FEW:
            entries = sorted([*entries, *new])
        else:
            for one in new:
                insort(entries, one)
        self._entries = entries
        return entries


class Shelf:
    """The standing places in the order in which they are to be filled, as they were when first asked about."""

    def __init__(self, places: Iterable[Place], changed: Sequence[Place], order: FillOrder) -> None:
        """``changed``: each place that changes is appended there. ``order``: what is known of it."""
        self.entries = order.of(places)
        self.changed = changed
        self.seen = len(changed)
        self._most = _CHANGES + len(self.entries) // _PLACES_PER_CHANGE
        self._starts: list[int] = []
        """Where each tier and number of free devices begins."""
        start = 0
        while start < len(self.entries):
            self._starts.append(start)
            kind = self.entries[start][0][:2]
            start = bisect_right(self.entries, kind, start, key=lambda one: one[0][:2])

    def is_stale(self, seen: int | None = None) -> bool:
        """Says that so much has changed, since it was made or ``seen``, that a new one costs less than to catch up."""
        return len(self.changed) - (self.seen if seen is None else seen) > self._most

    def worth_a_look(self, shape: Shape) -> list[range]:
        """Positions, in order, that hold every place with room for the shape: the others have too little in sum."""
        asked = dict(shape.amounts)
        devices = sum(amount for name, amount in shape.amounts if is_device(name))
        rest = asked.get(CPU, 0) / _CPU_UNIT + asked.get(MEMORY, 0) / _MEMORY_UNIT
        found = []
        for start, end in pairwise((*self._starts, len(self.entries))):
            tier, free, _ = self.entries[start][0]
            if free >= devices:
                least = ((tier, free, rest - _ROUNDING), "", 0)
                found.append(range(bisect_left(self.entries, least, start, end, key=itemgetter(0, 1, 2)), end))
        return found


_Entry = tuple[Harm, str, int, Place, int]
"""Order, name, a number of its own, the place and which version of it was ranked."""


class Ranking:
    """The standing places with room for one shape, best first, kept in step with the snapshot's changes.

    Most places never change: those are read off the shelf that all shapes share. Those that do are in a heap.
    """

    def __init__(self, shape: Shape, shelf: Shelf, may_take: Callable[[Place], bool]) -> None:
        """``may_take``: whether a place could ever take the shape, whatever room it has."""
        self._shape = shape
        self._may_take = may_take
        self._changed = shelf.changed
        self._tickets = count()
        self._shelf = shelf
        self._rows = shelf.worth_a_look(shape)
        self._heap: list[_Entry] = []
        self._seen = shelf.seen

    def is_stale(self) -> bool:
        """A new one costs less than to catch up with what has changed since this one was last asked."""
        return self._shelf.is_stale(self._seen)

    def in_order(self) -> Iterator[Place]:
        """Best first; may be left before its end."""
        self._catch_up()
        passed = []
        unchanged = self._unchanged()
        try:
            first = next(unchanged, None)
            while first is not None or self._heap:
                if first is not None and (not self._heap or first[:2] < self._heap[0][:2]):
                    yield first[3]
                    first = next(unchanged, None)
                    continue
                entry = heapq.heappop(self._heap)
                *_, place, version = entry
                if version == place.version and place.standing and place.index >= 0:
                    passed.append(entry)
                    yield place
        finally:
            for entry in passed:
                heapq.heappush(self._heap, entry)

    def _unchanged(self) -> Iterator[tuple[Harm, str, int, Place]]:
        """Yields places of the shelf that are as they were; what comes before the first is not asked again."""
        is_first = True
        for number, row in enumerate(self._rows):
            for position in row:
                entry = self._shelf.entries[position]
                place = entry[3]
                if entry[2] == place.version and self._has_room(place) and self._may_take(place):
                    if is_first:
                        self._rows = [range(position, row.stop), *self._rows[number + 1 :]]
                        is_first = False
                    yield entry
        if is_first:
            self._rows = []

    def _catch_up(self) -> None:
        changed = self._changed
        for place in {id(place): place for place in changed[self._seen :]}.values():
            if self._has_room(place) and self._may_take(place):
                entry = (harm(place), place.name, next(self._tickets), place, place.version)
                heapq.heappush(self._heap, entry)
        self._seen = len(changed)

    def _has_room(self, place: Place) -> bool:
        if not place.standing or place.index < 0:
            return False
        free = place.free
        for name, amount in self._shape.amounts:
            if amount > free.get(name, 0):
                return False
        return not (self._shape.host_ports and self._shape.host_ports & place.ports)
