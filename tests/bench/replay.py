"""149 days of the openb trace again, on the machines that it ran on or on a part of them, with EC2 for the rest.

One policy decides for every pod that does not fit at once whether it waits or is burst:

``burst``     buys at once;
``wait T``    waits so long, then buys;
``linear``    waits in proportion to the GPU time that the pod asks for, then buys: the rule of Starburst (ATC 2024),
              with the factor at which its 95th percentile of waiting is near that of ``wait T``;
``spillway``  the autoscaler's own: waits for what the forecast (:mod:`autoscaler.planner.supply.release_forecast`)
              expects, if so long a wait costs less than buying; else it buys at once. How long pods run ``linear``
              knows exactly; here the estimate is wrong by up to a factor of two.

The trace never asks for more than 71 GPUs at a time, and its machines have 6,212: on all of them, and on a quarter,
nothing waits and nothing is bought, whatever the policy. The policies differ on machines that are scarce.

Who waits starts as soon as it fits, in order of arrival, and others may pass it. A bought machine is the cheapest type
of the catalogue that holds the pod, takes :data:`BOOT` to join, and is paid for until the pod ends.
"""

from __future__ import annotations

import csv
import heapq
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from autoscaler.planner.supply.release_forecast import Forecast, Release, Task, bought_for, expected_end, worth_waiting
from tests.bench.figure import Figure

BOOT = 150.0
"""Seconds from the purchase to the node."""
RESOURCES = ("gpu", "cpu", "memory")
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Job:
    """One pod of the trace."""

    number: int
    arrives: float
    runs: float
    asks: dict[str, int]
    usd_per_hour: float
    expected: float
    """Seconds that it is thought to run."""


@dataclass(slots=True)
class Outcome:
    """What came of a policy."""

    usd: float = 0.0
    waits: list[float] = field(default_factory=list)
    burst: int = 0

    def p95(self) -> float:
        """Seconds, by nearest rank."""
        ranked = sorted(self.waits)
        return ranked[-(-len(ranked) * 95 // 100) - 1]

    def mean(self) -> float:
        """Seconds."""
        return sum(self.waits) / len(self.waits)


Patience = Callable[[Job], float]
"""Seconds that a job waits before it is burst."""


def read_jobs(pods: Path, catalog: Path, *, pace: float = 1.0) -> list[Job]:
    """The trace in order of arrival; ``pace`` 2 lets everything arrive in half the time."""
    dice = random.Random(1)  # noqa: S311 - the same estimates every time
    kinds = sorted(_kinds(catalog), key=lambda kind: kind[1])
    jobs = []
    with pods.open(encoding="utf-8") as table:
        for number, row in enumerate(csv.DictReader(table)):
            asks = {"gpu": int(row["num_gpu"]), "cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"])}
            began = float(row["scheduled_time"] or row["creation_time"])
            runs = max(1.0, float(row["deletion_time"]) - began)
            usd = next(usd for room, usd in kinds if all(room[name] >= asks[name] for name in RESOURCES))
            expected = runs * 2 ** dice.uniform(-1, 1)
            jobs.append(Job(number, float(row["creation_time"]) / pace, runs, asks, usd, expected))
    return sorted(jobs, key=lambda job: (job.arrives, job.number))


def read_machines(nodes: Path, *, every: int = 1) -> list[dict[str, int]]:
    """What each machine has; every so manieth of them."""
    with nodes.open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))[::every]
    return [{"gpu": int(row["gpu"]), "cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"])} for row in rows]


@dataclass(frozen=True, slots=True)
class Own:
    """Spillway's policy: ``waiting`` of the policy file."""

    patience: float
    price: float | None = None
    least: float = 0.0


def replay(jobs: Sequence[Job], machines: Sequence[dict[str, int]], policy: Patience | Own) -> Outcome:
    """Run the trace. ``policy`` says how long a job waits."""
    return _Replay(machines, policy).run(jobs)


