"""One search by ASHA, of ours or Ray Tune's, in a process of its own: ``asha_run.py spillway|ray``; prints JSON.

The same function, settings, slots and rule. Of what is imported at the top both environments have all. Orphans of the
search become children of this process, so that all CPU seconds are counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterable

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


def main(whose: str) -> int:
    """Search, wait for all processes, print."""
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
    usage = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    found = {
        "to_target": min(at for value, at in reports if value <= TARGET) - began,
        "took": took,
        "cpu": sum(one.ru_utime + one.ru_stime for one in usage),
        "steps": len(reports),
    }
    os.write(said, json.dumps(found).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
