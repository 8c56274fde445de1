"""Finding the fillings that a cheap plan is made of: the second step of :mod:`autoscaler.solver.solve`.

Prices that the master asks for are far off while it knows few fillings. So it may ask only within a box around the best
prices known (the *centre*), and what is looked at lies between the two. Prices are the better, the more all pods are
worth at them when no kind of node can hold more than its own price: that number is the bound that they would prove if
the search were perfect, and the centre moves only when it grows.
"""

from __future__ import annotations

import numpy as np

from autoscaler.solver.deadline import UNITS, Watch
from autoscaler.solver.exchanges import written_out
from autoscaler.solver.lp.arrays import EPSILON, Floats, Whole, dot
from autoscaler.solver.lp.columns import Columns
from autoscaler.solver.lp.farley_bound import farley
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.pricing.best_fit import packed, promising
from autoscaler.solver.pricing.column_search import SLACK, UNTIL, ColumnSearch
from autoscaler.solver.proofs import Proofs
from autoscaler.solver.stabilization import Steady
from autoscaler.solver.whole_proof import WholeProof, whole_proof

_NEARLY_ALL = 0.998
_KINDS_FIRST, _KINDS, _KINDS_SOMETIMES, _SOMETIMES = 20, 6, 12, 4
_KINDS_ONCE = 6
_USED = 0.002
"""Part of the money that makes a kind worth looking at first."""
_USED_AT_ALL = 1e-6
_PLACED_UNTIL = 0.8
"""Part of the time after which no more fillings are sought to place all pods."""
_FEW_PODS = 400
_SIMPLE = 6
"""Kinds in short supply at most for which a filling with pods of one shape is written down from the start."""
_PACKED, _PLACED = 12, 4_000
"""Kinds at most that are packed to begin with, and pods with all of them together."""
_PACKED_UNTIL = 0.25
"""Part of the time."""
_NATURAL = 0.1
"""Part of what a pod costs on nodes of its own that its price is never far below, unless there is room for nothing."""


