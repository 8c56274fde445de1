"""Seats for pods of many sizes: no pod twice, no node over-committed, large pods beside small ones."""

from __future__ import annotations

import numpy as np
import pytest
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
    clusters = [[pod for pod in range(len(sizes)) if pod % 3 == cluster] for cluster in range(3)]
    places = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=3, unique_by=lambda place: place[0])
    nodes = [(room, data.draw(places)) for room in rooms]
    middles = [Middle(data.draw(st.integers(1, 30)), data.draw(st.integers(1, 30))) for _ in clusters]
    amounts = np.array([(*size, 0, 1) for size in sizes])
    by_size = SizedSlots(amounts, range(len(sizes)))
    seats = by_size.seat(nodes, clusters, middles)
    assert len(seats) == len(nodes)
    seated = [pod for guests in seats for pod in guests]
    assert len(seated) == len(set(seated))
    for guests, (room, planned) in zip(seats, nodes, strict=True):
        assert (amounts[guests].sum(axis=0)[:2] <= room).all()
        assert all(sum(pod % 3 == cluster for pod in guests) <= many for cluster, many in planned)


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


@settings(deadline=None, max_examples=examples(80))
@given(sizes=SIZES, room=st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_the_last_place_gets_about_the_largest_pod_that_fits(
    sizes: list[tuple[int, int]], room: tuple[int, int]
) -> None:
    """By its part of all CPU and memory: of those no larger than what is free twelve are tried, then every eighth."""
    cpu, memory = (max(1, sum(size[resource] for size in sizes)) for resource in (0, 1))

    def weight(amounts: tuple[int, int]) -> float:
        return amounts[0] / cpu + amounts[1] / memory

    free = (min(room[0], max(size[0] for size in sizes)), min(room[1], max(size[1] for size in sizes)))
    tried = sorted(
        (size for size in sizes if weight(size) <= weight(free) + 1e-9), key=lambda size: (weight(size), size)
    )[::-1]
    fits = [size for size in (*tried[:12], *tried[12::8]) if size[0] <= room[0] and size[1] <= room[1]]
    amounts = np.array([(*size, 0, 1) for size in sizes])
    everyone = list(range(len(sizes)))
    ((*guest,),) = SizedSlots(amounts, everyone).seat([(room, [(0, 1)])], [everyone], [Middle(1, 1)])
    assert [weight(sizes[one]) for one in guest] == [pytest.approx(weight(size)) for size in fits[:1]]


def test_the_largest_places_of_a_node_are_filled_first_and_leave_the_others_their_middle() -> None:
    """Of the large the largest that leaves room for a small one of the middle; what that one spares is used."""
    sizes = np.array([(amount, 1, 0, 1) for amount in (20, 24, 27, 9, 10, 12)])
    clusters, middles = [[3, 4, 5], [0, 1, 2]], [Middle(10, 1), Middle(24, 1)]
    seat = SizedSlots(sizes, range(6)).seat
    assert seat([((35, 9), [(0, 1), (1, 1)])], clusters, middles) == [[1, 4]]
    assert seat([((36, 9), [(0, 1), (1, 1)])], clusters, middles) == [[2, 3]]
    assert seat([((33, 9), [(0, 1), (1, 1)])], clusters, middles) == [[1, 3]]
    assert seat([((21, 9), [(0, 2)])], clusters, middles) == [[5, 3]]
