"""The cheapest nodes for few pods, proven: all fillings that a cheaper plan could use, and branch and bound over these.

Let no filling of any kind be worth more than its node costs, at some prices of pods. Then a plan costs at least what
its pods are worth, and for each of its nodes what that costs beyond the pods it holds: its *reduced cost*. So a plan
that costs less than one that is known, by which the known one is dearer than its pods are worth, has no node of a
greater reduced cost than that gap. Mostly few fillings are left (Baldacci, Christofides and Mingozzi, "An exact
algorithm for the vehicle routing problem based on the set partitioning formulation with additional cuts", Mathematical
Programming 115, 2008). Only those are needed to which no pod could be added: a plan may hold more pods than there are.

The bound of column generation forgets that nodes are whole: of 20 pods it is 3 % below the cheapest plan on the
average, of some 25 %.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import highspy
import numpy as np

from autoscaler.solver.lp.arrays import EPSILON, Floats, Whole, dot
from autoscaler.solver.lp.linear_program import quiet_solver, run_whole, set_matrix
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.pricing.maximal_fillings import each_number, is_maximal

_PARTIAL: Final = 50_000
"""Fillings that are looked at together, at most."""
_FILLINGS: Final = 700
"""Of branch and bound at most."""
_LOOKS: Final = 40
"""Times at which branch and bound asks whether to go on, some 20 iterations of the simplex method apart: some 0.5 s of
a core of 2024 where it comes to that."""
_PARTS: Final = (1.0, 0.5, 0.25)
"""Of the gap, until there are few enough fillings."""
_LOOSE: Final = 1e-6
"""The solver is exact to a tolerance."""


class WholeProof(NamedTuple):
    """What is proven, and the cheapest plan that was found for it."""

    bound: float
    """Dollars per hour that no plan undercuts; those of the known plan where none is cheaper."""
    kinds: Whole
    pods: Whole
    """[node, shape]: there may be places for more pods than there are. No nodes, where no plan was found."""


def whole_proof(
    problem: Problem, prices: Floats, weights: Floats, known_usd: float, *, effort: float = 1.0
) -> WholeProof | None:
    """Returns what is proven of a plan of ``known_usd``; ``None`` where even few fillings would be too many.

    ``prices``: of pods, such that no filling is worth more than its node. ``weights``: by kind and resource, such that
    no pod is worth more than it weighs. ``effort``: as much as usual, times this.

    Where there are too many fillings, those of a reduced cost of at most a part of the gap: a plan that uses another
    one costs what the pods are worth and that part of the gap at least.
    """
    worth = float(dot(prices, problem.counts))
    for part in _PARTS:
        gap = (known_usd - worth) * part * (1 + _LOOSE) + EPSILON
        found = _fillings(problem, prices, weights, gap, most=round(effort * _PARTIAL))
        if found is not None and len(found[0]) <= effort * _FILLINGS:
            break
    else:
        return None
    kinds, pods = found
    bound, times = math.inf, np.zeros(len(kinds), dtype=np.int64)
    if pods.any(axis=0).all():  # else a pod has no node in any such plan
        bound, times = _cheapest(problem, kinds, pods, looks=round(effort * _LOOKS))
    used = np.repeat(np.arange(len(kinds)), times)
    return WholeProof(min(bound, worth + part * (known_usd - worth)), kinds[used], pods[used])


def _fillings(
    problem: Problem, prices: Floats, weights: Floats, gap: float, *, most: int
) -> tuple[Whole, Whole] | None:
    """Kinds and pods of all fillings of a reduced cost of at most the gap to which no pod could be added.

    A node's free room is worth at most what it weighs: with each pod the least reduced cost that can come of a filling
    grows by what the pod weighs beyond its price.
    """
    least = problem.usd - (weights * problem.rooms).sum(axis=1)
    kind = np.nonzero(least <= gap)[0]
    least, room, pods = least[kind], problem.rooms[kind], np.zeros((len(kind), len(problem.counts)), dtype=np.int16)
    for row in np.argsort(-prices, kind="stable").tolist():
        more = np.maximum(0.0, dot(weights[kind], problem.sizes[row]) - prices[row])
        many = np.where(problem.holds[row, kind], problem.fits(row, room), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            many = np.minimum(many, np.where(more > 0, np.floor((gap - least) / more), many)).astype(np.int64) + 1
        if many.sum() > most:
            return None
        before, times = each_number(many)
        kind, pods, least = kind[before], pods[before], least[before] + times * more[before]
        room = room[before] - times[:, None] * problem.sizes[row]
        pods[:, row] = times
    is_kept = (problem.usd[kind] - dot(pods, prices) <= gap) & pods.any(axis=1)
    kind, pods, room = kind[is_kept], pods[is_kept], room[is_kept]
    maximal = is_maximal(problem, kind, pods, room)
    return kind[maximal], pods[maximal].astype(np.int64)


def _cheapest(problem: Problem, kinds: Whole, pods: Whole, *, looks: int) -> tuple[float, Whole]:
    """What no plan of these fillings undercuts, and how often the cheapest one found uses each: never, without one.

    Each shape has at least as many places as pods, and no more of a kind or a limit is used than there is.
    """
    some = np.unique(kinds)
    some = some[np.isfinite(problem.available[some])]
    uses = np.concatenate([pods, kinds[:, None] == some, problem.uses.T[kinds]], axis=1).astype(float)
    most = np.concatenate([problem.available[some], problem.most])
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = uses.shape
    model.col_cost_, model.col_lower_ = problem.usd[kinds], np.zeros(len(kinds))
    model.col_upper_ = np.full(len(kinds), float(problem.counts.sum()))
    model.row_lower_ = np.concatenate([problem.counts, np.full(len(most), -highspy.kHighsInf)])
    model.row_upper_ = np.concatenate([np.full(len(problem.counts), highspy.kHighsInf), most])
    set_matrix(model, uses)
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(kinds)
    solver = quiet_solver()
    solver.setOptionValue("mip_rel_gap", _LOOSE)
    solver.passModel(model)
    run_whole(solver, looks=looks)
    if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return np.inf, np.zeros(len(kinds), dtype=np.int64)
    times = np.round(np.array(solver.getSolution().col_value)).astype(np.int64)
    is_plan = len(times) == len(kinds) and _is_plan(dot(times, uses), problem.counts, most)
    bound = float(solver.getInfo().mip_dual_bound) * (1 - _LOOSE)
    return max(0.0, bound), times if is_plan else np.zeros(len(kinds), dtype=np.int64)


def _is_plan(used: Floats, counts: Whole, most: Floats) -> bool:
    """Whether these have a place for each pod, within what there is."""
    return bool((used[: len(counts)] >= counts).all() and (used[len(counts) :] <= most * (1 + _LOOSE)).all())
