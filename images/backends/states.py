"""What a backend tells of the jobs that it has, the same for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Word = Literal["queued", "bought", "booting", "starting", "running", "ended"]
State = Literal["waiting", "running", "done", "failed", "stopped"]
Outcome = Literal["running", "done", "failed", "gone"]
"""Of a job: it has not ended; its essential tasks ended well; they did not, or were stopped; it is not there."""


@dataclass(frozen=True, slots=True)
class RoleState:
    """The tasks of one role of a job, counted."""

    job: str
    namespace: str
    role: str
    waiting: int
    running: int
    """Those that have a machine."""
    succeeded: int
    failed: int
    gpus: int
    """Held by those that run."""
    state: State
    """Of the role: it waits as long as any of its tasks does."""
    since: datetime


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task of a job."""

    role: str
    index: int
    state: State
    since: datetime | None
    """``None`` where it has not been created."""
    where: str = ""
    """Its node, or its process of this machine."""
    starts: int = 0
    """How often its program was started."""
    gpus: int = 0
    devices: tuple[str, ...] = ()
    """Which GPUs these are, where that is known."""
    why: str = ""
    """What keeps it, or how it has ended."""


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a job as a whole has come."""

    word: Word
    detail: str
    status: int | None = None
    """Exit status of the job; ``None``: it has not ended."""


def tasks_in_words(tasks: Iterable[tuple[str, int]]) -> str:
    """Role and index of each, as in ``ps 0, worker 0 to 3``."""
    found: dict[str, list[int]] = {}
    for role, index in tasks:
        found.setdefault(role, []).append(index)
    ranges = {role: sorted({min(several), max(several)}) for role, several in sorted(found.items())}
    return ", ".join(f"{role} {' to '.join(map(str, ends))}" for role, ends in ranges.items())
