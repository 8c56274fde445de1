"""What is decided on: elastic jobs, what else waits, machines with their free room; and the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autoscaler.model.resources import Resources


@dataclass(frozen=True, slots=True)
class ElasticParameters:
    """How readily sizes change; each with how its value was found (``python -m tests.bench edl``)."""

    interval: timedelta = timedelta(seconds=15)
    """A job's size changes at most once in it. Mean use in EDL's case 2, one pass: 83.1 % with 15 s, 82.7 % with 20 s,
    82.5 % with 30 s; a new task needs about 10 s before it does anything of use."""
    horizon: timedelta = timedelta(minutes=5)
    """How long a new size is expected to last: EDL's case 1 leaves the cluster alone for so long."""
    imbalance: float = 0.25
    """Tasks move from a job to one that has so much less, as a part of the larger, and at least two tasks less. In
    case 1 a task less ends 397 tasks early in all and comes to a Jain index of 0.998; 6 of 24 less, 344 and 0.975."""


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """A job with one role of ``minimum..maximum`` tasks, and what it needs beside them."""

    name: str
    """``namespace/name``."""
    task: Resources
    """What one elastic task asks for."""
    minimum: int
    maximum: int
    created: datetime
    priority: int = 0
    others: tuple[Resources, ...] = ()
    """Its other pods (parameter servers, a chief): they start with the minimum, as one gang."""
    tasks: tuple[str, ...] = ()
    """Node of each of its tasks, by index; empty while it has not started. A smaller Job ends its highest indexes."""
    changed: datetime | None = None
    """When its size was changed last."""
    restart: timedelta = timedelta()
    """How long the tasks that stay stand still at a change of size: none where workers are independent."""
    warm_up: timedelta = timedelta(seconds=10)
    """How long a new task does nothing of use."""

    @property
    def started(self) -> bool:
        """Whether its gang has been placed."""
        return bool(self.tasks)


@dataclass(frozen=True, slots=True)
class Claim:
    """Pods of no elastic job that want room: a gang, or one pod."""

    name: str
    pods: tuple[Resources, ...]
    created: datetime
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A node with what is free on it, pods that are ending aside; or one that may be bought."""

    name: str
    free: Resources
    usd_per_hour: float = 0.0
    """What it costs to buy; 0 where it is there already."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the cluster, as far as sizes depend on it."""

    seen_at: datetime
    jobs: tuple[ElasticJob, ...]
    machines: tuple[Machine, ...]
    claims: tuple[Claim, ...] = ()
    usd_per_hour: float = 0.0
    """May be spent on machines that are to be bought."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What to do."""

    tasks: Mapping[str, tuple[str, ...]]
    """Job -> nodes of its tasks by index, of each job that runs or is to start."""
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Job that is to start -> nodes of its other pods."""
    because: Mapping[str, str] = field(default_factory=dict)
    """Job whose size changes -> why."""
    bought: tuple[str, ...] = ()
    """Machines that have to be bought first."""
