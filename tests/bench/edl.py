"""PaddlePaddle's two experiments with elastic jobs, in compressed time.

``python -m tests.bench edl --case 1|2 --policy off|edl|spillway [--passes 10] [--live] [--json [--series]]``

``off``: jobs of a fixed size. ``edl``: scaling as published (:mod:`tests.bench.edl_published`). ``spillway``: the
product's own :func:`autoscaler.planner.elastic.sizes.sizes`; gangs wait behind a gate until all their pods have room.
Case 1: 20 jobs, 10 s apart, of 2 to 60 trainers (5 CPUs), 10 parameter servers (4) and a master (1). Case 2: 400 nginx
pods (3 CPUs) that go down to 100 and up again, and 6 jobs. Figures of ten passes, seeds 0 to 9; with ``--live``, of one
on a real control plane (:mod:`tests.bench.edl_live`), which takes 10 to 12 minutes. ``--series`` adds what was seen
every two seconds, for :mod:`tests.bench.edl_plots`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from autoscaler.model.cluster import Pod as ClusterPod
from autoscaler.model.resources import CPU, PODS, Resources
from autoscaler.planner.elastic.sizes import sizes
from autoscaler.planner.elastic.values import Claim, ElasticJob, ElasticParameters, Look, Sizes
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import ON_PREM_TIER, Place
from tests.bench.edl_published import PublishedJob, PublishedLook, controller
from tests.bench.edl_world import ENDING, GRACE, MILLI, NODES, SYSTEM_CPUS, Pod, World

POLICIES: Final = ("off", "edl", "spillway")
TRAINER, SERVER, MASTER, NGINX = 5 * MILLI, 4 * MILLI, MILLI, 3 * MILLI
SERVERS, LEAST, MOST = 10, 2, 60
TOTAL: Final = sum(NODES) * MILLI
POD_MAX: Final = 110
EPOCH: Final = datetime(2017, 12, 1, tzinfo=UTC)
WINDOW: Final = 550
"""Seconds over which is averaged, as in the original. What that published is the mean of its samples, which were the
farther apart the more pods there were (1.6 to 10 s); over time its logs give 82.4 and 80.6 % in case 1, 62.8 and 83.7 %
in case 2."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What happens when, in seconds from the collector's start."""

    jobs: tuple[tuple[int, str], ...]
    nginx: tuple[tuple[int, int], ...]
    trainers: int
    """Of a job, where sizes are fixed."""
    published: int
    """With which a job is submitted where EDL scales it."""
    ends: int


CASES: Final = {
    1: Setup(tuple((5 + 13 * n, f"job-{n:02}") for n in range(20)), (), 60, 2, 565),
    2: Setup(
        tuple((5 + 8 * n, f"job-{n:02}") for n in range(6)),
        ((-35, 400), (113, 300), (204, 200), (295, 100), (386, 200), (477, 300), (568, 400)),
        15,
        15,
        688,
    ),
}
"""The scripts wait 10 s between jobs, and 5 s in case 2; a submission takes 3 s more, as the logs show."""


