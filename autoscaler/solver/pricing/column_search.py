"""The pricing problem: fillings that are worth more than their node costs, of the kinds that promise any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoscaler.solver.deadline import UNITS, Watch
from autoscaler.solver.lp.arrays import GPUS, Floats, Whole, dot, highest
from autoscaler.solver.lp.columns import Columns
from autoscaler.solver.pricing.dual_weights import Bins, Weights
from autoscaler.solver.pricing.grid import Grid
from autoscaler.solver.pricing.knapsack import Fillings
from autoscaler.solver.pricing.maximal_fillings import MaximalFillings

SLACK = 0.01
"""A filling is kept that lacks so much to its node's price: prices change."""
UNTIL = 0.75
"""Part of the time after which no more fillings are sought: on openb under limits, and on some of its machines, cost
hangs on fillings more than on how they are rounded."""
_TAKE, _LOOK = 60, 40
_KINDS_AT_ONCE, _TAKE_EACH = 10, 16
_HALVES = 15
_FORGET = 1.002
_ROWS_AT_LEAST = 16
"""Measured with 4 to 24 rows: below that the time of a step hardly depends on how many there are."""
_WITHIN = 100
"""Kinds looked at for what is left, also where time is over: with 949 in short supply all took half a minute."""


class ColumnSearch:
    """Fillings sought at prices of pods, and what was seen of the kinds of node."""

    def __init__(self, columns: Columns, watch: Watch) -> None:
        """What is found is added to the columns."""
        problem = columns.problem
        self.columns, self.problem, self.watch = columns, problem, watch
        self.grid = Grid.of(problem)
        self._unit = UNITS.kind if problem.sizes[:, GPUS].any() else UNITS.kind_without_devices
        self._bins = Bins(problem)
        self.weights = Weights(problem, columns.usd, self._bins)
        self.values: Floats = np.zeros(len(problem.usd))
        """Of each kind what its best filling was worth at the last look, or was thought to be worth."""
        self.reach = np.ones(len(problem.usd))
        """Of each kind: what its best filling was worth, as a part of the ceiling, when it was looked at last."""
        self._looked_at: set[int] = set()

    @property
    def enumerated(self) -> MaximalFillings:
        """All fillings of kinds that are not looked at."""
        return self.weights.enumerated

    def enumerate(self, *, work: float) -> None:
        """Add all fillings of the kinds in short supply that have few; those are not looked at any more.

        ``work``: the part of the time that does where all of these kinds have few; where some have, as much less of it.
        """
        scarce = np.nonzero(np.isfinite(self.problem.available))[0]
        if self.grid is not None or not len(scarce):
            return
        self.weights.enumerated = MaximalFillings.of(self.problem, scarce)
        part = 0.0
        for kind, pods in self.enumerated.by_kind():
            self.columns.add(kind, pods)
            part += 1 / len(scarce)
        self.count(UNITS.enumerated * part)
        self.watch = replace(self.watch, deadline=self.watch.deadline * (1 - part * (1 - work)))

    def count(self, units: float) -> None:
        """Counts so much work for each row; of few rows each step costs as much as of some more."""
        self.watch.count(units * max(_ROWS_AT_LEAST, len(self.problem.counts)))

    def look(self, prices: Floats, *, kinds: int) -> tuple[float, int, bool]:
        """Look for fillings at these prices, of the most promising kinds.

        Gives the best worth found as a part of a price, how many are new, and whether all that promised any were seen.
        """
        if self.grid is not None:
            return self._look_together(self.grid, prices)
        hope = self._hopes(prices, self.problem.counts)
        values = hope * (self.columns.usd + self.columns.master.shortage)
        self.enumerated.value(prices, values)
        hope[self.enumerated.is_enumerated] = 0.0
        best, added, all_seen = 0.0, 0, False
        for turn in range(kinds):
            kind = int(np.argmax(hope))
            if hope[kind] < max(0.999, best * 0.995):
                all_seen = True
                break
            if turn and self.watch.spent() > UNTIL:
                break
            usd = self._charged(kind)
            self.count(self._unit)
            found = self._found(kind, prices, least=usd * (1 - SLACK))
            values[kind] = float(found.values[0]) if len(found.values) else 0.0
            worth = values[kind] / usd
            self.weights.seen(kind)
            added += self.columns.add(kind, found.pods[found.values > usd * (1 - SLACK)])
            best = max(best, worth)
            self.reach[kind] = min(1.0, self.reach[kind] * worth / hope[kind])
            hope[kind] = 0.0
        self.reach = np.minimum(1.0, self.reach * _FORGET)
        self.values = values
        return best, added, all_seen

    def look_at_all(self, prices: Floats) -> int:
        """Look at every kind that may help, whatever was seen before; gives how many fillings are new."""
        self.reach[:] = 1.0
        return self.look(prices, kinds=len(self.columns.usd))[1]

    def look_again(self, prices: Floats, limits: Whole, *, kinds: int) -> int:
        """Fillings for the pods that are left, at most ``limits`` of each; gives how many are new."""
        if self.grid is not None:
            return self._look_together(self.grid, np.where(limits > 0, prices, 0.0))[1]
        return self.look_within(prices, limits, kinds=kinds)

    def look_within(self, prices: Floats, limits: Whole, *, kinds: int) -> int:
        """Fillings with at most so many pods of each shape, kind by kind; gives how many are new.

        After the first kinds only while there is time.
        """
        added = 0
        hope = self._hopes(prices, limits)
        for number, kind in enumerate(np.argsort(-hope, kind="stable")[:kinds].tolist()):
            if hope[kind] <= 0 or (number >= _WITHIN and self.watch.spent() > UNTIL):
                break
            self.count(UNITS.few)
            found = self._bins[kind].best(prices, limits, least=0.9 * self._charged(kind), take=20, width=60)
            added += self.columns.add(kind, found.pods)
        return added

    def _hopes(self, prices: Floats, limits: Whole) -> Floats:
        """Returns by kind what a filling may be worth for its node's price, as far as is cheap to tell."""
        usd = self.columns.usd + self.columns.master.shortage
        hopes: Floats = self.weights.guesses(prices, limits) / usd * self.reach
        return hopes

    def _charged(self, kind: int) -> float:
        """Price of a node, with what the shortage of its kind adds."""
        return float(self.columns.usd[kind] + self.columns.master.shortage[kind])

    def _look_together(self, grid: Grid, prices: Floats) -> tuple[float, int, bool]:
        """The same for kinds that are priced together."""
        charged = self.columns.usd + self.columns.master.shortage
        self.count(UNITS.table)
        found = grid.best(prices, charged, least=1 - SLACK, kinds=_KINDS_AT_ONCE, take=_TAKE_EACH)
        added = sum(self.columns.add(kind, pods) for kind, _, pods in found if len(pods))
        return max((worth for _, worth, _ in found), default=0.0), added, True

    def _found(self, kind: int, prices: Floats, *, least: float) -> Fillings:
        node = self._bins[kind]
        if kind not in self._looked_at:
            self._looked_at.add(kind)
            return node.best(prices, self.problem.counts, least=least, take=_TAKE)
        found = node.around(self._known(kind, prices), prices, self.problem.counts, least=least, take=_LOOK)
        if len(found.values) and not self.columns.knows(kind, found.pods[0]):
            return found
        return node.best(prices, self.problem.counts, least=least, take=_TAKE)

    def _known(self, kind: int, prices: Floats) -> Whole:
        """Fillings of the kind; and for a node with many devices, those of two smaller nodes together."""
        own: Whole = self.columns.fillings[self.columns.kinds == kind]
        devices = self.problem.rooms[:, 2]
        if devices[kind] <= 1:
            return own
        halves = np.nonzero((devices[self.columns.kinds] <= devices[kind] / 2) & (devices[self.columns.kinds] > 0))[0]
        worth = dot(self.columns.fillings[halves], prices) / self.columns.usd[self.columns.kinds[halves]]
        half = self.columns.fillings[halves[highest(worth, _HALVES)]]
        left, right = np.nonzero(np.tri(len(half), dtype=bool))
        both = np.vstack([half[left] + half[right], half])
        fits = (dot(both, self.problem.sizes) <= self.problem.rooms[kind]).all(axis=1)
        fits &= (both <= self.problem.counts).all(axis=1)
        fits &= ~both[:, ~self.problem.holds[:, kind]].any(axis=1)
        return np.vstack([own, both[fits]])
