"""PaddlePaddle's published scaling of elastic jobs (EDL v0.2.0, ``pkg/autoscaler.go``), to compare with. Not a product.

Written anew from its description, with what it gets wrong: totals instead of nodes, no gangs, no priorities, and a gate
that no job passes once each has a pod that waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MAX_LOAD: Final = 0.97
"""Its flag's default."""


@dataclass(slots=True)
class PublishedJob:
    """A job as EDL counts it; CPUs."""

    name: str
    cpu: int
    minimum: int
    maximum: int
    size: int
    running: int
    pending: int

    @property
    def fulfilment(self) -> float:
        """Where it is between its minimum (0) and its maximum (1)."""
        return (self.size - self.minimum) / (self.maximum - self.minimum) if self.maximum > self.minimum else 1.0


@dataclass(slots=True)
class PublishedLook:
    """What EDL sums up: requests of all pods that have not ended, those that wait as well; idle CPUs by node."""

    total: int
    asked: int
    idle: list[int] = field(default_factory=list)


def published(jobs: Sequence[PublishedJob], look: PublishedLook, *, max_load: float = MAX_LOAD) -> dict[str, int]:
    """New number of trainers by job; ``look`` is used up."""
    some_wait = any(job.pending and not job.running for job in jobs)
    candidates = [job for job in jobs if (job.running == job.size and not job.pending) or some_wait]
    more = {job.name: 0 for job in candidates}

    def step(job: PublishedJob, by: int) -> bool:
        more[job.name] += by
        look.asked += by * job.cpu
        return by != 0

    changed = True
    while changed:
        ranked = sorted(
            (job for job in candidates if job.maximum > job.minimum), key=lambda job: (_level(job, more), job.cpu)
        )
        ups = [step(job, _up(job, more, look, max_load)) for job in ranked]
        downs = [step(job, _down(job, more, look, max_load)) for job in reversed(ranked)]
        changed = any(ups) or any(downs)
    return {job.name: job.size + more[job.name] for job in candidates}


def _level(job: PublishedJob, more: dict[str, int]) -> float:
    return (job.size + more[job.name] - job.minimum) / (job.maximum - job.minimum)


def _up(job: PublishedJob, more: dict[str, int], look: PublishedLook, max_load: float) -> int:
    planned = job.size + more[job.name]
    if planned >= job.maximum:
        return job.maximum - planned
    node = next((number for number, idle in enumerate(look.idle) if idle >= job.cpu), None)
    if node is None or look.total * max_load - look.asked < job.cpu:
        return 0
    look.idle[node] -= job.cpu
    return 1


def _down(job: PublishedJob, more: dict[str, int], look: PublishedLook, max_load: float) -> int:
    planned = job.size + more[job.name]
    if planned > job.maximum:
        return -1
    return -1 if look.asked > look.total * max_load and planned > job.minimum else 0
