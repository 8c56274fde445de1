"""One search by ASHA, of ours or Ray Tune's, in a process of its own: ``asha_run.py spillway|ray``; prints JSON.

The same function, settings, slots and rule. Orphans of the
search become children of this process. CPU seconds are those of it and all below it, as ``/proc`` tells them every
quarter of a second: who does not wait for its children, as Ray's raylet, does not count theirs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from threading import Event, Thread

SETTINGS, STEPS, SLOTS, REDUCTION = 40, 27, 4, 3
SECONDS = 0.25
"""Of a step, in which nothing is computed."""
_DICE = random.Random(7)  # noqa: S311 - the same settings every time
RATES = [10 ** _DICE.uniform(-4, 1) for _ in range(SETTINGS)]
PR_SET_CHILD_SUBREAPER = 36


def loss(rate: float, step: int) -> float:
    """Best at 0.1, and better with each step."""
    return abs(math.log10(rate) + 1) + 1 / step


TARGET = min(loss(rate, 20) for rate in RATES)
"""What the best setting comes to in its 20th step, and no other ever."""


def train(rate: float) -> None:
    """A trial of ours."""
    from images.experiment import report  # noqa: PLC0415 - Ray's environment has none of it

    for step in range(1, STEPS + 1):
        time.sleep(SECONDS)
        report(loss=loss(rate, step))


def spillway() -> Iterable[tuple[float, float]]:
    """Loss and time of each report."""
    from images import experiment  # noqa: PLC0415

    rule = experiment.Halving("loss", reduction=REDUCTION, most=STEPS)
    search = experiment.map(train, {"rate": RATES}, slots=SLOTS, stopping=rule)
    search.results()
    return [(one.values["loss"], one.at) for trial in search.trials for one in trial.reports()]


def ray() -> Iterable[tuple[float, float]]:
    """Loss and time of each report."""
    import ray  # type: ignore[import-not-found]  # noqa: PLC0415
    from ray import tune  # type: ignore[import-not-found]  # noqa: PLC0415
    from ray.tune.schedulers import ASHAScheduler  # type: ignore[import-not-found]  # noqa: PLC0415

    def trial(config: dict[str, float]) -> None:
        for step in range(1, STEPS + 1):
            time.sleep(SECONDS)
            tune.report({"loss": loss(config["rate"], step), "at": time.time()})

    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False)
    rule = ASHAScheduler(time_attr="training_iteration", max_t=STEPS, grace_period=1, reduction_factor=REDUCTION)
    asked = tune.TuneConfig(metric="loss", mode="min", scheduler=rule)
    tuner = tune.Tuner(trial, param_space={"rate": tune.grid_search(RATES)}, tune_config=asked)
    tables = [one.metrics_dataframe for one in tuner.fit()]
    ray.shutdown()
    return [(row["loss"], row["at"]) for table in tables for _, row in table.iterrows()]


def used() -> dict[tuple[str, str], float]:
    """CPU seconds of each process below this one, by its id and the time of its start."""
    told: dict[str, list[str]] = {}
    for one in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            told[one.parent.name] = one.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    below, found = {str(os.getpid())}, set[str]()
    while below:
        found |= below
        below = {pid for pid, (_, parent, *_) in told.items() if parent in below} - found
    ticks = os.sysconf("SC_CLK_TCK")
    return {(pid, told[pid][19]): (int(told[pid][11]) + int(told[pid][12])) / ticks for pid in found if pid in told}


def watch(seen: dict[tuple[str, str], float], over: Event) -> None:
    """Keep what each has used, until it is over."""
    while not over.wait(0.25):
        seen.update(used())


def main(whose: str) -> int:
    """Search, wait for all processes, print."""
    seen: dict[tuple[str, str], float] = {}
    over = Event()
    watching = Thread(target=watch, args=(seen, over))
    watching.start()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    said = os.dup(1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="asha-") as place:
        os.environ.update(XDG_STATE_HOME=place, RAY_TMPDIR=place, RAY_USAGE_STATS_ENABLED="0")
        began = time.time()
        reports = list({"spillway": spillway, "ray": ray}[whose]())
        took = time.time() - began
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
    over.set()
    watching.join()
    found = {
        "to_target": min(at for value, at in reports if value <= TARGET) - began,
        "took": took,
        "cpu": sum((seen | used()).values()),
        "steps": len(reports),
    }
    os.write(said, json.dumps(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
