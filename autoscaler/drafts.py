"""Drafts of an offline plan: who goes to machines that are there, which nodes are bought for the others, who is left.

Free machines first (:mod:`autoscaler.room`), then the cheapest nodes for all others (:mod:`autoscaler.columns`), then
seats on them (:mod:`autoscaler.seats`). Those who find no seat beside the others are planned for once more, together.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoscaler.cluster import Pod
from autoscaler.columns import Answer, Kind, Shape, Vector, cheapest, lower_bound
from autoscaler.crowds import MANY, crowded
from autoscaler.neighbours import FREE, Company, Neighbours, by_zone
from autoscaler.offers import Offer
from autoscaler.room import Amounts, Room
from autoscaler.seats import seat

Rows = dict[tuple[int, tuple[int, ...], str], list[int]]
"""Pods by what they ask of a node, the exclusive places that they take, and their zone."""
_BOUNDING = 0.3
"""Part of the time that is kept back where the bound is found apart: beside machines, or for shapes taken together."""
_SPARED = 1000.0
_AGAIN = 12
_ROUNDS = 4
_MANY = 400


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Pods that the solver takes for alike."""

    sort: int
    """Of one of them: all select the same."""
    zone: str
    size: Vector
    pods: list[int]


@dataclass(slots=True)
class Fresh:
    """A node that would be bought, and the pods on it by number."""

    offer: Offer
    pods: list[int]
    company: Company
    planned: int
    """Places that it was bought for."""


@dataclass(slots=True)
class Draft:
    """Pods by number to machines that are there; the others to nodes that would be bought."""

    at_home: dict[int, int]
    nodes: list[Fresh]
    left: list[int]
    lower_bound: float | None
    """``None``: shapes were taken together, it is yet to be found."""

    @property
    def usd(self) -> float:
        """Dollars per hour."""
        return math.fsum(node.offer.kind.usd for node in self.nodes)


