"""Rollouts are what they were. Where a change means to change them, ``python -m tests.golden_rollouts`` writes them."""

from __future__ import annotations

import pytest

from tests.golden_rollouts import GOLDEN

KEPT = GOLDEN.kept()


@pytest.mark.parametrize("name", GOLDEN.names)
def test_a_rollout_is_what_it_was(name: str) -> None:
    """What is told and written down, and how machines and nodes stand after each night."""
    assert GOLDEN.made(name) == KEPT[name]


def test_no_rollout_is_kept_that_is_not_made_any_more() -> None:
    """Nor is one missing."""
    assert tuple(KEPT) == GOLDEN.names
