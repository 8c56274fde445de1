"""Plans are what they were. Where a change means to change them, ``python -m tests.golden_plans`` writes them anew."""

from __future__ import annotations

import pytest

from tests.golden_plans import NAMES, kept, made

KEPT = kept()


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_what_it_was(name: str) -> None:
    """Steps, prices, places and reasons."""
    assert made(name) == KEPT[name]


def test_no_plan_is_kept_that_is_not_made_any_more() -> None:
    """Nor is one missing."""
    assert tuple(KEPT) == NAMES
