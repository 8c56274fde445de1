"""Asynchronous successive halving, as the function that it is."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from images.experiment.halving import Halving, Report, losers

RULE = Halving("loss", reduction=2, most=8)


def said(*values: tuple[int, int, float]) -> list[Report]:
    """Reports of trial, step and loss, one after the other."""
    return [Report(trial, step, at=float(at), values={"loss": loss}) for at, (trial, step, loss) in enumerate(values)]


def test_rungs_grow_by_the_reduction_and_end_below_the_whole() -> None:
    """At its last step a trial is done anyway."""
    assert RULE.rungs() == (1, 2, 4)
    assert Halving("loss", first=3, reduction=3, most=81).rungs() == (3, 9, 27)
    assert Halving("loss", first=5, most=5).rungs() == ()


def test_the_first_at_a_rung_goes_on_and_a_worse_one_does_not() -> None:
    """Nothing is waited for: with two of them one in two is the better one."""
    assert losers(said((0, 1, 0.5)), RULE) == set()
    assert losers(said((0, 1, 0.5), (1, 1, 0.6)), RULE) == {1}
    assert losers(said((0, 1, 0.5), (1, 1, 0.4)), RULE) == set()
    assert losers(said((0, 1, 0.5), (1, 1, 0.5)), RULE) == {1}  # none is better than the one that was there


def test_one_that_goes_on_is_judged_again_only_at_the_next_rung() -> None:
    """Better ones that come later to a rung end none that has passed it."""
    first = ((0, 1, 0.5), (1, 1, 0.4), (2, 1, 0.3), (3, 1, 0.2))
    assert losers(said(*first), RULE) == set()
    assert losers(said(*first, (1, 2, 0.3), (0, 2, 0.5)), RULE) == {0}


def test_a_quarter_goes_on_where_one_in_four_does() -> None:
    """By rank among those that came until then."""
    rule = Halving("loss", reduction=4, most=16)
    reports = said(*((trial, 1, loss) for trial, loss in enumerate((0.1, 0.2, 0.3, 0.05, 0.4, 0.5, 0.6, 0.07))))
    assert losers(reports, rule) == {1, 2, 4, 5, 6}  # 7 is the second of eight


def test_a_step_that_is_not_reported_counts_by_the_next_one() -> None:
    """A trial that reports every third step passes two rungs at once."""
    assert losers(said((0, 1, 0.5), (0, 2, 0.4), (1, 3, 0.45)), RULE) == {1}


def test_one_that_has_lost_keeps_no_other_from_a_later_rung() -> None:
    """It lost at the first rung that it passed, and did not come to the second."""
    assert losers(said((0, 1, 0.1), (1, 2, 0.3), (0, 2, 0.4)), RULE) == {1}


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_the_worst(loss: float) -> None:
    """Such a trial has diverged."""
    assert losers(said((0, 1, 0.5), (1, 1, loss)), RULE) == {1}
    assert losers(said((0, 1, loss), (1, 1, 0.5)), RULE) == set()


def test_the_most_may_be_the_best_and_other_metrics_do_not_count() -> None:
    """By mode."""
    rule = Halving("accuracy", mode="max", reduction=2, most=8)
    reports = [Report(trial, 1, float(trial), {"accuracy": value}) for trial, value in enumerate((0.5, 0.4, 0.6))]
    assert losers(reports, rule) == {1}
    assert losers(said((0, 1, 0.1), (1, 1, 0.2)), rule) == set()
    assert losers([*said((0, 1, 0.1)), *(replace(one, at=9.0 + one.at) for one in reports)], rule) == {1}


reports_of_trials = st.lists(
    st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=60
)  # trial and loss; steps are counted


@given(reports_of_trials, st.randoms(use_true_random=False))
def test_a_loser_stays_one_whatever_comes_later_and_in_whatever_order_it_is_read(
    lines: list[tuple[int, float]], random: Random
) -> None:
    """So that a prompt that died finds the same; and one of them always goes on."""
    steps: dict[int, int] = {}
    told = []
    for trial, loss in lines:
        steps[trial] = steps.get(trial, 0) + 1
        told.append((trial, steps[trial], loss))
    reports = said(*told)
    before = frozenset[int]()
    for end in range(len(reports) + 1):
        now = losers(reports[:end], RULE)
        assert now >= before
        before = now
    assert not steps or before < {*steps}
    random.shuffle(reports)
    assert losers(reports, RULE) == before


def test_a_rule_that_makes_no_rungs_is_refused() -> None:
    """With what would be right."""
    with pytest.raises(BadInput, match="reduction 2 or more"):
        Halving("loss", reduction=1)
