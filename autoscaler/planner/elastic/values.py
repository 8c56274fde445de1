"""What is decided on: elastic jobs and what else waits; and the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autoscaler.model.cluster import Pod


@dataclass(frozen=True, slots=True)
class ElasticParameters:
    """How readily sizes change; each with how its value was found (``python -m tests.bench edl``)."""

    interval: timedelta = timedelta(seconds=15)
    """A job's size changes at most once in it. Mean use in EDL's case 2, one pass: 83.1 % with 15 s, 82.7 % with 20 s,
    82.5 % with 30 s; a new task needs about 10 s before it does anything of use. Nor do others shrink for one that came
    within it: case 1, decided by the whole planner, uses 91.2 % of the CPUs with that, all that its servers leave, in
    each of twelve passes, and 91.0 % (90.5 to 91.2) without."""
    horizon: timedelta = timedelta(minutes=5)
    """How long a new size is expected to last: EDL's case 1 leaves the cluster alone for so long."""
    imbalance: float = 0.25
    """Tasks move from a job to one that has so much less, as a part of the larger, and at least two tasks less. In
    case 1 a task less ends 397 tasks early in all and comes to a Jain index of 0.998; 6 of 24 less, 344 and 0.975."""
    kept: float = 0.5
    """A job that shrinks goes on to this part of its tasks before another is asked: others stay free to answer what
    comes within the interval. Pods of a Deployment come 20 a second, and so the deficit of case 2 is 3,160 pod-seconds
    (3,140 with 0.3, 3,360 with 0.7). Where the largest is asked each time it is 5,200: all give a little for the first
    pods, and nothing for the others until the interval is over."""
    tried: int = 8
    """For a gang, so many of the larger jobs are tried as the first to shrink, and the one that wastes least is it:
    the last tasks of one may stand where servers fit well. Case 1, decided by the whole planner, six passes: 91.0 % of
    the CPUs are used in place of 90.4 % (with 4 of them 90.6 %, with all of 20 as much as with 8)."""
    comparisons: int = 60_000
    """Where there are so many pods times nodes, nodes are compared for each pod. With more,
    and with none compared, 87.8 % of the CPUs are used in case 1 in place of 90.7 %."""


@dataclass(frozen=True, slots=True)
class Follower:
    """A role whose number of tasks follows that of its job's elastic one, in proportion: parameter servers."""

    name: str
    """``namespace/name`` of its Job, unlike that of any other."""
    task: Pod
    """What one of its tasks is, wherever it runs."""
    minimum: int
    maximum: int
    tasks: tuple[str, ...] = ()
    """As in :class:`ElasticJob`."""


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """A job with one role of ``minimum..maximum`` tasks, and what it needs beside them."""

    name: str
    """``namespace/name``."""
    task: Pod
    """What one elastic task is, wherever it runs."""
    minimum: int
    maximum: int
    created: datetime
    priority: int = 0
    others: tuple[Pod, ...] = ()
    """Its other pods (parameter servers, a chief): they start with the minimum, as one gang."""
    followers: tuple[Follower, ...] = ()
    """Of these the minimum starts with the gang, too."""
    tasks: tuple[str, ...] = ()
    """Node of each of its tasks, by index; empty while it has not started. A smaller Job ends its highest indexes.

    The name is empty for a task that waits for a place.
    """
    changed: datetime | None = None
    """When its size was changed last."""
    may_grow: bool = True
    """Its minimum and that of its followers run, and no task of theirs waits for a node on its way."""
    stays: bool = False
    """Its size is not changed at all: a task has ended by itself, or it is suspended."""
    restart: timedelta = timedelta()
    """How long the tasks that stay stand still at a change of size: none where workers are independent."""
    warm_up: timedelta = timedelta(seconds=10)
    """How long a new task does nothing of use."""
    usd_per_hour: float = 0.0
    """May be spent on nodes that only tasks above the minimum need, those in ``paid`` among them."""
    paid: Mapping[str, float] = field(default_factory=dict)
    """Node that costs money and on which only such tasks of it are -> its price, in dollars per hour."""

    @property
    def parts(self) -> tuple[ElasticJob | Follower, ...]:
        """Itself, then what follows it."""
        return (self, *self.followers)

    def may_change_at(self, interval: timedelta) -> datetime:
        """When the interval since its last change of size is over, or since its creation: others shrink for it then."""
        return (self.changed or self.created) + interval

    @property
    def started(self) -> bool:
        """Whether its gang has been placed."""
        return bool(self.tasks)


@dataclass(frozen=True, slots=True)
class Claim:
    """Pods of no elastic job that want room: a gang, or one pod; or the gang with which an elastic job starts."""

    name: str
    pods: tuple[Pod, ...]
    created: datetime
    priority: int = 0
    topology: str | None = None
    """Label key of which the nodes of all its pods must have one value."""
    anchor: str | None = None
    """That value, where other pods of the gang have settled it."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the cluster, as far as sizes depend on it and the snapshot does not show it."""

    seen_at: datetime
    jobs: tuple[ElasticJob, ...]
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Sizes:
    """The nodes of every elastic job's tasks, and what goes along with them."""

    tasks: Mapping[str, tuple[str, ...]]
    """Job, or follower of one -> nodes of its tasks by index, of each that runs or is to start."""
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Job that is to start -> nodes of its other pods."""
    because: Mapping[str, str] = field(default_factory=dict)
    """Job, or follower of one, whose size changes -> why."""
    served: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Claim that has room once what ends has ended, with nothing bought -> nodes of its pods."""
    bought: tuple[str, ...] = ()
    """Nodes that are opened for growth: idle ones that cost money, on their way, or to be bought."""
