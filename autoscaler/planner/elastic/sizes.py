"""Sizes of elastic jobs: whole gangs first, then growth into what is free, then as even as it gets.

Everything that wants a place for the first time, be it an elastic job's gang or pods of others, is served by priority
and age. Where there is no room, the largest jobs of no higher priority give up tasks, none below its minimum, and only
if that makes room for the whole of it. Then jobs grow, the smallest first, and the largest give tasks to the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from autoscaler.model.resources import Resources
from autoscaler.planner.elastic.room import Room
from autoscaler.planner.elastic.values import Claim, ElasticJob, ElasticParameters, Look, Sizes


def sizes(look: Look, parameters: ElasticParameters) -> Sizes:
    """The size of each elastic job, and where its tasks go; the same look gives the same sizes."""
    held = frozenset(job.name for job in look.jobs if not _may_change(job, look, parameters))
    while True:
        sizing = _sized(look, parameters, held)
        idle = {job.name for job in look.jobs if job.started and not _is_worth_it(job, sizing, parameters)}
        if not idle:
            return sizing.told()
        held |= idle  # decided anew without them: what they would have grown by goes to others


def jain(numbers: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one has everything; 1 of nothing."""
    squares = sum(number * number for number in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else 1.0


def may_begin(sizes: Sizes, job: ElasticJob, free: Mapping[str, Resources]) -> bool:
    """Whether the pods that the job gets have room on their machines now, after what is ending has ended.

    Until then nothing of it is begun; tasks that are to end, end at once.
    """
    asked = [(node, job.task) for node in sizes.tasks.get(job.name, ())[len(job.tasks) :]]
    asked += zip(sizes.others.get(job.name, ()), job.others, strict=False)
    nodes = {node for node, _ in asked}
    return all(
        node in free and Resources.total(size for at, size in asked if at == node).fits_in(free[node]) for node in nodes
    )


def least_growth(job: ElasticJob, parameters: ElasticParameters) -> int:
    """The fewest more tasks that do more within the horizon than those that stay lose by a restart."""
    useful = (parameters.horizon - job.warm_up).total_seconds()
    if useful <= 0:
        return job.maximum
    return max(1, ceil(len(job.tasks) * job.restart.total_seconds() / useful))


def _may_change(job: ElasticJob, look: Look, parameters: ElasticParameters) -> bool:
    return job.changed is None or look.seen_at - job.changed >= parameters.interval


def _is_worth_it(job: ElasticJob, sizing: _Sizing, parameters: ElasticParameters) -> bool:
    grown = len(sizing.tasks[job.name]) - len(job.tasks)
    return grown <= 0 or grown >= min(least_growth(job, parameters), job.maximum - len(job.tasks))


def _sized(look: Look, parameters: ElasticParameters, held: frozenset[str]) -> _Sizing:
    sizing = _Sizing(look=look, room=Room(look.machines, look.usd_per_hour, _sizes_of(look)), held=held)
    sizing.serve_claims()
    sizing.grow()
    sizing.even_out(parameters)
    return sizing


def _sizes_of(look: Look) -> set[Resources]:
    jobs = {size for job in look.jobs for size in (job.task, *job.others)}
    return jobs | {size for claim in look.claims for size in claim.pods}


@dataclass(slots=True)
class _Sizing:
    """Sizes in the making."""

    look: Look
    room: Room
    held: frozenset[str]
    """Jobs whose size stays."""
    tasks: dict[str, list[str]] = field(default_factory=dict)
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)
    because: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the sizes that jobs have."""
        self.tasks = {job.name: list(job.tasks) for job in self.look.jobs}

    def told(self) -> Sizes:
        """The outcome."""
        before = {job.name: job.tasks for job in self.look.jobs}
        changed = {name for name, tasks in self.tasks.items() if tuple(tasks) != before[name]}
        return Sizes(
            tasks={name: tuple(tasks) for name, tasks in self.tasks.items() if tasks},
            others=self.others,
            because={name: self.because[name] for name in sorted(changed)},
            bought=self.room.bought,
        )

    def serve_claims(self) -> None:
        """All that wants a place for the first time, by priority and age."""
        starts = [_start_of(job) for job in self.look.jobs if not job.started]
        jobs = {job.name: job for job in self.look.jobs if not job.started}
        for claim in sorted((*self.look.claims, *starts), key=lambda one: (-one.priority, one.created, one.name)):
            places = self._serve(claim)
            job = jobs.get(claim.name)
            if job is not None and places is not None:
                self.tasks[job.name] = list(places[: job.minimum])
                self.others[job.name] = places[job.minimum :]
                self.because[job.name] = f"its gang of {len(places)} pods has places"

    def grow(self) -> None:
        """One task after the other, to the smallest job of the highest priority that has room for one."""
        growing = [job for job in self.look.jobs if self._grows(job)]
        while growing:
            job = min(growing, key=lambda one: (-one.priority, len(self.tasks[one.name]), one.created, one.name))
            if not self._grow(job, "there is room") or not self._grows(job):
                growing.remove(job)

    def even_out(self, parameters: ElasticParameters) -> None:
        """Tasks of the largest job end for the smallest one, as long as that makes them more alike."""
        stuck: set[str] = set()
        while True:
            poor = min(
                (job for job in self.look.jobs if self._grows(job) and job.name not in stuck),
                key=lambda one: (-one.priority, len(self.tasks[one.name]), one.created, one.name),
                default=None,
            )
            if poor is None:
                return
            if not self._make_room(
                lambda poor=poor: self._grow(poor, "others had more tasks"),  # type: ignore[misc]
                self._largest(poor.priority, above=len(self.tasks[poor.name]), apart=parameters.imbalance),
                f"{poor.name} has fewer tasks",
            ):
                stuck.add(poor.name)

    def _serve(self, claim: Claim) -> tuple[str, ...] | None:
        """Places for all its pods, of jobs that shrink if need be; or ``None``, and no job shrinks."""
        found: list[tuple[str, ...]] = []

        def placed() -> bool:
            places = self.room.take_all(claim.pods)
            found.extend(() if places is None else (places,))
            return places is not None

        self._make_room(placed, self._largest(claim.priority), f"{claim.name} waits")
        return found[0] if found else None

    def _make_room(
        self,
        placed: Callable[[], bool],
        victims: Callable[[], ElasticJob | None],
        because: str,
    ) -> bool:
        """Whether it is placed once so many tasks of others have ended as are needed; if not, none has."""
        mark, before, why = self.room.mark(), {name: list(one) for name, one in self.tasks.items()}, dict(self.because)
        while not placed():
            job = victims()
            if job is None:
                self.room.restore(mark)
                self.tasks, self.because = before, why
                return False
            self.room.give(self.tasks[job.name].pop(), job.task)
            self.because[job.name] = because
        return True

    def _largest(self, priority: int, *, above: int = 0, apart: float = 0.0) -> Callable[[], ElasticJob | None]:
        """Finds the job that gives up a task next: the lowest priority, then the most tasks, then the youngest.

        It has at least two more than ``above``, and as much more as ``apart``, a part of its own, says.
        """
        may = [job for job in self.look.jobs if job.started and job.name not in self.held and job.priority <= priority]

        def largest() -> ElasticJob | None:
            has = {job.name: len(self.tasks[job.name]) for job in may}
            can = [
                job
                for job in may
                if has[job.name] > job.minimum and (not above or has[job.name] - above >= max(2, apart * has[job.name]))
            ]
            return max(
                can, key=lambda one: (-one.priority, len(self.tasks[one.name]), one.created, one.name), default=None
            )

        return largest

    def _grows(self, job: ElasticJob) -> bool:
        """A job that has given up tasks keeps those that it has: its last index must not be on two machines."""
        size = len(self.tasks[job.name])
        return job.started and job.name not in self.held and len(job.tasks) <= size < job.maximum

    def _grow(self, job: ElasticJob, because: str) -> bool:
        place = self.room.take(job.task)
        if place is not None:
            self.tasks[job.name].append(place)
            self.because[job.name] = because
        return place is not None


def _start_of(job: ElasticJob) -> Claim:
    """What an elastic job needs to start."""
    return Claim(job.name, (job.task,) * job.minimum + job.others, job.created, job.priority)
