"""The linear program over the fillings known, and the one that needs none: HiGHS on one thread, warm from step to step.

Besides the fillings the master has three artificial columns for each shape (a pod bought, or given away, near the
price that is believed; a pod without a node), one that leaves out the same part of all pods (for
:mod:`autoscaler.solver.admission_lp` alone), and *swaps*: where a pod of one shape has a place, one that asks for no
more of anything, and may run wherever the first may, has one, too. Swaps cost nothing and change no whole plan; they
keep the prices in order (a pod is never worth less than a smaller one), which saves most of the rounds.
(Valerio de Carvalho, "Using extra dual cuts to accelerate column generation", INFORMS J. on Computing 17, 2005.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import highspy
import numpy as np

from autoscaler.solver.lp.arrays import Floats, Mask, Whole, dot
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.lp.linear_program import quiet_solver, run, run_whole

NEVER = 1e6
"""Dollars per hour for leaving a pod without a node, where that is the only way: more than any node costs."""
_PRESENT = 1e-7
_DUAL, PRIMAL = 1, 4
"""How the solver goes on from where it was: after other numbers of pods, and after more columns or other costs."""
_NODES, _LOOKS = 300, 150
"""Of the search for whole numbers: limits that do not depend on how fast the machine is."""


_ALL = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Shapes of pods and kinds of node in arrays."""

    sizes: Floats
    """[shape, resource]"""
    counts: Whole
    rooms: Floats
    """[kind, resource]"""
    usd: Floats
    available: Floats
    holds: Mask
    """[shape, kind]: it may run there, and an empty node has the room."""
    may: Mask
    """[shape, kind]: it may run there, room aside."""
    uses: Floats
    """[limit, kind]: what a node takes of a limit that several kinds share"""
    most: Floats
    """By limit."""
    leave: float = 0.0
    """Dollars for each pod, if the same part of all of them is left out by the relaxation; nought: none may be."""

    def holders(self, pods: Whole, kinds: Whole | slice = _ALL) -> Mask:
        """[filling, kind]: whether a node of the kind holds the pods of the filling, which are by shape."""
        used, rooms = dot(pods, self.sizes), self.rooms[kinds]
        found: Mask = ~(dot((pods > 0).astype(float), ~self.holds[:, kinds]) > 0)
        for one in range(used.shape[1]):
            found &= rooms[None, :, one] >= used[:, one, None]
        return found

    def fits(self, row: int, rooms: Floats) -> Floats:
        """How many pods of the shape each of these rooms holds, whole ones, as many as there are at most."""
        found: Floats = np.full(len(rooms), float(self.counts[row]))
        for one, amount in enumerate(self.sizes[row].tolist()):
            if amount > 0:
                found = np.minimum(found, rooms[:, one] // amount)
        return found

    def smaller(self) -> Mask:
        """[shape, shape]: the second asks for no more than the first, and may run wherever the first may."""
        less = np.all(self.sizes[:, None, :] >= self.sizes[None, :, :], axis=2)
        less &= np.all(self.holds[:, None, :] <= self.holds[None, :, :], axis=2)
        twice: Mask = less & less.T & np.tri(len(less), dtype=np.bool_)
        found: Mask = less & ~twice
        return found


class Master:
    """Every pod has a node, no kind is used more than it is available; the cheapest fractions of known fillings."""

    def __init__(self, problem: Problem, smaller: Mask) -> None:
        self.rows = rows = len(problem.counts)
        limited = np.nonzero(~np.isinf(problem.available))[0]
        self.scarce = {int(kind): rows + row for row, kind in enumerate(limited)}
        self.uses = problem.uses
        self.limits = rows + len(limited) + np.arange(len(problem.most))
        """Rows of the limits that kinds share."""
        self.charges: Floats = np.zeros(len(problem.most))
        """Dollars by which more of each limit would lower the cost."""
        self.shortage = np.zeros(len(problem.usd))
        """What a node of each kind should cost more, for it is scarce."""
        steps = smaller.astype(np.float32)
        self.swaps: Whole = np.argwhere(smaller & (dot(steps, steps) == 0))
        """(the shape that gives its place away, the one that takes it)"""
        swaps = self.swaps.astype(np.int32)
        self._fixed = 3 * rows + len(swaps)
        self.first = self._fixed + (1 if problem.leave else 0)
        """Number of the first filling's column; before it one may leave a part of everything without a node."""
        self._new: list[tuple[float, int, Whole]] = []
        """Price, kind and pods of fillings that the solver does not know yet."""
        self.solver = quiet_solver()
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self.first, rows + len(limited) + len(problem.most)
        model.col_cost_ = np.concatenate([np.zeros(2 * rows), np.full(rows, NEVER), np.zeros(self.first - 3 * rows)])
        model.col_lower_ = np.zeros(self.first)
        model.col_upper_ = np.concatenate(
            [np.zeros(2 * rows), np.full(rows + len(swaps), highspy.kHighsInf), np.zeros(self.first - self._fixed)]
        )
        model.row_lower_ = np.concatenate(
            [problem.counts, np.full(len(limited) + len(problem.most), -highspy.kHighsInf)]
        )
        model.row_upper_ = np.concatenate([np.full(rows, highspy.kHighsInf), problem.available[limited], problem.most])
        alone = np.arange(3 * rows + 1)
        pairs = alone[-1] + 2 * np.arange(1, len(swaps) + 1)
        model.a_matrix_.start_ = np.concatenate(
            [alone, pairs, np.full(self.first - self._fixed, alone[-1] + 2 * len(swaps))]
        ).astype(np.int32)
        model.a_matrix_.index_ = np.concatenate([np.tile(np.arange(rows, dtype=np.int32), 3), swaps.ravel()])
        signs = np.concatenate([np.repeat([1.0, -1.0, 1.0], rows), np.tile([-1.0, 1.0], len(swaps))])
        model.a_matrix_.value_ = signs
        self.solver.passModel(model)

    @property
    def is_short(self) -> bool:
        """Whether something that may be bought is scarce."""
        return bool(self.scarce) or len(self.limits) > 0

    def add(self, usd: float, kind: int, pods: Whole) -> None:
        """More fillings of a kind, one a row; the solver gets all that are new when it is asked next."""
        self._new.append((usd, kind, pods))

    def _put_in(self) -> None:
        if not self._new:
            return
        usd, kinds, pods = zip(*self._new, strict=True)
        self._new.clear()
        times = [len(some) for some in pods]
        taken = np.zeros((sum(times), self.solver.getNumRow()))
        """[filling, row]: of pods, of nodes of a scarce kind, of limits."""
        taken[:, : self.rows] = np.vstack(pods)
        kind_of = np.repeat(kinds, times)
        for number, kind in enumerate(kind_of.tolist()) if self.scarce else ():
            if kind in self.scarce:
                taken[number, self.scarce[kind]] = 1.0
        taken[:, self.limits] = self.uses[:, kind_of].T
        columns, rows = np.nonzero(taken)
        many = len(taken)
        self.solver.addCols(
            many,
            np.repeat(usd, times),
            np.zeros(many),
            np.full(many, highspy.kHighsInf),
            len(rows),
            np.searchsorted(columns, np.arange(many)).astype(np.int32),
            rows.astype(np.int32),
            taken[columns, rows],
        )

    def keep_near(self, centre: Floats, below: Floats, above: Floats, *, least: Floats) -> None:
        """Pods may be had a little dearer elsewhere, and given away a little cheaper: prices stay in that box.

        ``least``: prices below it may rise as far as it may, or one that is nought would stay so.
        """
        slack = 1e-4 * float(centre.max(initial=0.0))
        usd = np.concatenate(
            [centre + np.maximum(centre, least) * above + slack, -np.maximum(0.0, centre * (1 - below) - slack)]
        )
        self._artificial(usd, np.full(2 * self.rows, highspy.kHighsInf))
        self.solver.setOptionValue("simplex_strategy", PRIMAL)

    def free_prices(self) -> None:
        """They may leave the box."""
        self._artificial(np.zeros(2 * self.rows), np.zeros(2 * self.rows))
        self.solver.setOptionValue("simplex_strategy", _DUAL)

    def pressed(self) -> tuple[Mask, Mask]:
        """Which prices would leave the box downwards, and which upwards."""
        used = np.array(self.solver.getSolution().col_value)[: 2 * self.rows] > _PRESENT
        return used[self.rows :], used[: self.rows]

    def lacks(self) -> bool:
        """Whether the fillings known leave a pod without a node."""
        return bool(max(self.solver.getSolution().col_value[2 * self.rows : 3 * self.rows], default=0.0) > _PRESENT)

    def lacking(self) -> float:
        """How many pods the fillings known leave without a node."""
        return float(sum(self.solver.getSolution().col_value[2 * self.rows : 3 * self.rows]))

    def usd(self) -> float:
        """What it all costs, with those that are left out."""
        return float(self.solver.getInfo().objective_function_value)

    def may_leave(self, counts: Whole, usd: float) -> None:
        """The same part of so many pods of each shape may be left out, all of them for so much; none: no part."""
        column = self._fixed
        self.solver.changeColCost(column, usd)
        self.solver.changeColBounds(column, 0.0, 1.0 if counts.any() else 0.0)
        for row, many in enumerate(counts.tolist()):
            self.solver.changeCoeff(row, column, float(many))

    def part_left(self) -> float:
        """The part of them that is."""
        return float(self.solver.getSolution().col_value[self._fixed])

    def _artificial(self, usd: Floats, upper: Floats) -> None:
        columns = np.arange(2 * self.rows, dtype=np.int32)
        self.solver.changeColsCost(len(columns), columns, usd)
        self.solver.changeColsBounds(len(columns), columns, np.zeros(len(columns)), upper)

    def demand(self, counts: Whole, stock: Stock) -> None:
        """Other numbers of pods and nodes."""
        for row, many in enumerate(counts.tolist()):
            self.solver.changeRowBounds(row, float(many), highspy.kHighsInf)
        for kind, row in self.scarce.items():
            self.solver.changeRowBounds(row, -highspy.kHighsInf, float(stock.own[kind]))
        for row, most in zip(self.limits.tolist(), stock.most.tolist(), strict=True):
            self.solver.changeRowBounds(row, -highspy.kHighsInf, most)

    def solve(self) -> Floats:
        """The price of one pod of each shape."""
        self._put_in()
        run(self.solver)
        duals = np.array(self.solver.getSolution().row_dual)
        self.charges = np.maximum(0.0, -duals[self.limits])
        self.shortage = dot(self.charges, self.uses)
        for kind, row in self.scarce.items():
            self.shortage[kind] += max(0.0, -duals[row])
        prices: Floats = np.maximum(0.0, duals[: self.rows])
        return prices

    def values(self) -> Floats:
        """How often each filling is used."""
        values: Floats = np.array(self.solver.getSolution().col_value)[self.first :]
        return values

    def swapped(self) -> Floats:
        """How many places are given away by each swap."""
        values: Floats = np.array(self.solver.getSolution().col_value)[3 * self.rows : self._fixed]
        return values

    def allow_swaps(self, *, allowed: bool) -> None:
        """Or else every place is for a pod of its own shape."""
        columns = np.arange(3 * self.rows, self._fixed, dtype=np.int32)
        most = np.full(len(columns), highspy.kHighsInf if allowed else 0.0)
        self.solver.changeColsBounds(len(columns), columns, np.zeros(len(columns)), most)

    def whole(self, *, in_time: Callable[[], bool]) -> Whole:
        """How often each filling is used in the cheapest plan of whole ones, as far as it is found.

        The search ends after so many steps, however fast the machine is, or when ``in_time`` says so.
        """
        self._put_in()
        solver = self.solver
        swaps = np.arange(2 * self.rows, self._fixed, dtype=np.int32)
        none = np.zeros(len(swaps))
        solver.changeColsBounds(
            len(swaps), swaps, none, np.repeat([highspy.kHighsInf, 0.0], [self.rows, len(swaps) - self.rows])
        )
        numbers = np.arange(self.first, solver.getNumCol(), dtype=np.int32)
        kinds = np.full(len(numbers), highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(len(numbers), numbers, kinds)
        solver.setOptionValue("mip_max_nodes", _NODES)
        run_whole(solver, looks=_LOOKS, in_time=in_time)
        values = np.array(solver.getSolution().col_value)[self.first :]
        solver.changeColsIntegrality(len(numbers), numbers, np.full(len(numbers), highspy.HighsVarType.kContinuous))
        solver.changeColsBounds(len(swaps), swaps, none, np.full(len(swaps), highspy.kHighsInf))
        found: Whole = np.round(values).astype(np.int64)
        return found
