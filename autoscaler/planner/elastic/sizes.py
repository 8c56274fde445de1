"""Sizes of elastic jobs: whole gangs first, then growth into what is free, then as even as it gets.

Everything that wants a place for the first time, be it an elastic job's gang or pods of others, is served by priority
and age. Where there is no room, the largest jobs of no higher priority give up tasks, none below its minimum, and only
if that makes room for the whole of it. Then jobs grow, the smallest first, and the largest give tasks to the smallest.
Parameter servers and the like follow the number of workers: a worker more comes with what it needs of them, or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil

from autoscaler.model.cluster import Pod
from autoscaler.planner.elastic.placing import Placing
from autoscaler.planner.elastic.values import Claim, ElasticJob, ElasticParameters, Follower, Look, Sizes
from autoscaler.planner.placement.offerings import CENT, Market


def sizes(look: Look, market: Market, parameters: ElasticParameters) -> Sizes:
    """The size of each elastic job, and where its tasks go; the same look gives the same sizes.

    ``market``: its snapshot shows what runs, and not what is ending; it is left as it was.
    """
    start, pods = market.snapshot.mark(), list(_pods(look))
    thorough = len(pods) * len(market.snapshot.places) <= parameters.comparisons
    placing = Placing(market, {pod.requests for pod in pods}, thorough=thorough)
    held = frozenset(job.name for job in look.jobs if not _may_change(job, look, parameters))
    while True:
        sizing = _Sizing(look=look, placing=placing, held=held, parameters=parameters)
        sizing.decide()
        market.snapshot.undo(start)
        idle = {job.name for job in look.jobs if job.started and not _is_worth_it(job, sizing, parameters)}
        if not idle:
            return sizing.told()
        held |= idle  # decided anew without them: what they would have grown by goes to others


def _pods(look: Look) -> Iterator[Pod]:
    """One of each kind that may come."""
    for job in look.jobs:
        yield from (job.task, *job.others, *(one.task for one in job.followers))
    for claim in look.claims:
        yield from claim.pods


def least_growth(job: ElasticJob, parameters: ElasticParameters) -> int:
    """The fewest more tasks that do more within the horizon than those that stay lose by a restart."""
    useful = (parameters.horizon - job.warm_up).total_seconds()
    if useful <= 0:
        return job.maximum
    return max(1, ceil(len(job.tasks) * job.restart.total_seconds() / useful))


def followed(follower: Follower, job: ElasticJob, size: int) -> int:
    """How many tasks the follower has where the job has so many: in proportion, rounded up."""
    if job.maximum == job.minimum:
        return follower.minimum
    steps = (min(max(size, job.minimum), job.maximum) - job.minimum) * (follower.maximum - follower.minimum)
    return follower.minimum - (-steps // (job.maximum - job.minimum))


def _may_change(job: ElasticJob, look: Look, parameters: ElasticParameters) -> bool:
    return not job.stays and (job.changed is None or job.may_change_at(parameters.interval) <= look.seen_at)


def _is_worth_it(job: ElasticJob, sizing: _Sizing, parameters: ElasticParameters) -> bool:
    grown = len(sizing.tasks[job.name]) - len(job.tasks)
    return grown <= 0 or grown >= least_growth(job, parameters)


_Saved = tuple[int, dict[str, list[str]], dict[str, str]]
"""Mark of the snapshot, tasks, reasons."""


@dataclass(slots=True)
class _Sizing:
    """The search for the sizes of all elastic jobs, step by step."""

    look: Look
    placing: Placing
    held: frozenset[str]
    """Jobs whose size stays."""
    parameters: ElasticParameters
    tasks: dict[str, list[str]] = field(default_factory=dict)
    """Of jobs and of their followers."""
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)
    because: dict[str, str] = field(default_factory=dict)
    served: dict[str, tuple[str, ...]] = field(default_factory=dict)
    usd: dict[str, float] = field(default_factory=dict)
    """What is left to a job to spend."""
    opened: list[str] = field(default_factory=list)
    hopeless: set[object] = field(default_factory=set)
    """Pods for which no job could make room: their like finds none either, for what has room only becomes less."""

    def __post_init__(self) -> None:
        """Begin with the sizes that jobs have."""
        for job in self.look.jobs:
            for one in job.parts:
                self.tasks[one.name] = list(one.tasks)
            self.usd[job.name] = job.usd_per_hour - sum(job.paid.values())

    def decide(self) -> None:
        """All of it, in order."""
        for job in self._by_turn():
            self._catch_up(job)
            self._save(job)
        self._serve_claims()
        for job in self._by_turn():
            self._place_what_waits(job)
        self._grow_all()
        self._even_out()

    def told(self) -> Sizes:
        """Returns the sizes that were found."""
        changed = {
            one.name: job for job in self.look.jobs for one in job.parts if len(self.tasks[one.name]) != len(one.tasks)
        }
        return Sizes(
            tasks={name: tuple(tasks) for name, tasks in self.tasks.items() if tasks},
            others=self.others,
            because={
                name: self.because[job.name] if job.name in changed else f"{job.name} has {len(job.tasks)} tasks"
                for name, job in sorted(changed.items())
            },
            served=self.served,
            bought=tuple(sorted(set(self.opened))),
        )

    # --- Order in which jobs are asked --------------------------------------------------------------------------------

    def _by_turn(self) -> list[ElasticJob]:
        return sorted(self.look.jobs, key=lambda one: (-one.priority, one.created, one.name))

    def _smallest(self, jobs: Sequence[ElasticJob]) -> ElasticJob | None:
        return min(
            jobs, key=lambda one: (-one.priority, len(self.tasks[one.name]), one.created, one.name), default=None
        )

    def _may_shrink(self, priority: int) -> list[ElasticJob]:
        return [job for job in self.look.jobs if job.started and job.name not in self.held and job.priority <= priority]

    def _largest(
        self, priority: int, *, above: int = 0, apart: float = 0.0, first: str = ""
    ) -> Callable[[], ElasticJob | None]:
        """Finds the job that gives up a task next: the lowest priority, then the most tasks, then the youngest.

        It has at least two more than ``above``, and as much more as ``apart``, a part of its own, says. Where nothing
        is evened out, a job that has begun to shrink, or the one that is to be the ``first``, goes on before another is
        asked (``ElasticParameters.kept``).
        """
        may = self._may_shrink(priority)

        def largest() -> ElasticJob | None:
            has = {job.name: len(self.tasks[job.name]) for job in may}
            can = [
                job
                for job in may
                if has[job.name] > job.minimum and (not above or has[job.name] - above >= max(2, apart * has[job.name]))
            ]
            best = max(can, key=lambda one: (-one.priority, has[one.name], one.created, one.name), default=None)
            if best is None or above:
                return best
            alike = [job for job in can if job.priority == best.priority]
            left = {job.name: has[job.name] / len(job.tasks) for job in alike}
            goes_on = [job for job in alike if left[job.name] > self.parameters.kept]
            shrinking = (job for job in goes_on if left[job.name] < 1)
            return next((job for job in goes_on if job.name == first), None) or next(shrinking, best)

        return largest

    # --- What is done, in order ---------------------------------------------------------------------------------------

    def _catch_up(self, job: ElasticJob) -> None:
        """Followers come to the number that the job's size asks for: of a change of both, one may have failed.

        What lacks is added at once, where there is room; what is too much ends when the size may change again.
        """
        for one in job.followers if job.started and not job.stays else ():
            tasks, wanted = self.tasks[one.name], followed(one, job, len(job.tasks))
            while job.may_grow and "" not in tasks and len(tasks) < wanted:
                node = self._home(one.task, job)
                if node is None:
                    break
                tasks.append(node)
            while len(tasks) > wanted and job.name not in self.held:
                self._give(one.name, one.task)

    def _save(self, job: ElasticJob) -> None:
        """Tasks end that keep nodes for which the job may not pay any longer."""
        while self.usd[job.name] < -CENT and job.name not in self.held and len(self.tasks[job.name]) > job.minimum:
            self._shrink(job, "nodes that only it needs cost more than it may spend")
            kept = {node for one in job.parts for node in self.tasks[one.name]}
            spent = sum(price for node, price in job.paid.items() if node in kept)
            self.usd[job.name] = job.usd_per_hour - spent

    def _serve_claims(self) -> None:
        """All that wants a place for the first time, by priority and age."""
        starts = [_start_of(job) for job in self.look.jobs if not job.started]
        jobs = {job.name: job for job in self.look.jobs if not job.started}
        for claim in sorted((*self.look.claims, *starts), key=lambda one: (-one.priority, one.created, one.name)):
            places = self._serve(claim)
            if places is None:
                continue
            job = jobs.get(claim.name)
            if job is None:
                self.served[claim.name] = places
            else:
                self._start(job, list(places))

    def _start(self, job: ElasticJob, places: list[str]) -> None:
        for one in job.parts:
            self.tasks[one.name], places = places[: one.minimum], places[one.minimum :]
        self.others[job.name] = tuple(places)
        self.because[job.name] = "its gang has places"

    def _place_what_waits(self, job: ElasticJob) -> None:
        """Tasks that were decided on before and wait: those that have no room any longer are given up."""
        pending = [one for one in job.parts if "" in self.tasks[one.name]]
        stuck = False
        for one in pending:
            tasks = self.tasks[one.name]
            for index in [index for index, node in enumerate(tasks) if not node]:
                node = self._home(one.task, job)
                tasks[index] = node or ""
                stuck |= node is None
        while stuck and job.name not in self.held and len(self.tasks[job.name]) > job.minimum:
            self._shrink(job, "there is no room for all of it any more")
            stuck = any("" in self.tasks[one.name] for one in pending)

    def _grow_all(self) -> None:
        """One task after the other, to the smallest job of the highest priority that has room for one."""
        growing = [job for job in self.look.jobs if self._grows(job)]
        while (job := self._smallest(growing)) is not None:
            if not self._grow(job, "there is room") or not self._grows(job):
                growing.remove(job)

    def _even_out(self) -> None:
        """Tasks of the largest job end for the smallest one, as long as that makes them more alike.

        Not for one that has only just come: for each alone others would change their size, and then could not shrink
        where servers of the next gang fit well.
        """
        stuck = {job.name for job in self.look.jobs if job.may_change_at(self.parameters.interval) > self.look.seen_at}
        while True:
            poor = self._smallest([job for job in self.look.jobs if self._grows(job) and job.name not in stuck])
            if poor is None:
                return
            grown = partial(self._grow, poor, "others had more tasks")
            if not grown() and not self._make_room(
                grown,
                self._largest(poor.priority, above=len(self.tasks[poor.name]), apart=self.parameters.imbalance),
                f"{poor.name} has fewer tasks",
            ):
                stuck.add(poor.name)

    # --- How ----------------------------------------------------------------------------------------------------------

    def _serve(self, claim: Claim) -> tuple[str, ...] | None:
        """Places for all its pods, of jobs that shrink if need be; or ``None``, and no job shrinks."""
        alike = frozenset(Counter(map(self.placing.number, claim.pods)).items()), claim.topology, claim.anchor
        found: list[tuple[str, ...]] = []

        def placed() -> bool:
            places = self.placing.take_all(claim.pods, topology=claim.topology, anchor=claim.anchor)
            found.extend(() if places is None else (places,))
            return places is not None

        def room_made(first: str) -> bool:
            return self._make_room(placed, self._largest(claim.priority, first=first), f"{claim.name} waits")

        if alike not in self.hopeless and not placed():
            first = self._least_wasting(claim, room_made)
            if first is not None:
                room_made(first)
        if not found:
            self.hopeless.add(alike)
        return found[-1] if found else None

    def _least_wasting(self, claim: Claim, room_made: Callable[[str], bool]) -> str | None:
        """The job that is to shrink first for a gang, so that least is wasted then; empty: the largest.

        ``None``: all of them together make no room, whichever is first.
        """
        if len(claim.pods) == 1 or not self.placing.thorough:
            return ""
        has = {job.name: len(self.tasks[job.name]) for job in self._may_shrink(claim.priority)}
        large = [name for name, size in has.items() if size >= self.parameters.kept * max(has.values())]
        found = []
        for name in ("", *sorted(large, key=lambda name: (-has[name], name))[: self.parameters.tried]):
            start = self._saved()
            if room_made(name):
                found.append((self.placing.wasted, name))
            self._restore(start)
            if not found:
                return None
        return min(found)[1]

    def _saved(self) -> _Saved:
        return self.placing.mark(), {name: list(one) for name, one in self.tasks.items()}, {**self.because}

    def _restore(self, saved: _Saved) -> None:
        mark, self.tasks, self.because = saved
        self.placing.undo(mark)

    def _make_room(
        self,
        placed: Callable[[], bool],
        victims: Callable[[], ElasticJob | None],
        because: str,
    ) -> bool:
        """Whether what has no place has one once so many tasks of others have ended as are needed; if not, none has."""
        before = self._saved()
        while True:
            job = victims()
            if job is None:
                self._restore(before)
                return False
            self._shrink(job, because)
            if placed():
                return True

    def _shrink(self, job: ElasticJob, because: str) -> None:
        """One task less, and as many of its followers as that leaves too many."""
        self._give(job.name, job.task)
        size = len(self.tasks[job.name])
        for one in job.followers:
            while len(self.tasks[one.name]) > followed(one, job, size):
                self._give(one.name, one.task)
        self.because[job.name] = because

    def _give(self, name: str, task: Pod) -> None:
        self.placing.give(self.tasks[name].pop(), task)

    def _grows(self, job: ElasticJob) -> bool:
        """A job that has given up tasks keeps those that it has: its last index must not be on two machines."""
        size = len(self.tasks[job.name])
        waits = any("" in self.tasks[one.name] for one in job.parts)
        free = job.started and job.may_grow and not waits and job.name not in self.held
        return free and len(job.tasks) <= size < job.maximum

    def _grow(self, job: ElasticJob, because: str) -> bool:
        """One task more, with as many of its followers as that needs; or nothing."""
        mark, usd, opened = self.placing.mark(), self.usd[job.name], len(self.opened)
        wanted = [(job.name, job.task)]
        for one in job.followers:
            lacks = followed(one, job, len(self.tasks[job.name]) + 1) - len(self.tasks[one.name])
            wanted += [(one.name, one.task)] * lacks
        places = []
        for _, task in wanted:
            node = self._home(task, job)
            if node is None:
                self.placing.undo(mark)
                self.usd[job.name] = usd
                del self.opened[opened:]
                return False
            places.append(node)
        for (name, _), node in zip(wanted, places, strict=True):
            self.tasks[name].append(node)
        self.because[job.name] = because
        return True

    def _home(self, task: Pod, job: ElasticJob) -> str | None:
        """Where it is placed: on what is there, else on a node that the job's money opens."""
        place = self.placing.take(task)
        if place is not None:
            return place.name
        place = self.placing.open(task, self.usd[job.name]) if self.usd[job.name] > CENT else None
        if place is None or place.group is None:
            return None
        self.usd[job.name] -= place.group.usd_per_hour
        self.opened.append(place.name)
        return place.name


def _start_of(job: ElasticJob) -> Claim:
    """What an elastic job needs to start."""
    followers = tuple(one.task for one in job.followers for _ in range(one.minimum))
    return Claim(job.name, (job.task,) * job.minimum + followers + job.others, job.created, job.priority)
