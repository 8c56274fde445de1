"""Ten thousand random mornings in one run: gangs, limits, refusals, machines that never join, restarts, jobs that end.

In every one of them no gang may hold a part of its places, no limit or budget be broken, and nothing be bought twice.
The mornings are hypothesis', in one process for each core; a morning that breaks a rule is made as small as it can be.
Plans are carried out by the autoscaler's own executor through both its doors, against stand-ins in the process; EC2
refuses up to a minute late. A tenth as many are done once more by a process that is killed before or after any write
at a door; the next one reads what it wrote.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.bench.figure import Figure
from tests.test_autoscaler.test_planner.test_plan_properties import morning, worlds
from tests.world import World

Done = tuple[Counter[str], str, float]
"""What was checked how often, the smallest morning that breaks a rule, and seconds of CPU."""


def trials(many: int = 10_000) -> Iterator[Figure]:
    """Rules broken, how often each was put to the test, and the time."""
    yield from _figures(f"{many:,} random mornings", many, killed=False)
    yield from _figures(f"{many // 10:,} more, killed at any write", many // 10, killed=True)


def _figures(stem: str, many: int, *, killed: bool) -> Iterator[Figure]:
    cores = os.cpu_count() or 1
    shares = [many // cores + (core < many % cores) for core in range(cores)]
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(partial(_share, killed=killed), range(cores), shares))
    for _, broken, _ in done:
        if broken:
            print(broken)
    tally = sum((checked for checked, _, _ in done), Counter[str]())
    yield Figure(f"{stem}: rules broken", sum(bool(broken) for _, broken, _ in done), "", 0)
    yield Figure(f"{stem}: mornings too few", max(0, many - tally["mornings"]), "", 0)
    for name, times in sorted(tally.items()):
        yield Figure(f"{stem}: {name}", times)
    yield Figure(f"{stem}: CPU time", sum(seconds for *_, seconds in done) / 60, "min")


def _share(number: int, many: int, *, killed: bool = False) -> Done:
    """So many of them, in this process."""
    tally, broke = Counter[str](), False

    def trial(world: World) -> None:
        nonlocal broke
        try:
            morning(world, killed=killed)
        except AssertionError as broken:
            if not broke:  # made as small as it can be it is told once more: in hours
                print(f"seed {number}, morning {tally['mornings']}: {broken}", file=sys.stderr, flush=True)
            broke = True
            raise
        tally.update(world.tally, mornings=1)

    began = time.process_time()
    unhurried = settings(
        max_examples=many,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        seed(number)(unhurried(given(world=worlds(operator=True))(trial)))()
    except BaseException as broken:  # noqa: BLE001 - hypothesis raises groups; whatever it is, it is told
        return tally, "".join(traceback.format_exception(broken)), time.process_time() - began
    return tally, "", time.process_time() - began
