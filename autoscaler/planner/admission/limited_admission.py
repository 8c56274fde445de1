"""Which pending gangs are served where the policy's limits leave room for some only: linear programs, in order.

A gang is served if there are nodes, as far as the linear program knows, for it beside all gangs that were served before
it (:mod:`autoscaler.solver.admission_lp`). Gangs that are worth as much of what is scarce as one that was refused are
refused with it, so that few programs tell of thousands of gangs. Whole nodes take a little more than the program knows:
a part of what is scarce may be kept back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from autoscaler.planner.cutting_stock.clustered_packing import SizeClusters
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.cutting_stock.cutting_problem import CuttingProblem
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.solver.admission_lp import AdmissionLp, furthest
from autoscaler.solver.column_pool import ColumnPool
from autoscaler.solver.deadline import Watch, Work
from autoscaler.solver.lp.arrays import Whole
from autoscaler.solver.problem import Cutting

_EXPLORING, _LOOKING = 0.5, 0.8
"""Parts of the work after which no fillings are sought that serve more gangs, nor any that serve a certain one."""
_CLOSE = 1e-9


class LimitedAdmission:
    """Gangs in the order in which they are served, by what they want of new nodes."""

    def __init__(
        self, wanted: Sequence[Mapping[Want, int]], problem: CuttingProblem, limits: SearchLimits, *, times: float
    ) -> None:
        """``problem``: for all of them, when nothing has been bought for any. ``times``: as much work as usual."""
        clusters = SizeClusters.of(problem.rows)
        cutting = Cutting.of(problem.rows if clusters is None else clusters.shapes, problem.kinds, problem.limits)
        row_of = _rows(problem.wants, cutting, clusters)
        self._many = len(cutting.rows)
        self._wanted = [
            np.repeat([row_of[shape] for shape in shapes], list(shapes.values())).astype(np.int64) for shapes in wanted
        ]
        """Of each gang the row of each pod; -1: no node that may be bought holds it."""
        self._watch = Watch(Work(), deadline=times * limits.work_for(sum(map(len, self._wanted)), self._many))
        self._lp = AdmissionLp(cutting, watch=self._watch) if self._many else None
        self._there = problem.free
        self._guess = 0
        self._answers: dict[float, list[int]] = {}
        """What was found, by the part that is kept back."""
        self.known = ColumnPool()
        """Fillings that are good for the gangs that are served, for the purchase to begin with."""
        self._explore()

    def served(self, kept_back: float) -> list[int]:
        """Numbers of the gangs that there are probably nodes for. ``kept_back``: part of all that is scarce."""
        if self._lp is None:
            return []
        if kept_back not in self._answers:
            self._answers[kept_back] = self._found(self._lp, kept_back)
        return self._answers[kept_back]

    def _found(self, lp: AdmissionLp, kept_back: float) -> list[int]:
        lp.keep_back(kept_back)
        base = np.zeros(self._many, dtype=np.int64)
        left = [one for one, rows in enumerate(self._wanted) if (rows >= 0).all()]
        taken: list[int] = []
        while left:
            pods = np.concatenate([self._wanted[one] for one in left])
            ends = np.cumsum([len(self._wanted[one]) for one in left])
            start = 1 if taken else int(np.searchsorted(ends, self._guess, side="right"))
            many = furthest(partial(self._serves, lp, base, pods, ends), len(left), start=start)
            taken += left[:many]
            base = base + self._counts(pods[: ends[many - 1] if many else 0])
            if many == len(left):
                break
            own = self._counts(self._wanted[left[many]])
            prices = lp.refutation(base + own, looking=self._watch.spent() < _LOOKING)
            if prices is None:
                taken.append(left[many])
                base = base + own
                left = left[many + 1 :]
                continue
            values = np.add.reduceat(prices[pods], np.concatenate([[0], ends[:-1]]))
            is_refused = (values > 0) & (values >= values[many] * (1 - _CLOSE))
            is_refused[many] = True
            left = [left[place] for place in range(many, len(left)) if not is_refused[place]]
        lp.remember(base, self.known, machines=self._there)
        return taken

    def _explore(self) -> None:
        rows = np.concatenate([one for one in self._wanted if (one >= 0).all()] or [np.zeros(0, dtype=np.int64)])
        if self._lp is not None and len(rows):
            self._guess = self._lp.explore(
                lambda many: self._counts(rows[:many]), len(rows), in_time=lambda: self._watch.spent() < _EXPLORING
            )

    def _serves(self, lp: AdmissionLp, base: Whole, pods: Whole, ends: Whole, many: int) -> bool:
        return lp.serves(base + self._counts(pods[: ends[many - 1] if many else 0]))

    def _counts(self, rows: Whole) -> Whole:
        return np.bincount(rows, minlength=self._many)


def _rows(wants: Sequence[Want], cutting: Cutting, clusters: SizeClusters | None) -> dict[Want, int]:
    """Returns for each want the row of the linear program that stands for it; -1: none."""
    of_cluster = [-1] * (len(wants) if clusters is None else len(clusters.shapes))
    for row, numbers in enumerate(cutting.shape_of):
        for number in numbers:
            of_cluster[number] = row
    if clusters is None:
        return dict(zip(wants, of_cluster, strict=True))
    found = {}
    for cluster, members in enumerate(clusters.members):
        for number in members.tolist():
            found[wants[number]] = of_cluster[cluster]
    return found
