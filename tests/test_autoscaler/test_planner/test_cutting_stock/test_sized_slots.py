"""Seats for pods of many sizes: no pod twice, no node over-committed, large pods beside small ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.planner.cutting_stock.sized_slots import Middle, SizedSlots
from tests import examples

SIZES = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=examples(80))
@given(sizes=SIZES, rooms=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=8), data=st.data())
def test_no_pod_is_seated_twice_and_no_node_is_over_committed(
    sizes: list[tuple[int, int]], rooms: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Whatever was planned, also where it was planned badly."""
    crowds = [[pod for pod in range(len(sizes)) if pod % 3 == crowd] for crowd in range(3)]
    places = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=3, unique_by=lambda place: place[0])
    nodes = [(room, data.draw(places)) for room in rooms]
    middles = [Middle(data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))) for _ in crowds]
    amounts = np.array([(*size, 0, 1) for size in sizes])
    by_size = SizedSlots(amounts, range(len(sizes)))
    seats = by_size.seat(nodes, crowds, middles)
    assert len(seats) == len(nodes)
    seated = [pod for guests in seats for pod in guests]
    assert len(seated) == len(set(seated))
    for guests, (room, planned) in zip(seats, nodes, strict=True):
        assert (amounts[guests].sum(axis=0)[:2] <= room).all()
        assert all(sum(pod % 3 == crowd for pod in guests) <= many for crowd, many in planned)


def test_a_large_pod_sits_beside_a_small_one() -> None:
    """Two to a node, each node as large as two of the middle: none is left."""
    sizes = np.array([(size, 1, 0, 1) for size in range(10, 31)])
    nodes = [((40, 10), [(0, 2)])] * 10 + [((40, 10), [(0, 1)])]
    seats = SizedSlots(sizes, range(21)).seat(nodes, [list(range(21))], [Middle(20, 1)])
    assert [len(guests) for guests in seats] == [2] * 10 + [1]


def test_a_pod_sits_where_it_fits_to_the_last_byte() -> None:
    """And not where one lacks, of either."""
    sizes = np.array([(10, 20, 0, 1)])
    for room, guests in (((10, 20), [0]), ((9, 20), []), ((10, 19), [])):
        assert SizedSlots(sizes, range(1)).seat([(room, [(0, 1)])], [[0]], [Middle(10, 20)]) == [guests]
