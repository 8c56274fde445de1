"""What whole nodes cost at least: against every plan there is."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.solver.column_generation import Generation
from autoscaler.solver.deadline import Watch, Work
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.problem import Cutting, Kind, Limit, Shape
from autoscaler.solver.solve import cheapest
from autoscaler.solver.whole_proof import whole_proof
from tests import examples
from tests.test_autoscaler.test_solver.test_solve import SHAPES, faults, optimum, some_kinds

_searched = partial(cheapest, few=0, near=0.0, effort=1.0)
_BARELY = Kind("holds two", (10, 10, 0, 9), 1.0)


def _problem(shapes: list[Shape], *kinds: Kind, limits: tuple[Limit, ...] = ()) -> Problem:
    return Cutting.of(shapes, kinds, limits).problem


def _pods(many: int) -> list[Shape]:
    """Two of them fill a node, whichever they are; three are too many."""
    return [Shape((4, 1 + number % 5, 0, 1), 1) for number in range(many)]


@settings(deadline=None, max_examples=examples(60))
@given(
    shapes=SHAPES,
    kinds=some_kinds(short=True),
    work=st.sampled_from((1e-6, 100.0)),
    effort=st.sampled_from((0.005, 0.02, 10.0)),
)
def test_no_plan_undercuts_it_and_a_cheaper_one_is_taken(
    shapes: list[Shape], kinds: list[Kind], work: float, effort: float
) -> None:
    """However little is searched before, also where there are few of some kinds; with little effort less is proven."""
    found = _searched(shapes, kinds, deadline=work, clock=Work(), effort=effort)
    if any(found.left):
        return
    least = optimum(shapes, kinds)
    assert not faults(found, shapes, kinds)
    assert found.lower_bound <= least + 1e-5
    assert least <= found.usd + 1e-5
    if effort > 1:
        assert found.usd == pytest.approx(least, abs=1e-5)
        assert found.lower_bound == pytest.approx(found.usd, rel=1e-4)


@settings(deadline=None, max_examples=examples(60))
@given(
    shapes=SHAPES,
    kinds=some_kinds(short=True),
    dearer=st.sampled_from((1.0, 1.2, 2.0)),
    effort=st.sampled_from((0.001, 0.01, 10.0)),
)
def test_of_a_plan_that_is_too_dear_no_more_is_proven_than_the_cheapest_costs(
    shapes: list[Shape], kinds: list[Kind], dearer: float, effort: float
) -> None:
    """Whatever part of its gap is looked at; all of it gives the cheapest plan."""
    problem, least = _problem(shapes, *kinds), optimum(shapes, kinds)
    generation = Generation(problem, Watch(Work()))
    generation.relax()
    generation.run(rounds=20)
    found = generation.prove_whole(dearer * least, effort=effort)
    assert effort < 1 or found is not None
    if found is not None:
        assert found.bound <= least + 1e-5
    if found is not None and effort > 1:
        assert found.bound == pytest.approx(least, rel=1e-4)
        assert (found.pods.sum(axis=0) >= problem.counts).all()
        assert problem.usd[found.kinds].sum() == pytest.approx(least, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_a_part_of_the_gap_is_proven_where_all_of_it_takes_too_many_fillings(seed: int) -> None:
    """Any plan that uses another filling costs as much more: no proof of the known plan, which is the cheapest here."""
    dice = random.Random(seed)  # noqa: S311 - the same pods every time
    shapes = [Shape((dice.randint(20, 60), dice.randint(20, 60), dice.choice((0, 0, 1)), 1), 1) for _ in range(11)]
    kinds = [Kind("k", (100, 100, 1, 9), 1.0), Kind("l", (150, 160, 0, 9), 1.7), Kind("m", (150, 260, 4, 9), 2.9)]
    nothing, part, whole = (_searched(shapes, kinds, deadline=50.0, clock=Work(), effort=one) for one in (0, 0.1, 1))
    assert nothing.lower_bound < part.lower_bound < whole.lower_bound
    assert whole.lower_bound == pytest.approx(whole.usd, rel=1e-4)


def test_half_a_node_is_a_whole_one() -> None:
    """Column generation proves two and a half."""
    pods = _pods(5)
    assert _searched(pods, [_BARELY], effort=0.0).lower_bound < 2.5 + 1e-6
    found = _searched(pods, [_BARELY])
    assert (found.usd, found.lower_bound) == (3.0, pytest.approx(3.0, rel=1e-5))


def test_twenty_pods_of_ten_sizes_are_proven_to_have_the_cheapest_nodes() -> None:
    """As they are mostly; the bound of column generation is far below some of these plans."""
    dice, proven = random.Random(1), list[float]()  # noqa: S311 - the same pods every time
    for _ in range(8):
        shapes = [Shape((dice.randint(5, 60), dice.randint(5, 60), dice.choice((0, 0, 1, 2)), 1), 2) for _ in range(10)]
        rooms = [(dice.choice((40, 80, 160)), dice.choice((60, 120)), 4 * (number % 2), 30) for number in range(6)]
        kinds = [Kind(f"k{number}", room, 1 + number / 3) for number, room in enumerate(rooms)]
        kinds.append(Kind("any", (160, 160, 8, 30), 4.0))
        before = _searched(shapes, kinds, deadline=300.0, clock=Work(), effort=0.0)
        after = _searched(shapes, kinds, deadline=300.0, clock=Work(), effort=2.0)
        assert before.lower_bound <= after.lower_bound + 1e-9
        assert after.usd <= before.usd
        proven.append(after.gap)
    assert sum(gap < 1e-4 for gap in proven) >= 5


@pytest.mark.parametrize("limits", [(), (Limit({"holds two": 1.0}, 1.0),)])
def test_a_dearer_plan_than_the_known_one_is_no_proof_against_it(limits: tuple[Limit, ...]) -> None:
    """The bound is no more than the known plan's cost; what is found keeps to the limits."""
    problem = _problem(_pods(4), _BARELY, Kind("holds all", (20, 20, 0, 9), 2.5), limits=limits)
    nothing = np.zeros(len(problem.counts)), np.zeros_like(problem.rooms)
    found = whole_proof(problem, *nothing, 9.0)
    assert found is not None
    least = 2.5 if limits else 2.0
    assert found.bound == pytest.approx(least, rel=1e-5)
    assert problem.usd[found.kinds].sum() == pytest.approx(least)
    assert (found.pods.sum(axis=0) >= problem.counts).all()
    cheaper = whole_proof(problem, *nothing, 1.5)
    assert cheaper is not None
    assert cheaper.bound == 1.5


def test_too_many_fillings_prove_nothing() -> None:
    """More effort is more fillings."""
    shapes = [Shape((number + 1, 2 * number + 1, 0, 1), 3) for number in range(12)]
    problem = _problem(shapes, Kind("large", (150, 300, 0, 99), 1.0))
    nothing = np.zeros(len(problem.counts)), np.zeros_like(problem.rooms)
    assert whole_proof(problem, *nothing, 9.0) is None
    few = _problem(_pods(9), _BARELY)
    zero = np.zeros(len(few.counts)), np.zeros_like(few.rooms)
    assert whole_proof(few, *zero, 9.0, effort=0.0001) is None
    assert whole_proof(few, *zero, 9.0) is not None
