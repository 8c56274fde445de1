"""What no filling of a node can be worth more than, when every shape of pod has a value.

With weights ``w >= 0`` on a node's resources such that no shape is worth more than its weighed requests, nothing that
fits is worth more than the weighed node (weak duality of the knapsack's linear relaxation). The least such bound is
found by a tiny linear program; a sharper one, for whole pods, by branch and bound.
"""

from __future__ import annotations

import highspy
import numpy as np

from autoscaler.arrays import Floats, Mask, Whole
from autoscaler.solver import quiet_solver

_WORTHLESS = 1e-9
_NODES = 200
_LOOSE = 1e-6
"""The solver is exact to a tolerance: a little more room and worth keep the bound on the safe side."""


def ceiling_weights(values: Floats, sizes: Floats, room: Floats) -> Floats:
    """Weights per unit of each resource under which no shape is worth more than it takes, and the room weighs least."""
    weights: Floats = np.zeros(len(room))
    kept = values > _WORTHLESS
    if not kept.any():
        return weights
    values, scale = values[kept], np.where(room > 0, room, 1.0)
    shares = sizes[kept] / scale
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(values), len(room)
    model.col_cost_, model.col_lower_ = -values, np.zeros(len(values))
    model.col_upper_ = np.full(len(values), highspy.kHighsInf)
    model.row_lower_, model.row_upper_ = np.full(len(room), -highspy.kHighsInf), np.ones(len(room))
    _take(model, shares)
    solver = quiet_solver()
    solver.passModel(model)
    solver.run()
    weights = np.maximum(0.0, -np.array(solver.getSolution().row_dual)) / scale
    taken = sizes[kept] @ weights
    # The solver is exact to a tolerance only: stretched by the worst shape, the weights are valid whatever it said.
    if (taken <= 0).any():
        return ceiling_by_share(values, sizes[kept], room)
    return weights * float((values / taken).max())


def ceiling_by_share(values: Floats, sizes: Floats, room: Floats) -> Floats:
    """Valid weights without a solver: each resource alone pays for all that is asked of it."""
    shares = sizes / np.where(room > 0, room, 1.0)
    return np.full(len(room), float((values / shares.max(axis=1)).max())) / np.where(room > 0, room, 1.0)


def best_filling(
    values: Floats, sizes: Floats, limits: Whole, held: Mask, room: Floats, *, seconds: float = np.inf
) -> float:
    """No filling with at most ``limits`` pods of each shape is worth more: proven by branch and bound in that time."""
    chosen = np.nonzero(held & (values > _WORTHLESS) & (limits > 0))[0]
    if not len(chosen):
        return 0.0
    scale = np.where(room > 0, room, 1.0)
    shares = sizes[chosen] / scale
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(chosen), len(room)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_ = values[chosen], np.zeros(len(chosen))
    model.col_upper_ = limits[chosen].astype(float)
    model.row_lower_ = np.full(len(room), -highspy.kHighsInf)
    model.row_upper_ = np.where(room > 0, 1.0 + _LOOSE, _LOOSE)
    _take(model, shares)
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(chosen)
    solver = quiet_solver()
    solver.setOptionValue("mip_max_nodes", _NODES)
    if seconds < np.inf:
        solver.setOptionValue("time_limit", seconds)
    solver.passModel(model)
    solver.run()
    bound = float(solver.getInfo().mip_dual_bound)
    return bound * (1 + _LOOSE) if 0 <= bound < np.inf else np.inf


def _take(model: highspy.HighsLp, shares: Floats) -> None:
    """What each shape, a column, takes of each resource, a row."""
    used = shares > 0
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
    model.a_matrix_.index_ = np.nonzero(used)[1].astype(np.int32)
    model.a_matrix_.value_ = shares[used]
