"""Plans for pods of many sizes, packed anew: the same pods, on nodes that hold them, for no more money."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.solver.repacking import Node, Packing, improved, joined, packed

ROUNDS = 6


@st.composite
def packings(draw: st.DrawFn) -> Packing:
    """Pods of one or two classes and kinds of node, the last of which takes every pod.

    Of each limit there is about what a node of that kind for each pod takes.
    """
    kinds = draw(st.integers(1, 5))
    rooms = [[draw(st.integers(1, 16)) for _ in "cm"] + [draw(st.integers(0, 2)), 4] for _ in range(kinds)]
    rooms.append([16, 16, 2, draw(st.integers(1, 4))])
    usd = sorted(draw(st.floats(0.1, 9.0)) for _ in rooms)
    pods = [
        [draw(st.integers(0, 16)) for _ in "cm"] + [draw(st.integers(0, 2)), 1] for _ in range(draw(st.integers(1, 40)))
    ]
    uses = [[draw(st.integers(0, 3)) for _ in rooms] for _ in range(draw(st.integers(0, 2)))]
    classes = draw(st.integers(1, 2))
    may = np.ones((classes, len(rooms)), dtype=bool)
    if classes > 1:
        may[1, :-1] = [draw(st.booleans()) for _ in range(kinds)]
    return Packing(
        sizes=np.array(pods, dtype=float),
        worth=np.array([draw(st.floats(0.0, 1.0)) for _ in pods]),
        classes=np.array([draw(st.integers(0, classes - 1)) for _ in pods], dtype=np.int64),
        may=may,
        rooms=np.array(rooms, dtype=float),
        usd=np.array(usd),
        available=np.array([draw(st.sampled_from((1.0, 2.0, np.inf))) for _ in usd[1:]] + [np.inf]),
        uses=np.array(uses, dtype=float).reshape(-1, len(rooms)),
        most=np.array([row[-1] * len(pods) + draw(st.integers(-1, 3)) for row in uses], dtype=float),
    )


def usd(packing: Packing, nodes: list[Node]) -> float:
    """What they cost."""
    return float(sum(packing.usd[node.kind] for node in nodes))


def check(packing: Packing, nodes: list[Node]) -> None:
    """Every pod is on one node, which holds its pods and lets them in."""
    assert sorted(pod for node in nodes for pod in node.pods.tolist()) == list(range(len(packing.sizes)))
    for node in nodes:
        assert (packing.sizes[node.pods].sum(axis=0) <= packing.rooms[node.kind]).all()
        assert packing.may[packing.classes[node.pods], node.kind].all()


@given(packings())
def test_all_pods_have_nodes_that_cost_no_more(packing: Packing) -> None:
    """From a node for each pod, and from nothing; the same each time."""
    largest = len(packing.usd) - 1
    alone = [Node(largest, np.array([pod])) for pod in range(len(packing.sizes))]
    check(packing, packed(packing, np.arange(len(packing.sizes))))
    better = improved(packing, alone, rounds=ROUNDS)
    check(packing, better)
    assert packing.left(better).is_there(packing.left(alone))
    assert usd(packing, better) <= usd(packing, alone) + 1e-6
    again = improved(packing, alone, rounds=ROUNDS)
    assert [(node.kind, node.pods.tolist()) for node in again] == [(node.kind, node.pods.tolist()) for node in better]


@given(packings(), st.data())
def test_further_pods_get_on_where_there_is_room(packing: Packing, data: st.DataObject) -> None:
    """And only there: those that are left fit on no node."""
    largest = len(packing.usd) - 1
    everything = np.arange(len(packing.sizes))
    some = np.array(data.draw(st.lists(st.sampled_from(everything.tolist()), unique=True)), dtype=np.int64)
    nodes = [Node(largest, np.array([pod])) for pod in some.tolist()]
    found, left = joined(packing, nodes, np.setdiff1d(everything, some))
    check(packing, found + [Node(largest, np.array([pod])) for pod in left.tolist()])
    for node in found:
        free = packing.rooms[node.kind] - packing.sizes[node.pods].sum(axis=0)
        assert not (packing.sizes[left] <= free).all(axis=1).any()


def test_no_nodes_are_no_nodes() -> None:
    """And without rounds they stay."""
    packing = Packing(
        sizes=np.ones((2, 4)),
        worth=np.ones(2),
        classes=np.zeros(2, dtype=np.int64),
        may=np.ones((1, 1), dtype=bool),
        rooms=np.full((1, 4), 2.0),
        usd=np.ones(1),
        available=np.ones(1),
        uses=np.ones((1, 1)),
        most=np.full(1, 2.0),
    )
    assert improved(packing, [], rounds=ROUNDS) == []
    assert packed(packing, np.empty(0, dtype=np.int64)) == []
    alone = [Node(0, np.array([0])), Node(0, np.array([1]))]
    assert improved(packing, alone, rounds=0) == alone
    packing = replace(packing, available=np.full(1, 2.0))
    assert usd(packing, improved(packing, alone, rounds=ROUNDS)) == pytest.approx(1.0)


def test_a_kind_that_a_limit_forbids_is_not_filled() -> None:
    """Its pods would be said to be on another, which does not hold as many."""
    packing = Packing(
        sizes=np.array([[1.0, 1.0, 0.0, 1.0]] * 4),
        worth=np.full(4, 0.5),
        classes=np.zeros(4, dtype=np.int64),
        may=np.ones((1, 3), dtype=bool),
        rooms=np.array([[1.0, 1.0, 0.0, 1.0], [4.0, 4.0, 0.0, 4.0], [9.0, 9.0, 0.0, 1.0]]),
        usd=np.array([1.0, 2.0, 3.0]),
        available=np.full(3, np.inf),
        uses=np.array([[0.0, 1.0, 0.0]]),
        most=np.zeros(1),
    )
    better = improved(packing, [Node(2, np.array([pod])) for pod in range(4)], rounds=ROUNDS)
    check(packing, better)
    assert usd(packing, better) == pytest.approx(4.0)
    allowed = improved(replace(packing, most=np.ones(1)), better, rounds=ROUNDS)
    assert usd(packing, allowed) == pytest.approx(2.0)