@dataclass(slots=True)
class Pass:
    """One pass of an experiment."""

    setup: Setup
    policy: str
    world: World
    submitted: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    """When a job's first trainer ran."""
    whole: dict[str, float] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)
    nginx: int = 0
    scaled: float = 0.0
    samples: list[dict[str, Any]] = field(default_factory=list)
    in_part: list[set[str]] = field(default_factory=list)
    """Of each sample, jobs of whose gangs a part has nodes; on a real control plane they may be just being bound."""
    torn: list[set[str]] = field(default_factory=list)
    """Those of them of which a pod has neither a node nor room that is kept for it on the one that it is pinned to."""
    killed: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    """Parallelism of jobs, as EDL has set it."""
    parameters: ElasticParameters = field(default_factory=ElasticParameters)
    published: Iterator[float] = field(init=False)
    goes_on: float = 0.0
    """When EDL's controller goes on."""

    def __post_init__(self) -> None:
        """Begin before the first thing happens."""
        self.world.now = min(0, *(at for at, _ in (*self.setup.jobs, *self.setup.nginx)))
        self.published = controller(Published(self), self.world.dice)

    def run(self) -> dict[str, Any]:
        """The figures of the pass."""
        while self.world.now < self.setup.ends:
            self._happen()
            self.world.tick()
            if self.policy == "edl":
                while self.goes_on <= self.world.now:
                    self.goes_on = next(self.published)
            if self.policy == "spillway":
                self._scale_as_decided()
            self._note()
        return self._figures() | {"series": self.samples}

    def _happen(self) -> None:
        for at, name in self.setup.jobs:
            if at == self.world.now:
                self._submit(name)
        for at, count in self.setup.nginx:
            if at == self.world.now:
                self.nginx, self.scaled = count, at
                self.world.scale("nginx", "nginx", NGINX, count)

    def _submit(self, name: str) -> None:
        self.submitted[name] = self.world.now
        size = {"off": self.setup.trainers, "edl": self.setup.published, "spillway": LEAST}[self.policy]
        pods = [Pod(name, "master", 0, MASTER, self.world.now)]
        pods += [Pod(name, "ps", number, SERVER, self.world.now) for number in range(SERVERS)]
        pods += [Pod(name, "trainer", number, TRAINER, self.world.now) for number in range(size)]
        for pod in pods:
            pod.gated = self.policy == "spillway"
        self.world.create(pods)

    def _scale_as_decided(self) -> None:
        ending = self.world.ending()
        held = [0] * len(NODES)
        for pod in self.world.pods:
            if pod.state == "pending" and pod.wants is not None:
                held[pod.wants] += pod.cpu
        now = [self.world.free[node] - held[node] for node in range(len(NODES))]
        jobs = tuple(self._job(name) for name in self.submitted)
        claims = tuple(_nginx(pod.index) for pod in self.world.of("nginx") if pod.state == "pending")
        seen_at = EPOCH + timedelta(seconds=self.world.now)
        market = _market([now[node] + ending[node] for node in range(len(NODES))])
        decided = sizes(Look(seen_at, jobs, claims), market, self.parameters)
        free = {str(node): Resources({CPU: amount}) for node, amount in enumerate(now)}
        for job in jobs:
            tasks = decided.tasks.get(job.name, ())
            if len(tasks) < len(job.tasks):
                self._shrink(job, len(tasks))
            elif len(tasks) > len(job.tasks) and may_begin(decided, job, free):
                self._begin(job, tasks, decided.others.get(job.name, ()), free)

    def _job(self, name: str) -> ElasticJob:
        trainers = sorted(self.world.of(name, "trainer"), key=lambda pod: pod.index)
        placed = tuple(str(pod.node if pod.node is not None else pod.wants) for pod in trainers if not pod.gated)
        changed = self.changed.get(name)
        return ElasticJob(
            name=name,
            task=_a_pod(name, TRAINER),
            minimum=LEAST,
            maximum=MOST,
            created=EPOCH + timedelta(seconds=self.submitted[name]),
            others=() if placed else (_a_pod(name, SERVER),) * SERVERS + (_a_pod(name, MASTER),),
            tasks=placed,
            changed=None if changed is None else EPOCH + timedelta(seconds=changed),
        )

    def _shrink(self, job: ElasticJob, size: int) -> None:
        trainers = sorted(self.world.of(job.name, "trainer"), key=lambda pod: pod.index)
        self.world.end(trainers[size:])
        self.killed += len(trainers) - size
        self.changed[job.name] = self.world.now

    def _begin(self, job: ElasticJob, tasks: Sequence[str], others: Sequence[str], free: dict[str, Resources]) -> None:
        if job.started:
            self.changed[job.name] = self.world.now
            new = [Pod(job.name, "trainer", n, TRAINER, self.world.now) for n in range(len(job.tasks), len(tasks))]
            self.world.create(new)
        else:
            ranked = {"trainer": 0, "ps": 1, "master": 2}
            new = sorted(self.world.of(job.name), key=lambda pod: (ranked[pod.role], pod.index))
        for pod, node in zip(new, [*tasks[len(job.tasks) :], *others], strict=True):
            pod.gated, pod.wants = False, int(node)
            free[node] -= Resources({CPU: pod.cpu})

    def _note(self) -> None:
        world = self.world
        running = {name: sum(p.state == "running" for p in world.of(name, "trainer")) for name in self.submitted}
        part, torn = set[str](), set[str]()
        for name in self.submitted:
            pods = world.of(name)
            bound = [pod for pod in pods if pod.node is not None]
            least = sum(pod.role == "trainer" for pod in bound) >= (
                self.setup.trainers if self.policy == "off" else LEAST
            )
            others = sum(pod.role != "trainer" for pod in bound) == SERVERS + 1
            if bound and not (least and others):
                part.add(name)
                if not self._rest_has_places(name):
                    torn.add(name)
            if running[name]:
                self.first.setdefault(name, world.now)
            up = sum(pod.state == "running" and pod.role != "trainer" for pod in pods)
            if running[name] >= LEAST and up == SERVERS + 1:
                self.whole.setdefault(name, world.now)
        used = sum(pod.cpu for pod in world.pods if pod.state == "running") + SYSTEM_CPUS * MILLI
        nginx = sum(pod.state == "running" for pod in world.of("nginx"))
        if world.now % 2 == 0 and world.now >= 0:
            self.in_part.append(part)
            self.torn.append(torn)
            self.samples.append(
                {
                    "timestamp": world.now,
                    "cpu_utils": used / TOTAL,
                    "running_trainers": sum(running.values()),
                    "pending_jobs": sum(not count for count in running.values()),
                    "running_jobs": sum(count > 0 for count in running.values()),
                    "nginx_pods": nginx,
                    "running_trainers_by_job": list(running.values()),
                    "gangs_in_part": len(part),
                    "nginx_deficit": max(0, self.nginx - nginx) if world.now > REACHED else 0,
                }
            )

    def _rest_has_places(self, name: str) -> bool:
        """Whether the job's other pods are all pinned to nodes that have room for whatever is pinned there."""
        kept = [0] * len(NODES)
        for pod in self.world.pods:
            if pod.node is None and pod.wants is not None and not pod.gated:
                kept[pod.wants] += pod.cpu
        rest = [pod for pod in self.world.of(name) if pod.node is None]
        homes = [None if pod.gated else pod.wants for pod in rest]
        return all(node is not None and kept[node] <= self.world.free[node] for node in homes)

    def _figures(self) -> dict[str, Any]:
        last, ends = self.samples[-1], self.setup.ends
        waits = [self.first.get(name, ends) - at for name, at in self.submitted.items()]
        within = [one for one in self.samples if one["timestamp"] <= WINDOW]
        late = max(self.whole.get(name, float("inf")) for name in self.submitted) - max(self.submitted.values())
        plateau = [one["cpu_utils"] for one in self.samples if 400 <= one["timestamp"] <= 500]
        found = {
            "avg_pending_seconds": statistics.mean(waits),
            "avg_cpu_utils": statistics.mean(one["cpu_utils"] for one in within),
            "pending_jobs_at_end": last["pending_jobs"],
            "running_trainers": last["running_trainers"],
            "running_trainers_by_job": last["running_trainers_by_job"],
            "jain": jain(last["running_trainers_by_job"]),
            "plateau_cpu_utils": statistics.mean(plateau),
            "all_whole_after_last_submit_seconds": late if late < float("inf") else None,
            "samples_with_a_gang_in_part": sum(map(bool, self.in_part)),
            "samples_with_a_gang_still_in_part": sum(bool(one & next_one) for one, next_one in pairwise(self.in_part)),
            "samples_with_a_gang_in_part_without_places_for_the_rest": sum(map(bool, self.torn)),
            "trainers_ended_early": self.killed,
        }
        if self.setup.nginx:
            off_peak = [one["cpu_utils"] for one in self.samples if 300 <= one["timestamp"] <= 370]
            found |= {
                "off_peak_cpu_utils": statistics.mean(off_peak),
                "nginx_pods_at_end": last["nginx_pods"],
                "nginx_deficit_pod_seconds": 2 * sum(one["nginx_deficit"] for one in self.samples),
            }
        return found


