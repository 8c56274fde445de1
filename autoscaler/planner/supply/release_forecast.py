"""What machines that we own are expected to free, and when: whether it is cheaper to wait for them than to buy.

A job may say how long it will run and how long it is willing to wait. For each job that may wait, the forecast finds
the earliest time at which all of its tasks fit on what is free by then, behind the jobs before it. Tasks fit by what
they ask for and by the machines that let them in; rules between pods are left to the planner, which places nothing by
a forecast: it only holds back a purchase.

That waiting can be cheaper than bursting, and by how much, is the finding of Starburst (Luo et al., USENIX ATC 2024);
there the wait is a fixed budget for each job. Here no pod waits for what is not expected to come.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Rooms = NDArray[np.int64]
"""(place, resource)"""


@dataclass(frozen=True, slots=True)
class Task:
    """What one pod asks for, and the places (by number) that let it in; ``None``: all."""

    amounts: Mapping[str, int]
    suits: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """What a running pod gives back when it ends."""

    at: datetime
    place: int
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Start:
    """When all tasks of a job fit, and where: the place of each, in the order in which they were given."""

    at: datetime
    places: tuple[int, ...]


class Forecast:
    """Free room by place, now and later."""

    def __init__(
        self, free: Sequence[Mapping[str, int]], releases: Iterable[Release], *, resources: Sequence[str]
    ) -> None:
        self._names = tuple(resources)
        self._rooms: Rooms = np.array([self._row(room) for room in free], dtype=np.int64).reshape(-1, len(self._names))
        self._releases = sorted(releases, key=lambda one: (one.at, one.place))

    def start(self, tasks: Sequence[Task], *, now: datetime, until: datetime) -> Start | None:
        """The earliest time in ``now`` to ``until``, both included, at which all tasks fit; ``None`` for none."""
        rooms = self._rooms.copy()
        rows = [self._row(task.amounts) for task in tasks]
        suits = [self._mask(task.suits) for task in tasks]
        for when, released in self._moments(now):
            if when > until:
                return None
            for release in released:
                rooms[release.place] += self._row(release.amounts)
            places = _place(rooms, rows, suits)
            if places is not None:
                return Start(when, places)
        return None

    def reserve(self, tasks: Sequence[Task], start: Start, *, duration: timedelta | None = None) -> None:
        """Count the places as taken by a job that waits for them: to its end, or for ever where that is not known."""
        for task, place in zip(tasks, start.places, strict=True):
            self.take(place, task.amounts)
            if duration is not None:
                self.expect(Release(start.at + duration, place, task.amounts))

    def take(self, place: int, amounts: Mapping[str, int]) -> None:
        """Less room there from now on; negative amounts give it back."""
        self._rooms[place] -= self._row(amounts)

    def expect(self, release: Release) -> None:
        """One more pod that ends."""
        insort(self._releases, release, key=lambda one: (one.at, one.place))

    def _moments(self, now: datetime) -> Iterator[tuple[datetime, list[Release]]]:
        """Yields now, with what is overdue, then each time at which something ends: pods of a job end together."""
        overdue = [release for release in self._releases if release.at <= now]
        yield now, overdue
        for when, released in groupby(self._releases[len(overdue) :], key=lambda one: one.at):
            yield when, list(released)

    def _row(self, amounts: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(amounts.get(name, 0) for name in self._names)

    def _mask(self, suits: frozenset[int] | None) -> NDArray[np.bool_]:
        mask = np.ones(len(self._rooms), dtype=np.bool_)
        if suits is not None:
            mask[:] = False
            mask[sorted(suits)] = True
        return mask


def expected_end(started: datetime, duration: timedelta, *, now: datetime) -> datetime:
    """When something ends that was to run so long.

    What is overdue is taken to need half as long again as it has had: run times have long tails, and the longer one
    has run, the longer it still will.
    """
    ends = started + duration
    return ends if ends > now else now + (now - started) / 2


def bought_for(usd_per_hour: float, duration: timedelta | None) -> float:
    """Dollars for the nodes that are bought for a job, as long as it runs; for one hour where that is not said."""
    return usd_per_hour * ((duration or timedelta(hours=1)) / timedelta(hours=1))


def worth_waiting(*, wait: timedelta, usd: float, price: float | None, least: float = 0.0) -> bool:
    """Whether so long a wait costs less than buying for ``usd``, and ``usd`` is at least ``least``.

    ``price``: dollars that an hour of waiting is worth (none: 0).
    """
    return usd >= least and (price is None or wait / timedelta(hours=1) * price < usd)


def _place(rooms: Rooms, rows: Sequence[tuple[int, ...]], suits: Sequence[NDArray[np.bool_]]) -> tuple[int, ...] | None:
    """Each task, the largest first, where it leaves the least; ``None`` unless all have a place."""
    left = rooms.copy() if len(rows) > 1 else rooms
    homes = [0] * len(rows)
    for number in sorted(range(len(rows)), key=lambda number: rows[number], reverse=True):
        row = np.array(rows[number], dtype=np.int64)
        asked = row > 0
        fits = suits[number] & (left[:, asked] >= row[asked]).all(axis=1)
        candidates = np.flatnonzero(fits)
        if not len(candidates):
            return None
        rest = left[candidates] - row
        home = int(candidates[np.lexsort(rest.T[::-1])[0]])
        homes[number] = home
        if len(rows) > 1:
            left[home] -= row
    return tuple(homes)
