"""A model check of so many steps through the real doors: ``python -m tests.bench model --steps 1000000 --seed 1``.

See ``tests/test_autoscaler/test_planner/test_cluster_machine.py``; here each run is 200 steps long, in one process for
each core. What is told of pods that wait is cut short: it is two thirds of a step, and all that is checked of it here
is that there is some; ``tests.bench explain`` holds it to the truth.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from autoscaler.planner import unschedulable
from tests.bench.figure import Figure
from tests.test_autoscaler.test_planner.test_cluster_machine import ClusterMachine

STEPS: Final = 200
"""In a row, in one world."""


def model(many: int, *, seed: int) -> Iterator[Figure]:
    """Rules broken in so many steps, how often what was put to the test, and the time."""
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(partial(_share, many // cores), range(seed * cores, (seed + 1) * cores)))
    for _, broken, _ in done:
        if broken:
            print(broken)
    tally = sum((checked for checked, _, _ in done), Counter[str]())
    yield Figure(f"{tally['steps']:,} steps: rules broken", sum(bool(broken) for _, broken, _ in done), "", 0)
    for name, times in sorted(tally.items()):
        yield Figure(name, times)
    yield Figure("CPU time", sum(seconds for *_, seconds in done) / 60, "min")


def _share(many: int, number: int) -> tuple[Counter[str], str, float]:
    """Tally, what broke, and seconds of CPU, of a machine in this process."""
    tally = Counter[str]()

    class Counted(ClusterMachine):
        def check_invariants(self, *args: object, **more: object) -> None:
            tally["steps"] += 1
            super().check_invariants(*args, **more)

    Counted.tally = tally
    unhurried = settings(
        deadline=None,
        database=None,
        max_examples=max(many // STEPS, 1),
        stateful_step_count=STEPS,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    began = time.process_time()
    unschedulable._WORK = unschedulable._CHECKED = 1  # type: ignore[misc]
    try:
        run_state_machine_as_test(seed(number)(Counted), settings=unhurried)
    except BaseException as broken:  # noqa: BLE001 - hypothesis raises groups; whatever it is, it is told
        return tally, "".join(traceback.format_exception(broken)), time.process_time() - began
    return tally, "", time.process_time() - began
