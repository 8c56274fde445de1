"""Best-fit decreasing: every pod that a kind holds has a place on it, and a plan costs no more than by that alone."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.solver.pricing.best_fit import packed, promising
from autoscaler.solver.problem import Cutting, Kind, Shape
from autoscaler.solver.solve import cheapest

KINDS = [
    Kind("small", (4_000, 16_000, 0, 30), 0.2),
    Kind("large", (32_000, 64_000, 0, 60), 1.5),
    Kind("gpu", (16_000, 64_000, 2, 30), 2.0),
]
shapes_of = st.lists(
    st.builds(
        Shape,
        st.tuples(st.integers(100, 15_000), st.integers(100, 60_000), st.sampled_from((0, 0, 1, 2)), st.just(1)),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
)


@given(shapes=shapes_of)
def test_every_pod_that_a_kind_holds_has_a_place(shapes: list[Shape]) -> None:
    """On nodes that hold no more than they have room for."""
    problem = Cutting.of(shapes, KINDS, ()).problem
    for kind in promising(problem, np.ones(len(problem.counts)), many=9):
        pods = packed(problem, kind)
        assert (pods.sum(axis=0) == np.where(problem.holds[:, kind], problem.counts, 0)).all()
        assert (pods @ problem.sizes <= problem.rooms[kind]).all()
        assert (pods.sum(axis=1) > 0).all()


def test_the_largest_come_first_each_where_least_is_left_over() -> None:
    """Two of 3,000 and two of 1,000 milli fill two nodes of 4,000."""
    shapes = [Shape((1_000, 1, 0, 1), 2), Shape((3_000, 1, 0, 1), 2)]
    problem = Cutting.of(shapes, [KINDS[0]], ()).problem
    assert sorted(map(tuple, packed(problem, 0).tolist())) == [(1, 1), (1, 1)]


def test_kinds_that_hold_most_for_their_price_are_tried_first() -> None:
    """A kind that holds no pod is not tried at all."""
    shapes = [Shape((1_000, 4_000, 0, 1), 40)]
    kinds = [Kind("dear", (8_000, 32_000, 0, 30), 1.0), Kind("cheap", (32_000, 128_000, 0, 60), 3.0)]
    cutting = Cutting.of(shapes, [*kinds, Kind("tiny", (500, 500, 0, 9), 0.01)], ())
    found = promising(cutting.problem, np.array([0.1]), many=9)
    assert [cutting.names[kind] for kind in found] == ["cheap", "dear"]


def test_hardly_any_time_is_enough_for_a_plan_that_is_as_good_as_packing_alone() -> None:
    """A hundred pods, each of another size: prices are known after many looks, for which there is no time here."""
    dice = random.Random(3)  # noqa: S311 - the same pods every time
    shapes = [Shape((dice.randint(50, 2_000), dice.randint(64, 8_192), 0, 1), 1) for _ in range(100)]
    kinds = [
        Kind(f"k{cpu}-{gib}", (cpu * 950, cpu * gib * 900, 0, 60), cpu * (3 + gib) / 100)
        for cpu in (2, 4, 8, 16, 32)
        for gib in (2, 4, 8)
    ]
    kinds += [
        Kind(f"o{one}", (dice.randint(2, 24) * 1_000, dice.randint(4, 96) * 1_000, 0, 60), dice.uniform(0.5, 5))
        for one in range(60)
    ]
    problem = Cutting.of(shapes, kinds, ()).problem
    for_all = np.nonzero(problem.holds.all(axis=0))[0].tolist()
    alone = min(len(packed(problem, kind)) * problem.usd[kind] for kind in for_all)
    answer = cheapest(shapes, kinds, deadline=200.0)
    assert not any(answer.left)
    assert answer.usd <= alone + 1e-5
