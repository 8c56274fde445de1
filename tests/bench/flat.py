"""The memory of the loop through a simulated day of 100,000 pods: ``python -m tests.bench flat [--day-pods N]``.

In one process, the clock made up: the real loop, store, planner with its caches, executor and report, through the real
doors against :mod:`tests.cloud` and :mod:`tests.api`. Jobs come and end every 30 s all day; nodes are bought for them
and given back. What is compared is the memory in use after a quarter of the day and at its end.
"""

from __future__ import annotations

import gc
import os
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, TextIO, cast

from autoscaler.acting_policy import OnePolicy
from autoscaler.executor import Executor
from autoscaler.loop import Loop
from autoscaler.metrics import Metrics
from autoscaler.model.cluster import Pod
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.plan import plan
from autoscaler.planner.sanity_check import Counts
from autoscaler.planner.supply.node_cache import NodeCache
from autoscaler.report import Log, Report
from tests.bench.figure import Figure
from tests.bench.memory import resident_mib
from tests.builders import a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node
from tests.world import World

TICK: Final = timedelta(seconds=30)
TICKS: Final = 24 * 120
GROWTH: Final = 1.0
"""MiB that may be in use more at the end of the day than after a quarter of it."""


def flat(pods: int, *, seed: int) -> Iterator[Figure]:
    """A day with so many pods."""
    world, nowhere = _world(seed), cast("TextIO", _Nowhere())
    loop = Loop(
        policies=OnePolicy(world.policy),
        planner=partial(plan, cache=NodeCache(), answers=AnswerCache()),
        store=world.store,
        executor=cast("Executor", world._executor),
        report=Report(Log("json", nowhere), Metrics()),
        leader=_Leader(),
        now=lambda: world.now,
        confirm=lambda: Counts.of(world.store.cluster(world.now)),
    )
    came, bought = 0, 0
    used: list[Counter[str]] = []
    began = time.process_time()
    tracemalloc.start()
    for tick in range(TICKS):
        while came < pods * (tick + 1) // TICKS:
            for pod in _job(world, came):
                world.pods[pod.key] = pod
                came += 1
        world.look()
        loop.once()
        world._bind_pinned()
        world.pass_time(TICK)
        world.finish(0.5)
        if tick in (TICKS // 4, TICKS - 1):
            gc.collect()
            used.append(_used())
        bought = max(bought, sum(len(group.instances) for group in world.groups.values()))
    more = Counter({file: used[1][file] - used[0][file] for file in used[1]})
    for file, count in more.most_common(5):
        print(f"  {count / 2**10:+8.0f} KiB in {file}")
    yield Figure(f"a day of {came:,} pods: memory in use, after six hours", used[0].total() / 2**20, "MiB")
    yield Figure("more than that at the end of the day", more.total() / 2**20, "MiB", GROWTH)
    yield Figure("resident", resident_mib(os.getpid()), "MiB")
    yield Figure("instances at a time, at most", bought)
    yield Figure("CPU time", (time.process_time() - began) / 60, "min")


def _used() -> Counter[str]:
    """Bytes by the file that asked for them, without those of the stand-ins, which remember all that ever was."""
    found = tracemalloc.take_snapshot().statistics("filename")
    return Counter({one.traceback[0].filename: one.size for one in found if "/tests/" not in one.traceback[0].filename})


def _world(seed: int) -> World:
    entries = tuple(an_entry(name, max=10) for name in ("gpu-a10g", "cpu"))
    nodes = [an_on_prem_node(f"dgx-{number}", gpus=8) for number in range(8)]
    return World(
        policy=a_policy(*entries, scale_down={"idle_after": timedelta(minutes=2)}),
        pods={},
        nodes={node.name: node for node in nodes},
        offered=[a_group(entry.name, zone, maximum=entry.max) for entry in entries for zone in entry.zones],
        chance=random.Random(seed),  # noqa: S311 - reproducible
        refuses=0.1,
        late=(0.0, 30.0),
    )


def _job(world: World, number: int) -> tuple[Pod, ...]:
    size, gpus = world.chance.choice((1, 2, 4, 8)), world.chance.choice((0, 1, 1, 2))
    made = (
        a_gang(f"gang-{number}", size, gpus=gpus, cpu=2) if size > 1 else (a_pod(f"lone-{number}", gpus=gpus, cpu=2),)
    )
    return tuple(replace(pod, created=world.now) for pod in made)


class _Leader:
    def is_mine(self) -> bool:
        return True


class _Nowhere:
    """A stream that keeps nothing."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass
