"""Fillings that are written down at once: all to which nothing can be added, and what the best of them is worth."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.solver.deadline import Work
from autoscaler.solver.pricing import maximal_fillings
from autoscaler.solver.pricing.maximal_fillings import MaximalFillings
from autoscaler.solver.problem import Kind, Shape
from autoscaler.solver.solve import cheapest
from tests import examples
from tests.test_autoscaler.test_solver.test_pricing.test_grid import problem_of
from tests.test_autoscaler.test_solver.test_solve import SHAPES, faults, optimum, patterns, some_kinds

_WORK = 1e9
"""Enough to end by itself."""


@settings(deadline=None, max_examples=examples(100))
@given(shapes=SHAPES, kinds=some_kinds(), values=st.lists(st.integers(0, 20), min_size=4, max_size=4))
def test_every_filling_is_below_one_that_is_written_down_and_to_those_nothing_can_be_added(
    shapes: list[Shape], kinds: list[Kind], values: list[int]
) -> None:
    """Compared with all ways to fill a node; the best is worth as much as the best of all."""
    problem = problem_of(shapes, kinds)
    written = MaximalFillings.of(problem, np.arange(len(kinds)))
    worth = np.array(values[: len(shapes)], float)
    best = np.full(len(kinds), np.nan)
    written.value(worth, best)
    found = {kind: {tuple(one) for one in pods.tolist()} for kind, pods in written.by_kind()}
    for number, kind in enumerate(kinds):
        every = patterns(shapes, kind.amounts)
        largest = {one for one in every if not any(one != more and all(map(int.__le__, one, more)) for more in every)}
        assert found[number] == largest
        assert best[number] == max(float(worth @ np.array(one)) for one in every)


def test_a_kind_that_has_many_fillings_is_left_to_the_search() -> None:
    """The other one is written down all the same."""
    shapes = [Shape((1 + number, 0, 0, 1), 9) for number in range(6)]
    problem = problem_of(shapes, [Kind("large", (30, 0, 0, 30), 1.0), Kind("small", (3, 0, 0, 3), 1.0)])
    assert set(MaximalFillings.of(problem, np.arange(2)).kinds.tolist()) == {1}
    assert not len(MaximalFillings.of(problem, np.arange(1)).kinds)


def test_all_together_have_no_more_than_there_is_work_for() -> None:
    """Of many kinds with few fillings each the first are written down, whole."""
    shapes = [Shape((1, number, 0, 1), 1) for number in range(8)]
    problem = problem_of(shapes, [Kind(f"k{number}", (2, 20, 0, 2), 1.0) for number in range(2_000)])
    written = MaximalFillings.of(problem, np.arange(2_000))
    assert 0 < len(set(written.kinds.tolist())) < 2_000
    assert {len(pods) for _, pods in written.by_kind()} == {8 * 7 // 2}


@settings(deadline=None, max_examples=examples(40))
@given(shapes=SHAPES, kinds=some_kinds(short=True), each=st.sampled_from((1, 4, 200)))
def test_a_plan_costs_no_less_than_its_bound_whatever_is_written_down(
    shapes: list[Shape], kinds: list[Kind], each: int
) -> None:
    """And the bound is below the cheapest plan there is, whichever kinds have too many fillings."""
    before = maximal_fillings._EACH
    maximal_fillings._EACH = each
    try:
        answer = cheapest(shapes, kinds, deadline=_WORK, clock=Work(), few=0, rounds=60)
    finally:
        maximal_fillings._EACH = before
    assert not faults(answer, shapes, kinds)
    if not any(answer.left):
        assert answer.lower_bound <= optimum(shapes, kinds) + 1e-6 <= answer.usd + 2e-6
