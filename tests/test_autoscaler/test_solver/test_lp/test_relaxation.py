"""Pods in fractions, over kinds that are added at once or later."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.solver.lp.arrays import by_pattern
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.lp.master import NEVER, Problem
from autoscaler.solver.lp.relaxation import Relaxation, Relaxed


def _problem(*, usd: list[float], rooms: list[list[float]], available: list[float], most: list[float]) -> Problem:
    sizes, kinds = np.array([[2.0, 8.0, 0.0, 1.0], [4.0, 16.0, 1.0, 1.0], [1.0, 2.0, 0.0, 1.0]]), np.array(rooms)
    holds = (sizes[:, None, :] <= kinds[None, :, :]).all(axis=2)
    return Problem(
        sizes=sizes,
        counts=np.array([7, 3, 5]),
        rooms=kinds,
        usd=np.array(usd),
        available=np.array(available),
        holds=holds,
        may=np.ones_like(holds),
        uses=np.ones((len(most), len(usd))),
        most=np.array(most),
    )


def _solved(problem: Problem, *parts: list[int]) -> Relaxed:
    relaxation = Relaxation(problem)
    for part in parts:
        relaxation.add(np.array(part, dtype=np.int64))
        found = relaxation.solve()
    return found


_KINDS = st.lists(
    st.tuples(st.integers(1, 16), st.integers(4, 64), st.integers(0, 4), st.floats(0.1, 9.0)), min_size=1, max_size=6
)


@given(kinds=_KINDS, first=st.integers(0, 6))
def test_kinds_that_are_added_later_count_as_those_that_were_there_from_the_start(
    kinds: list[tuple[int, int, int, float]], first: int
) -> None:
    """And a pod's price is never above what it weighs on a kind that holds it, nor a node's weight above its price."""
    problem = _problem(
        usd=[0.5, *(usd for *_, usd in kinds)],
        rooms=[[8, 32, 1, 10], *([cpu, memory, gpus, 10] for cpu, memory, gpus, _ in kinds)],
        available=[np.inf] * (len(kinds) + 1),
        most=[],
    )
    order = list(range(len(kinds) + 1))
    at_once, later = _solved(problem, order), _solved(problem, order[: first + 1], order[first + 1 :])
    assert later.money.sum() == pytest.approx(at_once.money.sum())
    assert later.prices @ problem.counts == pytest.approx(later.money.sum())
    weighed = problem.sizes @ later.weights.T
    assert (later.prices[:, None] <= np.where(problem.holds, weighed, np.inf) + 1e-6).all()
    weights = problem.rooms * later.weights
    assert (weights.sum(axis=1) <= problem.usd + 1e-6).all()
    assert (
        (weights == 0) | (weights > 1e-8)
    ).all()  # stretched, what hardly weighs anything would weigh without an end


def test_a_limit_that_holds_back_has_a_charge_and_pods_beyond_it_cost_the_most() -> None:
    """Small nodes are the cheaper ones; of four some must be large."""
    small, large = [4.0, 16.0, 1.0, 10.0], [16.0, 64.0, 1.0, 20.0]
    free = _problem(usd=[1.0, 5.0], rooms=[small, large], available=[np.inf, np.inf], most=[])
    tight = _problem(usd=[1.0, 5.0], rooms=[small, large], available=[np.inf, np.inf], most=[4.0])
    none = _problem(usd=[1.0, 5.0], rooms=[small, large], available=[np.inf, np.inf], most=[0.0])
    assert _solved(free, [1], [0]).money.tolist() == pytest.approx([0.0, 7.75])
    found = _solved(tight, [1], [0])
    assert found.money.sum() > 7.75
    assert found.charges[0] > 0
    assert found.prices @ tight.counts - found.charges @ tight.most == pytest.approx(found.money.sum())
    assert _solved(none, [0, 1]).prices.tolist() == pytest.approx([NEVER] * 3)


@given(data=st.data())
def test_what_is_left_of_one_kind_is_what_is_left_of_it_among_all(data: st.DataObject) -> None:
    """While nodes are taken and given back."""
    own = np.array(data.draw(st.lists(st.sampled_from([0.0, 3.0, 8.0, np.inf]), min_size=3, max_size=3)))
    uses = np.array(data.draw(st.lists(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=3, max_size=3), max_size=2)))
    stock = Stock(own, uses.reshape(-1, 3), np.full(len(uses), 5.0))
    for kind, times in data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2)), max_size=5)):
        stock.take(kind, times)
        assert [stock.left_of(one) for one in range(3)] == stock.left.tolist()


def test_columns_that_are_equal_have_one_pattern() -> None:
    """Numbered as they come."""
    columns = np.array([[True, False, True, False], [False, False, False, True]])
    alike, patterns = by_pattern(columns)
    assert alike.tolist() == [0, 1, 0, 2]
    assert patterns.tolist() == [[True, False], [False, False], [False, True]]
