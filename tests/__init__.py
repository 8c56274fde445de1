"""The tests, room by room as the product has them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# Stacks of tests and benchmarks ask for more than the stack `local`; what they ask is held against what AWS refuses.
os.environ["SPILLWAY_FAKES"] = "tests.fakes"

ROOT: Final = Path(__file__).parents[1]
"""The folder of the checkout."""
