"""A plan for not many pods, improved: a few nodes at a time are packed anew, exactly.

Large neighbourhood search (Shaw 1998, "Using constraint programming and local search methods to solve vehicle routing
problems"): what is torn down is drawn by lot, and put together again by :mod:`autoscaler.solver.few_pods`. The draws
are the same every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from autoscaler.solver.few_pods import KEPT, cheapest_within
from autoscaler.solver.lp.arrays import Whole
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.rounding import Lot, Lots

TURNS = 20
"""Of 12 to 80 pods on 949 types, 8 to 13 % above the best that is known, so many leave 2 to 5 %; 1 to 6 ms."""
PODS = 200
"""More are not improved this way: of so many nodes too few are looked at."""
_AT_LEAST = 2
_LOOKED_AT = 16
"""Nodes that are drawn until there are so many selections."""
_MULTIPLIER, _MODULUS = 2_654_435_761, 2**32
"""Of Knuth's multiplicative hash, by which nodes are drawn (The Art of Computer Programming, 6.4)."""
_EPSILON = 1e-6


def improved(problem: Problem, plan: Lots, stock: Stock, *, turns: int = TURNS) -> Lots:
    """The same pods on nodes that cost no more. ``stock``: what is to be had with none of these nodes bought."""
    nodes = dict(enumerate(Lot(lot.kind, lot.pods) for lot in plan for _ in range(lot.times)))
    by_price = np.argsort(problem.usd, kind="stable")
    left, following = stock.copy(), len(nodes)
    _take(left, nodes.values())
    seen = set[frozenset[int]]()
    for turn in range(turns):
        some = _drawn(nodes, turn)
        if len(some) < _AT_LEAST or some in seen:
            continue
        seen.add(some)
        old = [nodes[one] for one in some]
        usd = _usd(problem, old) - _EPSILON
        _take(left, old, -1)
        kinds = by_price[(left.left[by_price] >= 1) & (problem.usd[by_price] < usd)]
        new = cheapest_within(problem, _pods(old), kinds, left)
        if new and _usd(problem, new) < usd:
            nodes = {one: lot for one, lot in nodes.items() if one not in some} | dict(enumerate(new, following))
            following += len(new)
            _take(left, new)
        else:
            _take(left, old)
    return list(nodes.values())


def _drawn(nodes: Mapping[int, Lot], turn: int) -> frozenset[int]:
    """Numbers of a few nodes: of six pods of six shapes, say. More at a time are better, fewer quicker."""
    in_turn = sorted(nodes, key=lambda one: (one + 1) * (turn + 1) * _MULTIPLIER % _MODULUS)
    some = list[int]()
    counts: Whole | int = 0
    for one in in_turn[:_LOOKED_AT]:
        more = counts + nodes[one].pods
        if np.prod(more + 1.0) <= KEPT:
            counts = more
            some.append(one)
    return frozenset(some)


def _pods(lots: Iterable[Lot]) -> Whole:
    total: Whole = np.sum([lot.pods for lot in lots], axis=0)
    return total


def _usd(problem: Problem, lots: Lots) -> float:
    return float(problem.usd[[lot.kind for lot in lots]].sum())


def _take(stock: Stock, lots: Iterable[Lot], times: int = 1) -> None:
    for lot in lots:
        stock.take(lot.kind, times)
