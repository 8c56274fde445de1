"""The bound for pods and machines that are taken together: below every plan for all of them as they are."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.solver.problem import Kind, Shape
from autoscaler.solver.solve import lower_bound
from tests import examples
from tests.test_autoscaler.test_solver.test_solve import AMOUNTS, ROOMS, optimum


def _cluster(shapes: list[Shape]) -> Shape:
    """One shape for all, in the middle."""
    sizes = np.array([shape.amounts for shape in shapes])
    counts = np.array([shape.count for shape in shapes])
    middle = tuple(int(amount) for amount in np.average(sizes, axis=0, weights=counts))
    return Shape(middle, int(counts.sum()), members=(sizes, counts))


@settings(deadline=None, max_examples=examples(60))
@given(
    shapes=st.lists(st.builds(Shape, AMOUNTS, st.integers(1, 3)), min_size=1, max_size=4),
    rooms=st.lists(ROOMS, min_size=1, max_size=3),
    prices=st.lists(st.integers(1, 20), min_size=3, max_size=3),
    machines=st.lists(ROOMS, max_size=3),
)
def test_no_plan_costs_less_than_the_bound(
    shapes: list[Shape],
    rooms: list[tuple[int, ...]],
    prices: list[int],
    machines: list[tuple[int, ...]],
) -> None:
    """However unlike the pods of a cluster are, and the machines that stand together."""
    bought = [Kind(f"k{number}", room, usd / 4) for number, (room, usd) in enumerate(zip(rooms, prices, strict=False))]
    bought.append(Kind("huge", (50, 50, 50, 50), 30.0))
    apart = [Kind(f"m{number}", room, 0.0, 1) for number, room in enumerate(machines)]
    most = tuple(max(side) for side in zip(*machines, strict=True))
    together = [Kind("machine", most, 0.0, len(machines), np.array(machines))]
    bound = lower_bound([_cluster(shapes)], bought + (together if machines else []))
    assert bound <= optimum(shapes, bought + apart) + 1e-6


def test_the_bound_of_a_cluster_is_as_good_as_that_of_its_pods() -> None:
    """Pods of about the same size lose nothing by being taken together; rounded down they would lose a fifth."""
    shapes = [Shape((cpu, cpu, 0, 1), 10) for cpu in range(80, 121)]
    kinds = [Kind("k", (1000, 1000, 0, 100), 1.0), Kind("dear", (4000, 4000, 0, 400), 5.0)]
    assert lower_bound([_cluster(shapes)], kinds) == pytest.approx(lower_bound(shapes, kinds))


def test_a_pod_that_only_dear_nodes_hold_is_counted_at_their_price() -> None:
    """Though the middle of its cluster fits a cheap one."""
    shapes = [Shape((2, 2, 0, 1), 9), Shape((16, 16, 0, 1), 1)]
    kinds = [Kind("cheap", (8, 8, 0, 10), 1.0), Kind("dear", (16, 16, 0, 10), 100.0)]
    assert lower_bound([_cluster(shapes)], kinds) >= 100.0


def test_machines_bound_the_cost_as_well_for_next_to_nothing_as_for_a_cent() -> None:
    """A cent for each of them adds a cent for each at most; one pod's tiny price must not undo what the others prove.

    In one case of forty the bound was nothing, or two thirds of what it is now.
    """
    for seed in range(120):
        shapes, machines, bought = _beside_machines(random.Random(seed))  # noqa: S311 - the same each time
        for_a_cent = [machine._replace(usd=0.01) for machine in machines]
        cents = 0.01 * sum(machine.available or 0 for machine in machines)
        dear = lower_bound(shapes, for_a_cent + bought)
        assert lower_bound(shapes, machines + bought) >= (dear - cents) * (1 - 1e-3) - 1e-3, seed


def _beside_machines(dice: random.Random) -> tuple[list[Shape], list[Kind], list[Kind]]:
    """Pods with and without GPUs, machines that cost nothing to speak of, and nodes that are bought."""
    small, much = (500, 1_000, 2_000, 4_000, 8_000), (512, 2_048, 8_192, 16_384)
    shapes = [
        Shape((dice.choice(small), dice.choice(much), 0, 1), dice.randint(1, 60)) for _ in range(dice.randint(2, 5))
    ] + [
        Shape(
            (dice.choice(small[-2:]), dice.choice((8_192, 65_536)), dice.choice((1, 2, 4, 8)), 1), dice.randint(1, 20)
        )
        for _ in range(dice.randint(1, 4))
    ]
    machines = [
        Kind(
            f"machine{number}",
            (dice.choice((32_000, 64_000, 96_000)), dice.choice((131_072, 393_216)), dice.choice((0, 2, 4, 8)), 110),
            1e-6 * dice.randint(1, 2),
            dice.randint(1, 8),
        )
        for number in range(dice.randint(1, 4))
    ]
    bought = [
        Kind("m5.24xlarge", (95_000, 378_880, 0, 737), 4.608),
        Kind("g4dn.xlarge", (3_920, 14_481, 1, 29), 0.526),
        Kind("g4dn.12xlarge", (47_810, 178_933, 4, 234), 3.912),
        Kind("g4dn.metal", (95_690, 355_262, 8, 737), 7.824),
    ]
    return shapes, machines, bought
