"""The numbers that the project promises, measured: ``python -m tests.bench [NAME...]``.

All of them: ``make bench``.

``help``   how long `spillway --help` takes
``nodes``  a night without drift on 40 and 100 machines; in the same run, stock pyinfra and Ansible
``deaths``  a hundred controllers of rolling changes killed as processes, on machines and an API server: harm done
``faults``  200 live autoscalers killed before and after calls at their doors, in all weathers: harm done
``planner``  the offline plan of the openb trace in 1 s and 5 s, checked, beside what others make of it
``replay``  149 days of the openb trace, on its machines and on a few of them: dollars and waiting by policy
``trials``  10,000 random mornings of gangs, limits, refusals and restarts: no partial gang, no limit or budget broken,
            nothing bought twice; how often each was checked, and the smallest morning that breaks one
``model``  1,000,000 steps of a cluster that hypothesis makes up as it goes, through the autoscaler's doors: dollars,
           nodes, GPUs, gangs and what may be evicted, checked after each
``fidelity``  50 random situations of 500 pods each, planned, launched as KWOK nodes, bound by the real scheduler
``gate``    what six of them cost without our gate, where the scheduler decides by itself, over what they cost with it;
            with the default scheduler and with the profile that packs
``stacks``  a whole `pulumi up` of the largest example on the local AWS: steps, time, and the engine's own share of it
``scale``  pending to EC2 request with 1,000 nodes and 10,000 running pods, and the autoscaler's memory at that size;
           in the same run, what one look costs a design that lists and polls with the stock client
``live``   the live plan of openb on a made-up cluster, one empty group for each type, beside its bound; of any other
           files: ``python -m tests.bench live --pods PODS.csv --catalog CATALOG.csv [--first N] [--json]``
``edl``    PaddlePaddle's two experiments with elastic jobs, in compressed time or on a real control plane:
           ``python -m tests.bench edl --case 1|2 --policy off|edl|spillway [--passes 10] [--live] [--json]``
``asha``   a search that stops the worst early, ours and Ray Tune's: time to target and CPU seconds, 40 settings
``mixes``  what the live loop pays for random mixes of gangs, one by one and bought for together; and beside machines
           of ours, filled in order or in the same problem; and what ten times the work would save of drawn ones
``rivals``  Karpenter with its KWOK provider and Spillway through the same scripted day: dollars, waiting, gangs in part
``explain``  how long the acting replica takes to say why, with 1,000 nodes and 10,000 running pods; how often what it
           says would help does help: ``python -m tests.bench explain --cases 5000 --seed 1 [--json]``
``jobs-killed``  jobs on this machine, a real Slurm and real kubelets that are killed: what is left and what is lost
``flat``   the autoscaler's memory through a day of 100,000 pods, after a quarter of it and at its end
``large``  the next plan, and the memory, with 15,000 nodes, 150,000 running pods and 500 new ones

Exits 1 where a bound is not kept. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from autoscaler.model import labels as words
from tests.bench.asha import asha
from tests.bench.deaths import deaths
from tests.bench.edl import main as edl
from tests.bench.explain import explain
from tests.bench.explain_cases import main as explain_cases
from tests.bench.faults import faults
from tests.bench.fidelity import fidelity, gate
from tests.bench.figure import Figure
from tests.bench.flat import flat
from tests.bench.jobs_killed import PLACES, jobs_killed
from tests.bench.large import large
from tests.bench.live import live
from tests.bench.live import main as live_of_files
from tests.bench.memory import resident_mib
from tests.bench.mixes import mixes
from tests.bench.model import model
from tests.bench.nodes import nodes
from tests.bench.planner import data_folder, planner
from tests.bench.replay import replays
from tests.bench.rivals import HOURS, PODS_PER_HOUR, SEED, SPEED, rivals
from tests.bench.scale import Loaded, Size, loaded_cluster
from tests.bench.stacks import stacks
from tests.bench.trials import trials
from tests.live.hybrid import autoscaler, gpu_pod, make_pod, until

GANG = 3
GATED = 6
"""Situations that are lived through twice, with our gate and without."""


def main() -> int:
    """Measure what is asked for and print it; 1 where a bound is not kept."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what it has started ends with it
    if sys.argv[1:2] == ["live"] and sys.argv[2:]:
        return live_of_files(sys.argv[2:])
    if sys.argv[1:2] == ["explain"] and "--cases" in sys.argv:
        return explain_cases(sys.argv[2:])
    if sys.argv[1:2] == ["edl"]:
        return edl(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--nodes", type=int, default=Size().nodes)
    parser.add_argument("--pods", type=int, default=Size().pods)
    parser.add_argument("--situations", type=int, default=50)
    parser.add_argument("--deaths", type=int, default=100, help="controllers that are killed, for deaths")
    parser.add_argument("--day-pods", type=int, default=100_000, help="for flat")
    parser.add_argument("--steps", type=int, default=1_000_000, help="for model")
    parser.add_argument("--points", type=int, default=200, help="deaths, for faults")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument(
        "--first", type=int, default=0, help="seed of the first situation, or number of the first death"
    )
    parser.add_argument("--probes", type=int, default=100)
    parser.add_argument("--machines", default="40,100", help="how many, for nodes")
    parser.add_argument("--jobs", type=int, default=200, help="for jobs-killed")
    for place in sorted(PLACES.keys() - {"local"}):
        told = "so many of them, as root; the others are local"
        parser.add_argument(f"--on-{place}", dest=place, type=int, default=0, metavar="JOBS", help=told)
    parser.add_argument("--in-bucket", action="store_true", help="lines of jobs-killed go to a bucket")
    parser.add_argument("--seed", type=int, default=SEED, help="of the day, for rivals; of faults, model, jobs-killed")
    parser.add_argument("--hours", type=float, default=HOURS, help="of the day around noon, for rivals")
    parser.add_argument("--pods-per-hour", type=float, default=PODS_PER_HOUR, help="at noon, for rivals")
    parser.add_argument("--speed", type=float, default=SPEED, help="how much faster than a clock, for rivals")
    parser.add_argument("--ansible", type=int, default=10, help="machines that Ansible sees")
    asked = parser.parse_args()
    unknown = set(asked.names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"there is no benchmark {min(unknown)!r}: there are {', '.join(BENCHMARKS)}")
    figures = [
        figure
        for name, measure in BENCHMARKS.items()
        if name in (asked.names or BENCHMARKS)
        for figure in measure(asked)
    ]
    _show(figures)
    return int(any(figure.verdict() == "NOT KEPT" for figure in figures))


def _nodes(asked: argparse.Namespace) -> Iterator[Figure]:
    sizes = tuple(int(size) for size in asked.machines.split(","))
    yield from nodes(sizes, with_ansible=asked.ansible)


def _help(_asked: argparse.Namespace) -> Iterator[Figure]:
    times = []
    for _ in range(11):
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "spillway", "--help"], check=True, capture_output=True)
        times.append(time.monotonic() - began)
    yield Figure("spillway --help, median of 11", statistics.median(times) * 1000, "ms", 200)


