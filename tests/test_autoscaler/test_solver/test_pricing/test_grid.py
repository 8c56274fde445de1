"""The table that prices kinds of node without devices all at once: what it finds fits, what it proves holds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.solver.lp.master import Problem
from autoscaler.solver.pricing.grid import Grid
from autoscaler.solver.problem import Kind, Shape
from autoscaler.solver.solve import cheapest, lower_bound
from tests import examples
from tests.test_autoscaler.test_solver.test_solve import faults, optimum, patterns

SIZE = st.tuples(st.integers(1, 6), st.integers(1, 6), st.just(0), st.just(1), st.integers(0, 1))
ROOM = st.tuples(st.integers(2, 12), st.integers(2, 12), st.just(0), st.integers(2, 8), st.just(1))
SHAPES = st.lists(st.builds(Shape, SIZE, st.integers(1, 4)), min_size=1, max_size=4)
KINDS = st.lists(st.tuples(ROOM, st.integers(1, 20)), min_size=1, max_size=3)


def kinds_of(rooms: list[tuple[tuple[int, ...], int]]) -> list[Kind]:
    """With one that holds anything."""
    kinds = [Kind(f"k{number}", room, usd / 4) for number, (room, usd) in enumerate(rooms)]
    return [*kinds, Kind("big", (12, 12, 0, 8, 1), 6.0)]


def problem_of(shapes: list[Shape], kinds: list[Kind]) -> Problem:
    """In arrays."""
    sizes = np.array([shape.amounts for shape in shapes], float)
    rooms = np.array([kind.amounts for kind in kinds], float)
    return Problem(
        sizes=sizes,
        counts=np.array([shape.count for shape in shapes]),
        rooms=rooms,
        usd=np.array([kind.usd for kind in kinds]),
        available=np.full(len(kinds), np.inf),
        holds=(sizes[:, None, :] <= rooms[None]).all(axis=2),
        may=np.ones((len(shapes), len(kinds)), dtype=bool),
        uses=np.zeros((0, len(kinds))),
        most=np.zeros(0),
    )


@settings(deadline=None, max_examples=examples(40))
@given(shapes=SHAPES, rooms=KINDS, values=st.lists(st.integers(0, 20), min_size=4, max_size=4))
def test_fillings_fit_and_none_is_worth_more_than_its_ceiling(
    shapes: list[Shape], rooms: list[tuple[tuple[int, ...], int]], values: list[int]
) -> None:
    """Also the part of a node that is larger than the table; of pods that want a node for themselves there is one."""
    kinds = kinds_of(rooms)
    problem = problem_of(shapes, kinds)
    grid = Grid.of(problem)
    assert grid is not None
    worth = np.array(values[: len(shapes)], float)
    ceilings = grid.ceilings(worth)
    for kind, _, pods in grid.best(worth, problem.usd, least=0.0, kinds=9, take=9):
        assert (pods @ problem.sizes <= problem.rooms[kind]).all()
        assert (pods <= problem.counts).all()
        exact = max(sum(worth * np.array(one)) for one in patterns(shapes, kinds[kind].amounts))
        assert exact <= ceilings[kind] + 1e-6
        assert exact <= grid.ceiling_of(kind, worth) + 1e-6


@settings(deadline=None, max_examples=examples(20))
@given(shapes=SHAPES, rooms=KINDS)
def test_bound_and_plan_enclose_the_optimum(shapes: list[Shape], rooms: list[tuple[tuple[int, ...], int]]) -> None:
    """Bound <= the exact optimum <= what is found, with a place of which each node has one."""
    kinds = kinds_of(rooms)
    answer = cheapest(shapes, kinds)
    best = optimum(shapes, kinds)
    assert answer.left == (0,) * len(shapes)
    assert faults(answer, shapes, kinds) == []
    assert max(answer.lower_bound, lower_bound(shapes, kinds)) <= best + 1e-6
    assert best <= answer.usd + 1e-6


def test_pods_of_different_parts_share_no_node() -> None:
    """Two halves of a node in two zones are two nodes, and the answer says which is where."""
    answer = cheapest([Shape((4, 4, 0, 1), 1, None, zone) for zone in "ab"], [Kind("k", (8, 8, 0, 10), 1.0)])
    assert sorted((nodes.part, nodes.times) for nodes in answer.nodes) == [("a", 1), ("b", 1)]
    assert answer.lower_bound <= answer.usd == 2


def test_devices_and_odd_amounts_are_left_to_the_other_pricing() -> None:
    """A pod with a GPU; amounts so far apart that no table of fair size measures them."""
    kinds = [Kind("k", (10**6, 10**6, 1, 10, 1), 1.0)]
    assert Grid.of(problem_of([Shape((1, 1, 1, 1, 0), 1)], kinds)) is None
    even = [Shape((10_000, 10_000, 0, 1, 0), 9), Shape((990_000, 980_000, 0, 1, 0), 1)]
    assert Grid.of(problem_of(even, kinds)) is not None
    odd = [Shape((7, 7, 0, 1, 0), 1), Shape((999_983, 999_979, 0, 1, 0), 1)]
    assert Grid.of(problem_of(odd, kinds)) is None
