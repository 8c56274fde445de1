"""Jobs of the API server that a decision is about: steps of a workflow, elastic roles, those that outlive their end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class LingeringJob:
    """A batch/v1 Job that still runs though the Job it ends with (its ``spillway.dev/ends-with``) has ended."""

    namespace: str
    name: str
    ended_with: str


@dataclass(frozen=True, slots=True)
class WaitingStep:
    """A suspended batch/v1 Job, the step of a workflow, that waits for others (its ``spillway.dev/depends-on``)."""

    namespace: str
    name: str
    of: str
    """The training job that it is a step of."""
    after: tuple[str, ...]
    """Jobs that must have succeeded."""
    left: tuple[str, ...] = ()
    """Those of them that have not yet."""
    failed: str = ""
    """The first of them that has failed."""


@dataclass(frozen=True, slots=True)
class EarlyStep:
    """A step that was begun when the programs before it had ended, while their pods still hold their room."""

    namespace: str
    name: str
    """Of its batch/v1 Job."""
    after: tuple[str, ...]
    """Jobs whose success the API server does not have yet."""
    until: datetime
    """By then their room is free, or is not to be waited for."""


def succeeded(names: tuple[str, ...]) -> str:
    """That they have, in words."""
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} succeeded"


@dataclass(frozen=True, slots=True)
class ElasticRole:
    """An Indexed batch/v1 Job, the tasks of one role, whose size may be changed while it runs."""

    namespace: str
    name: str
    size: int
    """How many tasks it has now, those that are being made or deleted aside (``spec.parallelism``)."""
    minimum: int
    maximum: int
    created: datetime
    changed: datetime | None = None
    """When Spillway changed its size last."""
    follows: str = ""
    """Name of the Job in its namespace whose size it follows."""
    stays: bool = False
    """Its size is left alone: a task has ended well, or it is suspended."""
    restart: timedelta | None = None
    """How long its tasks stand still at a change of size; ``None``: not said."""
    warm_up: timedelta | None = None
    """How long a new task does nothing of use; ``None``: not said."""
    usd_per_hour: float | None = None
    """What nodes for tasks above the minimum may cost; ``None``: as the policy says."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def owner(self) -> str:
        """Returns the owner as the job's pods name it."""
        return f"Job/{self.name}"
