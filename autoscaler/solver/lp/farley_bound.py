"""Farley's bound: what any prices of pods prove that every plan costs, given what no filling exceeds at these prices.

Why it holds is said in :mod:`autoscaler.solver.solve`. (Farley, "A note on bounding a class of linear programming
problems, including cutting stock problems", Operations Research 38, 1990.)
"""

from __future__ import annotations

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Whole, dot
from autoscaler.solver.lp.master import Problem


def farley(problem: Problem, prices: Floats, ceilings: Floats, counts: Whole, charges: Floats) -> float:
    """What no plan for so many pods of each shape can undercut. ``ceilings``: of each kind what no filling exceeds.

    ``charges``: any dollars for each limit that kinds share. Nodes that cost so much more than they do cost together at
    most that much more for all of the limit: it is taken off again.
    """
    usd = problem.usd + dot(charges, problem.uses)
    endless = np.isinf(problem.available)
    priced = endless & (usd > 0)
    stretch = float((ceilings[priced] / usd[priced]).max()) if priced.any() else 1.0
    stretch = stretch if stretch > 0 else 1.0
    if (endless & (usd <= 0) & (ceilings > 0)).any():
        return 0.0
    short = ~endless
    scarce = short & (usd > 0)
    tried = np.concatenate([[stretch, 1.0], ceilings[scarce] / usd[scarce]])
    tried = tried[tried >= stretch]  # no endless kind's ceiling exceeds any of these as a part of its price
    beyond = dot(np.maximum(0.0, ceilings[short] - tried[:, None] * usd[short]), problem.available[short])
    paid = float(((float(dot(prices, counts)) - beyond) / tried).max()) * (1 - 1e-9)
    return paid - float(dot(charges, problem.most)) * (1 + 1e-9)
