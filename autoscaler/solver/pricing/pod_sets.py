"""Sets of pods that fillings are put together from: those that ask for devices, and those that fill up the rest.

A set *loses* what its pods weigh more than they are worth. Losses add up and none is negative: a set that loses more
than ``spare``, which is what the node's ceiling is above the price to be reached, is in no filling that pays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from autoscaler.solver.lp.arrays import CPU, GPUS, MEMORY, Floats, Whole, distinct, dot, highest

WORTHLESS = 1e-9
TOLERANCE = 1e-6
_CELLS, _CELLS_OF_SHELF = 64, 24
"""Along each side of a node. Of finer cells a shelf would keep sets that lose little because they hold little."""
_SMALL, _SMALL_ALONE = 300, 500
"""Sets on a shelf at most; where no pod asks for devices, shelves are all that there is."""
_PAIRS = 20_000
_FEW_TIMES = 6


class Sets(NamedTuple):
    """Sets of pods, in parallel arrays."""

    sizes: Floats
    values: Floats
    held: Whole


class Joiner:
    """Sets of device pods: those of up to ``n`` devices are joined of two of up to half as many."""

    def __init__(
        self, sizes: Floats, values: Floats, limits: Whole, room: Floats, weights: Floats, *, spare: float, width: int
    ) -> None:
        self.room, self.weights, self.limits, self.spare, self.width = room, weights, limits, spare, width
        self.lone = Sets(sizes, values, np.eye(len(values), dtype=np.int64))
        self.known: dict[int, Sets] = {}

    def last(self) -> Iterable[Sets]:
        """Those that a whole node may hold, in parts; not thinned out, for what fills them up is not known yet."""
        return self._parts(int(self.room[GPUS]), keep=_PAIRS)

    def _upto(self, devices: int) -> Sets:
        known = self.known.get(devices)
        if known is None:
            parts = self._parts(devices, keep=3 * self.width)
            sets = Sets(*(np.concatenate(same) for same in zip(*parts, strict=True)))
            chosen = highest(-self._loss(sets), self.width)
            known = self.known[devices] = Sets(sets.sizes[chosen], sets.values[chosen], sets.held[chosen])
        return known

    def _parts(self, devices: int, *, keep: int) -> list[Sets]:
        """The two halves joined; and each pod that asks for more than a half, joined with what it leaves."""
        none = Sets(np.zeros((1, len(self.room))), np.zeros(1), np.zeros((1, len(self.limits)), dtype=np.int64))
        asked = self.lone.sizes[:, GPUS]
        half = devices // 2
        parts = [self._joined(self._upto(half), self._upto(devices - half), keep)] if half else [none]
        for more in distinct(asked[(asked > half) & (asked <= devices)])[0]:
            chosen = asked == more
            lone = Sets(*(part[chosen] for part in self.lone))
            left = devices - int(more)
            parts.append(self._joined(lone, self._upto(left) if left else none, keep))
        return parts

    def _loss(self, sets: Sets) -> Floats:
        """Returns by how much each set weighs more than it is worth."""
        loss: Floats = dot(sets.sizes, self.weights) - sets.values
        return loss

    def _joined(self, one: Sets, other: Sets, keep: int) -> Sets:
        loss = self._loss(one)[:, None] + self._loss(other)[None, :]
        fits = loss <= self.spare + TOLERANCE
        for kind in range(len(self.room)):
            fits &= one.sizes[:, None, kind] + other.sizes[None, :, kind] <= self.room[kind] + TOLERANCE
        if one is other:
            fits &= np.tri(len(one.values), dtype=np.bool_)
        left, right = np.nonzero(fits)
        sizes, loss = one.sizes[left] + other.sizes[right], loss[left, right]
        chosen = _best_of_cells(sizes, loss, self.room, _CELLS) if keep < _PAIRS else np.arange(len(loss))
        chosen = chosen[highest(-loss[chosen], keep)]
        held = one.held[left[chosen]] + other.held[right[chosen]]
        allowed = (held <= self.limits).all(axis=1)
        chosen, held = chosen[allowed], held[allowed]
        return Sets(sizes[chosen], one.values[left[chosen]] + other.values[right[chosen]], held)


class Shelf:
    """Sets of pods without devices, and for any room that is left the most valuable of them that fits."""

    def __init__(
        self,
        sizes: Floats,
        values: Floats,
        limits: Whole,
        shapes: Whole,
        *,
        room: Floats,
        weights: Floats,
        spare: float,
    ) -> None:
        """``shapes``: numbers of those that go on it."""
        self.shapes = shapes
        most = _SMALL if sizes[:, GPUS].any() else _SMALL_ALONE
        sets = _grown(sizes[shapes], values[shapes], limits[shapes], room, weights, spare=spare, most=most)
        self.sizes, self.values, self.held = sets
        self._room = room
        self._cpu, self._at_cpu = distinct(self.sizes[:, CPU])
        self._memory, self._at_memory = distinct(self.sizes[:, MEMORY])
        self._age = 0
        self._rank()

    @property
    def is_stale(self) -> bool:
        """Chosen for values that are long gone."""
        return self._age > 12  # noqa: PLR2004 - looks

    def price(self, values: Floats) -> None:
        """The same sets at other values."""
        self._age += 1
        self.values = dot(self.held, values[self.shapes])
        self._rank()

    def _rank(self) -> None:
        order = np.argsort(self.values, kind="stable")
        best = np.full((len(self._cpu), len(self._memory)), -1, dtype=np.int32)
        places = self._at_cpu[order] * len(self._memory) + self._at_memory[order]
        np.maximum.at(best.ravel(), places, np.arange(len(order), dtype=np.int32))
        np.maximum.accumulate(best, axis=0, out=best)
        np.maximum.accumulate(best, axis=1, out=best)
        self._order, self._best = order, best

    def fit(self, taken: Floats) -> Whole:
        """Number of the best set for what each of these leaves of the room (cpu and memory; the rest is checked)."""
        cpu = np.searchsorted(self._cpu, self._room[CPU] - taken[:, CPU] + TOLERANCE, side="right") - 1
        memory = np.searchsorted(self._memory, self._room[MEMORY] - taken[:, MEMORY] + TOLERANCE, side="right") - 1
        found: Whole = self._order[self._best[cpu, memory]]
        return found

    def fillings(self, values: Floats) -> Whole:
        """Returns the sets as fillings, each alone on its node."""
        pods = np.zeros((len(self.held), len(values)), dtype=np.int64)
        pods[:, self.shapes] = self.held
        return pods


def _grown(
    asked: Floats, values: Floats, limits: Whole, room: Floats, weights: Floats, *, spare: float, most: int
) -> Sets:
    """Shape after shape, the biggest first, so many of each; of sets of about the same size the best is kept."""
    scale = np.where(room > 0, room, 1.0)
    sizes, worth, held = np.zeros((1, len(room))), np.zeros(1), np.zeros((1, len(values)), dtype=np.int64)
    lost, losses = np.zeros(1), dot(asked, weights) - values
    for one in np.argsort(-(asked / scale).max(axis=1), kind="stable"):
        size = asked[one]
        some = size > 0
        fits = np.floor((room[some] - sizes[:, some]) / size[some] + WORTHLESS).min(axis=1)
        times = np.minimum(fits, limits[one]).astype(np.int64)
        if times.max(initial=0) <= 0:
            continue
        parent, times = _multiples(times)
        loss = lost[parent] + times * losses[one]
        chosen = np.nonzero(loss <= spare + TOLERANCE)[0]
        parent, times, lost = parent[chosen], times[chosen], loss[chosen]
        sizes = sizes[parent] + times[:, None] * size
        if len(chosen) > most:
            chosen = _best_of_cells(sizes, lost, room, _CELLS_OF_SHELF)
            chosen = chosen[highest(-lost[chosen], most)]
            parent, times, lost, sizes = parent[chosen], times[chosen], lost[chosen], sizes[chosen]
        worth = worth[parent] + times * values[one]
        held = held[parent]
        held[:, one] += times
    if sizes.any(axis=1).all():  # a node without any of them must stay possible
        sizes, worth = np.vstack([np.zeros_like(sizes[:1]), sizes]), np.append(0.0, worth)
        held = np.vstack([np.zeros_like(held[:1]), held])
    return Sets(sizes, worth, held)


def _multiples(most: Whole) -> tuple[Whole, Whole]:
    """(number of the set, how many more pods): none, each number while they are few, else some and all that fit."""
    top = int(most.max())
    steps = (
        np.arange(top + 1) if top <= _FEW_TIMES else distinct(np.linspace(0, top, _FEW_TIMES + 2).astype(np.int64))[0]
    )
    parent, step = np.nonzero(most[:, None] >= steps[None, :])
    times = steps[step]
    if top > _FEW_TIMES:
        full = np.nonzero(most > 0)[0]
        parent, times = np.concatenate([parent, full]), np.concatenate([times, most[full]])
    return parent, times


def _best_of_cells(sizes: Floats, loss: Floats, room: Floats, many: int) -> Whole:
    """Returns, of the sets that take about the same of a node, the one that loses least."""
    cells = (sizes[:, :GPUS] * (many / np.where(room[:GPUS] > 0, room[:GPUS], 1.0))).astype(np.int64)
    cell = (sizes[:, GPUS].astype(np.int64) * (many + 1) + cells[:, CPU]) * (many + 1) + cells[:, MEMORY]
    order = np.argsort(loss, kind="stable")
    first = np.full(int(cell.max(initial=0)) + 1, len(order), dtype=np.int64)
    np.minimum.at(first, cell[order], np.arange(len(order)))
    found: Whole = order[first[first < len(order)]]
    return found
