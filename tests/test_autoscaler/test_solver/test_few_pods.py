"""Nodes for few pods: as cheap as the cheapest of all ways to share pods out, and told so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.solver.deadline import Work
from autoscaler.solver.few_pods import SELECTIONS, cheapest_for_few, cheapest_within
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.problem import Cutting, Kind, Limit, Shape, Vector
from autoscaler.solver.solve import cheapest
from tests import examples

KINDS = (
    Kind("small", (4, 8, 0, 3), 1.0),
    Kind("large", (16, 16, 0, 9), 2.5),
    Kind("gpu", (8, 8, 2, 4), 5.0),
    Kind("gpus", (32, 64, 8, 9), 17.0),
)
Pods = Sequence[tuple[Vector, frozenset[str] | None]]


def shares(pods: list[int]) -> Iterator[list[list[int]]]:
    """All ways to share pods out."""
    if not pods:
        yield []
        return
    first, *others = pods
    for rest in shares(others):
        yield [[first], *rest]
        for number, share in enumerate(rest):
            yield [*rest[:number], [first, *share], *rest[number + 1 :]]


def by_hand(pods: Pods, kinds: Sequence[Kind]) -> float:
    """The least that any way costs, with no more nodes of a kind than there are."""

    def is_held(share: list[int], kind: Kind) -> bool:
        asked = [sum(pods[one][0][resource] for one in share) for resource in range(4)]
        return all(want <= has for want, has in zip(asked, kind.amounts, strict=True)) and all(
            kind.name in (pods[one][1] or {kind.name}) for one in share
        )

    def price(way: list[list[int]], left: Mapping[str, int]) -> float:
        if not way:
            return 0.0
        holders = [kind for kind in kinds if left[kind.name] and is_held(way[0], kind)]
        return min(
            (kind.usd + price(way[1:], {**left, kind.name: left[kind.name] - 1}) for kind in holders),
            default=float("inf"),
        )

    there = {kind.name: len(pods) if kind.available is None else kind.available for kind in kinds}
    return min(price(way, there) for way in shares(list(range(len(pods)))))


SIZES = st.sampled_from([(1, 1, 0, 1), (2, 7, 0, 1), (4, 4, 0, 1), (3, 2, 1, 1), (7, 8, 2, 1), (15, 3, 0, 1)])
ALLOWED = st.none() | st.sampled_from([frozenset({"gpu", "gpus"}), frozenset({"large", "gpus"})])


@settings(deadline=None, max_examples=examples(100))
@given(pods=st.lists(st.tuples(SIZES, ALLOWED), min_size=1, max_size=6))
def test_few_pods_cost_what_the_cheapest_way_to_share_them_out_costs(
    pods: list[tuple[Vector, frozenset[str] | None]],
) -> None:
    """However little is to be searched; as many pods of each shape as there are, on nodes that hold them."""
    shapes = [Shape(amounts, 1, allowed) for amounts, allowed in pods]
    answer = cheapest(shapes, KINDS, deadline=1e-3, clock=Work())
    assert answer.usd == pytest.approx(by_hand(pods, KINDS))
    assert (answer.gap, answer.left) == (0.0, (0,) * len(pods))
    room = {kind.name: kind.amounts for kind in KINDS}
    put = [0] * len(pods)
    for node in answer.nodes:
        for resource in range(4):
            held = sum(shapes[number].amounts[resource] * many for number, many in node.pods)
            assert held <= room[node.kind][resource]
        for number, many in node.pods:
            put[number] += many * node.times
            assert node.kind in (shapes[number].kinds or room)
    assert put == [1] * len(pods)


@settings(deadline=None, max_examples=examples(100))
@given(
    pods=st.lists(st.tuples(SIZES, ALLOWED), min_size=1, max_size=5),
    few=st.lists(st.none() | st.integers(0, 3), min_size=4, max_size=4),
)
def test_of_kinds_of_which_there_are_few_no_more_are_taken_and_the_rest_costs_the_least(
    pods: list[tuple[Vector, frozenset[str] | None]], few: list[int | None]
) -> None:
    """As with machines that stand; where these are not enough for all, some pods are left."""
    kinds = [kind._replace(available=many) for kind, many in zip(KINDS, few, strict=True)]
    shapes = [Shape(amounts, 1, allowed) for amounts, allowed in pods]
    answer = cheapest(shapes, kinds, deadline=1e-3, clock=Work())
    taken = Counter[str]()
    for node in answer.nodes:
        taken[node.kind] += node.times
    assert all(kind.available is None or taken[kind.name] <= kind.available for kind in kinds)
    least = by_hand(pods, kinds)
    if least < float("inf"):
        assert (answer.usd, answer.lower_bound) == (pytest.approx(least), pytest.approx(least))
    assert any(answer.left) == (least == float("inf"))


@pytest.mark.parametrize(("machines", "is_compared"), [(60, True), (80, False)])
def test_with_many_machines_that_differ_not_all_is_compared(machines: int, *, is_compared: bool) -> None:
    """Ten pods of ten sizes have 59,049 pairs of a selection and a part of it."""
    there = [Kind(f"m{n}", (250, 250, 0, 9), 2e-6, 1) for n in range(machines)]
    there += [Kind("best", (250, 250, 0, 9), 1e-6, 1)]
    lets_in = [{f"m{n}" for n in range(machines) if (n + 1) >> size & 1} for size in range(10)]
    names = [frozenset({"best", "k", *several}) for several in lets_in]
    shapes = [Shape((100 + size, 100, 0, 1), 1, names[size]) for size in range(10)]
    cutting = Cutting.of(shapes, [*there, Kind("k", (1000, 1000, 0, 9), 1.0)], ())
    found = cheapest_for_few(cutting.problem, cutting.parts)
    assert (found is not None) == is_compared


def test_pods_alike_count_once_for_each() -> None:
    """So many of one shape are as quickly asked about as ten of ten."""
    answer = cheapest([Shape((1, 1, 0, 1), SELECTIONS - 1)], [Kind("k", (100, 100, 0, 100), 3.0)], deadline=0.0)
    assert (answer.usd, answer.lower_bound, answer.left) == (33.0, 33.0, (0,))


def test_more_pods_are_not_asked_about_one_by_one() -> None:
    """Without any time for a search they cost more than they must."""
    answer = cheapest([Shape((1, 1, 0, 1), SELECTIONS)], [Kind("k", (100, 100, 0, 100), 3.0)], deadline=0.0)
    assert (answer.usd >= 33.0, answer.lower_bound < 33.0, answer.left) == (True, True, (0,))


def test_what_limits_forbid_is_searched_for_within_them() -> None:
    """One large node is the cheapest; where there is none, or limits leave out what it takes, small ones."""
    shapes = [Shape((4, 4, 0, 1), 3)]
    assert cheapest(shapes, KINDS[:2]).nodes[0].kind == "large"
    none = [KINDS[0], Kind("large", (16, 16, 0, 9), 2.5, 0)]
    limits = [Limit({"large": 9.0}, 8.0)]
    one = [KINDS[0], Kind("large", (8, 16, 0, 9), 1.5, 1)]
    for kinds, limited, usd in ((none, [], 3.0), (KINDS[:2], limits, 3.0), (one, [], 2.5)):
        answer = cheapest(shapes, kinds, limits=limited)
        assert (answer.usd, answer.left) == (usd, (0,))
    twice = cheapest([Shape((8, 4, 0, 1), 2)], one)
    assert (twice.usd, twice.left) == (1.5, (1,))


def test_pods_of_different_parts_share_no_node() -> None:
    """As those of two zones; each part has the cheapest."""
    answer = cheapest([Shape((2, 2, 0, 1), 1, part=part) for part in "ab"] + [Shape((1, 1, 0, 1), 1, part="b")], KINDS)
    assert [(node.part, node.kind, node.pods) for node in answer.nodes] == [
        ("a", "small", ((0, 1),)),
        ("b", "small", ((1, 1), (2, 1))),
    ]
    assert (answer.usd, answer.lower_bound) == (2.0, 2.0)


def test_where_no_kind_will_do_there_are_no_nodes() -> None:
    """Of those that are named: for all pods or for some; and where none is named."""
    problem = Cutting.of([Shape((2, 2, 0, 1), 1), Shape((9, 9, 0, 1), 1)], KINDS, ()).problem
    counts, by_price = problem.counts, np.argsort(problem.usd)
    stock = Stock(problem.available, problem.uses, problem.most)
    small, large = (next(one for one, usd in enumerate(problem.usd) if usd == price) for price in (1.0, 2.5))
    for kinds, found in ((by_price, 1), ([large], 1), ([small], 0), ([], 0)):
        assert len(cheapest_within(problem, counts, np.array(kinds, dtype=np.int64), stock) or ()) == found
