"""A plan for not many pods, of which a few nodes at a time are packed anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.solver.lp.arrays import Whole
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.neighbourhoods import PODS, improved
from autoscaler.solver.problem import Cutting, Kind, Limit, Shape
from autoscaler.solver.rounding import Lot
from autoscaler.solver.solve import cheapest
from tests import examples

SMALL, LARGE = Kind("small", (4, 4, 0, 9), 1.0), Kind("large", (16, 16, 0, 9), 2.5)


def a_problem(shapes: Sequence[Shape], kinds: Sequence[Kind], limits: Sequence[Limit] = ()) -> tuple[Problem, Stock]:
    """And what is to be had."""
    problem = Cutting.of(shapes, kinds, limits).problem
    return problem, Stock(problem.available, problem.uses, problem.most)


def usd(problem: Problem, lots: Sequence[Lot]) -> float:
    """Dollars per hour."""
    return float(sum(problem.usd[lot.kind] * lot.times for lot in lots))


def one_each(problem: Problem) -> list[Lot]:
    """Each pod on a node of its own, of the cheapest kind that holds it."""
    found = []
    for row, many in enumerate(problem.counts.tolist()):
        pods: Whole = np.zeros_like(problem.counts)
        pods[row] = 1
        kind = min(np.nonzero(problem.holds[row])[0].tolist(), key=lambda one: float(problem.usd[one]))
        found.append(Lot(kind, pods, many))
    return found


def test_nodes_that_hold_each_others_pods_are_made_one() -> None:
    """Four pods with a node each go on a large one."""
    problem, stock = a_problem([Shape((4, 4, 0, 1), 4)], [SMALL, LARGE])
    found = improved(problem, one_each(problem), stock)
    assert [(problem.usd[lot.kind], lot.pods.tolist()) for lot in found] == [(2.5, [4])]


@pytest.mark.parametrize(
    ("kinds", "limits", "cost"),
    [
        ([SMALL, Kind("large", (16, 16, 0, 9), 2.5, 0)], [], 4.0),
        ([SMALL, Kind("large", (12, 12, 0, 9), 1.5, 1)], [], 2.5),
        ([SMALL, LARGE], [Limit({"large": 5.0}, 4.0)], 4.0),
        ([SMALL, LARGE], [Limit({"large": 4.0, "small": 1.0}, 4.0)], 2.5),
    ],
)
def test_no_node_is_taken_that_is_not_to_be_had(kinds: list[Kind], limits: list[Limit], cost: float) -> None:
    """Of a kind itself, or within a limit; what is torn down may be had again."""
    problem, stock = a_problem([Shape((4, 4, 0, 1), 4)], kinds, limits)
    before = stock.own.copy(), stock.most.copy()
    assert usd(problem, improved(problem, one_each(problem), stock)) == pytest.approx(cost)
    assert all((one == two).all() for one, two in zip(before, (stock.own, stock.most), strict=True))


SIZES = st.tuples(st.integers(1, 15), st.integers(1, 15), st.just(0), st.just(1))


@settings(deadline=None, max_examples=examples(60))
@given(
    shapes=st.lists(st.builds(Shape, SIZES, st.integers(1, 4)), min_size=1, max_size=12),
    available=st.none() | st.integers(0, 3),
)
def test_the_same_pods_for_no_more_money_on_nodes_that_hold_them(shapes: list[Shape], available: int | None) -> None:
    """Whatever the plan was; the same every time."""
    kinds = [SMALL, Kind("middle", (9, 6, 0, 9), 1.7, available), LARGE]
    problem, stock = a_problem(shapes, kinds)
    plan = one_each(problem)
    plan = [lot for lot in plan if np.isinf(problem.available[lot.kind])]
    if not plan:
        return
    found = improved(problem, plan, stock)
    assert usd(problem, found) <= usd(problem, plan) + 1e-9
    assert (sum(lot.pods * lot.times for lot in found) == sum(lot.pods * lot.times for lot in plan)).all()
    assert all((lot.pods @ problem.sizes <= problem.rooms[lot.kind]).all() for lot in found)
    assert (np.bincount([lot.kind for lot in found], minlength=len(problem.usd)) <= problem.available).all()
    again = improved(problem, plan, stock)
    assert [(lot.kind, lot.pods.tolist()) for lot in found] == [(lot.kind, lot.pods.tolist()) for lot in again]


def test_few_pods_of_many_sizes_are_bought_for_nearly_as_well_as_with_much_work() -> None:
    """Twenty of twenty sizes, with little of it: a few percent above, where 13 % were before."""
    shapes = [Shape((2 + one % 7, 1 + one % 5, 0, 1), 1 + one % 3) for one in range(20)]
    kinds = [Kind(f"k{one}", (4 + 3 * one, 4 + 2 * one, 0, 20), 1.0 + 0.55 * one) for one in range(9)]
    assert sum(shape.count for shape in shapes) < PODS
    much = cheapest(shapes, kinds)
    little = cheapest(shapes, kinds, rounds=2, turns=1)
    assert little.usd <= 1.05 * much.usd
