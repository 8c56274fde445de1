"""Where experiments run: what a place has to do, and processes of this machine (``cluster`` has the other one)."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autoscaler.model.errors import BadInput
from images.backends import kept, local
from images.backends.devices import devices
from images.backends.states import Outcome
from images.jobs import Job


class Place(Protocol):
    """What runs jobs. Each raises ``BadInput`` for mistakes, ``Unavailable`` where nothing answers."""

    @property
    def root(self) -> Path:
        """Where experiments keep their folders."""

    @property
    def is_seen(self) -> bool:
        """Whether tasks see that directory at the same path."""

    @property
    def path(self) -> list[str]:
        """Where tasks look for the prompt's own modules."""

    @property
    def every(self) -> float:
        """Returns the seconds between two looks."""

    @property
    def patience(self) -> float:
        """Seconds until a file that was written in a task is to be seen here."""

    def python(self, job_python: str | None) -> str:
        """The program that runs a call."""

    def check(self, job: Job) -> None:
        """Refuse what could never start."""

    def start(self, job: Job) -> None:
        """Begin it: as a whole or not at all."""

    def outcome(self, job: Job) -> Outcome:
        """Says how the job stands."""

    def collect(self, job: Job, folder: Path) -> None:
        """Fetch into the folder what its tasks have said, where they do not write there themselves."""

    def stop(self, job: Job) -> None:
        """Begins to end the job."""

    def remove(self, job: Job) -> None:
        """Clear away what is left of one that has ended."""

    def room(self, job: Job) -> int | None:
        """How many more like it there is room for now; ``None``: what places them decides."""

    def lines(self, job: Job, folder: Path, role: str, index: int) -> list[str]:
        """What a task has printed."""


@dataclass(frozen=True)
class Local:
    """Processes of this machine, which hold its GPUs (``CUDA_VISIBLE_DEVICES``) while they run."""

    is_seen: bool = True
    every: float = 0.1
    patience: float = 0.0

    @property
    def root(self) -> Path:
        """Beside the jobs of this user."""
        return local.home().parent / "experiments"

    @property
    def path(self) -> list[str]:
        """Where the prompt finds them."""
        return [str(Path.cwd()), *filter(None, sys.path)]

    def python(self, job_python: str | None) -> str:
        """The prompt's own, unless the job names an environment."""
        return "python3" if job_python else sys.executable

    def check(self, job: Job) -> None:
        """Refuse more GPUs than the machine has."""
        asked, there = sum(role.most * role.gpus for role in job.roles.values()), len(devices())
        if there and asked > there:
            raise BadInput(f"job {job.name!r} asks for {asked} GPUs, and this machine has {there}: ask for fewer")

    def start(self, job: Job) -> None:
        """Starts the job on this machine."""
        local.submit(job)

    def outcome(self, job: Job) -> Outcome:
        """Says how the job stands."""
        return local.outcome(name=job.name)

    def collect(self, job: Job, folder: Path) -> None:
        """Do nothing: tasks write there."""

    def stop(self, job: Job) -> None:
        """Tells the job's supervisor to end it."""
        with contextlib.suppress(BadInput):  # it is gone
            local.ask_to_stop(name=job.name)

    def remove(self, job: Job) -> None:
        """Its folder of state; its lines lie with the experiment."""
        with contextlib.suppress(BadInput):
            local.delete(name=job.name)

    def room(self, job: Job) -> int | None:
        """Returns how many such jobs have room, by GPUs: nothing else of the machine is counted."""
        asked = sum(role.most * role.gpus for role in job.roles.values())
        return len(local.free_gpus()) // asked if asked and devices() else None

    def lines(self, job: Job, folder: Path, role: str, index: int) -> list[str]:
        """Returns the lines from the files of its launcher."""
        return kept_lines(job, folder, role, index)


def kept_lines(job: Job, folder: Path, role: str, index: int) -> list[str]:
    """What the launcher of a task has kept in the folder; nothing where it has not started."""
    try:
        return list(kept.lines(place=str(folder), job=job.name, role=role, index=index))
    except BadInput:
        return []
