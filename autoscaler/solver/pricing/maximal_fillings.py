"""All fillings of kinds of node that few pods find room on, to which none of the pods could be added.

What is left free on nodes that stand has room for one or two pods of most shapes. Written down at once, such a kind is
never looked at again, and the master knows all that it is good for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Mask, Whole, dot
from autoscaler.solver.lp.master import Problem

_CELLS: Final = 3_000_000
"""Fillings times the square of the shapes, at most: some 5 ms of a core of 2024."""
_EACH: Final = 200
"""Fillings of a kind at most, with those to which pods could be added."""


@dataclass(frozen=True, slots=True, eq=False)
class MaximalFillings:
    """Fillings of some kinds, those of one kind beside each other."""

    kinds: Whole
    """Of each filling."""
    pods: Whole
    """[filling, shape]"""
    is_enumerated: Mask
    """[kind]: whether all its fillings are here."""

    @classmethod
    def of(cls, problem: Problem, kinds: Whole) -> MaximalFillings:
        """Returns the fillings of those of these kinds that have few; of the others none."""
        rows = len(problem.counts)
        kind, pods = np.sort(kinds), np.zeros((len(kinds), rows), dtype=np.int64)
        room = problem.rooms[kind]
        most = _CELLS // max(1, rows) ** 2
        for row in range(rows):
            many = 1 + np.where(problem.holds[row, kind], problem.fits(row, room), 0.0).astype(np.int64)
            if many.sum() > min(most, _EACH):
                kept = _of_few(kind, many, most)
                kind, pods, room, many = kind[kept], pods[kept], room[kept], many[kept]
            before, times = each_number(many)
            kind, pods, room = kind[before], pods[before], room[before] - times[:, None] * problem.sizes[row]
            pods[:, row] = times
        maximal = is_maximal(problem, kind, pods, room)
        is_enumerated = np.zeros(len(problem.usd), dtype=bool)
        is_enumerated[kind] = True
        return cls(kind[maximal], pods[maximal], is_enumerated)

    @classmethod
    def none(cls, problem: Problem) -> MaximalFillings:
        """Returns the fillings of no kind."""
        rows, kinds = problem.holds.shape
        return cls(np.zeros(0, dtype=np.int64), np.zeros((0, rows), dtype=np.int64), np.zeros(kinds, dtype=bool))

    def __bool__(self) -> bool:
        """Says whether there are any fillings."""
        return len(self.kinds) > 0

    @property
    def _starts(self) -> Whole:
        """Number of the first filling of each kind."""
        return np.nonzero(np.diff(self.kinds, prepend=-1))[0]

    def by_kind(self) -> Iterator[tuple[int, Whole]]:
        """Each of the kinds with its fillings."""
        starts = self._starts
        yield from zip(self.kinds[starts].tolist(), np.split(self.pods, starts)[1:], strict=True)

    def value(self, prices: Floats, values: Floats) -> None:
        """Put down what the best filling of each of the kinds is worth at these prices of pods."""
        starts = self._starts
        if len(starts):
            values[self.kinds[starts]] = np.maximum.reduceat(dot(self.pods, prices), starts)


def each_number(many: Whole) -> tuple[Whole, Whole]:
    """Returns for each filling so many times: its position, and the numbers from nought on."""
    before = np.repeat(np.arange(len(many)), many)
    return before, np.arange(len(before)) - np.repeat(np.cumsum(many) - many, many)


def is_maximal(problem: Problem, kinds: Whole, pods: Whole, rooms: Floats) -> Mask:
    """Which of these fillings no pod could be added to. ``rooms``: [filling, resource] what is free."""
    fits: Mask = problem.holds.T[kinds] & (pods < problem.counts)
    for one in range(rooms.shape[1]):
        fits &= problem.sizes[None, :, one] <= rooms[:, one, None]
    found: Mask = np.logical_not(fits.any(axis=1))
    return found


def _of_few(kind: Whole, many: Whole, most: int) -> Mask:
    """Which of these fillings are of kinds that have few: of each kind, and ``most`` of all of those kept."""
    totals = np.bincount(kind, weights=many)
    order = np.argsort(totals, kind="stable")
    few = order[(totals[order] <= _EACH) & (np.cumsum(totals[order]) <= most)]
    is_few = np.zeros(len(totals), dtype=bool)
    is_few[few] = True
    kept: Mask = is_few[kind]
    return kept
