"""The cheapest nodes: against every plan there is, on small problems; the bound, and that it is no accident."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import product

import highspy
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.solver.deadline import Work
from autoscaler.solver.lp.arrays import Whole
from autoscaler.solver.lp.column_bounds import Scale
from autoscaler.solver.lp.relaxation import Relaxation
from autoscaler.solver.pricing.knapsack import Bin
from autoscaler.solver.problem import Cutting, Kind, Limit, Shape, Vector
from autoscaler.solver.solution import Answer, Nodes
from autoscaler.solver.solve import cheapest, lower_bound
from tests import examples

searched = partial(cheapest, few=0)
"""By column generation, however few pods there are."""
AMOUNTS = st.tuples(st.integers(0, 6), st.integers(1, 6), st.integers(0, 2), st.just(1))
ROOMS = st.tuples(st.integers(2, 12), st.integers(2, 12), st.integers(0, 4), st.integers(2, 8))
SHAPES = st.lists(st.builds(Shape, AMOUNTS, st.integers(1, 4)), min_size=1, max_size=4)


@st.composite
def some_kinds(draw: st.DrawFn, *, short: bool = False) -> list[Kind]:
    """A few kinds of node; the last holds anything."""
    rooms = draw(st.lists(ROOMS, min_size=1, max_size=3))
    available = st.one_of(st.none(), st.integers(0, 3)) if short else st.none()
    kinds = [
        Kind(f"k{number}", room, draw(st.integers(1, 20)) / 4, draw(available)) for number, room in enumerate(rooms)
    ]
    return [*kinds, Kind("big", (12, 12, 4, 8), 6.0)]


@settings(deadline=None, max_examples=examples(50))
@given(shapes=SHAPES, kinds=some_kinds(short=True))
def test_a_kind_is_left_out_where_another_without_an_end_makes_it_needless_and_only_there(
    shapes: list[Shape], kinds: list[Kind]
) -> None:
    """The other holds no less of anything, and costs no more; of two that are alike one is kept."""
    check_kinds_kept(shapes, kinds)


def test_kinds_are_left_out_of_many_as_of_few() -> None:
    """Of more than are compared at a time."""
    dice = random.Random(3)  # noqa: S311 - the same kinds every time
    for most in (3, 30):
        kinds = [
            Kind(
                f"k{number}",
                (dice.randint(1, most), dice.randint(1, most), dice.choice((0, 2)), 5),
                dice.randint(1, 40) / 4,
                dice.choice((None, None, 2)),
            )
            for number in range(400)
        ]
        check_kinds_kept([Shape((1, 1, 0, 1), 3), Shape((2, 1, 2, 1), 1)], kinds)


def check_kinds_kept(shapes: Sequence[Shape], kinds: Sequence[Kind]) -> None:
    """Those that hold some pod, and that no other of those that are kept makes needless."""
    kept = {kind.name: kind for kind in kinds if kind.name in Cutting.of(shapes, kinds, ()).names}
    for kind in kinds:
        better = [
            other.name
            for other in kept.values()
            if other is not kind and other.available is None and other.usd <= kind.usd
            if all(one >= two for one, two in zip(other.amounts, kind.amounts, strict=True))
        ]
        holds_some = kind.available != 0 and any(
            all(one <= two for one, two in zip(shape.amounts, kind.amounts, strict=True)) for shape in shapes
        )
        assert (kind.name in kept) == (holds_some and not better)


WHO_LOSES_THE_RACE = (
    [Shape((0, 1, 1, 1), 1), Shape((0, 1, 2, 1), 1), Shape((0, 3, 0, 1), 1)],
    [Kind("k0", (2, 2, 0, 2), 0.25), Kind("k1", (2, 3, 2, 2), 0.25, 1), Kind("big", (12, 12, 4, 8), 6.0)],
)
"""Three would be cheapest on the one node of a kind; the two that do not get it were once left without any."""


@settings(deadline=None, max_examples=examples(25))
@given(shapes=SHAPES, kinds=some_kinds(short=True))
@example(*WHO_LOSES_THE_RACE)
def test_no_plan_is_cheaper_than_the_bound_and_none_found_is_cheaper_than_the_best(
    shapes: list[Shape], kinds: list[Kind]
) -> None:
    """Bound <= the exact optimum <= what is found, which places everyone and fits."""
    answer = searched(shapes, kinds)
    best = optimum(shapes, kinds)
    assert answer.left == (0,) * len(shapes)
    assert faults(answer, shapes, kinds) == []
    assert answer.lower_bound <= best + 1e-6
    assert lower_bound(shapes, kinds) <= best + 1e-6
    assert best <= answer.usd + 1e-6


@settings(deadline=None, max_examples=examples(30))
@given(
    sizes=st.lists(st.tuples(st.integers(4, 9), st.integers(4, 9), st.integers(0, 1)), min_size=5, max_size=9),
    rooms=st.lists(st.tuples(st.integers(7, 12), st.integers(7, 12), st.integers(0, 2)), min_size=5, max_size=9),
)
def test_no_pod_is_left_while_a_node_that_holds_it_is_not_used(sizes: list[Vector], rooms: list[Vector]) -> None:
    """Where many want the few nodes of each kind; what shrinks onto a smaller node makes room for the next."""
    shapes = [Shape((*size, 1), 1) for size in sizes]
    kinds = [Kind(f"k{number}", (*room, 2), number % 3 + number / 8, 1) for number, room in enumerate(rooms)]
    answer = searched(shapes, kinds, rounds=5)
    assert faults(answer, shapes, kinds) == []
    used = {nodes.kind for nodes in answer.nodes}
    free = [np.array(kind.amounts) for kind in kinds if kind.name not in used]
    left = [np.array(shape.amounts) for shape, many in zip(shapes, answer.left, strict=True) if many]
    assert not [(pod, room) for pod in left for room in free if (pod <= room).all()]


@settings(deadline=None, max_examples=examples(8))
@given(shapes=SHAPES, kinds=some_kinds(short=True))
def test_the_same_input_gives_the_same_plan(shapes: list[Shape], kinds: list[Kind]) -> None:
    """Nothing depends on the clock, on chance, or on the order of the kinds."""
    assert searched(shapes, kinds) == searched(shapes, kinds) == searched(shapes, kinds[::-1])


@settings(deadline=None, max_examples=examples(50))
@given(shapes=SHAPES, room=ROOMS, values=st.lists(st.integers(0, 20), min_size=4, max_size=4))
def test_fillings_fit_and_none_is_worth_more_than_the_ceiling(
    shapes: list[Shape], room: Vector, values: list[int]
) -> None:
    """The ceiling is above every filling there is; each filling found is one of them."""
    sizes, worth = np.array([shape.amounts for shape in shapes], float), np.array(values[: len(shapes)], float)
    limits = np.array([shape.count for shape in shapes])
    fits = (sizes <= np.array(room)).all(axis=1)
    ceiling = float(Scale(sizes[fits], np.array(room, float)).weights(worth[fits]) @ np.array(room))
    exact = max(sum(worth * np.array(one)) for one in patterns(shapes, room))
    assert exact <= ceiling + 1e-6
    node = Bin(sizes, fits, np.array(room, float))
    found = node.best(worth, limits, least=0.0, take=5)
    for _, pods in (found, node.around(found.pods, worth[::-1].copy(), limits, least=0.0, take=5)):
        assert (pods @ sizes <= np.array(room)).all()
        assert (pods <= limits).all()
        assert not pods[:, ~fits].any()
        assert (pods.sum(axis=1) <= room[3]).all()
    assert found.values == pytest.approx(found.pods @ worth)
    assert (found.values <= exact + 1e-6).all()


def test_a_pod_that_no_kind_holds_is_left() -> None:
    """The others are served; the bound speaks of them."""
    answer = searched([Shape((4, 4, 0, 1), 3), Shape((99, 1, 0, 1), 2)], [Kind("k", (8, 8, 0, 10), 1.0)])
    assert answer.left == (0, 2)
    assert answer.usd == pytest.approx(2.0)


def test_a_kind_in_short_supply_is_used_as_far_as_it_goes() -> None:
    """A free machine first, then what must be bought."""
    kinds = [Kind("machine", (8, 8, 0, 10), 0.0, 2), Kind("k", (8, 8, 0, 10), 1.0)]
    answer = searched([Shape((8, 8, 0, 1), 5)], kinds)
    assert {nodes.kind: nodes.times for nodes in answer.nodes} == {"machine": 2, "k": 3}
    assert answer.lower_bound == pytest.approx(3.0)


def test_a_pod_goes_only_where_it_may() -> None:
    """However cheap the others are."""
    kinds = [Kind("cheap", (8, 8, 0, 10), 0.1), Kind("other", (8, 8, 0, 10), 1.0)]
    answer = searched([Shape((1, 1, 0, 1), 2, frozenset({"other"})), Shape((8, 8, 0, 1), 1)], kinds)
    assert faults(answer, [Shape((1, 1, 0, 1), 2, frozenset({"other"})), Shape((8, 8, 0, 1), 1)], kinds) == []
    assert answer.usd == pytest.approx(1.1)


def test_pods_that_cost_nothing_beside_others_have_a_place_beside_them() -> None:
    """A node that is bought anyway holds them; the bound is exact where one node holds no more pods than there are."""
    kinds = [Kind("gpu", (48, 48, 4, 50), 4.0, 1), Kind("cpu", (16, 16, 0, 50), 0.7, 40)]
    shapes = [Shape((1, 1, 4, 1), 1), *(Shape((cpu, 3, 0, 1), 1) for cpu in range(1, 9))]
    answer = searched(shapes, kinds)
    assert answer.usd == pytest.approx(4.0)
    assert answer.lower_bound == pytest.approx(4.0, rel=1e-5)


def test_a_kind_in_short_supply_does_not_hide_the_next() -> None:
    """What finds no node of the cheapest kind gets one of the next; none is left while there are any."""
    kinds = [Kind("few", (4, 4, 4, 9), 1.0, 1), Kind("some", (4, 4, 4, 9), 2.0, 2), Kind("many", (8, 8, 8, 9), 9.0, 5)]
    answer = searched([Shape((4, 4, 4, 1), 7)], kinds)
    assert not any(answer.left)
    assert answer.usd == pytest.approx(1 + 2 * 2 + 2 * 9)


def test_time_that_is_over_still_gives_a_whole_plan() -> None:
    """The deadline cuts improvement, never the plan."""
    shapes = [Shape((1 + number, 2, number % 2, 1), 7) for number in range(9)]
    answer = searched(shapes, [Kind("k", (16, 16, 4, 20), 1.0)], deadline=1e-6, clock=Work())
    assert not any(answer.left)
    assert 0 < answer.lower_bound <= answer.usd


def faults(answer: Answer, shapes: Sequence[Shape], kinds: Sequence[Kind]) -> list[str]:
    """What is wrong with the nodes of an answer."""
    by_name = {kind.name: kind for kind in kinds}
    found, placed = [], [0] * len(shapes)
    for nodes in answer.nodes:
        kind = by_name[nodes.kind]
        used = np.zeros(len(kind.amounts))
        for number, many in nodes.pods:
            used += many * np.array(shapes[number].amounts)
            placed[number] += many * nodes.times
            allowed = shapes[number].kinds
            if allowed is not None and nodes.kind not in allowed:
                found.append(f"shape {number} may not run on {nodes.kind}")
        if (used > np.array(kind.amounts)).any():
            found.append(f"{nodes} does not fit")
    found += [
        f"more of {kind.name} than there is"
        for kind in kinds
        if kind.available is not None
        and sum(one.times for one in answer.nodes if one.kind == kind.name) > kind.available
    ]
    if placed != [shape.count - left for shape, left in zip(shapes, answer.left, strict=True)]:
        found.append(f"placed {placed}")
    if abs(sum(by_name[nodes.kind].usd * nodes.times for nodes in answer.nodes) - answer.usd) > 1e-6:
        found.append("the cost is not that of the nodes")
    return found


def patterns(shapes: Sequence[Shape], room: Vector) -> list[tuple[int, ...]]:
    """Everything that one node can hold."""
    ranges = [range(shape.count + 1) for shape in shapes]
    sizes = np.array([shape.amounts for shape in shapes])
    return [one for one in product(*ranges) if (np.array(one) @ sizes <= np.array(room)).all()]


def optimum(shapes: Sequence[Shape], kinds: Sequence[Kind]) -> float:
    """The least cost there is: every filling of every kind, chosen by an exact solver."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 - HiGHS' own signature
    for shape in shapes:
        solver.addRow(float(shape.count), highspy.kHighsInf, 0, np.array([], np.int32), np.array([], float))
    for kind in kinds:
        top = highspy.kHighsInf if kind.available is None else float(kind.available)
        solver.addRow(0.0, top, 0, np.array([], np.int32), np.array([], float))
    column = 0
    for row, kind in enumerate(kinds, start=len(shapes)):
        for held in patterns(shapes, kind.amounts):
            rows = np.array([*np.nonzero(held)[0], row], np.int32)
            amounts = np.array([*[float(many) for many in held if many], 1.0])
            solver.addCol(kind.usd, 0.0, 100.0, len(rows), rows, amounts)
            solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
            column += 1
    solver.run()
    return float(solver.getInfo().objective_function_value)