class Generation:
    """The fillings found, the prices that they lead to, and what these prove."""

    def __init__(self, problem: Problem, watch: Watch) -> None:
        self.problem = problem
        self.columns = Columns(problem)
        self.master = self.columns.master
        self.search = ColumnSearch(self.columns, watch)
        self.prices: Floats = np.zeros(len(problem.counts))
        """The best known value of one pod of each shape."""
        self.shortage: Floats = np.zeros(len(problem.usd))
        """What nodes are worth above their price at these prices, for they are scarce."""
        self.packed: list[tuple[int, Whole]] = []
        """Kinds of node with pods by shape: a plan for all pods without a search, if there is one."""
        self._weights = self.search.weights
        self._proofs = Proofs(problem, self.columns.usd, self._weights)
        self._steady: Floats = self.prices
        """The prices that prove the most, as far as the search can tell."""

    @property
    def watch(self) -> Watch:
        """How much of the time is over."""
        return self.search.watch

    @property
    def weights(self) -> Floats:
        """Returns the weights by kind and resource, as ``Weights.by_kind`` says, at the prices asked about last."""
        return self._weights.by_kind

    @property
    def charges(self) -> Floats:
        """Returns the charges by limit, as the relaxation says."""
        return self._weights.charges

    def relax(self) -> None:
        """Prices and a bound from the fractional problem; one simple filling for each shape."""
        problem = self.problem
        self.search.count(UNITS.relaxation)
        self.prices, money = self._weights.relax()
        over = np.maximum(0.0, self._proofs.by_weights(self.prices, self._weights.charges) - self.columns.usd)
        self.search.reach = np.where(money > _USED * money.sum(), 1.0, 0.99)
        if not problem.leave:  # else a limit is worth what leaving pods out costs, and no filling seems to pay for it
            self.master.charges = self.charges
        charged = dot(self.master.charges, problem.uses)
        self.master.shortage = np.where(np.isinf(problem.available), charged, over)
        sought = ~self.search.enumerated.is_enumerated
        for row in range(len(problem.counts)):
            among, left = problem.holds[row] & sought, float(problem.counts[row])
            for _ in range(_SIMPLE):
                if left <= 0 or not among.any():
                    break
                kind, pods = self.columns.uniform(row, among)
                self.columns.add(kind, pods[None, :])
                left -= float(pods[row]) * problem.available[kind]
                among[kind] = False
            among = problem.holds[row] & np.isinf(problem.available)
            if among.any():  # those in short supply may all go to others
                kind, pods = self.columns.uniform(row, among)
                self.columns.add(kind, pods[None, :])
        self.columns.initial = self.columns.many

    def run(self, *, rounds: int) -> None:
        """Fillings, until none is found that would help or the time for it is over."""
        if not rounds:
            self._look_once()
            return
        if self.search.enumerated:
            relaxed = self.prices  # without the kinds enumerated: a pod that has room there is worth less
            self.settle()
            self.prices = np.minimum(relaxed, self.prices)
        self._pack()
        best, _, _ = self.search.look(self.prices, kinds=_KINDS_FIRST)
        height, best = self._proves(self.prices, max(best, 1 - SLACK))
        steady = Steady.at(self.prices / best, height, at_once=self.search.grid is not None)
        for turn in range(rounds):
            if self.watch.spent() > UNTIL or not self._goes_on(steady, turn):
                break
        self._steady = steady.centre
        self.master.free_prices()
        self.settle()
        for _ in range(rounds):
            if not self.master.lacks() or self.watch.spent() > _PLACED_UNTIL:
                break
            self.search.reach[:] = 1.0
            if not self.search.look(self.prices, kinds=_KINDS_SOMETIMES)[1]:
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
                self.columns.add(plan[-1][0], pods[None, :])
            usd = sum(problem.usd[one] for one, _ in plan)
            if problem.holds[:, kind].all() and usd < cheapest:
                self.packed, cheapest = plan, usd

    def _goes_on(self, steady: Steady, turn: int) -> bool:
        """One round; whether there is anything left to be found."""
        counts = self.problem.counts
        self.master.keep_near(steady.centre, steady.below, steady.above, least=_NATURAL * self.columns.alone)
        self.search.count(UNITS.master)
        asked, usd = self.master.solve(), self.master.usd()
        most = (1 + EPSILON) * usd
        steady.height = min(steady.height, most)
        low, high = self.master.pressed()
        low &= steady.below < 1
        if not low.any() and not high.any() and usd <= (1 + EPSILON) * self.bound(counts):
            return False  # as cheap as is proven that it can be
        if self.search.grid is not None and not high.any() and steady.height > _NEARLY_ALL * float(dot(asked, counts)):
            return False
        steady.widen(low, high)
        prices = steady.between(asked)
        best, added, all_seen = self.search.look(prices, kinds=_KINDS if turn % _SOMETIMES else _KINDS_SOMETIMES)
        if not added and steady.trust <= 0:
            added = self.search.look_at_all(prices)
            if not added and not low.any() and not high.any():
                return False
        height, best = self._proves(prices, best) if all_seen and best > 0 else (0.0, 1.0)
        # No prices in the box prove more than the master costs: where they seem to, a filling was missed.
        steady.learn(prices / best, height if height <= most else 0.0, added)
        return True

    def _proves(self, prices: Floats, best: float) -> tuple[float, float]:
        """What these prices would prove if the last look had found the best fillings; and the stretch."""
        problem = self.problem
        if self.search.grid is not None:
            return float(dot(prices, problem.counts)) / best, best
        usd = self.columns.usd + dot(self.master.charges, problem.uses)
        stretch = max(1 - SLACK, float((self.search.values / usd)[np.isinf(problem.available)].max(initial=0.0)))
        return farley(problem, prices, self.search.values, problem.counts, self.master.charges), stretch

    def _look_once(self) -> None:
        """A few fillings; where kinds are in short supply, of more kinds."""
        self.search.look(self.prices, kinds=_KINDS_ONCE if self.master.is_short else 2)
        self.settle()

    def settle(self) -> None:
        """Prices of the master over the fillings known."""
        self.search.count(UNITS.master)
        self.prices = self.master.solve()
        self.shortage = self.master.shortage

    def without_swaps(self) -> Floats:
        """How often each filling is used by pods of its own shapes; what the master's swaps mean becomes fillings."""
        master = self.master
        values, swapped = master.values(), master.swapped()
        if swapped.sum() < 1:
            return values
        used = np.nonzero(values > _USED_AT_ALL)[0]
        kinds = self.columns.kinds[used].tolist()
        for kind, pods in zip(
            kinds, written_out(self.columns.fillings[used], values[used], master.swaps, swapped), strict=True
        ):
            self.columns.add(kind, pods)
        master.allow_swaps(allowed=False)
        self.search.count(UNITS.master)
        master.solve()
        values = master.values()
        master.allow_swaps(allowed=True)
        return values

    def prove(self) -> None:
        """A bound from the prices found, where ceilings for whole pods are known, or limits make them differ."""
        charges = self.master.charges
        if self.search.grid is not None:
            self._proofs.by_tables(self.search.grid, self._steady, charges)
        elif self.master.is_short:
            self._proofs.by_weights(self.prices, charges)
            if self.search.enumerated:
                self._proofs.by_weights(self._steady, charges)

    @property
    def has_few_pods(self) -> bool:
        """Says whether pods are so few that no node's room is needed whole."""
        return bool(self.problem.counts.sum() <= _FEW_PODS)

    def prove_exactly(self, watch: Watch) -> None:
        """Two bounds more: what nodes are worth at best, with whole pods and no more of them than there are.

        Of the master's prices and of those that prove the most, the one or the other proves more.
        """
        for prices in (self._steady,) if self.search.enumerated else (self.prices, self._steady):
            self._proofs.by_best_fillings(prices, self.columns.worth(prices), self.master.charges, watch)

    def prove_whole(self, known_usd: float, *, effort: float) -> WholeProof | None:
        """Returns what is proven of a plan for all pods, whose nodes are whole; ``None`` where that takes too much."""
        prices, weights = self._proofs.best_prices(self.problem.counts)
        return whole_proof(self.problem, prices, weights, known_usd, effort=effort)

    def bound(self, counts: Whole) -> float:
        """What no plan for so many pods of each shape can undercut."""
        return self._proofs.bound(counts)
