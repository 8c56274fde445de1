"""What is served under limits: as many as there are nodes for, in order."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.inputs.offline_plan import OfflinePlan
from autoscaler.planner.admission.joint_purchase import JointPurchase
from autoscaler.solver.admission_lp import AdmissionLp, furthest
from autoscaler.solver.column_generation import Generation
from autoscaler.solver.column_pool import ColumnPool
from autoscaler.solver.deadline import Watch, Work
from autoscaler.solver.problem import Cutting, Kind, Limit, Shape
from autoscaler.solver.solve import cheapest
from tests import examples
from tests.test_autoscaler.test_planner.test_plan_limits import planned

KINDS = [
    Kind("small", (4_000, 16_000, 0, 30), 0.2),
    Kind("large", (32_000, 64_000, 0, 60), 1.5),
    Kind("gpu", (16_000, 64_000, 2, 30), 2.0),
]
GROUPS = ("c.huge", "g.one", "g.four")
ROOMS = {"c.huge": (64_000, 128_000, 0), "g.one": (8_000, 30_000, 1), "g.four": (48_000, 180_000, 4)}
"""By type, as the catalogue of the tests has it: what pods may take of a node."""

shapes_of = st.lists(
    st.builds(
        Shape,
        st.tuples(
            st.sampled_from((500, 1_000, 3_000, 9_000, 15_000)),
            st.sampled_from((1_000, 5_000, 15_000, 30_000)),
            st.sampled_from((0, 0, 1, 2)),
            st.just(1),
        ),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=8,
)


@given(many=st.integers(1, 200), start=st.integers(0, 250), most=st.integers(0, 200))
def test_the_furthest_is_found_from_any_guess(many: int, start: int, most: int) -> None:
    """By doubling and halving."""
    asked: list[int] = []

    def holds(tried: int) -> bool:
        asked.append(tried)
        return tried <= most

    assert furthest(holds, many, start=start) == min(many, most)
    assert all(1 <= tried <= many for tried in asked)
    assert len(asked) <= 20


@settings(max_examples=examples(40))
@given(shapes=shapes_of, nodes=st.integers(1, 30), gpus=st.integers(0, 20))
def test_few_are_refuted_that_a_plan_serves(shapes: list[Shape], nodes: int, gpus: int) -> None:
    """The linear programs ask for less than whole nodes would; fillings that fit to a hair may be missed."""
    limits = [
        Limit({kind.name: 1.0 for kind in KINDS}, nodes),
        Limit({kind.name: float(kind.amounts[2]) for kind in KINDS}, gpus),
    ]
    cutting = Cutting.of(shapes, KINDS, limits)
    if not len(cutting.rows):
        return
    lp = AdmissionLp(cutting, watch=Watch(Work()))
    answer = cheapest(shapes, KINDS, limits=limits, rounds=5, turns=0)
    counts = np.zeros(len(cutting.rows), dtype=np.int64)
    for row, numbers in enumerate(cutting.shape_of):
        counts[row] = int(0.9 * sum(shapes[one].count - answer.left[one] for one in numbers))
    assert lp.refutation(counts) is None


@pytest.mark.parametrize("seed", range(6))
def test_fillings_that_are_kept_hold_all_that_are_served(seed: int) -> None:
    """Also where they give the places of pods that are not served to smaller ones: their purchase has no such pods."""
    dice = random.Random(seed)  # noqa: S311
    shapes = [
        Shape((dice.randint(1, 16) * 500, dice.randint(1, 30) * 1_000, dice.choice((0, 1)), 1), dice.randint(5, 40))
        for _ in range(30)
    ]
    limits = [Limit({kind.name: 1.0 for kind in KINDS}, 1_000)]
    asked = shapes[::2]
    every_pod, served = Cutting.of(shapes, KINDS, limits), Cutting.of(asked, KINDS, limits)
    counts = np.zeros(len(every_pod.rows), dtype=np.int64)
    for row, numbers in enumerate(every_pod.shape_of):
        counts[row] = sum(shapes[one].count for one in numbers if not one % 2)
    lp, known = AdmissionLp(every_pod, watch=Watch(Work())), ColumnPool()
    lp.explore(lambda many: every_pod.problem.counts * many // 10, 10, in_time=lambda: True)
    lp.remember(counts, known, machines=frozenset())
    generation = Generation(served.problem, Watch(Work()))
    served.recall(known, generation)
    generation.master.solve()
    assert not generation.master.lacks()


def test_what_was_refuted_is_told_by_prices() -> None:
    """What is worth as much as one for which there is no node has none, either."""
    shapes = [Shape((3_000, 8_000, 1, 1), 50), Shape((1_000, 1_000, 0, 1), 10)]
    cutting = Cutting.of(shapes, KINDS, [Limit({"gpu": 1.0}, 3.0)])
    lp = AdmissionLp(cutting, watch=Watch(Work()))
    row_of = {shape: row for row, several in enumerate(cutting.shape_of) for shape in several}
    counts = np.zeros(2, dtype=np.int64)
    counts[row_of[0]] = 6
    assert lp.serves(counts)
    counts[row_of[0]] = 7
    prices = lp.refutation(counts)
    assert prices is not None
    assert prices[row_of[0]] > 1_000
    assert prices[row_of[1]] < prices[row_of[0]]


def test_as_many_as_there_are_nodes_for_are_served(tmp_path: Path) -> None:
    """A search for all of them would find fillings for other pods, with which a sixth fewer have a place."""
    sizes = many_sizes()
    plan = planned(tmp_path, table(sizes), policy=policy("nodes: 60"))
    served = [one for one in range(1_500) if f"p{one}" in plan.placements]
    gpus, cpu, memory = (
        sum(one % 3 == 0 for one in served),
        sum(sizes[one][0] for one in served),
        sum(sizes[one][1] for one in served),
    )
    fullest = max(gpus / (60 * 4), cpu / (60 * 64_000), memory / (60 * 180_000))
    assert len(plan.nodes) == 60
    assert fullest > 0.85, "of what 60 nodes have at most, those that are served take so much"
    assert sum(one >= len(served) for one in served) < 0.03 * len(served), "so many are served before their turn"


@pytest.mark.parametrize("seconds", [0.001, 0.1])
def test_however_little_is_searched_a_plan_keeps_the_limits(tmp_path: Path, seconds: float) -> None:
    """And serves some; what waits is told the limit."""
    plan = planned(tmp_path, table(many_sizes()), policy=policy("nodes: 60"), seconds=seconds)
    assert 0 < len(plan.nodes) <= 60
    assert len(plan.placements) + len(plan.waiting) == 1_500
    assert all(one.reason.endswith("but limits.nodes 60 leaves 0") for one in plan.waiting)


def test_what_is_bought_in_several_purchases_has_one_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first alone little is proven of all. What is served is the same."""
    dice = random.Random(4)  # noqa: S311 - the same each time
    sizes = [(dice.choice((500, 900, 2_000, 3_000, 6_000, 11_000)), 1_024 * dice.randint(1, 20)) for _ in range(800)]
    most = {"c.huge": 10, "g.one": 12, "g.four": 2}

    def searched(folder: str) -> OfflinePlan:
        (tmp_path / folder).mkdir()
        return planned(tmp_path / folder, table(sizes), policy=policy("", most=most), seconds=0.05)

    plan = searched("one")
    monkeypatch.setattr(JointPurchase, "_are_far_from_proven", lambda *_: False)
    apart = searched("several")
    assert plan.usd_per_hour == apart.usd_per_hour
    assert plan.placements == apart.placements
    assert apart.lower_bound_usd_per_hour < 0.9 * plan.lower_bound_usd_per_hour


