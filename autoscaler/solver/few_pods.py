"""The cheapest nodes for few pods, exactly: dynamic programming over all selections of them.

A selection says how many pods of each shape it has. The nodes for a selection are the cheapest one that holds some part
of it, its first pod among them, and the nodes for the rest (Bellman's principle for set partitioning). With rows of
``n`` pods there are ``prod(n + 1)`` selections: ten pods of ten shapes are 1,024.

Where the nodes found are not to be had together, each node of a kind of which there are few is gone through once, as in
a knapsack problem: it holds a part of a selection, or nothing, and the nodes before it hold the rest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Mask, Whole
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.rounding import Lot, Lots

SELECTIONS = 1024
"""At most: work grows with their square, and is some 10 ms of a core of 2024 for so many."""
KEPT = 64
"""Selections of which the parts are kept from one call to the next: 2,000 pairs, some 60 kB, at most."""
COMPARISONS = 4_000_000
"""At most, of a selection, a part of it and a node of which there are few: some 40 ms of a core of 2024."""


def cheapest_for_few(problem: Problem, parts: Mapping[str, Whole], few: int = SELECTIONS) -> dict[str, Lots] | None:
    """Nodes for all pods of each part that cost no more than any; ``None``: too much is to be compared.

    So it is where all pods cannot have nodes, or a limit for several kinds, or pods of several parts, are in the way.

    ``parts``: pods by shape; those of different parts share no node. ``few``: selections of all parts at most.
    """
    if sum(math.prod((counts + 1).tolist()) for counts in parts.values()) > few:
        return None
    by_price = np.argsort(problem.usd, kind="stable")
    stock = Stock(problem.available, problem.uses, problem.most)
    if len(parts) == 1:
        ((part, counts),) = parts.items()
        nodes = cheapest_within(problem, counts, by_price, stock)
        return None if nodes is None else {part: nodes}
    found = {part: _Choice.of(problem, counts, by_price).of_any() for part, counts in parts.items()}
    return found if stock.has([lot.kind for lots in found.values() for lot in lots]) else None


def cheapest_within(problem: Problem, counts: Whole, by_price: Whole, stock: Stock) -> Lots | None:
    """Nodes for so many pods of each shape; none where no kind will do, ``None`` as in :func:`cheapest_for_few`.

    ``by_price``: the kinds that are to be had, the cheapest first.
    """
    choice = _Choice.of(problem, counts, by_price)
    found: Lots | None = choice.of_any()
    if found and not stock.has([lot.kind for lot in found]):
        found = choice.of_few(stock.own[by_price])
    return found if found is not None and stock.has([lot.kind for lot in found]) else None


@dataclass(frozen=True, slots=True)
class _Choice:
    """Selections of pods, and the kinds of node that hold them."""

    selections: _Selections
    pods: Whole
    """[selection, shape]"""
    kinds: Whole
    """The cheapest first."""
    usd: Floats
    holders: Mask
    """[selection, kind]"""

    @classmethod
    def of(cls, problem: Problem, counts: Whole, by_price: Whole) -> _Choice:
        """Makes the choice for so many pods of each shape."""
        rows = np.nonzero(counts)[0]
        selections = _selections(tuple(counts[rows].tolist()))
        pods = np.zeros((len(selections.pods), len(counts)), dtype=np.int64)
        pods[:, rows] = selections.pods
        return cls(selections, pods, by_price, problem.usd[by_price], problem.holders(pods, by_price))

    def of_any(self) -> Lots:
        """The cheapest nodes, however few there are of a kind; none where no kind will do."""
        kinds, usd = self._cheapest_holders(np.arange(len(self.kinds)))
        least, taken = _partition(self.selections, usd)
        whole = len(self.pods) - 1 if np.isfinite(least[-1]) else 0
        return [self._lot(kinds[one], one) for one in _taken(taken, whole)]

    def of_few(self, available: Floats) -> Lots | None:
        """The same with no more nodes of a kind than there are; ``None``: these do not do, or too much is compared."""
        is_scarce = available < self.pods[-1].sum()
        nodes = self._nodes(np.nonzero(is_scarce)[0], available)
        wholes, parts, starts = self.selections.wholes, self.selections.parts, self.selections.starts
        if len(nodes) * len(wholes) > COMPARISONS:
            return None
        kinds, usd = self._cheapest_holders(np.nonzero(~is_scarce)[0])
        least, taken = _partition(self.selections, usd)
        layers = [least]
        for kind in nodes:
            costs = np.where(self.holders[parts, kind], self.usd[kind] + layers[-1][wholes - parts], np.inf)
            layers.append(np.minimum(layers[-1], np.minimum.reduceat(costs, starts[:-1])))
        left = len(self.pods) - 1
        if not np.isfinite(layers[-1][left]):
            return None
        found = Lots()
        for kind, before, after in reversed(list(zip(nodes, layers[:-1], layers[1:], strict=True))):
            if after[left] < before[left]:
                held = parts[starts[left] : starts[left + 1]]
                part = int(held[np.where(self.holders[held, kind], before[left - held], np.inf).argmin()])
                found.append(self._lot(kind, part))
                left -= part
        return [*found, *(self._lot(kinds[one], one) for one in _taken(taken, left))]

    def _nodes(self, kinds: Whole, available: Floats) -> list[int]:
        """The kind of each node that may be needed: of kinds that hold the same no more than there are pods."""
        most, found, alike = int(self.pods[-1].sum()), list[int](), Counter[bytes]()
        for kind in kinds[self.holders[1:, kinds].any(axis=0)].tolist():
            held = self.holders[:, kind].tobytes()
            times = min(int(available[kind]), most - alike[held])
            alike[held] += times
            found += [kind] * times
        return found

    def _cheapest_holders(self, kinds: Whole) -> tuple[Whole, Floats]:
        """Returns for each selection the cheapest of these kinds that holds it, and its dollars."""
        if not len(kinds):
            return np.zeros(len(self.pods), dtype=np.int64), np.full(len(self.pods), np.inf)
        among = self.holders[:, kinds]
        first = np.argmax(among, axis=1)
        return kinds[first], np.where(among[np.arange(len(among)), first], self.usd[kinds[first]], np.inf)

    def _lot(self, kind: int, selection: int) -> Lot:
        return Lot(int(self.kinds[kind]), self.pods[selection])


@dataclass(frozen=True, slots=True)
class _Selections:
    """All selections of so many pods of each shape."""

    pods: Whole
    """[selection, shape]: a selection comes after all of its parts. The number of two together is the sum of theirs."""
    wholes: Whole
    parts: Whole
    """Each selection with each part of it, nothing and itself among them, by selection."""
    starts: Whole
    """For each selection where its first part is; and the end."""
    with_first: Sequence[tuple[Whole, Whole]]
    """For each selection the numbers of those parts of it that have its first pod, and of what is left without each."""


def _selections(counts: tuple[int, ...]) -> _Selections:
    return _kept(counts) if math.prod(many + 1 for many in counts) <= KEPT else _made(counts)


def _made(counts: tuple[int, ...]) -> _Selections:
    pods = np.indices([many + 1 for many in counts]).reshape(len(counts), -1).T.astype(np.int64)
    wholes, parts = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for most in counts:
        some, of_some = np.tril_indices(most + 1)
        wholes = np.add.outer(wholes * (most + 1), some).ravel()
        parts = np.add.outer(parts * (most + 1), of_some).ravel()
    order = np.argsort(wholes, kind="stable")
    wholes, parts = wholes[order], parts[order]
    numbers = np.arange(len(pods) + 1)
    has_first = pods[parts, np.argmax(pods > 0, axis=1)[wholes]] > 0
    firsts, rests = parts[has_first], (wholes - parts)[has_first]
    ends = np.searchsorted(wholes[has_first], numbers[1:-1])
    with_first = list(zip(np.split(firsts, ends), np.split(rests, ends), strict=True))
    return _Selections(pods, wholes, parts, np.searchsorted(wholes, numbers), with_first)


_kept = lru_cache(maxsize=128)(_made)


def _partition(selections: _Selections, usd: Floats) -> tuple[Floats, list[int]]:
    """Returns for each selection the least dollars, and the part with its first pod that has a node by itself then."""
    many = len(usd)
    least, taken = np.zeros(many), [0] * many
    for number in range(1, many):
        parts, rest = selections.with_first[number]
        costs = usd[parts] + least[rest]
        best = costs.argmin()
        least[number], taken[number] = costs[best], int(parts[best])
    return least, taken


def _taken(taken: Sequence[int], left: int) -> list[int]:
    found = list[int]()
    while left:
        found.append(taken[left])
        left -= taken[left]
    return found