def _scale(asked: argparse.Namespace) -> Iterator[Figure]:
    size, probes = Size(nodes=asked.nodes, pods=asked.pods), asked.probes
    with (
        tempfile.TemporaryDirectory(prefix="spillway-bench-") as directory,
        loaded_cluster(Path(directory), size) as cluster,
    ):
        yield from _stock(cluster)
        with autoscaler(
            policy=cluster.policy,
            env=cluster.aws.env,
            kubeconfig=cluster.autoscaler_kubeconfig,
            log=cluster.directory / "autoscaler.log",
            anew=True,
        ) as brain:
            began = time.monotonic()
            until(lambda: "acting as" in brain.texts(), within=120, told=brain.texts)
            yield Figure("autoscaler: start to acting", time.monotonic() - began, "s")
            time.sleep(5)
            waits = list(_probe(cluster, probes))
            yield Figure(f"pending to EC2 request, median of {probes}", statistics.median(waits) * 1000, "ms", 300)
            yield Figure("pending to EC2 request, p99", _percentile(waits, 99) * 1000, "ms", 1000)
            yield Figure("autoscaler: resident memory", resident_mib(brain.process.pid), "MiB", 300)
            yield Figure("autoscaler: at its highest", resident_mib(brain.process.pid, peak=True), "MiB")


