"""Which gangs wait instead of having nodes bought for them, and until when.

A gang waits for machines that we own if its patience, or the policy's, reaches to a time at which the forecast has room
for all of it, and if so long a wait costs less than buying. What it waits for is counted as taken for those behind it.
One that is patient for ever is never bought for. A gang of a namespace or an owner whose budget is spent waits for
whatever has room, until the budget's period ends; one for which an elastic job gives up tasks waits until these have
ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import BUSY, PATIENCE, PAUSED
from autoscaler.model.cluster import FOREVER, Cluster
from autoscaler.model.labels import OWNER
from autoscaler.model.needed_changes import TIME_COMES, NeededChange
from autoscaler.model.pauses import Pause, spent_for
from autoscaler.model.resources import CPU, MEMORY, PODS
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import ON_PREM_TIER, Shape
from autoscaler.planner.supply.fleet import Fleet
from autoscaler.planner.supply.release_forecast import (
    Forecast,
    Release,
    Start,
    Task,
    bought_for,
    expected_end,
    worth_waiting,
)

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a gang waits instead of having nodes bought for it."""

    because: str
    changes: tuple[NeededChange, ...] = ()
    cause: str = PATIENCE
    looks: tuple[datetime, ...] = ()
    """When to look at it again, if nothing happens before."""


class Patience:
    """Decides gang by gang, in the order in which they are served. The forecast is made when first asked for."""

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        fleet: Fleet,
        snapshot: Snapshot,
        *,
        unbought: Mapping[str, str] = _NONE,
    ) -> None:
        """``unbought``: name of a gang for which nothing is bought at this look -> why."""
        self._unbought = unbought
        self._cluster = cluster
        self._policy = policy.waiting
        self._fleet = fleet
        self._snapshot = snapshot
        self._places = [place for place in snapshot.places if place.tier == ON_PREM_TIER]
        self._releases: list[Release] | None = None
        self._waiting: list[tuple[list[Task], Start, timedelta | None]] = []
        self._spent = tuple(pause for pause in cluster.pauses if pause.namespace or pause.owner)

    @property
    def now(self) -> datetime:
        """Returns the time of the look that is decided on."""
        return self._cluster.seen_at

    def of(self, gang: Gang) -> timedelta:
        """How long it may wait in all. One that runs and lacks a pod never waits: the others stand still meanwhile."""
        own = [pod.patience for pod in gang.waiting if pod.patience is not None]
        return timedelta(0) if gang.settled else max(own, default=self._policy.patience)

    def ban(self, gang: Gang) -> str:
        """Returns the name by which nothing is bought for it, whatever it lacks; empty where something may be bought.

        Its own, or that of the budget which is spent, of its namespace or of an owner of its pods.
        """
        if gang.name in self._unbought or self.of(gang) >= FOREVER:
            return gang.name
        pause = self._budget_of(gang)
        return pause.scope if pause is not None else ""

    def _budget_of(self, gang: Gang) -> Pause | None:
        if not self._spent:
            return None
        owners = {pod.labels.get(OWNER, "") for pod in gang.waiting}
        return spent_for(self._spent, namespace=gang.namespace, owners=owners)

    def forget(self) -> None:
        """No pod has been asked yet."""
        self._waiting.clear()

    def wait(self, gang: Gang, demand: Demand, *, usd_per_hour: float) -> Wait | None:
        """Whether it waits, given what buying for it would cost. To be asked with nothing of it on the snapshot."""
        banned = self._banned(gang, usd_per_hour)
        if banned is not None:
            return banned
        now, ends = self._cluster.seen_at, gang.oldest + self.of(gang)
        if ends <= now or demand.topology is not None or not self._places:
            return None
        tasks = [self._task(shape) for _, shape in demand.pods]
        start = self._forecast().start(tasks, now=now, until=ends)
        if start is None or start.at <= now:  # what fits now and is not placed now is held by a rule we do not forecast
            return None
        duration = _duration(gang)
        worth = worth_waiting(
            wait=start.at - gang.oldest,
            usd=bought_for(usd_per_hour, duration),
            price=self._policy.usd_per_hour,
            least=self._policy.least_usd,
        )
        if not worth:
            return None
        self._waiting.append((tasks, start, duration))
        return Wait(
            f"waits for machines that we own: room for all of it is expected at {start.at:%Y-%m-%d %H:%M:%S} UTC "
            f"(its patience ends at {ends:%Y-%m-%d %H:%M:%S} UTC); "
            f"buying for it would cost {usd_per_hour:.2f} $/h",
            looks=(start.at, ends),
        )

    def _banned(self, gang: Gang, usd_per_hour: float) -> Wait | None:
        """Where nothing is bought for it, whatever is expected."""
        if gang.name in self._unbought:
            return Wait(self._unbought[gang.name], cause=BUSY)
        if (pause := self._budget_of(gang)) is not None:
            because = f"buying for it would cost {usd_per_hour:.2f} $/h, but {pause}"
            change = NeededChange("other", other=TIME_COMES, note=pause.ends_if)
            return Wait(because, (change,), PAUSED)
        if self.of(gang) >= FOREVER:
            return Wait("waits until there is room for all of it, for as long as that takes: nothing is bought for it")
        return None

    def _forecast(self) -> Forecast:
        """Made anew for each gang: those before it may have taken room since."""
        if self._releases is None:
            self._releases = self._expected()
        names = sorted({name for place in self._places for name in place.free}, key=_rank)
        forecast = Forecast([place.free for place in self._places], self._releases, resources=names)
        for tasks, start, duration in self._waiting:
            forecast.reserve(tasks, start, duration=duration)
        return forecast

    def _expected(self) -> list[Release]:
        """Pods that say how long they run."""
        numbers = {place.name: number for number, place in enumerate(self._places)}
        found = []
        for name, number in numbers.items():
            for pod in self._fleet.residents.get(name, ()):
                if pod.duration is not None:
                    ends = expected_end(pod.started or self.now, pod.duration, now=self.now)
                    found.append(Release(ends, number, dict(pod.requests)))
        return found

    def _task(self, shape: Shape) -> Task:
        takers = {id(place) for place in self._snapshot.takers(shape)}
        suits = frozenset(number for number, place in enumerate(self._places) if id(place) in takers)
        return Task(dict(shape.amounts), suits)


def _duration(gang: Gang) -> timedelta | None:
    known = [pod.duration for pod in gang.waiting if pod.duration is not None]
    return max(known) if known and len(known) == len(gang.waiting) else None


def _rank(name: str) -> tuple[bool, str]:
    """Devices first: they are what is scarce."""
    return (name in (CPU, MEMORY, PODS) or "/" not in name, name)
