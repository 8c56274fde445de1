"""What no filling of a node can be worth more than, when every shape of pod has a value.

With weights ``w >= 0`` on a node's resources such that no shape is worth more than its weighed requests, nothing that
fits is worth more than the weighed node (weak duality of the knapsack's linear relaxation). The least such bound is
found by a tiny linear program; a sharper one, for whole pods, by branch and bound.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np

from autoscaler.solver.lp.arrays import Floats, Mask, Whole, dot, inverse
from autoscaler.solver.lp.linear_program import quiet_solver, set_matrix

_WORTHLESS = 1e-9
_GREEDY, _STEPS = 40, 200
"""After so many steps the first that helps is taken in place of the best, which cannot go round in circles; and at most
so many."""
_NODES = 200
"""Of branch and bound at most, on a slow machine as on a fast one."""
_LOOSE = 1e-6
"""The solver is exact to a tolerance: a little more room and worth keep the bound on the safe side."""


class Scale:
    """Weights for one node's resources, at values that change: each search begins where the last one ended.

    The simplex method on the dual side, where only the objective changes with the values: a few steps on as many
    equations as there are resources. Wherever it ends, the weights are stretched until they are valid.
    """

    def __init__(self, sizes: Floats, room: Floats) -> None:
        """``sizes``: of the shapes that may run on the node."""
        self._sizes, self._room = sizes, room
        self._scale = np.where(room > 0, room, 1.0)
        self._shares = np.ascontiguousarray((sizes / self._scale).T)
        self._columns = np.hstack([self._shares, np.eye(len(room))])
        self._basis = len(sizes) + np.arange(len(room))
        self._inverse: Floats = np.eye(len(room))

    def weights(self, values: Floats) -> Floats:
        """Weights per unit of each resource: no shape is worth more than it weighs, and the room weighs about least."""
        kept = values > _WORTHLESS
        if not kept.any():
            return np.zeros(len(self._room))
        weights = np.maximum(0.0, self._duals(np.append(values, np.zeros(len(self._room))))) / self._scale
        taken = dot(self._sizes[kept], weights)
        # The search is exact to a tolerance only: stretched by the worst shape, the weights are valid whatever it said.
        if (taken <= 0).any():
            return ceiling_by_share(values[kept], self._sizes[kept], self._room)
        stretched: Floats = weights * float((values[kept] / taken).max())
        return stretched

    def _duals(self, values: Floats) -> Floats:
        basis, columns = self._basis, self._columns
        for step in range(_STEPS):
            inverted = self._inverse
            duals: Floats = dot(values[basis], inverted)
            gains = values - dot(duals, columns)
            enter = int(np.argmax(gains) if step < _GREEDY else np.argmax(gains > _WORTHLESS))
            if gains[enter] <= _WORTHLESS:
                break
            amounts, slope = inverted.sum(axis=1), dot(inverted, columns[:, enter])
            ratios = np.where(slope > _WORTHLESS, np.maximum(amounts, 0.0) / np.where(slope > 0, slope, 1.0), np.inf)
            tied = np.nonzero(ratios <= ratios.min())[0]
            basis[tied[np.argmin(basis[tied])]] = enter
            self._inverse = inverse(columns[:, basis])
        return duals


def ceiling_by_share(values: Floats, sizes: Floats, room: Floats) -> Floats:
    """Valid weights without a solver: each resource alone pays for all that is asked of it."""
    shares = sizes / np.where(room > 0, room, 1.0)
    return np.full(len(room), float((values / shares.max(axis=1)).max())) / np.where(room > 0, room, 1.0)


class BestFilling(NamedTuple):
    """What a filling of a kind is worth at most."""

    most: float
    iterations: int
    """Of the simplex method, to prove it."""


def best_filling(values: Floats, sizes: Floats, limits: Whole, held: Mask, room: Floats) -> BestFilling:
    """No filling with at most ``limits`` pods of each shape is worth more: proven by branch and bound."""
    chosen = np.nonzero(held & (values > _WORTHLESS) & (limits > 0))[0]
    if not len(chosen):
        return BestFilling(0.0, 0)
    scale = np.where(room > 0, room, 1.0)
    shares = sizes[chosen] / scale
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(chosen), len(room)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_ = values[chosen], np.zeros(len(chosen))
    model.col_upper_ = limits[chosen].astype(float)
    model.row_lower_ = np.full(len(room), -highspy.kHighsInf)
    model.row_upper_ = np.where(room > 0, 1.0 + _LOOSE, _LOOSE)
    set_matrix(model, shares)
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(chosen)
    solver = quiet_solver()
    solver.setOptionValue("mip_max_nodes", _NODES)
    solver.setOptionValue("presolve", "off")  # of four rows: takes a quarter of the time
    solver.passModel(model)
    solver.run()
    found = solver.getInfo()
    bound = float(found.mip_dual_bound)
    proven = bound * (1 + _LOOSE) if 0 <= bound < np.inf else np.inf
    return BestFilling(proven, max(0, int(found.simplex_iteration_count)))
