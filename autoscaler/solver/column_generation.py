"""Finding the fillings that a cheap plan is made of: the second step of :mod:`autoscaler.solver.solve`.

Prices that the master asks for are far off while it knows few fillings. So it may ask only within a box around the best
prices known (the *centre*), and what is looked at lies between the two. Prices are the better, the more all pods are
worth at them when no kind of node can hold more than its own price: that number is the bound that they would prove if
the search were perfect, and the centre moves only when it grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.solver.deadline import Watch
from autoscaler.solver.exchanges import written_out
from autoscaler.solver.lp.arrays import Floats, Mask, Whole, highest
from autoscaler.solver.lp.farley_bound import farley
from autoscaler.solver.lp.master import Master, Problem
from autoscaler.solver.pricing.best_fit import packed, promising
from autoscaler.solver.pricing.dual_weights import EPSILON, Bins, Weights
from autoscaler.solver.pricing.grid import Grid
from autoscaler.solver.pricing.knapsack import Fillings
from autoscaler.solver.pricing.maximal_fillings import MaximalFillings
from autoscaler.solver.proofs import Proofs
from autoscaler.solver.stabilization import Steady

_NEARLY_ALL = 0.998
_SLACK = 0.01
"""A filling is kept that lacks so much to its node's price: prices change."""
_TAKE, _LOOK = 60, 40
_KINDS_FIRST, _KINDS, _KINDS_SOMETIMES, _SOMETIMES = 20, 6, 12, 4
_KINDS_ONCE = 6
_USED = 0.002
"""Part of the money that makes a kind worth looking at first."""
_USED_AT_ALL = 1e-6
_KINDS_AT_ONCE, _TAKE_EACH = 10, 16
_UNTIL, _PLACED_UNTIL = 0.75, 0.8
"""Parts of the time after which no more fillings are sought, or to place all pods. 0.75: on openb under limits, and on
some of its machines, cost hangs on fillings more than on how they are rounded."""
_ROWS_AT_LEAST = 16
"""Measured with 4 to 24 rows: below that the time of a step hardly depends on how many there are."""
_FEW_PODS = 400
_SIMPLE = 6
"""Kinds in short supply at most for which a filling with pods of one shape is written down from the start."""
_PACKED, _PLACED = 12, 4_000
"""Kinds at most that are packed to begin with, and pods with all of them together."""
_PACKED_UNTIL = 0.25
"""Part of the time."""
_HALVES = 15
_FORGET = 1.002
_NATURAL = 0.1
"""Part of what a pod costs on nodes of its own that its price is never far below, unless there is room for nothing."""


@dataclass(frozen=True, slots=True)
class Units:
    """Of counted work, for each row of the problem: measured on openb (26 to 112 rows) as CPU milliseconds."""

    relaxation: float = 0.4
    kind: float = 0.043
    """One kind of node looked at."""
    few: float = 0.025
    """The same for some of the pods only."""
    master: float = 0.07
    """One solution of the master, from the last one."""
    table: float = 0.3
    """All kinds at once, without devices."""
    packed: float = 0.012
    """For each pod: one kind filled by packing alone."""
    written: float = 0.13
    """All fillings of the kinds in short supply that have few."""
    whole: float = 0.18
    """From one point of the search for whole numbers to the next at which it is asked whether to go on."""


UNITS: Final = Units()


