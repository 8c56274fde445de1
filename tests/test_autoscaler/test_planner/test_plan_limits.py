"""What kinds of node share: an entry's maximum over its zones, a policy's nodes; and machines that are there."""

from __future__ import annotations

import csv
import io
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from autoscaler.config.policy import read_policy
from autoscaler.inputs.offline_plan import OfflinePlan, plan_offline
from autoscaler.inputs.tables import read_asked, read_catalog, read_nodes
from autoscaler.solver.column_generation import Generation
from autoscaler.solver.deadline import Watch, Work
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.problem import Kind, Limit, Shape
from autoscaler.solver.rounding import Lot, Rounding
from autoscaler.solver.solution import Answer
from autoscaler.solver.solve import cheapest
from tests.checker import faults

CATALOG = """\
instance_type,arch,vcpu,memory_mib,allocatable_cpu_milli,allocatable_memory_mib,max_pods,gpu_count,usd_per_hour
c.huge,amd64,64,131072,64000,128000,100,0,3.0
g.one,amd64,8,32768,8000,30000,30,1,1.0
g.four,amd64,48,196608,48000,180000,60,4,3.6
"""
COLUMNS = "name,cpu_milli,memory_mib,num_gpu\n"


def planned(
    directory: Path,
    pods: str,
    *,
    policy: str = "",
    nodes: str = "",
    seconds: float = 1.0,
    clock: Callable[[], float] = lambda: 0.0,
) -> OfflinePlan:
    """Planned and checked; no time passes but by the clock."""
    texts = {"pods.csv": COLUMNS + pods, "catalog.csv": CATALOG, "policy.yaml": policy, "nodes.csv": nodes}
    paths = {name: directory / name for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text, encoding="utf-8")
    plan = plan_offline(
        read_asked(str(paths["pods.csv"])),
        read_catalog(paths["catalog.csv"]),
        read_nodes(paths["nodes.csv"]) if nodes else (),
        policy=read_policy(paths["policy.yaml"]) if policy else None,
        deadline=timedelta(seconds=seconds),
        clock=clock,
    )
    rows = [list(csv.DictReader(io.StringIO(texts[name]))) for name in ("pods.csv", "catalog.csv", "nodes.csv")]
    assert faults(plan.as_json(), pods=rows[0], catalog=rows[1], nodes=rows[2]) == []
    return plan


def bought(answer: Answer) -> Counter[str]:
    """Nodes by kind."""
    found: Counter[str] = Counter()
    for nodes in answer.nodes:
        found[nodes.kind] += nodes.times
    return found


def test_zones_of_an_entry_share_its_maximum(tmp_path: Path) -> None:
    """Three cheap ones would cost less, but two are to be had over both zones: no pod waits, the dear one is bought."""
    policy = """
cluster: c
groups:
  - {name: cheap, instance_type: g.one, zones: [us-east-1a, us-east-1b], max: 2}
  - {name: dear, instance_type: g.four, zones: [us-east-1a], max: 1}
"""
    plan = planned(tmp_path, "".join(f"p{one},4000,8000,1\n" for one in range(3)), policy=policy)
    assert [node.instance_type for node in plan.nodes] == ["g.four"]
    assert plan.waiting == ()