@settings(deadline=None, max_examples=examples(50))
@given(shapes=SHAPES, kinds=some_kinds(short=True))
def test_with_a_plan_to_begin_with_none_is_dearer_however_little_is_searched(
    shapes: list[Shape], kinds: list[Kind]
) -> None:
    """Also where its kinds are named that another makes needless: their pods go to one that holds them."""
    found = searched(shapes, kinds)
    again = searched(shapes, kinds, begun=found.nodes, deadline=1e-6, clock=Work())
    assert sum(again.left) <= sum(found.left)
    if not any(found.left):
        assert again.usd <= found.usd + 1e-6


def test_a_plan_that_was_begun_with_saves_what_a_short_search_misses() -> None:
    """Ten kinds of which there is one each: a search that ends at once takes a dearer way."""
    kinds = [Kind(f"one {number}", (4 + number, 8, 0, 9), 0.01, 1) for number in range(10)]
    kinds += [Kind("bought", (16, 16, 0, 9), 4.0)]
    shapes = [Shape((4 + number, 8, 0, 1), 1) for number in range(10)]
    begun = [Nodes(f"one {number}", 1, ((number, 1),)) for number in range(10)]
    briefly = partial(searched, shapes, kinds, deadline=1e-6, clock=Work(), neighbourhoods=0)
    assert briefly().usd > 1.0
    assert briefly(begun=begun).usd == pytest.approx(0.1)


