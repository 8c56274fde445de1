"""The tests, room by room as the product has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# Stacks of tests and benchmarks ask for more than the stack `local`; what they ask is held against what AWS refuses.
os.environ["SPILLWAY_FAKES"] = "tests.fakes"

ROOT: Final = Path(__file__).parents[1]
"""The folder of the checkout."""

NIGHTLY: Final = "nightly"
"""The profile of hypothesis under which property tests draw new examples, and many."""


def examples(few: int) -> int:
    """How many examples of a property a run draws: ``few``, or 20 times as many in a nightly one."""
    return few * (20 if os.environ.get("HYPOTHESIS_PROFILE") == NIGHTLY else 1)
