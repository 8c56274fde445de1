"""The cheapest nodes for few pods, exactly: dynamic programming over all selections of them.

A selection says how many pods of each shape it has. The nodes for a selection are the cheapest one that holds some part
of it, its first pod among them, and the nodes for the rest (Bellman's principle for set partitioning). With rows of
``n`` pods there are ``prod(n + 1)`` selections: ten pods of ten shapes are 1,024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Whole
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.rounding import Lot, Lots

SELECTIONS = 1024
"""At most: work grows with their square, and is some 10 ms of a core of 2024 for so many."""
KEPT = 64
"""Selections of which the parts are kept from one call to the next: 2,000 pairs, some 30 kB, at most."""


def cheapest_for_few(problem: Problem, parts: Mapping[str, Whole], few: int = SELECTIONS) -> dict[str, Lots] | None:
    """Nodes for all pods of each part that cost no more than any; ``None``: too many pods, or limits forbid these.

    ``parts``: pods by shape; those of different parts share no node. ``few``: selections of all parts at most.
    """
    if sum(math.prod((counts + 1).tolist()) for counts in parts.values()) > few:
        return None
    by_price = np.argsort(problem.usd, kind="stable")
    found = {part: cheapest_nodes(problem, counts, by_price) for part, counts in parts.items()}
    stock = Stock(problem.available, problem.uses, problem.most)
    return found if stock.has([lot.kind for lots in found.values() for lot in lots]) else None


def cheapest_nodes(problem: Problem, counts: Whole, by_price: Whole) -> Lots:
    """Nodes for so many pods of each shape, of any kinds, however few there are of them; none where no kind will do.

    ``by_price``: the kinds, the cheapest first.
    """
    if not len(by_price):
        return []
    rows = np.nonzero(counts)[0]
    selections = _selections(tuple(counts[rows].tolist()))
    pods = np.zeros((len(selections.pods), len(counts)), dtype=np.int64)
    pods[:, rows] = selections.pods
    holders = problem.holders(pods)[:, by_price]
    first = np.argmax(holders, axis=1)
    usd = np.where(holders[np.arange(len(pods)), first], problem.usd[by_price[first]], np.inf)
    return [Lot(int(by_price[first[one]]), pods[one]) for one in _partition(selections, usd)]


@dataclass(frozen=True, slots=True)
class _Selections:
    """Of so many pods of each shape."""

    pods: Whole
    """[selection, shape]: a selection comes after all of its parts. The number of two together is the sum of theirs."""
    parts: Sequence[tuple[Whole, Whole]]
    """For each selection the numbers of those parts of it that have its first pod, and of what is left without each."""


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


def _partition(selections: _Selections, usd: Floats) -> list[int]:
    """Numbers of the selections that are together the last one, for the least dollars; none where nothing will do."""
    many = len(usd)
    least, taken = np.zeros(many), [0] * many
    for number in range(1, many):
        parts, rest = selections.parts[number]
        costs = usd[parts] + least[rest]
        best = costs.argmin()
        least[number], taken[number] = costs[best], int(parts[best])
    found, left = list[int](), many - 1 if np.isfinite(least[-1]) else 0
    while left:
        found.append(taken[left])
        left -= taken[left]
    return found