def _stock(cluster: Loaded) -> Iterator[Figure]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.stock_client", str(cluster.kubeconfig)],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    yield Figure("list and poll with the stock client: one look", found["seconds"], "s")
    yield Figure("list and poll with the stock client: resident memory", found["mib"], "MiB")


def _probe(cluster: Loaded, probes: int) -> Iterator[float]:
    """Seconds from when the API server had taken the last pod to when the purchase arrived at EC2, for each probe.

    Every fifth is a gang. Pods stay: what was bought for one must not serve the next.
    """
    dice = random.Random(1)  # noqa: S311 - the same moments every time
    for number in range(probes):
        before = len(cluster.aws.asked())
        names = [f"probe-{number}"] if number % 5 else [f"probe-{number}-{index}" for index in range(GANG)]
        for name in names:
            pod = gpu_pod(name, gpus=4)
            if len(names) > 1:
                pod["metadata"] |= {"labels": {words.GANG: f"g{number}"}, "annotations": {words.GANG_SIZE: str(GANG)}}
                pod["spec"]["schedulingGates"] = [{"name": words.GATE}]
            make_pod(cluster.kube, pod)
        created = time.time()
        yield until(partial(_next_purchase, cluster, before))["at"] - created
        time.sleep(dice.uniform(0.2, 1.2))


def _next_purchase(cluster: Loaded, before: int) -> dict[str, Any] | None:
    asked = cluster.aws.asked()
    return asked[before] if len(asked) > before else None


def _percentile(values: list[float], percent: int) -> float:
    """By nearest rank."""
    ranked = sorted(values)
    return ranked[min(-(-len(ranked) * percent // 100), len(ranked)) - 1]


def _show(figures: list[Figure]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("FIGURE", "VALUE", "BOUND", ""):
        table.add_column(name, justify="left" if name in ("FIGURE", "") else "right")
    for figure in figures:
        bound = "" if figure.bound is None else f"{figure.bound:g} {figure.unit}"
        table.add_row(figure.name, f"{figure.value:.3g} {figure.unit}", bound, figure.verdict())
    Console(width=110).print(table)


BENCHMARKS: Final[Mapping[str, Callable[[argparse.Namespace], Iterable[Figure]]]] = {
    "help": _help,
    "nodes": _nodes,
    "deaths": lambda asked: deaths(asked.deaths, first=asked.first),
    "faults": lambda asked: faults(asked.points, first=asked.first, seed=asked.seed),
    "planner": lambda _asked: planner(),
    "replay": lambda _asked: replays(data_folder()),
    "trials": lambda asked: trials(asked.trials),
    "model": lambda asked: model(asked.steps, seed=asked.seed),
    "fidelity": lambda asked: fidelity(asked.situations, asked.first),
    "gate": lambda asked: gate(min(asked.situations, GATED)),
    "stacks": lambda _asked: stacks(),
    "scale": _scale,
    "flat": lambda asked: flat(asked.day_pods, seed=asked.seed),
    "large": lambda _asked: large(),
    "explain": lambda asked: explain(nodes=asked.nodes, pods=asked.pods),
    "rivals": lambda asked: rivals(
        data_folder(), seed=asked.seed, hours=asked.hours, pods_per_hour=asked.pods_per_hour, speed=asked.speed
    ),
    "live": lambda _asked: live(data_folder()),
    "jobs-killed": lambda asked: jobs_killed(
        asked.jobs,
        seed=asked.seed,
        on={place: getattr(asked, place) for place in PLACES if place != "local"},
        in_bucket=asked.in_bucket,
    ),
    "asha": lambda _asked: asha(),
    "mixes": lambda _asked: mixes(),
}

if __name__ == "__main__":
    sys.exit(main())
