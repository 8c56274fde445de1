"""Farley's bound: what any prices of pods prove that every plan costs, given what no filling exceeds at these prices.

Why it holds is said in :mod:`autoscaler.columns`. (Farley, "A note on bounding a class of linear programming problems,
including cutting stock problems", Operations Research 38, 1990.)
"""

from __future__ import annotations

import numpy as np

from autoscaler.arrays import Floats, Whole
from autoscaler.master import Problem


def farley(problem: Problem, prices: Floats, ceilings: Floats, counts: Whole) -> float:
    """What no plan for so many pods of each shape can undercut. ``ceilings``: of each kind what no filling exceeds."""
    endless = np.isinf(problem.available)
    priced = endless & (problem.usd > 0)
    stretch = float((ceilings[priced] / problem.usd[priced]).max()) if priced.any() else 1.0
    stretch = stretch if stretch > 0 else 1.0
    if (endless & (problem.usd <= 0) & (ceilings > 0)).any():
        return 0.0
    scarce = ~endless & (problem.usd > 0)
    tried = [stretch, 1.0, *(ceilings[scarce] / problem.usd[scarce]).tolist()]
    return max(_stretched_by(one, problem, prices, ceilings, counts) for one in tried if one >= stretch)


def _stretched_by(stretch: float, problem: Problem, prices: Floats, ceilings: Floats, counts: Whole) -> float:
    """Farley's bound, at a number that no endless kind's ceiling exceeds as a part of its price."""
    scarce = ~np.isinf(problem.available)
    short = problem.available[scarce] * np.maximum(0.0, ceilings[scarce] - stretch * problem.usd[scarce])
    return (float(prices @ counts) - float(short.sum())) / stretch * (1 - 1e-9)
