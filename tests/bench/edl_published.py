"""PaddlePaddle's published scaling of elastic jobs (EDL v0.2.0, ``pkg/autoscaler.go``), to compare with. Not a product.

Written anew from what it does, with what it gets wrong: totals instead of nodes, no gangs, no priorities, and a gate
that no job passes once each has a pod that waits. Three things that its description does not say decide how it ends:
jobs are ranked by the sizes that they have, those alike in the order of a Go map, that is by chance; pods that are
ending count as asked for, so that more is taken than is lacking; and its client may make 5 requests a second to each
API group, of which a loop over 20 jobs needs some 80, so that it takes 12 s in place of the 5 s of its ticker.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

MAX_LOAD: Final = 0.97
"""Its flag's default."""
LOOP: Final = 5.0
"""Seconds of its ticker."""
REQUESTS_PER_SECOND: Final = 5.0
BURST: Final = 10
"""Defaults of Kubernetes' client library (``rest.Config``), for each API group."""


@dataclass(slots=True)
class PublishedJob:
    """A job as EDL counts it; CPUs."""

    name: str
    cpu: int
    minimum: int
    maximum: int
    size: int
    pods: int
    """All that are there, also those that are ending."""
    running: int
    pending: int

    @property
    def fulfilment(self) -> float:
        """Where it is between its minimum (0) and its maximum (1)."""
        return (self.size - self.minimum) / (self.maximum - self.minimum) if self.maximum > self.minimum else 1.0


@dataclass(slots=True)
class PublishedLook:
    """What EDL sums up: requests of all pods that have not ended, those that wait or are ending as well."""

    total: int
    asked: int
    idle: int
    """Of the node that has most. As it adds what it plans to a node's idle CPUs in place of taking it off, one node
    with room for a trainer is enough for any number of them."""


class Cluster(Protocol):
    """What the controller reads and writes; each a request."""

    def jobs(self) -> list[str]:
        """Those that it has been told of."""

    def look(self) -> PublishedLook:
        """All nodes and all pods."""

    def job(self, name: str) -> PublishedJob:
        """Its trainers."""

    def resize(self, name: str, size: int) -> None:
        """Set the parallelism of its trainers."""


def controller(cluster: Cluster, dice: random.Random, *, max_load: float = MAX_LOAD) -> Iterator[float]:
    """Its loop, for ever; gives the time before which it does not go on, in seconds."""
    core, batch = _Limit(), _Limit()
    now, tick, known = 0.0, LOOP, 0
    while True:
        while now < tick and len(cluster.jobs()) == known:
            now += 1.0
            yield now
        if now >= tick:
            tick = max(tick + LOOP, now)
        else:  # a job that comes is an event
            known += 1
            yield (now := batch.take(now))
        for _ in ("nodes", "pods"):
            yield (now := core.take(now))
        look, jobs, found = cluster.look(), cluster.jobs()[:known], []
        for name in dice.sample(jobs, known):  # up to the first of which all pods wait
            yield (now := core.take(now))
            if _waits(cluster.job(name)):
                break
        for name in dice.sample(jobs, known):
            yield (now := core.take(now))
            found.append(cluster.job(name))
        for name, size in published(found, look, max_load=max_load).items():
            for _ in ("read", "update"):
                yield (now := batch.take(now))
            cluster.resize(name, size)


def published(jobs: Sequence[PublishedJob], look: PublishedLook, *, max_load: float = MAX_LOAD) -> dict[str, int]:
    """New number of trainers of jobs that may be changed, those alike in the order given; ``look`` is used up."""
    some_wait = any(map(_waits, jobs))
    may = [job for job in jobs if some_wait or job.running == job.pods]
    ranked = sorted((job for job in may if job.maximum > job.minimum), key=lambda job: (job.fulfilment, job.cpu))
    more = {job.name: 0 for job in may}

    def step(job: PublishedJob, by: int) -> bool:
        more[job.name] += by
        look.asked += by * job.cpu
        return by != 0

    changed = True
    while changed:
        ups = [step(job, _up(job, more, look, max_load)) for job in ranked]
        downs = [step(job, _down(job, more, look, max_load)) for job in reversed(ranked)]
        changed = any(ups) or any(downs)
    return {job.name: job.size + more[job.name] for job in may}


def _waits(job: PublishedJob) -> bool:
    return job.pods == job.pending


def _up(job: PublishedJob, more: dict[str, int], look: PublishedLook, max_load: float) -> int:
    planned = job.size + more[job.name]
    if planned >= job.maximum:
        return job.maximum - planned
    return 1 if look.idle >= job.cpu and look.total * max_load - look.asked >= job.cpu else 0


def _down(job: PublishedJob, more: dict[str, int], look: PublishedLook, max_load: float) -> int:
    planned = job.size + more[job.name]
    if planned > job.maximum:
        return -1
    return -1 if look.asked > look.total * max_load and planned > job.minimum else 0


@dataclass(slots=True)
class _Limit:
    """A token bucket: so many requests a second, and so many at once."""

    left: float = BURST
    at: float = field(default=0.0)

    def take(self, now: float) -> float:
        """When a request made now is let through."""
        self.left = min(BURST, self.left + (now - self.at) * REQUESTS_PER_SECOND) - 1
        self.at = now
        return now if self.left >= 0 else now - self.left / REQUESTS_PER_SECOND