def test_nodes_of_a_plan_to_begin_with_that_hold_too_much_are_not_taken() -> None:
    """What is at hand may have less room than when the plan was made."""
    kinds = [Kind("there", (4, 8, 0, 9), 0.01, 1), Kind("bought", (8, 8, 0, 9), 4.0)]
    shapes = [Shape((4, 4, 0, 1), 2)]
    found = searched(shapes, kinds, begun=[Nodes("there", 1, ((0, 2),)), Nodes("gone", 1, ())])
    assert not faults(found, shapes, kinds)
    assert found.usd >= 4.0
    assert not any(found.left)


@pytest.mark.parametrize(("most", "left"), [(144, 240), (100, 335)])
def test_a_search_begins_with_what_a_limit_that_kinds_share_is_worth(most: int, left: int) -> None:
    """With fewer nodes than are cheapest: little work comes close to what is proven, and leaves few pods out."""
    dice = random.Random(3)  # noqa: S311 - the same each time
    shapes = [
        Shape((500 * dice.randint(1, 30), 1_000 * dice.randint(1, 60), dice.choice((0, 0, 1, 2, 4))), 20 + one)
        for one in range(30)
    ]
    kinds = [
        Kind(f"{cpu}-{memory}-{gpus}", (1_000 * cpu, 1_000 * cpu * memory, gpus), cpu * (4 + memory) + 50.0 * gpus)
        for cpu, memory, gpus in product((8, 16, 32, 96), (2, 4, 8), (0, 1, 4, 8))
    ]
    within = [Limit({kind.name: 1.0 for kind in kinds}, most)]
    answer = searched(shapes, kinds, limits=within, deadline=100, clock=Work())
    assert sum(lot.times for lot in answer.nodes) <= most
    assert answer.gap < 0.01
    assert sum(answer.left) <= left


