"""Plans are what they were. Where a change means to change them, ``python -m tests.golden_plans`` writes them anew."""

from __future__ import annotations

import pytest

from tests.golden_plans import GOLDEN

KEPT = GOLDEN.kept()


@pytest.mark.parametrize("name", GOLDEN.names)
def test_a_plan_is_what_it_was(name: str) -> None:
    """Steps, prices, places, reasons and explanations."""
    assert GOLDEN.made(name) == KEPT[name]


def test_no_plan_is_kept_that_is_not_made_any_more() -> None:
    """Nor is one missing."""
    assert tuple(KEPT) == GOLDEN.names
