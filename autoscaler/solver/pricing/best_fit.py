"""Best-fit decreasing: what to begin the search for fillings with where hardly two pods ask for the same.

Each kind of node alone, filled up with all pods that it holds, the largest first, each where least is left over
(Johnson et al., "Worst-case performance bounds for simple one-dimensional packing algorithms", SIAM J. Comput. 3,
1974). No mix of kinds is tried: that is what the master is for.
"""

from __future__ import annotations

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Whole, dot
from autoscaler.solver.lp.master import Problem


def promising(problem: Problem, prices: Floats, *, many: int) -> list[int]:
    """Kinds, those first that hold most value for their price when they are filled as if pods could be cut."""
    held = problem.holds * problem.counts[:, None]
    worth = paid(held, problem.sizes, prices, problem.rooms, problem.usd)
    return [kind for kind in np.argsort(-worth, kind="stable")[:many].tolist() if worth[kind] > 0]


def paid(held: Floats | Whole, sizes: Floats, prices: Floats, rooms: Floats, usd: Floats) -> Floats:
    """Returns by kind what it holds for a dollar, if pods could be cut. ``held``: so many of a row, [row, kind]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        nodes = np.where(rooms > 0, dot(held.T, sizes) / rooms, 0.0).max(axis=1)
        found: Floats = np.where(usd * nodes > 0, dot(held.T, prices) / (usd * nodes), 0.0)
    return found


def packed(problem: Problem, kind: int) -> Whole:
    """[node, shape]: nodes of one kind for all pods that it holds."""
    room = np.where(problem.rooms[kind] > 0, problem.rooms[kind], 1.0)
    share = (problem.sizes / room).max(axis=1)
    order = np.argsort(-share, kind="stable")
    rows = np.repeat(order, np.where(problem.holds[order, kind], problem.counts[order], 0))
    free = np.empty((len(rows), len(room)))
    pods = np.zeros((len(rows), len(share)), dtype=np.int64)
    many = 0
    for row in rows.tolist():
        size = problem.sizes[row]
        left = free[:many] - size
        rest = np.where((left >= 0).all(axis=1), (left / room).sum(axis=1), np.inf)
        node = int(np.argmin(rest)) if many else 0
        if not many or rest[node] == np.inf:
            node, many = many, many + 1
            free[node] = problem.rooms[kind]
        free[node] -= size
        pods[node, row] += 1
    return pods[:many]
