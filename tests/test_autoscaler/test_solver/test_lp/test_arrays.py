"""What column generation asks of arrays, beside numpy's own answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.solver.lp.arrays import dot, highest, inverse

_SHAPES = [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((4, 5), (5, 3)), ((0, 5), (5,)), ((4, 0), (0, 3))]


@pytest.mark.parametrize(("left", "right"), _SHAPES)
def test_a_product_is_that_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Of vectors and matrices, whole numbers among them, and where there is nothing to sum."""
    drawn = np.random.default_rng(1)
    one, other = drawn.random(left), drawn.random(right)
    assert np.allclose(dot(one, other), one @ other)
    whole = (one * 10).astype(np.int64)
    assert np.allclose(dot(whole, other), whole @ other)


@given(seed=st.integers(0, 1_000_000), size=st.integers(1, 8))
def test_a_matrix_times_its_inverse_is_one(seed: int, size: int) -> None:
    """Also where the first pivots are zero."""
    drawn = np.random.default_rng(seed)
    matrix = drawn.random((size, size)) + np.roll(np.eye(size), 1, axis=0) * size
    np.fill_diagonal(matrix, 0.0 if size > 1 else 1.0)
    if np.linalg.cond(matrix) < 1e6:
        assert np.allclose(matrix @ inverse(matrix), np.eye(size))


@given(scores=st.lists(st.integers(0, 5), min_size=1, max_size=40), many=st.integers(1, 40))
def test_the_highest_come_first_and_the_first_of_equal_ones(scores: list[int], many: int) -> None:
    """As a stable sort has them."""
    in_order = sorted(range(len(scores)), key=lambda one: -scores[one])
    found = highest(np.array(scores, dtype=float), many).tolist()
    assert found == in_order[:many] if len(scores) > many else sorted(found) == sorted(in_order)
