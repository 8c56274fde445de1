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
"""Selections of which the parts are kept from one call to the next: 2,000 pairs, some 30 kB, at most."""
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
    found = {part: _cheapest_of_any(problem, counts, by_price) for part, counts in parts.items()}
    return found if stock.has([lot.kind for lots in found.values() for lot in lots]) else None


def cheapest_within(problem: Problem, counts: Whole, by_price: Whole, stock: Stock) -> Lots | None:
    """Nodes for so many pods of each shape; none where no kind will do, ``None`` as in :func:`cheapest_for_few`.

    ``by_price``: the kinds that are to be had, the cheapest first.
    """
    found: Lots | None = _cheapest_of_any(problem, counts, by_price)
    if found and not stock.has([lot.kind for lot in found]):
        found = _of_few_nodes(problem, counts, by_price, stock.own)
    return found if found is not None and stock.has([lot.kind for lot in found]) else None


def _cheapest_of_any(problem: Problem, counts: Whole, by_price: Whole) -> Lots:
    """However few nodes there are of a kind."""
    selections, pods = _selections_of(counts)
    kinds, usd = _cheapest_holders(problem, problem.holders(pods), by_price)
    least, taken = _partition(selections, usd)
    whole = len(pods) - 1 if np.isfinite(least[-1]) else 0
    return [Lot(int(kinds[one]), pods[one]) for one in _taken(taken, whole)]


def _of_few_nodes(problem: Problem, counts: Whole, by_price: Whole, available: Floats) -> Lots | None:
    """The same with no more nodes of a kind than there are; ``None``: they are not enough, or too many to compare."""
    selections, pods = _selections_of(counts)
    holders, many = problem.holders(pods), int(counts.sum())
    is_scarce = available[by_price] < many
    nodes = _few_nodes(holders, by_price[is_scarce], available, many)
    wholes, parts, starts = selections.pairs
    if len(nodes) * len(wholes) > COMPARISONS:
        return None
    kinds, usd = _cheapest_holders(problem, holders, by_price[~is_scarce])
    least, taken = _partition(selections, usd)
    layers = [least]
    for kind in nodes:
        costs = np.where(holders[parts, kind], problem.usd[kind] + layers[-1][wholes - parts], np.inf)
        layers.append(np.minimum(layers[-1], np.minimum.reduceat(costs, starts[:-1])))
    left = len(pods) - 1
    if not np.isfinite(layers[-1][left]):
        return None
    found = Lots()
    for kind, before, after in reversed(list(zip(nodes, layers[:-1], layers[1:], strict=True))):
        if after[left] < before[left]:
            held = parts[starts[left] : starts[left + 1]]
            part = int(held[np.where(holders[held, kind], before[left - held], np.inf).argmin()])
            found.append(Lot(kind, pods[part]))
            left -= part
    return [*found, *(Lot(int(kinds[one]), pods[one]) for one in _taken(taken, left))]


def _few_nodes(holders: Mask, kinds: Whole, available: Floats, many: int) -> list[int]:
    """The kind of each node that may be needed: of kinds that hold the same no more than there are pods."""
    found, alike = list[int](), Counter[bytes]()
    for kind in kinds.tolist():
        held = holders[:, kind].tobytes()
        times = min(int(available[kind]), many - alike[held]) if holders[1:, kind].any() else 0
        alike[held] += times
        found += [kind] * times
    return found


def _cheapest_holders(problem: Problem, holders: Mask, kinds: Whole) -> tuple[Whole, Floats]:
    """Of each selection the cheapest of the kinds that holds it, and its dollars. ``kinds``: the cheapest first."""
    if not len(kinds):
        return np.zeros(len(holders), dtype=np.int64), np.full(len(holders), np.inf)
    among = holders[:, kinds]
    first = np.argmax(among, axis=1)
    return kinds[first], np.where(among[np.arange(len(among)), first], problem.usd[kinds[first]], np.inf)


@dataclass(frozen=True, slots=True)
class _Selections:
    """Of so many pods of each shape."""

    pods: Whole
    """[selection, shape]: a selection comes after all of its parts. The number of two together is the sum of theirs."""
    parts: Sequence[tuple[Whole, Whole]]
    """For each selection the numbers of those parts of it that have its first pod, and of what is left without each."""

    @property
    def pairs(self) -> tuple[Whole, Whole, Whole]:
        """(selection, a part of it), all that there are, by selection; and for each where its first is, and the end."""
        wholes, parts = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        for most in self.pods[-1].tolist():
            some, of_some = np.tril_indices(most + 1)
            wholes = np.add.outer(wholes * (most + 1), some).ravel()
            parts = np.add.outer(parts * (most + 1), of_some).ravel()
        order = np.argsort(wholes, kind="stable")
        return wholes[order], parts[order], np.searchsorted(wholes[order], np.arange(len(self.pods) + 1))


def _selections_of(counts: Whole) -> tuple[_Selections, Whole]:
    """Of so many pods of each shape, and the pods of each selection by all of the shapes."""
    rows = np.nonzero(counts)[0]
    selections = _selections(tuple(counts[rows].tolist()))
    pods = np.zeros((len(selections.pods), len(counts)), dtype=np.int64)
    pods[:, rows] = selections.pods
    return selections, pods


def _selections(counts: tuple[int, ...]) -> _Selections:
    return _kept(counts) if math.prod(many + 1 for many in counts) <= KEPT else _made(counts)


def _made(counts: tuple[int, ...]) -> _Selections:
    pods = np.indices([many + 1 for many in counts]).reshape(len(counts), -1).T.astype(np.int64)
    parts = []
    for number, selection in enumerate(pods):
        below = pods[: number + 1]
        first = int(np.argmax(selection > 0))
        found = np.nonzero((below <= selection).all(axis=1) & (below[:, first] > 0))[0]
        parts.append((found, number - found))
    return _Selections(pods, parts)


_kept = lru_cache(maxsize=256)(_made)


def _partition(selections: _Selections, usd: Floats) -> tuple[Floats, list[int]]:
    """Of each selection the least dollars, and the part of it with its first pod that has a node by itself then."""
    many = len(usd)
    least, taken = np.zeros(many), [0] * many
    for number in range(1, many):
        parts, rest = selections.parts[number]
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