class _Replay:
    def __init__(self, machines: Sequence[dict[str, int]], policy: Patience | Own) -> None:
        self._policy = policy
        self._floor = Forecast(machines, (), resources=RESOURCES)
        self._queue: list[Job] = []
        self._running: dict[int, tuple[Job, int, float]] = {}
        """By number: the job, its machine, when it started."""
        self._ends: list[tuple[float, int]] = []
        self._outcome = Outcome()

    def run(self, jobs: Sequence[Job]) -> Outcome:
        moments = [(job.arrives, job) for job in jobs]
        looks: list[float] = []
        position = 0
        while position < len(moments) or self._ends or self._queue:
            now = min(
                moments[position][0] if position < len(moments) else float("inf"),
                self._ends[0][0] if self._ends else float("inf"),
                looks[0] if looks else float("inf"),
            )
            while looks and looks[0] <= now:
                heapq.heappop(looks)
            self._end(now)
            while position < len(moments) and moments[position][0] <= now:
                self._queue.append(moments[position][1])
                position += 1
            for look in self._decide(now):
                heapq.heappush(looks, look)
        return self._outcome

    def _end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            job, place, _ = self._running.pop(heapq.heappop(self._ends)[1])
            self._floor.take(place, {name: -amount for name, amount in job.asks.items()})

    def _decide(self, now: float) -> Iterator[float]:
        """Start, burst, or leave waiting each job of the queue; gives the times at which to look again."""
        waiting: list[Job] = []
        future: Forecast | None = None
        for job in self._queue:
            found = self._floor.start([Task(job.asks)], now=_at(now), until=_at(now))
            if found is not None:
                self._start(job, found.places[0], now)
                continue
            if not isinstance(self._policy, Own):
                ends = job.arrives + self._policy(job)
            else:
                future = future or self._future(now)
                ends = self._until(job, self._policy, future, now)
            if ends <= now:
                self._outcome.burst += 1
                self._outcome.usd += job.usd_per_hour * (BOOT + job.runs) / 3600
                self._outcome.waits.append(now - job.arrives + BOOT)
            else:
                waiting.append(job)
                yield ends
        self._queue = waiting

    def _start(self, job: Job, place: int, now: float) -> None:
        self._floor.take(place, job.asks)
        self._running[job.number] = (job, place, now)
        heapq.heappush(self._ends, (now + job.runs, job.number))
        self._outcome.waits.append(now - job.arrives)

    def _future(self, now: float) -> Forecast:
        """As a look at the cluster would have it: what runs, by its estimate."""
        releases = [
            Release(expected_end(_at(began), timedelta(seconds=job.expected), now=_at(now)), place, job.asks)
            for job, place, began in self._running.values()
        ]
        return self._floor.with_releases(releases)

    def _until(self, job: Job, own: Own, future: Forecast, now: float) -> float:
        task, ends = [Task(job.asks)], job.arrives + own.patience
        start = future.start(task, now=_at(now), until=_at(ends)) if ends > now else None
        if start is None:
            return now
        duration = timedelta(seconds=job.expected)
        wait = start.at - _at(job.arrives)
        usd = bought_for(job.usd_per_hour, duration)
        if not worth_waiting(wait=wait, usd=usd, price=own.price, least=own.least):
            return now
        future.reserve(task, start, duration=duration)
        return ends


def _at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def _kinds(catalog: Path) -> Iterator[tuple[dict[str, int], float]]:
    with catalog.open(encoding="utf-8") as table:
        for row in csv.DictReader(table):
            if row["arch"] == "amd64" and row["usd_per_hour"]:
                room = {
                    "gpu": int(row["gpu_count"] or 0),
                    "cpu": int(row["allocatable_cpu_milli"]),
                    "memory": int(float(row["allocatable_memory_mib"])),
                }
                yield room, float(row["usd_per_hour"])


OWN: Final = Own(patience=5e6, price=0.1, least=3.0)
"""An hour's waiting is worth ten cents; no pod waits to save less than three dollars: fewer than one in twenty does."""
BASELINES: Final[Mapping[str, Patience]] = {
    "burst": lambda _job: 0.0,
    "wait 30 min": lambda _job: 1800.0,
    "linear": lambda job: 0.25 * job.runs * max(1, job.asks["gpu"]),
}
SCARCE: Final = (150, 200, 300)
"""Every so manieth machine: 11, 8 and 6 of them."""
SAVED: Final = 0.6
"""Of the dollars of burst-at-once, at its 95th percentile of waiting."""


def replays(data: Path | None) -> Iterator[Figure]:
    """The trace on all machines, on a quarter, and on every 200th; nothing where the tables are not at hand."""
    if data is None:
        return
    began = time.process_time()
    jobs = read_jobs(data / "openb_pod_list_default.csv", data / "ec2_us_east_1_2026_07_20.csv")
    nodes = data / "openb_node_list_all_node.csv"
    for every, part in ((1, "all machines"), (4, "a quarter")):
        own = replay(jobs, read_machines(nodes, every=every), OWN)
        yield Figure(f"openb's 149 days on {part}: bought", own.usd, "$", 0)
        yield Figure(f"openb's 149 days on {part}: waiting, p95", own.p95(), "s", 0)
        others = [replay(jobs, read_machines(nodes, every=every), policy) for policy in BASELINES.values()]
        yield Figure(f"the three baselines on {part}: bought at most", max(other.usd for other in others), "$")
    yield Figure("these replays: CPU time", time.process_time() - began, "s", 60)
    for every in SCARCE:
        yield from _scarce(jobs, read_machines(nodes, every=every))


def _scarce(jobs: Sequence[Job], machines: Sequence[dict[str, int]]) -> Iterator[Figure]:
    """Where all policies buy: ours beside each baseline, within the dollars and the waiting of burst-at-once."""
    on = f"on {len(machines)} machines"
    others = {name: replay(jobs, machines, policy) for name, policy in BASELINES.items()}
    for name, other in others.items():
        yield Figure(f"{on}, {name}: bought", other.usd, "$")
        yield Figure(f"{on}, {name}: waiting, p95", other.p95(), "s")
    own, burst = replay(jobs, machines, OWN), others["burst"]
    yield Figure(f"{on}: bought", own.usd, "$", (1 - SAVED) * burst.usd)
    yield Figure(f"{on}: waiting, p95", own.p95(), "s", burst.p95())
    yield Figure(f"{on}: waiting, mean", own.mean(), "s")
