"""Limits over all groups, budgets, and times of the week in which other limits hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from autoscaler.config.document_keys import live
from autoscaler.config.documents import Document, Span
from autoscaler.config.labels_and_taints import Name

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: Final[tuple[Day, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK: Final = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d|24:00")
_ONE_DAY: Final = timedelta(days=1)


def _clock(text: object) -> str:
    written = f"0{text}" if isinstance(text, str) and text[1:2] == ":" else str(text)
    if not _CLOCK.fullmatch(written):
        message = "must be a time of day such as 07:00 or 20:30"
        raise ValueError(message)
    return written


Clock = Annotated[str, BeforeValidator(_clock), WithJsonSchema({"type": "string", "pattern": f"^({_CLOCK.pattern})$"})]
"""A field that a person writes as ``20:30``; as text such times are in order."""


class Limits(Document):
    """Ceilings over all groups together. Absent: none."""

    usd_per_hour: Annotated[float | None, live("$/h")] = Field(
        default=None, gt=0, allow_inf_nan=False, description="dollars per hour of all running EC2 nodes at most"
    )
    nodes: Annotated[int | None, live("nodes")] = Field(default=None, ge=0, description="EC2 nodes at most")
    gpus: Annotated[int | None, live("GPUs")] = Field(default=None, ge=0, description="EC2 GPUs at most")


class Budget(Document):
    """Dollars after which nothing more is bought; what runs goes on. Absent: none."""

    usd_per_day: Annotated[float | None, live("$")] = Field(
        default=None, gt=0, allow_inf_nan=False, description="dollars a day (UTC) after which nothing more is bought"
    )
    usd_per_month: Annotated[float | None, live("$")] = Field(
        default=None, gt=0, allow_inf_nan=False, description="dollars a month (UTC) after which nothing more is bought"
    )


class ClusterBudget(Budget):
    """The budget of all groups together, and of namespaces and owners. Absent: none."""

    namespaces: Annotated[dict[str, Budget], live()] = Field(
        default_factory=dict,
        description="of single namespaces, by name: what their pods hold of a node counts, by GPUs, else by CPUs",
    )
    owners: Annotated[dict[str, Budget], live()] = Field(
        default_factory=dict,
        description="of single owners, by the value of the pods' label spillway.dev/owner, in whatever namespace; "
        "counted likewise",
    )


class ScheduledGroup(Document):
    """What holds for one group meanwhile. Absent: what its entry says."""

    max: Annotated[int | None, live("nodes")] = Field(
        default=None, ge=0, description="nodes at most meanwhile, over all zones"
    )
    headroom: Annotated[int | None, live("nodes")] = Field(
        default=None, ge=0, description="nodes kept free meanwhile, beyond what pods need"
    )
    idle_after: Annotated[Span | None, live("time")] = Field(
        default=None, description="how long a node of it stands idle meanwhile before it goes"
    )


class Schedule(Document):
    """A time of the week, and what holds in it in place of what the rest of the policy says."""

    name: Annotated[Name, live()] = Field(description="a short name for this time, e.g. nights")
    days: Annotated[tuple[Day, ...], live()] = Field(
        default=DAYS, min_length=1, description="days on which it begins, e.g. [sat, sun]"
    )
    begin: Annotated[Clock, live("time of day")] = Field(
        default="00:00", alias="from", description="when it begins by the clocks of time_zone, e.g. 20:00"
    )
    end: Annotated[Clock, live("time of day")] = Field(
        default="24:00", alias="to", description="when it ends; not after `from`: on the next day, e.g. 07:00"
    )
    time_zone: Annotated[str, live()] = Field(description="whose clocks, e.g. Europe/Berlin or America/New_York")
    limits: Limits = Limits()
    groups: dict[str, ScheduledGroup] = Field(default_factory=dict, description="what holds for single groups, by name")

    @model_validator(mode="after")
    def _time_zone_is_known(self) -> Schedule:
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            message = f"time_zone {self.time_zone!r} is not known: write one such as Europe/Berlin, or UTC"
            raise ValueError(message) from None
        return self

    def holds_at(self, now: datetime) -> bool:
        """Whether it is in force at an aware ``now``."""
        return any(begin <= now < end for begin, end in self._times(now))

    def turns_after(self, now: datetime) -> Iterator[datetime]:
        """When it begins or ends, of the next days."""
        return (turn for times in self._times(now) for turn in times if turn > now)

    def _times(self, now: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yields from when to when it is in force, in UTC, on the days around ``now``."""
        zone = ZoneInfo(self.time_zone)
        today = now.astimezone(zone).date()
        for day in (today + number * _ONE_DAY for number in range(-1, 9)):
            if DAYS[day.weekday()] in self.days:
                last = day if self.begin < self.end else day + _ONE_DAY
                yield _instant(day, self.begin, zone), _instant(last, self.end, zone)

    def changed(self, limits: Limits) -> Limits:
        """The limits while it is in force."""
        return limits.model_copy(update=said(self.limits))

    def changed_group(self, name: str) -> dict[str, Any]:
        """What it says of a group."""
        return said(self.groups[name]) if name in self.groups else {}


def said(part: Document) -> dict[str, Any]:
    """The keys that have a value."""
    return {name: value for name, value in part if value is not None}


def _instant(day: date, clock: str, zone: ZoneInfo) -> datetime:
    """When clocks there show it: the first time where they do so twice, after the gap where they never do."""
    hours, minutes = map(int, clock.split(":"))
    midnight = datetime.combine(day, time())
    return (midnight + timedelta(hours=hours, minutes=minutes)).replace(tzinfo=zone).astimezone(UTC)