def test_where_nothing_may_be_bought_no_gang_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told that the limits are reached."""
    monkeypatch.setattr(AdmissionLp, "refutation", lambda *_: pytest.fail("asked about what may not be bought"))
    plan = planned(tmp_path, table(many_sizes()), policy=policy("nodes: 0"))
    assert all(one.reason.endswith("leaves 0") for one in plan.waiting)
    assert len(plan.waiting) == 1_500


def many_sizes() -> list[tuple[int, int]]:
    """Cpu and memory of 1,500 pods; every third asks for a GPU."""
    dice = random.Random(4)  # noqa: S311 - the same each time
    return [(dice.choice((500, 2_000, 6_000, 11_000)), dice.choice((1_024, 8_192, 20_000))) for _ in range(1_500)]


def table(sizes: Sequence[tuple[int, int]]) -> str:
    """Such pods."""
    return "".join(f"p{one},{cpu},{memory},{one % 3 == 0:d}\n" for one, (cpu, memory) in enumerate(sizes))


@settings(deadline=None)
@given(data=st.data())
def test_of_a_few_exactly_those_are_served_that_can_be(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each in turn, if there are nodes for all that were taken before and for it."""
    sizes = data.draw(
        st.lists(
            st.tuples(st.sampled_from((1_000, 7_000, 20_000, 40_000)), st.just(1_024), st.sampled_from((0, 0, 1, 3))),
            min_size=1,
            max_size=7,
        )
    )
    nodes = data.draw(st.integers(1, 2))
    rows = "".join(f"p{one},{cpu},{memory},{gpus}\n" for one, (cpu, memory, gpus) in enumerate(sizes))
    plan = planned(tmp_path_factory.mktemp("few"), rows, policy=policy(f"nodes: {nodes}"))
    served: list[int] = []
    for one in range(len(sizes)):
        if are_held([sizes[other] for other in (*served, one)], nodes):
            served.append(one)
    assert sorted(plan.placements) == sorted(f"p{one}" for one in served)


def are_held(sizes: Sequence[tuple[int, int, int]], nodes: int) -> bool:
    """Whether some nodes hold them all: by trying."""
    return any(
        _seated(sorted(sizes, reverse=True), [list(ROOMS[kind]) for kind in kinds])
        for kinds in combinations_with_replacement(GROUPS, nodes)
    )


def _seated(sizes: Sequence[tuple[int, int, int]], free: list[list[int]]) -> bool:
    if not sizes:
        return True
    for room in free:
        if all(size <= left for size, left in zip(sizes[0], room, strict=True)):
            for one, size in enumerate(sizes[0]):
                room[one] -= size
            if _seated(sizes[1:], free):
                return True
            for one, size in enumerate(sizes[0]):
                room[one] += size
    return False


def policy(limits: str, *, most: Mapping[str, int] = MappingProxyType({})) -> str:
    """Groups of all types in one zone, of 1,000 nodes unless of ``most``."""
    groups = "".join(
        f"  - {{name: {one.replace('.', '-')}, instance_type: {one}, zones: [us-east-1a], "
        f"max: {most.get(one, 1000)}}}\n"
        for one in GROUPS
    )
    return f"cluster: c\nlimits: {{{limits}}}\ngroups:\n{groups}"