@dataclass(frozen=True, slots=True)
class Published:
    """What EDL's controller sees of a pass."""

    of: Pass

    def jobs(self) -> list[str]:
        """In the order in which they came."""
        return list(self.of.submitted)

    def look(self) -> PublishedLook:
        """As it adds up."""
        asked = sum(pod.cpu for pod in self.of.world.pods) + int(SYSTEM_CPUS * MILLI)
        return PublishedLook(TOTAL, asked, max(self.of.world.free))

    def job(self, name: str) -> PublishedJob:
        """Its trainers."""
        pods = [pod for pod in self.of.world.pods if (pod.owner, pod.role) == (name, "trainer")]
        states = Counter(
            "running" if pod.state == "running" else "ending" if pod.state == "ending" else "pending" for pod in pods
        )
        size = self.of.sizes.get(name, self.of.setup.published)
        return PublishedJob(name, TRAINER, LEAST, MOST, size, len(pods), states["running"], states["pending"])

    def resize(self, name: str, size: int) -> None:
        """Its Job's parallelism."""
        before = self.of.sizes.get(name, self.of.setup.published)
        self.of.killed += max(0, before - size)
        self.of.sizes[name] = size
        self.of.world.scale(name, "trainer", TRAINER, size)


REACHED: Final = 60
"""Seconds after which nginx should be there first: its deficit is counted from then on."""