def test_more_is_proven_of_a_plan_that_is_far_above_its_bound() -> None:
    """Two such pods are too much for a node, which by what they weigh would hold one and a half of them."""
    shapes, kinds = [Shape((4, 4, 1, 1), 1000)], [Kind("k", (6, 6, 8, 8), 1.0)]
    plain = searched(shapes, kinds)
    assert (plain.usd, round(plain.lower_bound)) == (1000.0, 667)
    assert searched(shapes, kinds, near=0.02, proof=50.0).lower_bound == pytest.approx(1000.0, rel=1e-4)
    assert searched(shapes, kinds, near=0.6, proof=50.0).lower_bound == plain.lower_bound


def test_of_two_answers_the_better_one_has_what_both_prove() -> None:
    """Where one leaves pods, its bound is of fewer pods, and says nothing of the other."""
    dear, cheap = Answer((), 12.0, 9.0, (0,)), Answer((), 10.0, 8.0, (0,))
    assert dear.or_better(cheap) == Answer((), 10.0, 9.0, (0,))
    assert cheap.or_better(dear) == Answer((), 10.0, 9.0, (0,))
    assert dear.or_better(Answer((), 5.0, 4.0, (1,))) == dear
    assert Answer((), 5.0, 4.0, (1,)).or_better(dear) == dear


def test_of_very_many_kinds_in_short_supply_some_are_relaxed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough of them for all pods; with all 949 of EC2 that linear program alone took 46 s."""
    dice = random.Random(5)  # noqa: S311 - the same kinds every time
    shapes = [Shape((dice.randint(1, 30), dice.randint(1, 30), 0, 1), 4) for _ in range(40)]
    rooms = [(dice.randint(30, 200), dice.randint(30, 200), 0, 60) for _ in range(400)]
    kinds = [Kind(f"k{number}", room, sum(room) * dice.uniform(1, 2), 2) for number, room in enumerate(rooms)]
    added: list[int] = []
    add = Relaxation.add

    def counted(relaxation: Relaxation, more: Whole) -> None:
        added.append(len(more))
        add(relaxation, more)

    monkeypatch.setattr(Relaxation, "add", counted)
    found = cheapest(shapes, kinds, deadline=1000.0, clock=Work())
    assert sum(added) < 200
    assert not any(found.left)
    assert found.lower_bound <= found.usd <= 1.1 * found.lower_bound
    bought: dict[str, int] = {}
    for node in found.nodes:
        bought[node.kind] = bought.get(node.kind, 0) + node.times
    assert max(bought.values()) <= 2