class Drafting:
    """Pods, room and rules, ready to be tried in several ways."""

    def __init__(self, pods: Sequence[Pod], sorts: Sequence[int], room: Room, rules: Neighbours) -> None:
        """``sorts``: of each pod the number of its sort."""
        self.pods, self.sorts, self.room, self.rules = pods, sorts, room, rules
        self.stances = [rules.number[sort] for sort in sorts]
        self.zone_of: dict[int, str] = {}
        """The zone of each pod, where zones matter."""

    def draft(
        self, numbers: Sequence[int], *, deadline: float = 0.0, clock: Callable[[], float] | None = None
    ) -> Draft:
        """Machines first, then the cheapest nodes; without a clock the first plan at hand."""
        start = clock() if clock else 0.0
        at_home = self._fill_machines(numbers)
        rows = self._rows(number for number in numbers if number not in at_home)
        kinds = self.room.kinds((1,) * len(self.rules.exclusive))
        crowds = self._crowds(rows)
        shapes = [self._shape(crowd) for crowd in crowds]
        if clock is None:
            answer = cheapest(shapes, kinds, rounds=0, deadline=math.inf)
        else:
            part = 1 - _BOUNDING if at_home or len(crowds) < len(rows) else 1.0
            left_over = max(0.05, deadline * part - (clock() - start))
            answer = cheapest(shapes, kinds, deadline=left_over, clock=clock)
        nodes, left = self._seated(answer, [crowd.pods for crowd in crowds])
        if left:
            left = self._squeeze(nodes, left, kinds)
        whole = len(crowds) == len(rows)
        if not whole:
            self._shrink(nodes, every=True)
        return Draft(at_home, nodes, left, answer.lower_bound if whole else None)

    def bound(self, draft: Draft, chosen: Sequence[int]) -> float:
        """Of all ways to serve the same pods; where machines are there, of all ways to choose who goes on them."""
        if draft.lower_bound is not None and not draft.at_home and (not self.zone_of or self.room.merges):
            return draft.lower_bound
        alone = (1,) * len(self.rules.exclusive)
        machines: dict[Vector, list[int]] = defaultdict(list)
        for number, free in enumerate(np.maximum(self.room.free, 0).tolist()):
            machines[tuple(free)].append(number)
        kinds = self.room.kinds(alone)
        kinds += [
            Kind(f"machine-{number}", room + alone, 0.0, len(group))
            for number, (room, group) in enumerate(machines.items())
        ]
        rows: Counter[tuple[Vector, frozenset[str]]] = Counter()
        for sort, many in Counter(self.sorts[number] for number in chosen).items():
            names = self.room.names(sort, None)
            if machines:
                there = self.room.at_home(sort)
                names |= {f"machine-{number}" for number, group in enumerate(machines.values()) if there[group].any()}
            rows[self._size(sort), names] += many
        return lower_bound(_least(rows), kinds)

    def _rows(self, numbers: Iterable[int]) -> Rows:
        """Pods that ask for the same in the same zone; to the solver they are alike."""
        places: dict[int, tuple[int, tuple[int, ...]]] = {}
        rows: Rows = defaultdict(list)
        zone_of = self.zone_of
        for number in numbers:
            sort = self.sorts[number]
            place = places.get(sort)
            if place is None:
                place = places[sort] = (self.room.kin[sort], self.rules.needs(sort))
            rows[*place, zone_of.get(number, "")].append(number)
        return rows

    def _crowds(self, rows: Rows) -> list[_Crowd]:
        """Rows as they are, or, where they are too many, those of about the same size together."""
        parts = [(self.sorts[pods[0]], zone, pods) for (*_, zone), pods in rows.items()]
        found = [_Crowd(sort, zone, self._size(sort), pods) for sort, zone, pods in parts]
        if len({crowd.size for crowd in found}) <= MANY:
            return found
        sizes = np.array([crowd.size for crowd in found], dtype=np.int64)
        counts = np.array([len(crowd.pods) for crowd in found], dtype=np.int64)
        like = [(crowd.size[2:], crowd.zone, self.room.names(crowd.sort, crowd.zone or None)) for crowd in found]
        several = []
        for group in crowded(sizes, counts, like):
            most = sizes[group].max(axis=0)
            first = found[group[0]]
            if (self.room.suits(first.sort)[0] & (most[:4] <= self.room.rooms).all(axis=1)).any():
                pods = sorted(number for one in group for number in found[one].pods)
                several.append(_Crowd(first.sort, first.zone, tuple(most.tolist()), pods))
            else:
                several += [found[one] for one in group]
        return several

    def _shape(self, crowd: _Crowd) -> Shape:
        part = crowd.zone if self.room.merges else ""
        return Shape(crowd.size, len(crowd.pods), self.room.names(crowd.sort, crowd.zone or None), part)

    def _size(self, sort: int) -> Vector:
        cpu, memory, gpus, pods = self.room.sizes[sort].tolist()
        return (cpu, memory, gpus, pods, *self.rules.needs(sort))

    def _seated(self, answer: Answer, rows: Sequence[list[int]]) -> tuple[list[Fresh], list[int]]:
        lots = [(self.room.offer(lot.kind, lot.part), lot.pods) for lot in answer.nodes for _ in range(lot.times)]
        seats, companies, left = seat(
            (places for _, places in lots), rows, stances=self.rules.stances, number=self.stances
        )
        nodes = [
            Fresh(offer, pods, company, sum(many for _, many in places))
            for (offer, places), pods, company in zip(lots, seats, companies, strict=True)
        ]
        return nodes, left

    def _squeeze(self, nodes: list[Fresh], left: list[int], kinds: Sequence[Kind]) -> list[int]:
        """Seat those who did not get on: where there is room beside others, else on more nodes. Who stays left."""
        for _ in range(_AGAIN):
            left = self._beside(nodes, left)
            if not left:
                break
            bought = Counter(node.offer.kind.name for node in nodes)
            crowds = self._crowds(self._rows(left))
            shapes = [self._shape(crowd) for crowd in crowds]
            answer = cheapest(shapes, self._remaining(kinds, bought), rounds=_ROUNDS, deadline=math.inf)
            more, still = self._seated(answer, [crowd.pods for crowd in crowds])
            more = [node for node in more if node.pods]
            nodes += more
            if not more:
                left = still
                break
            left = still
        self._shrink(nodes)
        return left

    def _remaining(self, kinds: Sequence[Kind], bought: Mapping[str, int]) -> list[Kind]:
        return [
            kind if kind.available is None else replace(kind, available=max(0, kind.available - bought[kind.name]))
            for kind in kinds
        ]

    def _beside(self, nodes: Sequence[Fresh], left: Sequence[int]) -> list[int]:
        """A few pods where there is room for them beside others; who finds none."""
        if len(left) > _MANY or not nodes:
            return list(left)
        free = np.array([self._free_on(node) for node in nodes], dtype=np.int64).reshape(-1, 4)
        still = []
        for number in left:
            sort, stance = self.sorts[number], self.rules.stance(self.sorts[number])
            names, zone = self.room.names(sort, self.zone_of.get(number)), self.zone_of.get(number)
            size = self.room.sizes[sort]
            for one in np.nonzero((size <= free).all(axis=1))[0].tolist():
                node = nodes[one]
                if (
                    zone in (None, node.offer.zone)
                    and self.room.name(node.offer) in names
                    and node.company.admits(stance)
                ):
                    node.pods.append(number)
                    node.company.join(stance)
                    free[one] -= size
                    break
            else:
                still.append(number)
        return still

    def _free_on(self, node: Fresh) -> Amounts:
        used = self.room.sizes[[self.sorts[one] for one in node.pods]].sum(axis=0)
        free: Amounts = np.array(node.offer.kind.amounts, dtype=np.int64) - used
        return free

    def _shrink(self, nodes: list[Fresh], *, every: bool = False) -> None:
        """Nodes that hold less than was planned, or all: the cheapest kind that is large enough; none for nobody."""
        rooms, usd = self.room.rooms, np.array([offer.kind.usd for offer in self.room.offers])
        bought = Counter(node.offer.kind.name for node in nodes)
        for node in nodes:
            if not node.pods or (len(node.pods) >= node.planned and not every):
                continue
            sorts = sorted({self.sorts[one] for one in node.pods})
            used = self.room.sizes[[self.sorts[one] for one in node.pods]].sum(axis=0)
            fits = (rooms >= used).all(axis=1) & (usd < node.offer.kind.usd)
            for sort in sorts:
                fits &= self.room.fits(sort)
            for one in sorted(np.nonzero(fits)[0].tolist(), key=lambda one: usd[one]):
                offer = self.room.offers[one]
                available = offer.kind.available
                if offer.zone == node.offer.zone and (available is None or bought[offer.kind.name] < available):
                    bought[node.offer.kind.name] -= 1
                    bought[offer.kind.name] += 1
                    node.offer = offer
                    break
        nodes[:] = [node for node in nodes if node.pods]

    def _fill_machines(self, numbers: Sequence[int]) -> dict[int, int]:
        """Biggest pods first, each where it strands the fewest GPUs, then where the least is left over."""
        room = self.room
        if not len(room.machines):
            return {}
        free = room.free.copy()
        scale = np.maximum(room.free.max(axis=0), 1)
        at_home: dict[int, int] = {}
        full: set[int] = set()
        stranded = _Stranded(room.sizes, Counter(self.sorts[number] for number in numbers), free)

        def order(number: int) -> tuple[float, ...]:
            cpu, memory, gpus, _ = room.sizes[self.sorts[number]].tolist()
            share = max(cpu / scale[0], memory / scale[1])
            return (-self.pods[number].priority, -gpus, -share, room.kin[self.sorts[number]], number)

        for number in sorted(numbers, key=order):
            sort = self.sorts[number]
            kin = room.kin[sort]
            if kin in full or self.rules.stance(sort) != FREE or by_zone(self.pods[number]):
                continue  # who is on the machines already may mind
            size = room.sizes[sort]
            fits = room.at_home(sort) & (size <= free).all(axis=1)
            if not fits.any():
                full.add(kin)
                continue
            rest = (free[:, :3] / scale[:3]).sum(axis=1)
            more = stranded.more(size)
            machine = int(np.argmin(np.where(fits, more * _SPARED + rest, np.inf)))
            free[machine] -= size
            stranded.changed(machine)
            at_home[number] = machine
        return at_home


