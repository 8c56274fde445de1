"""How far down the list of pending pods what is scarce reaches, before any plan is made: linear programs.

A plan that is found for too many pods says little of how many there would be nodes for: its fillings are good for other
numbers of pods. So a *part* is asked for of all of them, the largest that the master over fillings (with limits, and
machines that are there as kinds that cost nothing) has nodes for; fillings are sought at the prices of that program,
and the part moves with what they make possible. What is found is exact but for whole nodes: it is a little more than
a plan can serve, hardly ever less. A plan then shows what is served (:mod:`autoscaler.planner.admission.admit`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autoscaler.solver.column_generation import Generation
from autoscaler.solver.column_pool import ColumnPool
from autoscaler.solver.deadline import UNITS, Watch
from autoscaler.solver.lp.arrays import Floats, Whole
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.lp.master import NEVER
from autoscaler.solver.problem import Cutting

_ROUNDS = 100
_STALLED, _MORE = 5, 0.002
"""Rounds that may make no more possible, but for that part."""
_UP, _ABOVE = 1.2, 1.02
"""By what more pods are asked for where all had nodes; and how far above that for which there were nodes prices are
sought."""
_DEAR = NEVER / 1000
"""Dollars per hour for a pod of those of which a part is left out: more than it costs on any node."""
_KINDS = 6
"""Looked at in a round."""
_SURE, _EXACT, _MANY, _LESS = 3, 40, 500, 0.99
"""Rounds of pricing in a row in which no smaller part of them lacks nodes, before somebody is refused, of many pods or
of a few."""
_NOBODY = 0.02
"""Of a pod: the linear program is as good as feasible."""


class AdmissionLp:
    """Shapes, and the fillings found for them."""

    def __init__(self, cutting: Cutting, *, watch: Watch) -> None:
        """``cutting``: with all pods, some of which some kind holds. ``watch``: for all that takes long."""
        self._cutting = cutting
        self._problem = problem = replace(cutting.problem, leave=_DEAR)
        self._watch = watch
        self._generation = Generation(problem, watch)
        self._generation.relax()
        self._search = self._generation.search
        self._stock = self._all = Stock(problem.available, problem.uses, problem.most)

    def explore(self, asked: Callable[[int], Whole], many: int, *, in_time: Callable[[], bool]) -> int:
        """Find fillings for as many as can be served; gives about how many of the first these are.

        ``asked``: of so many of the first, the pods by row.
        """
        master, generation = self._generation.master, self._generation
        self._search.look_at_all(generation.prices)
        tried, reached, stalled = many, 0, 0
        for _ in range(_ROUNDS):
            counts = asked(tried)
            master.may_leave(counts, _DEAR * float(counts.sum()))
            prices = self._solved(counts)
            served = tried * (1 - master.part_left())
            stalled = 0 if served > reached * (1 + _MORE) else stalled + 1
            reached = max(reached, int(served))
            if reached == many or not in_time() or stalled > _STALLED:
                break
            if served > tried - 1:
                tried = min(many, int(tried * _UP) + 1)
                continue
            if not self._found(prices):
                break
            tried = min(tried, int(served * _ABOVE) + 1)
        master.may_leave(np.zeros_like(self._problem.counts), 0.0)
        return reached

    def keep_back(self, part: float) -> None:
        """Keeps back that part of everything that is scarce."""
        self._stock = self._all.less(part, whole=False)

    def serves(self, counts: Whole) -> bool:
        """Whether there are nodes for these pods, made of the fillings known."""
        self._solved(counts)
        return self._generation.master.lacking() <= _NOBODY

    def refutation(self, counts: Whole, *, looking: bool = True) -> Floats | None:
        """``None``: there are nodes for these pods, when more fillings are sought, if any are. Else prices of pods.

        What is worth as much at these prices as the last of those pods is not served in its place, either, nor besides
        others; if all prices are nought nothing is known of that.
        """
        master = self._generation.master
        patience = 0 if not looking else 1 if self._watch.spent() >= 1 else _SURE if counts.sum() > _MANY else _EXACT
        prices, best, stalled = self._solved(counts), math.inf, 0
        while (lacking := master.lacking()) > _NOBODY and stalled < patience:
            best, stalled = min(best, lacking), 0 if lacking < best * _LESS else stalled + 1
            if not self._found(prices) and not self._search.look_within(prices, counts, kinds=len(self._problem.usd)):
                break
            prices = self._solved(counts)
        if lacking <= _NOBODY:
            return None
        dollars = master.usd() - NEVER * lacking
        if NEVER * lacking <= dollars:
            return np.zeros_like(prices)
        # Of shapes that were not asked for it knows only that they are worth what smaller ones are.
        asked = np.where(counts > 0, prices, 0.0)
        worth: Floats = np.maximum(asked, np.where(self._generation.columns.smaller, asked[None, :], 0.0).max(axis=1))
        return worth

    def remember(self, counts: Whole, known: ColumnPool, *, machines: frozenset[str]) -> None:
        """Remembers, for plans to begin with, fillings for so many pods, for which there are nodes.

        ``machines``: names of kinds that are not bought; it is kept with them and without them.
        """
        self._generation.prices = self._solved(counts)
        for without in dict.fromkeys((machines, frozenset[str]())):  # in the same order each time
            self._cutting.remember(known, self._generation, without=without)

    def _found(self, prices: Floats) -> int:
        """How many fillings of the most promising kinds are new, or else of all of them."""
        return self._search.look(prices, kinds=_KINDS)[1] or self._search.look_at_all(prices)

    def _solved(self, counts: Whole) -> Floats:
        """Prices, of which those of pods that are left out are very high."""
        self._generation.master.demand(counts, self._stock)
        self._search.count(UNITS.master)
        return self._generation.master.solve()


def furthest(holds: Callable[[int], bool], many: int, *, start: int = 1) -> int:
    """The largest number up to ``many`` for which something holds that holds for nought and, if at all, for all less.

    By doubling and halving, from a guess.
    """
    low, high, step, tried = 0, many + 1, 1, max(1, min(start, many))
    while high - low > 1:
        if holds(tried):
            low = tried
        else:
            high = tried
        if high > many:
            tried = min(many, low + step)
        elif not low:
            tried = max(1, high - step)
        else:
            tried = (low + high) // 2
        step *= 2
    return low
