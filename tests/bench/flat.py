"""The memory of the loop through a simulated day of 100,000 pods: ``python -m tests.bench flat [--day-pods N]``.

In one process, the clock made up: the real loop, store, planner with its caches, executor and report, through the real
doors against :mod:`tests.cloud` and :mod:`tests.api`. Jobs come and end every 30 s all day; nodes are bought for them
and given back. What is compared is all that the process has allocated, as glibc tells it, at two moments at which
everything has ended and been given back: after a quarter of the day and at its end.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from typing import ClassVar, Final, TextIO, cast
from unittest import mock

from autoscaler.acting_policy import OnePolicy
from autoscaler.executor import Executor
from autoscaler.loop import Loop
from autoscaler.model.cluster import Pod
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.plan import plan
from autoscaler.planner.sanity_check import Counts
from autoscaler.planner.supply.node_cache import NodeCache
from autoscaler.reporting.metrics import Metrics
from autoscaler.reporting.report import Log, Report
from tests.bench.figure import Figure
from tests.bench.memory import resident_mib
from tests.builders import a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node
from tests.world import World

TICK: Final = timedelta(seconds=30)
TICKS: Final = 24 * 120
REST: Final = 40
"""Ticks without a new job, after which all has ended."""
GROWTH: Final = 1.0
"""MiB that may be in use more at the end of the day than after a quarter of it."""


def flat(pods: int, *, seed: int) -> Iterator[Figure]:
    """A day with so many pods, in a process whose every object is one of ``malloc``'s."""
    with (
        mock.patch.dict(os.environ, {"PYTHONMALLOC": "malloc"}),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
    ):
        yield from pool.submit(_day, pods, seed).result()


def _day(pods: int, seed: int) -> list[Figure]:
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
    used: list[float] = []
    began = time.process_time()
    for tick in range(TICKS):
        while came < pods * (tick + 1) // TICKS:
            for pod in _job(world, came):
                world.pods[pod.key] = pod
                came += 1
        _turn(world, loop, ends=0.5)
        if tick % (TICKS // 4) == TICKS // 4 - 1:
            for _ in range(REST):
                _turn(world, loop, ends=1.0)
            assert not world.pods, f"{len(world.pods)} pods are left"
            _forget(world)
            used.append(_mib_in_use())
        bought = max(bought, sum(len(group.instances) for group in world.groups.values()))
    print(f"  MiB in use at each quarter: {', '.join(f'{one:.2f}' for one in used)}")
    return [
        Figure(f"a day of {came:,} pods: memory in use, after six hours", used[0], "MiB"),
        Figure("more than that at the end of the day", used[-1] - used[0], "MiB", GROWTH),
        Figure("resident", resident_mib(os.getpid()), "MiB"),
        Figure("instances at a time, at most", bought),
        Figure("CPU time", (time.process_time() - began) / 60, "min"),
    ]


def _turn(world: World, loop: Loop, *, ends: float) -> None:
    """Half a minute. ``ends``: share of the running jobs that end in it."""
    world.look()
    loop.once()
    world._bind_pinned()
    world.pass_time(TICK)
    world.finish(ends)


def _forget(world: World) -> None:
    """The stand-ins remember every purchase that ever was; of those that have ended it is theirs alone."""
    here = {one for group in world.cloud.groups.values() for one in group.instances}
    world.cloud.tokens.clear()
    world.cloud.launched = {one: at for one, at in world.cloud.launched.items() if one in here}
    world.joining = {one: joins for one, joins in world.joining.items() if one in here}
    for group in world.cloud.groups.values():
        group.launches.clear()


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc, see mallinfo(3)."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _mib_in_use() -> float:
    """All that is allocated and not freed, mapped pieces included."""
    gc.collect()
    tell = ctypes.CDLL(None).mallinfo2
    tell.restype = _Mallinfo
    told = tell()
    return (told.uordblks + told.hblkhd) / 2**20


def _world(seed: int) -> World:
    entries = tuple(an_entry(name, max=40) for name in ("gpu-a10g", "cpu"))
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