class _Stranded:
    """Of each machine's free GPUs how many a pod could not use, on the average over those that wait for GPUs.

    Placing each pod where this grows least is the fragmentation gradient descent of Weng et al., "Beware of
    Fragmentation", USENIX ATC 2023, with whole GPUs.
    """

    def __init__(self, sizes: Amounts, many: Counter[int], free: Amounts) -> None:
        """``many``: how many pods of each sort wait. ``free``: kept up by the caller, who tells of each change."""
        sorts = [sort for sort in many if sizes[sort, 2] > 0]
        self.free = free
        kinds: Counter[tuple[int, ...]] = Counter()
        for sort in sorts:
            kinds[tuple(sizes[sort, :3].tolist())] += many[sort]
        self._kinds: Amounts = np.array(list(kinds), dtype=np.int64).reshape(-1, 3)
        self._shares = np.array(list(kinds.values()), dtype=float) / max(1, sum(kinds.values()))
        self._now = self._of(free)
        self._size: tuple[int, ...] = ()
        self._after = self._now

    def more(self, size: Amounts) -> np.ndarray[Any, np.dtype[np.float64]]:
        """By machine, how much is added where such a pod is placed."""
        if self._size != tuple(size.tolist()):
            self._size = tuple(size.tolist())
            self._after = self._of(self.free - size)
        return self._after - self._now

    def changed(self, machine: int) -> None:
        """A pod was placed there, of the size asked about last."""
        self._now[machine] = self._after[machine]
        self._after[machine] = self._of((self.free[machine] - np.array(self._size))[None])[0]

    def _of(self, free: Amounts) -> np.ndarray[Any, np.dtype[np.float64]]:
        fits = np.ones((len(free), len(self._kinds)), dtype=bool)
        for one in range(3):
            fits &= free[:, one, None] >= self._kinds[None, :, one]
        return np.maximum(free[:, 2], 0) * (~fits @ self._shares)


def _least(rows: Mapping[tuple[Vector, frozenset[str]], int]) -> list[Shape]:
    """As many shapes as are bounded in good time: of those taken together the least that one of them asks for."""
    if len(rows) <= MANY:
        return [Shape(size, many, names) for (size, names), many in rows.items()]
    sizes = np.array([size for size, _ in rows], dtype=np.int64)
    counts = np.array(list(rows.values()), dtype=np.int64)
    names = [names for _, names in rows]
    like = [(names, *size[2:]) for size, names in rows]
    return [
        Shape(tuple(sizes[crowd].min(axis=0).tolist()), int(counts[crowd].sum()), names[crowd[0]])
        for crowd in crowded(sizes, counts, like)
    ]
