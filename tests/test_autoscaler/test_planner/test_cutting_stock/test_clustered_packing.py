"""Pods of more sizes than the solver takes: clusters of them, and real pods on the nodes planned for their middles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest

from autoscaler.planner.cutting_stock.clustered_packing import SizeClusters
from autoscaler.solver.problem import Kind, Shape
from autoscaler.solver.size_clusters import MANY
from autoscaler.solver.solution import Answer, Nodes

LARGE = Kind("large", (4000, 4000, 0, 99), 4.0)


def sizes(many: int, *, gpus: int = 0, kinds: frozenset[str] | None = None, part: str = "") -> list[Shape]:
    """A pod of each."""
    return [Shape((100 + size, 200, gpus, 1), 1, kinds, part) for size in range(many)]


def clustered(rows: Sequence[Shape]) -> SizeClusters:
    """More than the solver takes."""
    found = SizeClusters.of(rows)
    assert found is not None
    return found


def an_answer(*nodes: Nodes) -> Answer:
    """With these."""
    return Answer(nodes, math.nan, math.nan, ())


def test_the_solver_takes_so_many_sizes_as_they_are() -> None:
    """Those of pods that are alike count once; what lets them in makes a difference."""
    assert SizeClusters.of(sizes(MANY)) is None
    assert SizeClusters.of([*sizes(MANY), *sizes(MANY)]) is None
    assert SizeClusters.of(sizes(MANY + 1)) is not None
    assert SizeClusters.of([*sizes(MANY), *sizes(1, kinds=frozenset({"large"}))]) is not None


def test_a_cluster_is_of_pods_with_as_many_gpus_of_one_part_and_let_in_alike() -> None:
    """Each row is in one of them; the pods of a cluster are counted, and told as they are for the bound."""
    rows = [*sizes(MANY), *sizes(3, gpus=1), *sizes(3, kinds=frozenset({"large"})), *sizes(3, part="a")]
    found = clustered(rows)
    assert Counter(row for group in found.members for row in group.tolist()) == Counter(range(len(rows)))
    for group, shape in zip(found.members, found.shapes, strict=True):
        members = [rows[row] for row in group.tolist()]
        assert {(row.amounts[2:], row.kinds, row.part) for row in members} == {
            (shape.amounts[2:], shape.kinds, shape.part)
        }
        assert shape.count == len(members)
        assert shape.members is not None
        assert [tuple(amounts) for amounts in shape.members[0].tolist()] == [row.amounts for row in members]
        assert shape.members[1].tolist() == [1] * len(members)
        low, high = min(row.amounts[0] for row in members), max(row.amounts[0] for row in members)
        assert low <= shape.amounts[0] <= high


def test_places_for_a_middle_take_pods_of_the_cluster_and_none_twice() -> None:
    """A node that none is left for is not bought."""
    found = clustered([Shape((100 + size % 4, 200, 0, 1 + size // 4), 2) for size in range(MANY + 4)])
    cluster = max(range(len(found.shapes)), key=lambda one: found.shapes[one].count)
    many = found.shapes[cluster].count
    nodes = found.seated(an_answer(Nodes("large", many, ((cluster, 2),))), [LARGE])
    held = Counter[int]()
    for node in nodes:
        assert (node.kind, node.times) == ("large", 1)
        held.update(dict(node.pods))
    assert held == Counter(dict.fromkeys(found.members[cluster].tolist(), 2))
    assert len(nodes) == many // 2


@pytest.mark.parametrize(
    ("also", "kind"),
    [
        (Kind("small", (300, 600, 0, 9), 1.0), "small"),
        (Kind("small", (300, 600, 0, 9), 4.0), "large"),
        (Kind("small", (300, 600, 0, 9), 1.0, 5), "large"),
        (Kind("small", (150, 600, 0, 9), 1.0), "large"),
        (Kind("small", (300, 350, 0, 9), 1.0), "large"),
        (Kind("not allowed", (300, 600, 0, 9), 1.0), "large"),
    ],
)
def test_a_node_becomes_the_cheapest_kind_without_an_end_that_holds_what_is_on_it(also: Kind, kind: str) -> None:
    """Not one that costs as much, of which there are few, with too little room, or that does not let the pods in."""
    found = clustered(sizes(MANY + 1, kinds=frozenset({"small", "middle", "large"})))
    middle = Kind("middle", (300, 600, 0, 9), 3.0)
    (node,) = found.seated(an_answer(Nodes("large", 1, ((0, 1), (1, 1)))), [LARGE, also])
    assert node.kind == kind
    (node,) = found.seated(an_answer(Nodes("large", 1, ((0, 1), (1, 1)))), [middle, also, LARGE])
    assert node.kind == (kind if kind == "small" else "middle")


def test_a_node_stays_in_its_part() -> None:
    """As that of a zone."""
    found = clustered(sizes(MANY + 1, part="zone"))
    (node,) = found.seated(an_answer(Nodes("large", 1, ((0, 1),), part="zone")), [LARGE])
    assert node.part == "zone"
