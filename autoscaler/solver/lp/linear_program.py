"""HiGHS as the planner uses it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import highspy
import numpy as np

from autoscaler.solver.lp.arrays import Floats

_ITERATIONS = (10_000, 100_000)
"""Of the simplex method, from where it was and then from the start: it may turn in a circle. It rarely takes 1,000."""


def quiet_solver() -> Any:
    """HiGHS on one thread, saying nothing."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 - HiGHS' own signature
    solver.setOptionValue("threads", 1)
    return solver


def run(solver: Any) -> None:
    """Solves a linear program, from where it was; where that comes to no end, from the start."""
    for turn, most in enumerate(_ITERATIONS):
        if turn:
            solver.clearSolver()
        solver.setOptionValue("simplex_iteration_limit", most)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kIterationLimit:
            return


def run_whole(solver: Any, *, looks: int, in_time: Callable[[], bool] = lambda: True) -> None:
    """Searches whole numbers, until the solver has asked so many times whether to go on, or ``in_time`` says no.

    On one thread it asks at the same points of its search, however fast the machine is.
    """
    turns = count(1)

    def watch(event: Any) -> None:
        if next(turns) > looks or not in_time():
            event.interrupt()

    solver.cbMipInterrupt += watch
    solver.run()
    solver.cbMipInterrupt -= watch


def set_matrix(model: highspy.HighsLp, uses: Floats) -> None:
    """Puts down what each column takes of each row: [column, row]."""
    used = uses != 0
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
    model.a_matrix_.index_ = np.nonzero(used)[1].astype(np.int32)
    model.a_matrix_.value_ = uses[used]
