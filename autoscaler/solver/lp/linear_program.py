"""HiGHS as the planner uses it."""

from __future__ import annotations

from typing import Any

import highspy

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