class Generation:
    """The fillings found, the prices that they lead to, and what these prove."""

    def __init__(self, problem: Problem, watch: Watch) -> None:
        self.problem, self.watch = problem, watch
        self.usd = np.maximum(problem.usd, EPSILON)
        self.smaller = problem.smaller()
        self.master = Master(problem, self.smaller)
        self.prices: Floats = np.zeros(len(problem.counts))
        """The best known value of one pod of each shape."""
        self.shortage: Floats = np.zeros(len(problem.usd))
        """What nodes are worth above their price at these prices, for they are scarce."""
        self._stock = np.zeros((256, len(problem.counts)), dtype=np.int64)
        self._kinds = np.zeros(256, dtype=np.int64)
        self._many = self.simple = 0
        self._seen: set[tuple[int, bytes]] = set()
        self._bins = Bins(problem)
        self._written = MaximalFillings.none(problem)
        """All fillings of kinds that are not looked at."""
        self._weights = Weights(problem, self.usd, self._bins)
        self._grid = Grid.of(problem)
        self.packed: list[tuple[int, Whole]] = []
        """Kinds of node with pods by shape: a plan for all pods without a search, if there is one."""
        self._alone = np.full(len(problem.counts), np.inf)
        """What a pod of each shape costs at most: on the best node that holds nothing else."""
        self._proofs = Proofs(problem, self.usd, self._weights)
        self._steady: Floats = self.prices
        """The prices that prove the most, as far as the search can tell."""
        self._values: Floats = np.zeros(len(problem.usd))
        """Of each kind what its best filling was worth at the last look, or was thought to be worth."""
        self._looked_at: set[int] = set()
        self._reach = np.ones(len(problem.usd))
        """Of each kind: what its best filling was worth, as a part of the ceiling, when it was looked at last."""

    @property
    def weights(self) -> Floats:
        """By kind and resource, as ``Weights.by_kind`` says, at the prices asked about last."""
        return self._weights.by_kind

    @property
    def charges(self) -> Floats:
        """By limit, as the relaxation says."""
        return self._weights.charges

    @property
    def many(self) -> int:
        """How many fillings are known; the first ``simple`` of them hold pods of one shape, and leave none out."""
        return self._many

    @property
    def fillings(self) -> Whole:
        """Pods by filling and shape."""
        return self._stock[: self._many]

    @property
    def kinds(self) -> Whole:
        """The kind of each filling."""
        return self._kinds[: self._many]

    def write_out(self) -> float:
        """Write down all fillings of the kinds in short supply that have few; gives which part of these kinds has."""
        scarce = np.nonzero(np.isfinite(self.problem.available))[0]
        if self._grid is not None or not len(scarce):
            return 0.0
        self.count(UNITS.written)
        self._written = self._weights.written = MaximalFillings.of(self.problem, scarce)
        many = 0
        for kind, pods in self._written.by_kind():
            self.add(kind, pods)
            many += 1
        return many / len(scarce)

    def relax(self) -> None:
        """Prices and a bound from the fractional problem; one simple filling for each shape."""
        problem = self.problem
        self.count(UNITS.relaxation)
        self.prices, money = self._weights.relax()
        over = np.maximum(0.0, self._proofs.by_weights(self.prices, self._weights.charges) - self.usd)
        self._reach = np.where(money > _USED * money.sum(), 1.0, 0.99)
        if not problem.leave:  # else a limit is worth what leaving pods out costs, and no filling seems to pay for it
            self.master.charges = self.charges
        charged = self.master.charges @ problem.uses
        self.master.shortage = np.where(np.isinf(problem.available), charged, over)
        sought = np.ones(len(problem.usd), dtype=bool)
        sought[self._written.kinds] = False
        for row in range(len(problem.counts)):
            among, left = problem.holds[row] & sought, float(problem.counts[row])
            for _ in range(_SIMPLE):
                if left <= 0 or not among.any():
                    break
                kind, pods = self.uniform(row, among)
                self.add(kind, pods[None, :])
                left -= float(pods[row]) * problem.available[kind]
                among[kind] = False
            among = problem.holds[row] & np.isinf(problem.available)
            if among.any():  # those in short supply may all go to others
                kind, pods = self.uniform(row, among)
                self.add(kind, pods[None, :])
        self.simple = self._many

    def run(self, *, rounds: int) -> None:
        """Fillings, until none is found that would help or the time for it is over."""
        if not rounds:
            self._look_once()
            return
        if len(self._written.kinds):
            relaxed = self.prices
            self.settle()
            self.prices = np.minimum(relaxed, self.prices)
        self._pack()
        best, _, _ = self.look(self.prices, kinds=_KINDS_FIRST)
        height, best = self._proves(self.prices, max(best, 1 - _SLACK))
        steady = Steady.at(self.prices / best, height, at_once=self._grid is not None)
        for turn in range(rounds):
            if self.watch.spent() > _UNTIL or not self._goes_on(steady, turn):
                break
        self._steady = steady.centre
        self.master.free_prices()
        self.settle()
        for _ in range(rounds if np.isfinite(self.watch.deadline) else 0):
            if not self.master.lacks() or self.watch.spent() > _PLACED_UNTIL:
                break
            self._reach[:] = 1.0
            if not self.look(self.prices, kinds=_KINDS_SOMETIMES)[1]:
                break
            self.settle()

    def _pack(self) -> None:
        """Begin with fillings of the most promising kinds, each moved to the cheapest that holds as much.

        Where something is scarce it is worth more than its price, and nothing is begun with.
        """
        problem, cheapest = self.problem, np.inf
        many = 0 if self.master.is_short else _PLACED // max(1, int(problem.counts.sum()))
        for kind in promising(problem, self.prices, many=min(_PACKED, many)):
            if self.watch.spent() > _PACKED_UNTIL:
                break
            plan = []
            self.watch.count(UNITS.packed * float(problem.counts.sum()))
            for pods in packed(problem, kind):
                plan.append((int(np.argmin(np.where(problem.holders(pods[None, :])[0], problem.usd, np.inf))), pods))
                self.add(plan[-1][0], pods[None, :])
            usd = sum(problem.usd[one] for one, _ in plan)
            if problem.holds[:, kind].all() and usd < cheapest:
                self.packed, cheapest = plan, usd

    def holder(self, pods: Whole, kind: int | None) -> int | None:
        """The kind, if it holds these pods; where it was left out (``None``) the cheapest that does of the endless."""
        [holders] = self.problem.holders(pods[None, :])
        if kind is not None:
            return kind if holders[kind] else None
        usd = np.where(holders & np.isinf(self.problem.available), self.problem.usd, np.inf)
        return int(np.argmin(usd)) if np.isfinite(usd).any() else None

    def _goes_on(self, steady: Steady, turn: int) -> bool:
        """One round; whether there is anything left to be found."""
        counts = self.problem.counts
        self.master.keep_near(steady.centre, steady.below, steady.above, least=_NATURAL * self._alone)
        self.count(UNITS.master)
        asked, usd = self.master.solve(), self.master.usd()
        most = (1 + EPSILON) * usd
        steady.height = min(steady.height, most)
        low, high = self.master.pressed()
        low &= steady.below < 1
        if not low.any() and not high.any() and usd <= (1 + EPSILON) * self.bound(counts):
            return False  # as cheap as is proven that it can be
        if self._grid is not None and not high.any() and steady.height > _NEARLY_ALL * float(asked @ counts):
            return False
        steady.widen(low, high)
        prices = steady.between(asked)
        best, added, all_seen = self.look(prices, kinds=_KINDS if turn % _SOMETIMES else _KINDS_SOMETIMES)
        if not added and steady.trust <= 0:
            added = self.look_at_all(prices)
            if not added and not low.any() and not high.any():
                return False
        height, best = self._proves(prices, best) if all_seen and best > 0 else (0.0, 1.0)
        # No prices in the box prove more than the master costs: where they seem to, a filling was missed.
        steady.learn(prices / best, height if height <= most else 0.0, added)
        return True

    def _proves(self, prices: Floats, best: float) -> tuple[float, float]:
        """What these prices would prove if the last look had found the best fillings; and the stretch."""
        problem = self.problem
        if self._grid is not None:
            return float(prices @ problem.counts) / best, best
        usd = self.usd + self.master.charges @ problem.uses
        stretch = max(1 - _SLACK, float((self._values / usd)[np.isinf(problem.available)].max(initial=0.0)))
        return farley(problem, prices, self._values, problem.counts, self.master.charges), stretch

    def _look_once(self) -> None:
        """A few fillings; where kinds are in short supply, of more kinds."""
        self.look(self.prices, kinds=_KINDS_ONCE if self.master.is_short else 2)
        self.settle()

    def count(self, units: float) -> None:
        """So much work was done for each row; of few rows each step costs as much as of some more."""
        self.watch.count(units * max(_ROWS_AT_LEAST, len(self.problem.counts)))

    def settle(self) -> None:
        """Prices of the master over the fillings known."""
        self.count(UNITS.master)
        self.prices = self.master.solve()
        self.shortage = self.master.shortage

    def without_swaps(self) -> Floats:
        """How often each filling is used by pods of its own shapes; what the master's swaps mean becomes fillings."""
        master = self.master
        values, swapped = master.values(), master.swapped()
        if swapped.sum() < 1:
            return values
        used = np.nonzero(values > _USED_AT_ALL)[0]
        kinds = self.kinds[used].tolist()
        for kind, pods in zip(
            kinds, written_out(self.fillings[used], values[used], master.swaps, swapped), strict=True
        ):
            self.add(kind, pods)
        master.allow_swaps(allowed=False)
        self.count(UNITS.master)
        master.solve()
        values = master.values()
        master.allow_swaps(allowed=True)
        return values

    def look_again(self, prices: Floats, limits: Whole, *, kinds: int) -> int:
        """Fillings for the pods that are left, at most ``limits`` of each; gives how many are new."""
        if self._grid is not None:
            return self._look_together(self._grid, np.where(limits > 0, prices, 0.0))[1]
        return self.look_within(prices, limits, kinds=kinds)

    def look_within(self, prices: Floats, limits: Whole, *, kinds: int) -> int:
        """Fillings with at most so many pods of each shape, kind by kind; gives how many are new."""
        added = 0
        hope = self._hopes(prices, limits)
        for kind in np.argsort(-hope, kind="stable")[:kinds].tolist():
            if hope[kind] <= 0:
                break
            self.count(UNITS.few)
            found = self._bins[kind].best(prices, limits, least=0.9 * self._charged(kind), take=20, width=60)
            added += self.add(kind, found.pods)
        return added

    def prove(self) -> None:
        """A bound from the prices found, where ceilings for whole pods are known, or limits make them differ."""
        charges = self.master.charges
        if self._grid is not None:
            self._proofs.by_tables(self._grid, self._steady, charges)
        elif self.master.is_short:
            self._proofs.by_weights(self.prices, charges)
            if len(self._written.kinds):
                self._proofs.by_weights(self._steady, charges)

    def prove_exactly(self) -> None:
        """For few pods another bound: what a node is worth at best when it holds no more pods than there are."""
        if self.problem.counts.sum() <= _FEW_PODS:
            prices = self._steady if len(self._written.kinds) else self.prices
            self._proofs.by_best_fillings(prices, self.master.charges, self.watch)

    def bound(self, counts: Whole) -> float:
        """What no plan for so many pods of each shape can undercut."""
        return self._proofs.bound(counts)

    def _hopes(self, prices: Floats, limits: Whole) -> Floats:
        """Of each kind: what a filling may be worth, as a part of its node's price, as far as can be told cheaply."""
        usd = self.usd + self.master.shortage
        hopes: Floats = self._weights.guesses(prices, limits) / usd * self._reach
        return hopes

    def _charged(self, kind: int) -> float:
        """Price of a node, with what the shortage of its kind adds."""
        return float(self.usd[kind] + self.master.shortage[kind])

    def look(self, prices: Floats, *, kinds: int) -> tuple[float, int, bool]:
        """Look for fillings at these prices, of the most promising kinds.

        Gives the best worth found as a part of a price, how many are new, and whether all that promised any were seen.
        """
        if self._grid is not None:
            return self._look_together(self._grid, prices)
        hope = self._hopes(prices, self.problem.counts)
        values = hope * (self.usd + self.master.shortage)
        self._written.value(prices, values)
        hope[self._written.kinds] = 0.0
        best, added, all_seen = 0.0, 0, False
        for turn in range(kinds):
            kind = int(np.argmax(hope))
            if hope[kind] < max(0.999, best * 0.995):
                all_seen = True
                break
            if turn and self.watch.spent() > _UNTIL:
                break
            usd = self._charged(kind)
            self.count(UNITS.kind)
            found = self._found(kind, prices, least=usd * (1 - _SLACK))
            values[kind] = float(found.values[0]) if len(found.values) else 0.0
            worth = values[kind] / usd
            self._weights.seen(kind)
            added += self.add(kind, found.pods[found.values > usd * (1 - _SLACK)])
            best = max(best, worth)
            self._reach[kind] = min(1.0, self._reach[kind] * worth / hope[kind])
            hope[kind] = 0.0
        self._reach = np.minimum(1.0, self._reach * _FORGET)
        self._values = values
        return best, added, all_seen

    def look_at_all(self, prices: Floats) -> int:
        """Look at every kind that may help, whatever was seen before; gives how many fillings are new."""
        self._reach[:] = 1.0
        return self.look(prices, kinds=len(self.usd))[1]

    def _look_together(self, grid: Grid, prices: Floats) -> tuple[float, int, bool]:
        """The same for kinds that are priced together."""
        charged = self.usd + self.master.shortage
        self.count(UNITS.table)
        found = grid.best(prices, charged, least=1 - _SLACK, kinds=_KINDS_AT_ONCE, take=_TAKE_EACH)
        added = sum(self.add(kind, pods) for kind, _, pods in found if len(pods))
        return max((worth for _, worth, _ in found), default=0.0), added, True

    def _found(self, kind: int, prices: Floats, *, least: float) -> Fillings:
        node = self._bins[kind]
        if kind not in self._looked_at:
            self._looked_at.add(kind)
            return node.best(prices, self.problem.counts, least=least, take=_TAKE)
        found = node.around(self._known(kind, prices), prices, self.problem.counts, least=least, take=_LOOK)
        if self._is_new(kind, found):
            return found
        return node.best(prices, self.problem.counts, least=least, take=_TAKE)

    def _is_new(self, kind: int, found: Fillings) -> bool:
        return len(found.values) > 0 and (kind, found.pods[0].tobytes()) not in self._seen

    def _known(self, kind: int, prices: Floats) -> Whole:
        """Fillings of the kind; and for a node with many devices, those of two smaller nodes together."""
        own: Whole = self.fillings[self.kinds == kind]
        devices = self.problem.rooms[:, 2]
        if devices[kind] <= 1:
            return own
        halves = np.nonzero((devices[self.kinds] <= devices[kind] / 2) & (devices[self.kinds] > 0))[0]
        worth = self.fillings[halves] @ prices / self.usd[self.kinds[halves]]
        half = self.fillings[halves[highest(worth, _HALVES)]]
        left, right = np.nonzero(np.tri(len(half), dtype=bool))
        both = np.vstack([half[left] + half[right], half])
        fits = (both @ self.problem.sizes <= self.problem.rooms[kind]).all(axis=1)
        fits &= (both <= self.problem.counts).all(axis=1)
        fits &= ~both[:, ~self.problem.holds[:, kind]].any(axis=1)
        return np.vstack([own, both[fits]])

    def uniform(self, row: int, among: Mask) -> tuple[int, Whole]:
        """Pods of one shape only, where they are cheapest among these kinds."""
        problem, size = self.problem, self.problem.sizes[row]
        asked = size > 0
        fits = np.floor(problem.rooms[:, asked] / size[asked]).min(axis=1) if asked.any() else np.ones(len(self.usd))
        fits = np.where(among, np.minimum(fits, problem.counts[row]), 0)
        kind = int(np.argmin(np.where(fits > 0, self.usd / np.maximum(fits, 1), np.inf)))
        pods = np.zeros(len(problem.counts), dtype=np.int64)
        pods[row] = int(fits[kind])
        self._alone[row] = min(self._alone[row], self.usd[kind] / max(1.0, fits[kind]))
        return kind, pods

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
