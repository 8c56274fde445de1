"""Columns of the master: the fillings known so far, each of a kind of node, none of them twice."""

from __future__ import annotations

import numpy as np

from autoscaler.solver.lp.arrays import EPSILON, Floats, Mask, Whole, dot
from autoscaler.solver.lp.master import Master, Problem


class Columns:
    """The fillings known, and the master over them."""

    def __init__(self, problem: Problem) -> None:
        """Begins without any filling."""
        self.problem = problem
        self.usd = np.maximum(problem.usd, EPSILON)
        self.smaller = problem.smaller()
        self.master = Master(problem, self.smaller)
        self._stock = np.zeros((256, len(problem.counts)), dtype=np.int64)
        self._kinds = np.zeros(256, dtype=np.int64)
        self._many = self.initial = 0
        self._seen: set[tuple[int, bytes]] = set()
        self.alone = np.full(len(problem.counts), np.inf)
        """What a pod of each shape costs at most: on the best node that holds nothing else."""

    @property
    def many(self) -> int:
        """How many fillings are known.

        The first ``initial`` of them, with which the search begins, are all of kinds that are enumerated, and some with
        pods of one shape, which leave none out.
        """
        return self._many

    @property
    def fillings(self) -> Whole:
        """Pods by filling and shape."""
        return self._stock[: self._many]

    @property
    def kinds(self) -> Whole:
        """The kind of each filling."""
        return self._kinds[: self._many]

    def worth(self, prices: Floats) -> Floats:
        """Returns by kind what its best filling is worth at these prices, without pods that there are none of."""
        found = np.zeros(len(self.usd))
        np.maximum.at(found, self.kinds, dot(np.minimum(self.fillings, self.problem.counts), prices))
        return found

    def knows(self, kind: int, pods: Whole) -> bool:
        """Whether that very filling is known."""
        return (kind, pods.tobytes()) in self._seen

    def add(self, kind: int, pods: Whole) -> int:
        """More fillings of a kind; gives how many of them are new."""
        fresh = []
        for one in range(len(pods)):
            key = (kind, pods[one].tobytes())
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(one)
        if not fresh:
            return 0
        end = self._many + len(fresh)
        while end > len(self._stock):
            self._stock = np.vstack([self._stock, np.zeros_like(self._stock)])
            self._kinds = np.concatenate([self._kinds, np.zeros_like(self._kinds)])
        self._stock[self._many : end], self._kinds[self._many : end] = pods[fresh], kind
        self._many = end
        self.master.add(float(self.problem.usd[kind]), kind, pods[fresh])
        return len(fresh)

    def uniform(self, row: int, among: Mask) -> tuple[int, Whole]:
        """Pods of one shape only, where they are cheapest among these kinds."""
        problem = self.problem
        fits = np.where(among, problem.fits(row, problem.rooms), 0.0)
        kind = int(np.argmin(np.where(fits > 0, self.usd / np.maximum(fits, 1), np.inf)))
        pods = np.zeros(len(problem.counts), dtype=np.int64)
        pods[row] = int(fits[kind])
        self.alone[row] = min(self.alone[row], self.usd[kind] / max(1.0, fits[kind]))
        return kind, pods

    def holder(self, pods: Whole, kind: int | None) -> int | None:
        """The kind, if it holds these pods; where it was left out (``None``) the cheapest that does of the endless."""
        [holders] = self.problem.holders(pods[None, :])
        if kind is not None:
            return kind if holders[kind] else None
        usd = np.where(holders & np.isinf(self.problem.available), self.problem.usd, np.inf)
        return int(np.argmin(usd)) if np.isfinite(usd).any() else None
