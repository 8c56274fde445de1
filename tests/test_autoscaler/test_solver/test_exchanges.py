"""What the master means by its swaps: the same nodes, with the pods that take others' places."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.solver.exchanges import written_out
from autoscaler.solver.problem import Kind, Shape
from autoscaler.solver.solve import cheapest

MANY = 4
"""Shapes, the largest first: each may take the place of the one before it."""
CHAIN = np.array([(one, one + 1) for one in range(MANY - 1)])


@given(
    fillings=st.lists(
        st.lists(st.integers(0, 5), min_size=MANY, max_size=MANY).filter(any), min_size=1, max_size=4, unique_by=tuple
    ),
    times=st.lists(st.integers(1, 40), min_size=4, max_size=4),
    parts=st.lists(st.floats(0, 1), min_size=MANY - 1, max_size=MANY - 1),
)
def test_what_is_written_out_holds_what_is_held_after_all_swaps(
    fillings: list[list[int]], times: list[int], parts: list[float]
) -> None:
    """Every way to fill a node has as many pods, none in the place of a smaller one; mixed they cover all demand."""
    held, values = np.array(fillings), np.array(times[: len(fillings)], dtype=float)
    places = held.T @ values
    swapped, there = np.zeros(MANY - 1), places.copy()
    for one, part in enumerate(parts):
        swapped[one] = part * there[one]
        there[one] -= swapped[one]
        there[one + 1] += swapped[one]
    found = written_out(held, values, CHAIN, swapped)
    for before, ways in zip(held, found, strict=True):
        assert (ways.sum(axis=1) == before.sum()).all()
        assert (np.cumsum(ways, axis=1) <= np.cumsum(before)).all()
    most, least = (
        sum(many * pick(ways, axis=0) for many, ways in zip(values, found, strict=True)) for pick in (np.max, np.min)
    )
    assert (least <= there + 1e-3).all()
    assert (there <= most + 1e-3).all()


def test_a_place_is_shared_as_it_is_swapped() -> None:
    """Half of the places of the larger pod go to the smaller one: a node with two of them holds one of each."""
    (ways,) = written_out(np.array([[2, 0]]), np.array([10.0]), np.array([[0, 1]]), np.array([10.0]))
    assert ways.tolist() == [[1, 1]]
    (ways,) = written_out(np.array([[1, 0]]), np.array([10.0]), np.array([[0, 1]]), np.array([4.0]))
    assert sorted(ways.tolist()) == [[0, 1], [1, 0]]


def test_a_filling_is_written_out_in_few_ways() -> None:
    """Each other way is one more column, and hundreds of sizes may take a place; few ways about keep the shares."""
    swaps = np.array([(0, taker) for taker in range(1, 60)])
    (ways,) = written_out(np.array([[30, *[0] * 59]]), np.array([1.0]), swaps, np.linspace(0.1, 0.8, 59))
    assert len(ways) <= 4
    assert (ways.sum(axis=1) == 30).all()
    assert (abs(ways.mean(axis=0)[1:] - np.linspace(0.1, 0.8, 59)) < 0.3).all()


def test_no_place_on_a_machine_is_lost_to_rounding() -> None:
    """Machines hold what the bound says they do, though most places are for pods larger than those that there are."""
    dice = random.Random(47)  # noqa: S311 - the same pods every time
    shapes = [
        Shape((dice.randint(2, 16), dice.randint(2, 30), dice.choice((0, 1, 1, 1, 2)), 1), dice.randint(20, 120))
        for _ in range(14)
    ]
    kinds = [
        Kind("machines", (48, 110, 4, 20), 0.0, 60),
        Kind("more machines", (96, 200, 8, 40), 0.0, 30),
        Kind("four", (62, 120, 4, 20), 4.0),
        Kind("one", (18, 32, 1, 20), 1.2),
        Kind("none", (32, 64, 0, 20), 1.4),
    ]
    answer = cheapest(shapes, kinds, rounds=60, turns=1)
    assert answer.left == (0,) * 14
    assert answer.usd == pytest.approx(answer.lower_bound, rel=0.005)
