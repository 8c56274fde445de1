"""The ten thousand mornings: a rule that is broken is told, with the smallest morning that breaks it."""

from __future__ import annotations

import pytest

from tests.bench import trials
from tests.world import World


def test_a_broken_rule_is_told_with_the_smallest_morning(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was checked until then is counted."""

    def morning(world: World, *, killed: bool) -> None:
        assert len(world.pods) < 2, f"{len(world.pods)} pods are too many"

    monkeypatch.setattr(trials, "morning", morning)
    tally, broken, _ = trials._share(0, 50)
    assert "2 pods are too many" in broken
    assert tally["mornings"] > 0


def test_mornings_that_break_nothing_are_all_counted() -> None:
    """Each looked at its limits."""
    tally, broken, _ = trials._share(1, 5)
    assert broken == ""
    assert tally["mornings"] == 5
    assert tally["looks at limits and budgets"] >= 24 * 5
