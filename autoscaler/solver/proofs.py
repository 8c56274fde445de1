"""Lower bounds: prices of pods, with what no filling of each kind of node is worth more than at these prices.

Each such pair proves what no plan can undercut (:mod:`autoscaler.solver.lp.farley_bound`), whatever the search missed;
of several the largest holds.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from autoscaler.solver.deadline import Watch
from autoscaler.solver.lp.arrays import Floats, Whole, dot
from autoscaler.solver.lp.column_bounds import best_filling
from autoscaler.solver.lp.farley_bound import farley
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.pricing.dual_weights import Weights
from autoscaler.solver.pricing.grid import Grid

_NOMINAL: Final = 1e-5
"""Dollars per hour: a pod of the smallest nodes that EC2 sells is worth more."""
_TABLES: Final = 6
"""Kinds at most for which a table of their own is made."""
_UNTIL: Final = 0.95
"""Part of the time after which no more kinds are asked for their best filling."""
_EXACT, _EXACT_PER_ITERATION = 4.0, 0.075
"""Units of counted work for the best filling of a kind by branch and bound, and more for each iteration of the simplex
method: measured on 109 kinds, of mixes of 7 to 62 shapes, as CPU milliseconds (correlation 0.96)."""


class Proofs:
    """What is proven of one problem."""

    def __init__(self, problem: Problem, usd: Floats, weights: Weights) -> None:
        """``usd``: of each kind, above zero."""
        self._problem, self._usd, self._weights = problem, usd, weights
        self._found: list[tuple[Floats, Floats, Floats]] = []
        """Prices of pods, ceilings of kinds, charges for limits."""

    def by_weights(self, prices: Floats, charges: Floats) -> Floats:
        """One more, by what whole nodes weigh at these prices. Gives the ceilings: dollars by kind."""
        prices = _valued(prices)
        ceilings = self._weights.ceilings(prices)
        self._found.append((prices, ceilings, charges))
        return ceilings

    def by_tables(self, grid: Grid, prices: Floats, charges: Floats) -> None:
        """One more, by ceilings for whole pods: those of the grid, and of a few kinds their own."""
        prices = _valued(prices)
        if not prices.any():
            return
        usd = self._usd + dot(charges, self._problem.uses)
        ceilings = grid.ceilings(prices)
        most = max(1.0, float((ceilings / usd)[np.isfinite(ceilings)].max(initial=0.0)))
        ceilings = np.minimum(ceilings, self._weights.lowered(ceilings, prices, most))
        for _ in range(_TABLES):
            kind = int(np.argmax(ceilings / usd))
            own = grid.ceiling_of(kind, prices) if ceilings[kind] > most * usd[kind] else np.inf
            if own >= ceilings[kind]:
                break
            ceilings[kind] = own
        self._found.append((prices, ceilings, charges))

    def by_best_fillings(self, prices: Floats, values: Floats, charges: Floats, watch: Watch) -> None:
        """One more, if it is one: the best filling is searched of each kind that by weights may be worth its price.

        By branch and bound, with no more pods than there are; what the solver has proven counts, so a limit on its
        steps costs a little of the bound and no more. ``values``: of fillings that are known, the best of each kind at
        these prices; these alone may show that nothing more is proven.
        """
        problem, prices = self._problem, _valued(prices)
        if not prices.any():
            return
        ceilings = np.minimum(
            self._weights.ceilings(prices), dot(np.where(problem.holds, prices[:, None], 0.0).T, problem.counts)
        )
        usd, endless = self._usd + dot(charges, problem.uses), np.isinf(problem.available)
        known = self.bound(problem.counts)
        best = max(1.0, float((values / usd)[endless].max(initial=0.0)))
        order = np.argsort(-ceilings / usd, kind="stable")
        for kind in order[~self._weights.enumerated.is_enumerated[order]].tolist():
            if watch.spent() > _UNTIL or ceilings[kind] <= best * usd[kind]:
                break
            if self._proven(prices, np.minimum(ceilings, best * usd), charges, problem.counts) <= known:
                return
            own = best_filling(prices, problem.sizes, problem.counts, problem.holds[:, kind], problem.rooms[kind])
            watch.count(_EXACT + _EXACT_PER_ITERATION * own.iterations)
            ceilings[kind] = min(ceilings[kind], own.most)
            best = max(best, float(ceilings[kind] / usd[kind])) if endless[kind] else best
        self._found.append((prices, ceilings, charges))

    def best_prices(self, counts: Whole) -> tuple[Floats, Floats]:
        """Returns the prices that prove the most without limits, no filling worth more than its node; and weights.

        By these, by kind and resource, no pod is worth more than it weighs.
        """
        prices, ceilings, _ = max(self._found, key=lambda one: self._proven(one[0], one[1], one[2], counts))
        prices = prices / max(float((ceilings / self._usd).max()), 1e-9)
        self._weights.ceilings(prices)
        return prices, self._weights.by_kind

    def bound(self, counts: Whole) -> float:
        """Dollars per hour that no plan for so many pods of each shape can undercut."""
        return max((self._proven(*found, counts) for found in self._found), default=0.0)

    def _proven(self, prices: Floats, ceilings: Floats, charges: Floats, counts: Whole) -> float:
        some = (charges, np.zeros_like(charges)) if charges.any() else (charges,)
        return max(farley(self._problem, prices, ceilings, counts, one) for one in some)


def _valued(prices: Floats) -> Floats:
    """Returns prices without those of pods that only nodes at hand make worth anything: these have a nominal price.

    The solver's tolerance is a large part of such prices, and one shape that is worth twice what it weighs doubles what
    a node is worth at most.
    """
    return np.where(prices > _NOMINAL, prices, 0.0)
