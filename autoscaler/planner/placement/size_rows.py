"""What the solver is asked about pods: those that ask for the same are a row, those of about the same size a crowd."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np

from autoscaler.planner.demand.pod_rules import Neighbours
from autoscaler.planner.supply.capacity import Amounts, Room
from autoscaler.solver.problem import Shape, Vector
from autoscaler.solver.size_clusters import MANY, crowded, middles
from autoscaler.solver.solution import Answer

Rows = dict[tuple[int, tuple[int, ...], str], list[int]]
"""Pods by what they ask of a node, the exclusive places that they take, and their zone."""
_CROWDS = 80
"""So many crowds for the plan."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Pods that the solver takes for alike."""

    sort: int
    """Of one of them: all select the same."""
    zone: str
    size: Vector
    pods: list[int]
    members: tuple[Amounts, Amounts] | None = None
    """Where they are not alike: [row, amount] what they ask for, and how many of each there are."""


class Shaping:
    """Pods, room and rules."""

    def __init__(self, sorts: Sequence[int], room: Room, rules: Neighbours) -> None:
        """``sorts``: of each pod the number of its sort."""
        self.sorts, self.room, self.rules = sorts, room, rules
        self.zone_of: dict[int, str] = {}
        """The zone of each pod, where zones matter."""

    def rows(self, numbers: Iterable[int]) -> Rows:
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

    def crowds(self, rows: Rows, *, many: int = _CROWDS) -> list[Crowd]:
        """Rows as they are, or, where they are too many, those of about the same size together."""
        room = self.room
        firsts = np.array([self.sorts[pods[0]] for pods in rows.values()], dtype=np.int64)
        several, zones = list(rows.values()), [zone for *_, zone in rows]
        sizes = self._sizes(firsts)
        if not _more_than(MANY, map(tuple, sizes.tolist())):
            return [
                Crowd(sort, zone, tuple(size), pods)
                for sort, zone, size, pods in zip(firsts.tolist(), zones, sizes.tolist(), several, strict=True)
            ]
        counts = np.fromiter(map(len, several), dtype=np.int64, count=len(several))
        numbers = {zone: number for number, zone in enumerate(dict.fromkeys(zones))}
        place = np.array([numbers[zone] for zone in zones], dtype=np.int64)
        choice = np.array(room.choice, dtype=np.int64)[firsts]
        groups = crowded(sizes, counts, np.column_stack([sizes[:, 2:], place, choice]), many=many)
        return [
            Crowd(
                int(firsts[group[0]]),
                zones[group[0]],
                tuple(size),
                list(chain.from_iterable(several[one] for one in group.tolist())),
                (sizes[group], counts[group]),
            )
            for group, size in zip(groups, middles(sizes, counts, groups).tolist(), strict=True)
        ]

    def shape(self, crowd: Crowd, *, bounded: bool = False) -> Shape:
        """For the solver; ``bounded``: so that the bound is proven for every pod of it."""
        part = crowd.zone if self.room.merges else ""
        names = self.room.names(crowd.sort, crowd.zone or None)
        return Shape(crowd.size, len(crowd.pods), names, part, crowd.members if bounded else None)

    def _sizes(self, sorts: Amounts) -> Amounts:
        """[sort, amount], with the exclusive places that they take."""
        if not self.rules.exclusive:
            return self.room.sizes[sorts]
        needs = np.array([self.rules.needs(sort) for sort in sorts.tolist()], dtype=np.int64)
        needs = needs.reshape(len(sorts), len(self.rules.exclusive))
        return np.hstack([self.room.sizes[sorts], needs])

    def size(self, sort: int) -> Vector:
        """What a pod of the sort asks for, with the exclusive places that it takes."""
        cpu, memory, gpus, pods = self.room.sizes[sort].tolist()
        return (cpu, memory, gpus, pods, *self.rules.needs(sort))


def worths(crowds: Iterable[Crowd], answer: Answer) -> Iterator[float]:
    """What each pod is worth, at the prices of the crowds."""
    for crowd, price in zip(crowds, answer.prices, strict=True):
        if crowd.members is None:
            yield from repeat(price, len(crowd.pods))
        else:
            sizes, counts = crowd.members
            middle = np.array(crowd.size[:2], dtype=float)
            shares = (sizes[:, :2] / np.maximum(middle, 1)).mean(axis=1) * price
            yield from np.repeat(shares, counts).tolist()


def are_mixed(crowds: Iterable[Crowd]) -> bool:
    """Whether some stand for pods of several sizes."""
    return any(crowd.members is not None for crowd in crowds)


def few(rows: Mapping[tuple[Vector, frozenset[str]], int], *, many: int) -> list[Shape]:
    """As many shapes as are bounded in good time."""
    if len(rows) <= MANY:
        return [Shape(size, count, names) for (size, names), count in rows.items()]
    sizes: Amounts = np.array([size for size, _ in rows], dtype=np.int64)
    counts: Amounts = np.array(list(rows.values()), dtype=np.int64)
    names = [names for _, names in rows]
    numbers = {one: number for number, one in enumerate(dict.fromkeys(names))}
    named = np.array([numbers[one] for one in names], dtype=np.int64)
    groups = crowded(sizes, counts, np.hstack([sizes[:, 2:], named[:, None]]), many=many)
    return [
        Shape(
            tuple(middle),
            int(counts[group].sum()),
            names[group[0]],
            members=(sizes[group], counts[group]),
        )
        for group, middle in zip(groups, middles(sizes, counts, groups).tolist(), strict=True)
    ]


def _more_than(many: int, values: Iterable[object]) -> bool:
    """Whether there are more different ones."""
    seen = set()
    for one in values:
        seen.add(one)
        if len(seen) > many:
            return True
    return False