def jain(numbers: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one has everything; 1 of nothing."""
    squares = sum(number * number for number in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else 1.0


def may_begin(sizes: Sizes, job: ElasticJob, free: Mapping[str, Resources]) -> bool:
    """Whether the pods that the job gets have room on their machines now, after what is ending has ended.

    Until then nothing of it is begun; tasks that are to end, end at once.
    """
    asked = [(node, job.task.requests) for node in sizes.tasks.get(job.name, ())[len(job.tasks) :]]
    for one in job.followers:
        asked += [(node, one.task.requests) for node in sizes.tasks.get(one.name, ())[len(one.tasks) :]]
    asked += [(node, pod.requests) for node, pod in zip(sizes.others.get(job.name, ()), job.others, strict=False)]
    nodes = {node for node, _ in asked}
    return all(
        node in free and Resources.total(size for at, size in asked if at == node).fits_in(free[node]) for node in nodes
    )


def _nginx(number: int) -> Claim:
    return Claim(f"nginx-{number}", (_a_pod("nginx", NGINX),), EPOCH, priority=1)


def _a_pod(owner: str, cpu: int) -> ClusterPod:
    return ClusterPod(namespace="edl", name=owner, uid="", requests=Resources({CPU: cpu}), created=EPOCH)


def _market(free: Sequence[int]) -> Market:
    """The nodes with so much free on each; their pods are few enough that only CPUs count."""
    places = [
        Place(str(node), {}, (), {CPU: amount, PODS: POD_MAX}, tier=ON_PREM_TIER) for node, amount in enumerate(free)
    ]
    return Market(Snapshot(places, residents=(), pending=()), (), Ceilings())


def passes(case: int, policy: str, many: int = 10) -> list[dict[str, Any]]:
    """The figures of so many passes, seeds 0, 1, ..."""
    dice = [random.Random(seed) for seed in range(many)]  # noqa: S311 - the same passes every time
    ending = ENDING if policy == "spillway" else GRACE
    return [Pass(CASES[case], policy, World(one, trainers_end=ending)).run() for one in dice]


def packing_limit(jobs: int) -> float:
    """The highest use of CPUs with all servers of so many jobs running, and trainers wherever one fits.

    Servers are given out to nodes by dynamic programming; masters are taken to fit into what is left over.
    """
    best: dict[int, int] = {0: 0}
    for room in World(random.Random(0)).free:  # noqa: S311 - no dice are thrown
        after: dict[int, int] = {}
        for placed, used in best.items():
            for more in range(min(room // SERVER, SERVERS * jobs - placed) + 1):
                total = used + more * SERVER + (room - more * SERVER) // TRAINER * TRAINER
                after[placed + more] = max(after.get(placed + more, 0), total)
        best = after
    return (best[SERVERS * jobs] + jobs * MASTER + SYSTEM_CPUS * MILLI) / TOTAL


def summary(found: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Mean, lowest and highest of each figure over all passes; of those that have it."""
    numbers = {
        name: [one[name] for one in found if isinstance(one[name], (int, float))]
        for name in found[0]
        if name not in ("running_trainers_by_job", "series")
    }
    return {
        name: [round(value, 4) for value in (statistics.mean(of), min(of), max(of))]
        for name, of in numbers.items()
        if of
    }


def main(argv: Sequence[str]) -> int:
    """Print the figures of all passes, then their mean, lowest and highest."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench edl", description=__doc__)
    parser.add_argument("--case", type=int, choices=sorted(CASES), required=True)
    parser.add_argument("--policy", choices=POLICIES, required=True)
    parser.add_argument("--passes", type=int, help="default: 10, or 1 with --live")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--series", action="store_true")
    asked = parser.parse_args(argv)
    if asked.live:
        from tests.bench.edl_live import live_passes  # noqa: PLC0415 - it is made of this

        found = live_passes(asked.case, asked.policy, asked.passes or 1)
    else:
        found = passes(asked.case, asked.policy, asked.passes or 10)
    if not asked.series:
        for one in found:
            del one["series"]
    told: dict[str, Any] = {"case": asked.case, "policy": asked.policy, "mean_lowest_highest": summary(found)}
    if asked.case == 1:
        told["packing_limit_cpu_utils"] = round(packing_limit(len(CASES[1].jobs)), 4)
    if asked.json:
        print(json.dumps(told | {"passes": found}))
    else:
        print(*(f"{name}: {value}" for name, value in (told | told.pop("mean_lowest_highest")).items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
