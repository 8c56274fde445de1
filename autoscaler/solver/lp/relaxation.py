"""The cutting-stock problem with pods spread over kinds of node in any fractions: a linear program without fillings.

Its dual values are prices of pods and, for each kind, weights on its resources that bound what its fillings are worth
(:mod:`autoscaler.solver.lp.column_bounds`). Kinds may be added later: the search goes on from where it was.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np

from autoscaler.solver.lp.arrays import Floats, Whole
from autoscaler.solver.lp.linear_program import quiet_solver, run
from autoscaler.solver.lp.master import NEVER, PRIMAL, Problem

_NOTHING = 1e-7
"""Dollars: the solver's tolerance. What weighs less weighs nothing, or weights could be stretched without an end."""


class Relaxed(NamedTuple):
    """What the relaxation proves: prices of pods, weights of kinds."""

    prices: Floats
    """Of a pod of each shape."""
    weights: Floats
    """[kind, resource], in the order in which kinds were added."""
    money: Floats
    """Dollars spent on each kind, in that order."""
    charges: Floats
    """Dollars by which more of each limit would lower the cost."""


class Relaxation:
    """Over the kinds that were added.

    Rows: pods of each shape; limits that kinds share; then for each kind its resources. Columns: pods without a node;
    a part of all pods left out; then for each kind that is added its nodes, and pods of each shape on them.
    """

    def __init__(self, problem: Problem) -> None:
        """Begins without any kind."""
        self._problem = problem
        self._rows, self._many = problem.sizes.shape
        self._first = self._rows + len(problem.most)
        """Number of the first kind's first row."""
        self._kinds = np.zeros(0, dtype=np.int64)
        self._nodes = np.zeros(0, dtype=np.int64)
        """Column of each kind's nodes."""
        self._solver = quiet_solver()
        rows, leave = self._rows, problem.leave * float(problem.counts.sum())
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = rows + 1, self._first
        model.col_cost_ = np.append(np.full(rows, NEVER), leave)
        model.col_lower_ = np.zeros(rows + 1)
        model.col_upper_ = np.append(np.full(rows, highspy.kHighsInf), 1.0 if leave else 0.0)
        model.row_lower_ = np.concatenate([problem.counts, np.full(len(problem.most), -highspy.kHighsInf)])
        model.row_upper_ = np.concatenate([np.full(rows, highspy.kHighsInf), problem.most])
        left = np.arange(rows) if leave else np.arange(0)
        model.a_matrix_.start_ = np.append(np.arange(rows + 1), rows + len(left)).astype(np.int32)
        model.a_matrix_.index_ = np.concatenate([np.arange(rows), left]).astype(np.int32)
        model.a_matrix_.value_ = np.concatenate([np.ones(rows), problem.counts[left]])
        self._solver.passModel(model)

    def add(self, kinds: Whole) -> None:
        """More of them, by number."""
        problem, many = self._problem, self._many
        rows = self._first + many * (len(self._kinds) + np.arange(len(kinds)))[:, None] + np.arange(many)[None, :]
        """[kind, resource]"""
        rooms = problem.rooms[kinds]
        self._solver.addRows(
            rows.size,
            np.full(rows.size, -highspy.kHighsInf),
            np.zeros(rows.size),
            0,
            np.zeros(rows.size, dtype=np.int32),
            np.zeros(0, dtype=np.int32),
            np.zeros(0),
        )
        limits = np.broadcast_to(self._rows + np.arange(len(problem.most)), (len(kinds), len(problem.most)))
        uses = problem.uses[:, kinds].T
        nodes = np.hstack([np.where(rooms > 0, -1.0, 0.0), uses])
        self._nodes = np.concatenate([self._nodes, self._solver.getNumCol() + np.arange(len(kinds))])
        upper = np.minimum(problem.available[kinds], highspy.kHighsInf)
        self._add_columns(problem.usd[kinds], upper, np.hstack([rows, limits]), nodes)
        shapes, on = np.nonzero(problem.holds[:, kinds])
        shares = problem.sizes[shapes] / np.where(rooms > 0, rooms, 1.0)[on]
        ones = np.ones((len(shapes), 1))
        self._add_columns(
            np.zeros(len(shapes)),
            np.full(len(shapes), highspy.kHighsInf),
            np.hstack([shapes[:, None], rows[on]]),
            np.hstack([ones, shares]),
        )
        self._kinds = np.concatenate([self._kinds, kinds])

    def _add_columns(self, usd: Floats, upper: Floats, rows: Whole, amounts: Floats) -> None:
        """``rows``, ``amounts``: [column, entry]; amounts of nothing are left out."""
        used = amounts != 0
        starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))[:-1]]) if len(used) else np.zeros(0)
        self._solver.addCols(
            len(usd),
            usd,
            np.zeros(len(usd)),
            upper,
            int(used.sum()),
            starts.astype(np.int32),
            rows[used].astype(np.int32),
            amounts[used],
        )

    def solve(self) -> Relaxed:
        """Solves from nothing the first time; then more columns leave what was found as it is possible."""
        run(self._solver)
        self._solver.setOptionValue("simplex_strategy", PRIMAL)
        solution, rows = self._solver.getSolution(), self._rows
        duals, rooms = np.array(solution.row_dual), self._problem.rooms[self._kinds]
        shares = np.where(-duals[self._first :] > _NOTHING, -duals[self._first :], 0.0)
        weights = shares.reshape(rooms.shape) / np.where(rooms > 0, rooms, 1.0)
        money = np.array(solution.col_value)[self._nodes] * self._problem.usd[self._kinds]
        charges = np.maximum(0.0, -duals[rows : self._first])
        return Relaxed(np.maximum(0.0, duals[:rows]), weights, money, charges)