@pytest.mark.parametrize(("limits", "kinds"), [("nodes: 1", ["g.four"]), ("gpus: 2", ["g.one", "g.one"])])
def test_limits_decide_which_kinds_are_bought(tmp_path: Path, limits: str, kinds: list[str]) -> None:
    """With one node the larger is bought, though two small ones are cheaper; the bound knows of the limit, too."""
    policy = f"""
cluster: c
groups:
  - {{name: small, instance_type: g.one, zones: [us-east-1a], max: 9}}
  - {{name: large, instance_type: g.four, zones: [us-east-1a], max: 9}}
limits: {{{limits}}}
"""
    plan = planned(tmp_path, "a,4000,8000,1\nb,4000,8000,1\n", policy=policy)
    assert [node.instance_type for node in plan.nodes] == kinds
    assert plan.waiting == ()
    assert plan.lower_bound_usd_per_hour == pytest.approx(plan.usd_per_hour, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_no_more_nodes_are_bought_than_there_are_however_long_a_plan_is_improved(seed: int) -> None:
    """Nodes that are packed anew once counted those that were kept as still to be had."""
    dice = random.Random(seed)  # noqa: S311 - the same pods every time
    shapes = [
        Shape(
            (dice.randint(5, 60) * 100, dice.randint(2, 40) * 512, dice.choice((0, 1, 1, 2)), 1), dice.randint(10, 40)
        )
        for _ in range(12)
    ]
    kinds = [
        Kind("short", (32_000, 131_072, 8, 60), 4.0, 20),
        Kind("other", (16_000, 65_536, 4, 60), 2.6, 25),
        Kind("one", (8_000, 32_768, 1, 30), 1.0),
        Kind("big", (64_000, 262_144, 8, 110), 12.0),
    ]
    answer = cheapest(shapes, kinds, rounds=20)
    assert bought(answer)["short"] <= 20
    assert bought(answer)["other"] <= 25
    both = Limit({"short": 1.0, "other": 1.0}, 30)
    answer = cheapest(shapes, kinds, limits=[both], rounds=20)
    assert sum(bought(answer)[name] for name in both.uses) <= 30
    assert not any(answer.left)
    assert answer.lower_bound <= answer.usd


def test_a_stock_knows_what_is_left_within_its_limits() -> None:
    """Of one kind three, of the other two GPUs each, and five GPUs over both."""
    stock = Stock(np.array([3.0, np.inf]), np.array([[1.0, 2.0]]), np.array([5.0]))
    assert stock.left.tolist() == [3, 2]
    other = stock.copy()
    other.take(1, 2)
    assert (stock.left.tolist(), other.left.tolist()) == ([3, 2], [1, 0])
    other.take(1, -2)
    assert other.left.tolist() == [3, 2]


def test_time_without_end_is_shared_without_end() -> None:
    """Where there is no deadline nothing of it is over, whatever else has a share."""
    assert Watch(Work(7.0)).share(3).spent() == 0


def test_what_asks_for_more_than_a_gang_that_was_refused_is_not_served(tmp_path: Path) -> None:
    """A hundred pods, each larger than the one before, and room for few."""
    policy = "cluster: c\ngroups:\n  - {name: gpu, instance_type: g.one, zones: [us-east-1a], max: 3}\n"
    plan = planned(tmp_path, "".join(f"p{one},{4100 + one},8000,1\n" for one in range(100)), policy=policy)
    assert plan.placements.keys() == {"p0", "p1", "p2"}


NODES = "sn,cpu_milli,memory_mib,gpu,model\nhome,8000,30000,1,T4\n"


def test_those_stay_at_home_whose_nodes_would_cost_most(tmp_path: Path) -> None:
    """The pod with a GPU is bought a node for 1 $/h, so that no pod needs one for 3 $/h."""
    plan = planned(tmp_path, "gpu,1000,8000,1\nlarge,8000,30000,0\n", nodes=NODES)
    assert sorted(plan.placements.values()) == ["g-one-1", "home"]
    assert plan.usd_per_hour == 1
    assert plan.lower_bound_usd_per_hour == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_no_node_is_bought_for_what_finds_room_on_a_machine(tmp_path: Path, seed: int) -> None:
    """When a plan is made, no pod on a bought node would fit in what is left free at home."""
    dice = random.Random(seed)  # noqa: S311 - the same pods every time
    rows = [(dice.randint(1, 60) * 100, dice.randint(1, 50) * 500, dice.choice((0, 0, 1, 2))) for _ in range(60)]
    machines = "".join(f"m{one},16000,60000,{one % 3},X\n" for one in range(6))
    text = "".join(f"p{one},{cpu},{memory},{gpus}\n" for one, (cpu, memory, gpus) in enumerate(rows))
    plan = planned(tmp_path, text, nodes=NODES.splitlines()[0] + "\n" + machines)
    free = {f"m{one}": [16_000, 60_000, one % 3] for one in range(6)}
    for number, asked in enumerate(rows):
        room = free.get(plan.placements[f"p{number}"])
        if room is not None:
            room[:] = [have - some for have, some in zip(room, asked, strict=True)]
    assert list(_homeless(plan, rows, free)) == []


def _homeless(plan: OfflinePlan, rows: list[tuple[int, int, int]], free: dict[str, list[int]]) -> Iterator[str]:
    for number, asked in enumerate(rows):
        name = f"p{number}"
        for room in free.values() if plan.placements[name] not in free else ():
            if all(some <= have for some, have in zip(asked, room, strict=True)):
                yield name


@pytest.mark.parametrize(("seed", "nodes"), [(0, 13), (4, 10), (6, 14)])
def test_no_pod_is_left_over_while_fillings_for_few_nodes_can_be_found(seed: int, nodes: int) -> None:
    """As many nodes as are needed if money is no object are enough: the search goes on until all have a place."""
    dice = random.Random(seed)  # noqa: S311 - the same pods every time
    kinds = [
        Kind("eight", (96, 180, 8, 40), 9.0),
        Kind("four", (62, 120, 4, 20), 4.0),
        Kind("one", (18, 32, 1, 20), 1.2),
        Kind("none", (32, 64, 0, 20), 1.4),
    ]
    shapes = _random_shapes(dice, 10, counts=(2, 20))
    answer = cheapest(shapes, kinds, limits=[Limit({kind.name: 1.0 for kind in kinds}, nodes)], rounds=40, turns=5)
    assert sum(answer.left) == 0
    assert bought(answer).total() <= nodes
    assert answer.gap < 0.05


def test_machines_that_seemed_large_enough_are_looked_at() -> None:
    """Pods without devices are worth nothing to the relaxation here; the machines for them are filled all the same."""
    kinds = [
        Kind("cpu machines", (96, 200, 0, 40), 0.0, 40),
        Kind("small cpu machines", (32, 64, 0, 20), 0.0, 20),
        Kind("machines", (48, 110, 4, 20), 0.0, 40),
        Kind("four", (62, 120, 4, 20), 4.0),
        Kind("one", (18, 32, 1, 20), 1.2),
        Kind("none", (32, 64, 0, 20), 1.4),
    ]
    answer = cheapest(_random_shapes(random.Random(25), 14, counts=(20, 120)), kinds, rounds=60, turns=2)  # noqa: S311
    assert answer.gap < 0.02


def test_what_is_left_gets_on_a_node_that_is_exchanged_for_a_larger_one() -> None:
    """One node is allowed, and a small one was bought for the first pod: the larger one holds both."""
    problem = Problem(
        sizes=np.array([[4.0, 4.0, 0.0, 1.0], [2.0, 2.0, 0.0, 1.0]]),
        counts=np.array([1, 1]),
        rooms=np.array([[4.0, 4.0, 0.0, 9.0], [8.0, 8.0, 0.0, 9.0]]),
        usd=np.array([1.0, 2.5]),
        available=np.array([math.inf, math.inf]),
        holds=np.ones((2, 2), dtype=bool),
        may=np.ones((2, 2), dtype=bool),
        uses=np.ones((1, 2)),
        most=np.array([1.0]),
    )
    watch, stock = Watch(Work()), Stock(problem.available, problem.uses, problem.most)
    generation = Generation(problem, watch)
    generation.relax()
    rounding = Rounding(generation, watch, counts=problem.counts, stock=stock)
    (lot,) = rounding.completed([Lot(0, np.array([1, 0]))])
    assert (lot.kind, lot.pods.tolist(), lot.times) == (1, [1, 1], 1)


def _random_shapes(dice: random.Random, many: int, *, counts: tuple[int, int]) -> list[Shape]:
    return [
        Shape((dice.randint(2, 16), dice.randint(2, 30), dice.choice((0, 1, 1, 1, 2)), 1), dice.randint(*counts))
        for _ in range(many)
    ]
