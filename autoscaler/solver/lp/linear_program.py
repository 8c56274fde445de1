"""HiGHS as the planner uses it."""

from __future__ import annotations

from typing import Any

import highspy


def quiet_solver() -> Any:
    """HiGHS on one thread, saying nothing."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 - HiGHS' own signature
    solver.setOptionValue("threads", 1)
    return solver
