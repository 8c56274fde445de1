"""A bound for pods and machines that the solver takes together, proven for each as it really is.

Let every kind ``t`` of node have weights ``w(t) >= 0`` on its resources under which the whole node weighs ``usd(t)``.
Price each pod at what it weighs where it weighs least, of the kinds that hold it: ``d(s) = min w(t) . size(s)``. Then
the pods on any node are worth at most what they weigh there, which is at most ``usd(t)``; so every plan costs at least
the sum of all ``d(s)``. Of kinds in short supply the node may weigh more than it costs: what it weighs above that is
taken off for each node that there is. Any weights prove a bound; those of the relaxation over clusters are nearly the
best, since the pods of a cluster are nearly alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Mask, Whole, dot
from autoscaler.solver.lp.master import NEVER, Problem

_SAFE = 1 - 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Apart:
    """What a problem takes together, one by one."""

    sizes: Floats
    """[pod, resource]"""
    counts: Whole
    row_of: Whole
    """The row of the problem that stands for it."""
    rooms: Mapping[int, Floats]
    """Of kinds that stand for machines of several sizes: [machine, resource]."""


def proven(apart: Apart, problem: Problem, weights: Floats, charges: Floats) -> float:
    """What no plan can undercut. ``weights``: by kind and resource, of which no pod is worth more than it weighs.

    ``charges``: what nodes are to cost more for each limit that kinds share (:mod:`autoscaler.solver.lp.farley_bound`).
    """
    usd = problem.usd + dot(charges, problem.uses)
    endless = np.isinf(problem.available)
    if (endless & (usd <= 0)).any():
        return 0.0
    weights = _stretched(problem, weights, usd)
    total = float(dot(_worths(apart, problem, weights), apart.counts))
    for kind in np.nonzero(~endless)[0].tolist():
        rooms = apart.rooms.get(kind)
        if rooms is None:
            rooms = np.repeat(problem.rooms[kind : kind + 1], int(problem.available[kind]), axis=0)
        total -= float(np.maximum(0.0, dot(rooms, weights[kind]) - usd[kind]).sum())
    return total * _SAFE - float(dot(charges, problem.most))


def worths(apart: Apart, problem: Problem, weights: Floats) -> Floats:
    """Returns what each pod costs by the bound without charges, dollars per hour."""
    return _worths(apart, problem, _stretched(problem, weights, problem.usd))


def _stretched(problem: Problem, weights: Floats, usd: Floats) -> Floats:
    """The weights under which a node weighs what it costs; no more than that where there are only so many."""
    endless = np.isinf(problem.available)
    weighs = (weights * problem.rooms).sum(axis=1)
    fair = endless & (weighs > 0) & (usd > 0)
    over = float((weighs[fair] / usd[fair]).max()) if fair.any() else 1.0
    scale = np.full(len(weighs), 1 / max(1.0, over))
    scale[fair] = usd[fair] / weighs[fair]
    found: Floats = weights * scale[:, None]
    return found


def _worths(apart: Apart, problem: Problem, weights: Floats) -> Floats:
    order = np.argsort(apart.row_of, kind="stable")
    found = np.empty(len(order))
    for part in np.split(order, np.nonzero(np.diff(apart.row_of[order]))[0] + 1):
        found[part] = _prices(apart.sizes[part], problem.may[apart.row_of[part[0]]], problem.rooms, weights)
    return found


def _prices(sizes: Floats, may: Mask, rooms: Floats, weights: Floats) -> Floats:
    """What each pod weighs where it weighs least; all of them may run on the same kinds."""
    some = may & (rooms >= sizes.min(axis=0)).all(axis=1)
    for_all = some & (rooms >= sizes.max(axis=0)).all(axis=1)
    light = weights[for_all]
    if len(sizes) > len(light):
        light = light[_lightest(light)]
    prices = dot(sizes, light.T).min(axis=1, initial=NEVER)
    for kind in np.nonzero(some & ~for_all)[0].tolist():
        holds = (sizes <= rooms[kind]).all(axis=1)
        prices[holds] = np.minimum(prices[holds], dot(sizes[holds], weights[kind]))
    found: Floats = prices
    return found


def _lightest(weights: Floats) -> Mask:
    """Those such that no other weighs less of everything."""
    less: Mask = np.all(weights[None] <= weights[:, None], axis=2)
    twice: Mask = less & less.T & np.tri(len(less), dtype=np.bool_)
    lighter: Mask = less & ~twice
    np.fill_diagonal(lighter, val=False)
    found: Mask = np.all(~lighter, axis=1)
    return found
