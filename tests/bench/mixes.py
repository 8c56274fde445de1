"""What the live loop pays for random mixes of gangs: one by one, and bought for together, beside the linear bound.

A mix is 20 to 620 pods in gangs of one to forty over eight kinds of node; everything must be bought. Smaller ones stand
beside machines of ours, which are filled in the same problem as nodes are bought in; in the same run, in order. Drawn
ones (:mod:`tests.drawn_mixes`) are of a few or of hundreds of sizes, and show what ten times the work would save, and
what a simple packing costs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import Memory
from autoscaler.model.cluster import Cluster, Group, Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import HOSTNAME
from autoscaler.model.resources import CPU, MEMORY, PODS, Resources
from autoscaler.planner.cutting_stock.joint_packing import Pool
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.placement.gang_packing import Demand, Placed, pack
from autoscaler.planner.placement.offerings import Ceilings, Market, Offering
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.node_places import new_place
from autoscaler.solver import solve
from tests.bench.figure import Figure
from tests.bench.live import timed
from tests.builders import a_cluster, a_gang, a_pod, a_policy, an_on_prem_node
from tests.drawn_mixes import (
    best_fit_decreasing,
    drawn_mix,
    entry_of,
    group_of,
    mix_of_many_sizes,
    with_ten_times_the_work,
)

MIXES: Final = 30
TYPES: Final = {
    # name: ($/h, cpu, GiB, GPUs), as pods find them
    "m5.4xlarge": (0.768, 15, 58, 0),
    "c5.9xlarge": (1.53, 35, 66, 0),
    "r5.8xlarge": (2.016, 31, 240, 0),
    "m5.24xlarge": (4.608, 95, 364, 0),
    "g4dn.xlarge": (0.526, 3, 14, 1),
    "g4dn.12xlarge": (3.912, 47, 182, 4),
    "g5.12xlarge": (5.672, 47, 182, 4),
    "p4d.24xlarge": (21.957642, 95, 1100, 8),
}


def mixes(many: int = MIXES) -> Iterator[Figure]:
    """Above the bound, on average and at worst."""
    gaps: dict[str, list[float]] = {"gang by gang": [], "together": []}
    took = []
    for seed in range(many):
        demands, market = _mix(seed)
        start = market.snapshot.mark()
        one_by_one: Mapping[str, Placed | None] = {one.name: pack([one], market).placed[one.name] for one in demands}
        market.snapshot.undo(start)
        began = time.process_time()
        together = _together(demands, market)
        took.append(time.process_time() - began)
        bound = _bound(demands, market)
        for name, found in (("gang by gang", one_by_one), ("together", together)):
            gaps[name].append((sum(placed.usd for placed in found.values() if placed) / bound - 1) * 100)
    for name, above in gaps.items():
        yield Figure(f"{many} random mixes, {name}: above the bound, mean", statistics.mean(above), "%")
        yield Figure(f"{many} random mixes, {name}: above the bound, at worst", max(above), "%")
    yield Figure(f"{many} random mixes, together: CPU time of one, at most", max(took), "s", 1.0)
    for apart in (0.0, 0.1):
        yield from _beside_machines(many, apart)
    yield from _drawn(many)
    yield from _of_many_sizes(many)


def _drawn(many: int) -> Iterator[Figure]:
    """The whole plan, beside one with ten times the work."""
    above, parts, took = [], [], []
    for seed in range(many):
        mix = drawn_mix(seed)
        found, seconds = timed(mix.cluster, mix.policy)
        took.append(seconds)
        above.append((found.usd_per_hour / found.lower_bound_usd_per_hour - 1) * 100)
        more = plan(mix.cluster, mix.policy, Memory(), limits=with_ten_times_the_work(SearchLimits()))
        parts.append(found.usd_per_hour / more.usd_per_hour)
    stem = f"{many} drawn mixes of 50 to 1,000 pods"
    yield Figure(f"{stem}: above the bound, median", statistics.median(above), "%", 2.0)
    yield Figure(f"{stem}: above the bound, mean", statistics.mean(above), "%", 3.0)
    yield Figure(f"{stem}: dollars over those with ten times the work, mean", statistics.mean(parts), "", 1.005)
    yield Figure(f"{stem}: at worst", max(parts), "", 1.05)
    yield Figure(f"{stem}: CPU time of one, median", statistics.median(took), "s", 0.5)
    yield Figure(f"{stem}: CPU time of one, at most", max(took), "s")


def _of_many_sizes(many: int) -> Iterator[Figure]:
    """The whole plan, beside best-fit decreasing, which is a few lines, and beside its bound."""
    above, parts, took = [], [], []
    for seed in range(many):
        mix = mix_of_many_sizes(seed)
        found, seconds = timed(mix.cluster, mix.policy)
        took.append(seconds)
        above.append((found.usd_per_hour / found.lower_bound_usd_per_hour - 1) * 100)
        parts.append(found.usd_per_hour / best_fit_decreasing(mix))
    stem = f"{many} mixes of 200 to 1,000 pods, hardly two of a size"
    yield Figure(f"{stem}: above the bound, mean", statistics.mean(above), "%", 5.0)
    yield Figure(f"{stem}: dollars over those of best-fit decreasing, mean", statistics.mean(parts), "", 0.9)
    yield Figure(f"{stem}: at worst", max(parts), "", 1.0)
    yield Figure(f"{stem}: CPU time of one, at most", max(took), "s", 3.0)


def _beside_machines(many: int, apart: float) -> Iterator[Figure]:
    """What is paid beside machines of ours over what is paid where these are filled in order."""
    parts, took = [], []
    for seed in range(many):
        cluster, policy = _with_machines(seed, apart)
        found, seconds = timed(cluster, policy)
        took.append(seconds)
        in_order = plan(cluster, policy, Memory(), limits=SearchLimits(at_hand_kinds=0)).usd_per_hour
        parts.append(found.usd_per_hour / in_order if in_order else 1.0)
    stem = f"{many} mixes of 5 to 150 pods beside machines" + (f", {apart:.0%} keep apart" if apart else "")
    yield Figure(f"{stem}: dollars over those of filling in order, mean", statistics.mean(parts), "", 1.0)
    yield Figure(f"{stem}: at worst", max(parts), "", 1.0)
    yield Figure(f"{stem}: CPU time of one, at most", max(took), "s", 1.0)


def _with_machines(seed: int, apart: float) -> tuple[Cluster, Policy]:
    """Pods by themselves; of them so large a part share no node with each other."""
    dice = random.Random(seed)  # noqa: S311 - the same mixes every time
    alike = (Requirement("app", "In", ("apart",)),)
    rule = {"labels": {"app": "apart"}, "apart_from": (PodTerm(HOSTNAME, alike, frozenset({"team"})),)}
    pods = [
        a_pod(
            f"p{number}",
            gpus=dice.choice((0, 0, 0, 1, 1, 2, 4, 8)),
            cpu=f"{dice.choice((250, 500, 1000, 2000, 3500, 6000))}m",
            memory=f"{dice.choice((512, 1024, 4096, 7000, 12_000))}Mi",
            **(rule if dice.random() < apart else {}),
        )
        for number in range(dice.choice((5, 10, 20, 40, 80, 150)))
    ]
    machines = [
        an_on_prem_node(f"dgx-{number}", gpus=dice.choice((2, 4, 8)), cpu=dice.choice((32, 64, 96)), taints=())
        for number in range(max(1, len(pods) // 12 + dice.randint(0, 2)))
    ]
    groups = tuple(map(_group, TYPES))
    return a_cluster(pods=pods, nodes=machines, groups=groups), a_policy(*map(entry_of, groups))


def _together(demands: list[Demand], market: Market) -> Mapping[str, Placed | None]:
    pool = Pool(market, SearchLimits())
    if not (all(map(pool.take, demands)) and pool.buy()):
        raise AssertionError("everything may be bought")
    return pool.found()


def _mix(seed: int) -> tuple[list[Demand], Market]:
    dice = random.Random(seed)  # noqa: S311 - the same mixes every time
    wanted, gangs = dice.randint(20, 600), list[tuple[Pod, ...]]()
    while sum(map(len, gangs)) < wanted:
        size = dice.choice((1, 1, 2, 3, 4, 8, 16, 40))
        gpus = dice.choice((0, 0, 0, 1, 1, 2, 4, 8)) if size < 16 else dice.choice((0, 0, 1))
        cpu = f"{dice.choice((250, 500, 1000, 2000, 3500, 6000))}m"
        memory = f"{dice.choice((512, 1024, 4096, 7000, 12_000))}Mi"
        gangs.append(a_gang(f"g{len(gangs)}", size, gpus=gpus, cpu=cpu, memory=memory))
    snapshot = Snapshot([], (), [pod for gang in gangs for pod in gang])
    groups = [_group(kind) for kind in TYPES]
    offerings = [Offering(group, partial(_fresh, group), 1000) for group in groups]
    demands = [
        Demand(f"g{number}", tuple((pod.key, snapshot.shape(pod)) for pod in gang), minimum=len(gang))
        for number, gang in enumerate(gangs)
    ]
    return demands, Market(snapshot, offerings, Ceilings())


def _group(kind: str) -> Group:
    usd, cpu, gib, gpus = TYPES[kind]
    room = Resources({CPU: cpu * 1000, MEMORY: gib * 2**30, PODS: 110, words.GPU: gpus})
    return group_of(kind, usd, room, most=1000)


def _fresh(group: Group, name: str) -> Place:
    return new_place(group, name, dict(group.allocatable))


def _bound(demands: list[Demand], market: Market) -> float:
    """What no plan for all of them can undercut."""
    pods = Counter(shape for demand in demands for _, shape in demand.pods)
    kinds = {one.group.name: one for one in market.offerings}
    shapes = [
        solve.Shape(
            _vector(shape.requests),
            count,
            frozenset(name for name, one in kinds.items() if market.capacity(one, shape)),
        )
        for shape, count in pods.items()
    ]
    return solve.lower_bound(
        shapes, [solve.Kind(name, _vector(one.group.allocatable), one.usd) for name, one in kinds.items()]
    )


def _vector(amounts: Resources) -> tuple[int, ...]:
    return (amounts[CPU], amounts[MEMORY] // 2**20, amounts[words.GPU], amounts[PODS])
