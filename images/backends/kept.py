"""What a job's launchers kept, whatever ran it and though all of it is gone: in a directory, or in a bucket."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from autoscaler.model.errors import BadInput, Unavailable
from images.backends.states import RoleState
from images.job_values import BUCKET

_LINES, _UP, _EXITS = "logs", "up", "exits"
"""What a launcher leaves in a run: lines of attempts, that a task came (in a directory), how it ended."""
_STOPPED: Final = 128 + signal.SIGTERM
"""Exit status of what was ended from outside, as a server is with its workers."""
_STARTED: Final = "%Y%m%dT%H%M%S.%f"
"""Of an attempt in a bucket, as the launcher writes it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The files of all runs of a job: ``RUN/logs/ROLE-INDEX.ATTEMPT``, in a bucket with a part behind; its exits."""

    runs: tuple[str, ...]
    names: Callable[[str], Iterable[str]]
    """Of a run, below it; ``/`` between parts."""
    read: Callable[[str], bytes]
    begun: Callable[[str], float]
    """When the first line of a run was written, or thereabouts: seconds since the epoch."""


def lines(*, place: str, job: str, role: str, index: int, before: datetime | None = None) -> Iterator[str]:
    """Lines of one task of the job that was submitted last, of all its runs and attempts.

    ``place``: ``logs`` of its file. ``before``: of attempts in a bucket that had started by then alone. Raises
    ``BadInput`` where nothing is kept there, ``Unavailable`` where S3 does not answer.
    """
    kept = _kept(place, job)
    if not kept.runs:
        raise BadInput(f"{place} has no run of a job {job!r}: is it the place that `logs` of its file names?")
    submitted = _submitted(_last(kept))
    runs = [run for run in kept.runs if _submitted(run) == submitted]
    names = [f"{run}/{name}" for run in runs for name in kept.names(run) if name.startswith(f"{_LINES}/")]
    found = [name for name in names if _task(name) == f"{role}-{index}" and _is_before(name, before)]
    if not found:
        tasks = ", ".join(sorted(set(map(_task, names))))
        raise BadInput(f"{place} has no lines of {role} {index} of job {job!r}; it has {tasks or 'none'}")
    attempts = groupby(sorted(found, key=_order), lambda name: name.split("/")[:3])
    yield from in_turn(f"{role} {index}", (_said(kept, parts) for _attempt, parts in attempts))


def states(*, place: str) -> list[RoleState]:
    """The roles of every job of which something is kept there, by its run that was submitted last.

    A task that has not said that it ended counts as running: it may have been killed with its machine. Raises as
    :func:`lines`.
    """
    found: list[RoleState] = []
    for job in _jobs_in_bucket(place) if place.startswith(BUCKET) else _jobs_in_directory(place):
        kept = _kept(place, job)
        if kept.runs:
            found += _roles(job, kept, _last(kept))
    return found


def _kept(place: str, job: str) -> _Kept:
    return (_in_bucket if place.startswith(BUCKET) else _in_directory)(place, job)


def _roles(job: str, kept: _Kept, run: str) -> Iterator[RoleState]:
    parts = [name.split("/") for name in kept.names(run)]
    tasks = {part[1].partition(".")[0] for part in parts if part[0] in (_LINES, _UP, _EXITS) and len(part) > 1}
    ends = {part[1]: json.loads(kept.read(f"{run}/{_EXITS}/{part[1]}")) for part in parts if part[0] == _EXITS}
    for role in sorted({task.rpartition("-")[0] for task in tasks}):
        mine = [task for task in tasks if task.rpartition("-")[0] == role]
        said = [ends[task] for task in mine if task in ends]
        failed = sum(one["status"] not in (0, _STOPPED) for one in said)
        succeeded = sum(one["status"] == 0 for one in said)
        running = len(mine) - len(said)
        yield RoleState(
            job=job,
            namespace="-",
            role=role,
            waiting=0,
            running=running,
            succeeded=succeeded,
            failed=failed,
            gpus=0,
            state="running" if running else "failed" if failed else "done" if succeeded else "stopped",
            since=datetime.fromtimestamp(kept.begun(run), UTC)
            if running
            else max(datetime.fromisoformat(one["at"]) for one in said),
        )


def in_turn(task: str, attempts: Iterable[Iterable[str]]) -> Iterator[str]:
    """Lines of each attempt, and a line of our own where the next one begins."""
    for number, attempt in enumerate(attempts):
        if number:
            yield f"spillway: here {task} was started again"
        yield from attempt


def stripped(kept: bytes) -> Iterator[str]:
    """Yields lines without their numbers and times; of a line that is being written, nothing yet."""
    for line in kept.split(b"\n")[:-1]:
        yield line.split(b" ", 2)[2].decode(errors="replace")


def _said(kept: _Kept, parts: Iterable[str]) -> Iterator[str]:
    return (line for name in parts for line in stripped(kept.read(name)))


def _last(kept: _Kept) -> str:
    """The run that was submitted last: of one backend by its name, between several by time."""
    of_backends: dict[tuple[bool, bool], str] = {}
    for run in sorted(kept.runs, key=_order):
        of_backends[run[0].isalpha(), "T" in run] = run  # YARN's, times, and Slurm's numbers
    return max(of_backends.values(), key=kept.begun) if len(of_backends) > 1 else next(iter(of_backends.values()))


def _submitted(run: str) -> str:
    """What all runs of one submission have in common: Slurm's are ``JOB.RESTARTS``, of others there is one."""
    return run.partition(".")[0]


def _task(name: str) -> str:
    return name.split("/")[2].partition(".")[0]


def _is_before(name: str, moment: datetime | None) -> bool:
    started = name.split("/")[2].partition(".")[2]
    return moment is None or datetime.strptime(started, _STARTED).replace(tzinfo=UTC) < moment


def _order(name: str) -> tuple[tuple[int, str], ...]:
    """Runs, attempts and parts as they were written: 2 before 10, wherever numbers stand."""
    return tuple((len(part) if part.isdigit() else 0, part) for part in re.findall(r"\d+|\D+", name))


def _in_directory(place: str, job: str) -> _Kept:
    folder = Path(place) / job
    return _Kept(
        runs=tuple(path.name for path in folder.glob("*") if path.is_dir()),
        names=lambda run: (
            path.relative_to(folder / run).as_posix() for path in (folder / run).rglob("[!.]*") if path.is_file()
        ),
        read=lambda name: (folder / name).read_bytes(),
        begun=lambda run: min((path.stat().st_mtime for path in (folder / run).rglob("*.log")), default=0.0),
    )


def _jobs_in_directory(place: str) -> list[str]:
    return sorted(path.name for path in Path(place).glob("[!.]*") if path.is_dir())


class _Bucket:
    """A place in S3. All raise ``Unavailable`` where it does not answer."""

    def __init__(self, place: str) -> None:
        import boto3  # noqa: PLC0415 - slow, and only where lines are in a bucket

        self.place = place
        self.name, _, prefix = place.removeprefix(BUCKET).partition("/")
        self.prefix = f"{prefix}/" if prefix else ""
        self._s3 = self._told(lambda: boto3.client("s3"))

    def folders(self, below: str) -> tuple[str, ...]:
        """Names of those right below."""
        return tuple(one.rstrip("/") for one in self._listed("CommonPrefixes", "Prefix", below, Delimiter="/"))

    def files(self, below: str) -> tuple[str, ...]:
        """Lists the files below, from there on."""
        return self._listed("Contents", "Key", below)

    def read(self, key: str) -> bytes:
        """Reads one file of the bucket."""
        return bytes(self._told(lambda: self._s3.get_object(Bucket=self.name, Key=key)["Body"].read()))  # noqa: PLW0108 - what it calls may fail

    def written(self, below: str) -> float:
        """When the first file by its name was, in seconds since the epoch; 0 where there is none."""
        found = self._told(lambda: self._s3.list_objects_v2(Bucket=self.name, Prefix=below, MaxKeys=1))
        return max((one["LastModified"].timestamp() for one in found.get("Contents", ())), default=0.0)

    def _listed(self, what: str, key: str, below: str, **more: str) -> tuple[str, ...]:
        def ask() -> tuple[str, ...]:
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=below, **more)
            return tuple(one[key].removeprefix(below) for page in pages for one in page.get(what, ()))

        found: tuple[str, ...] = self._told(ask)
        return found

    def _told(self, ask: Callable[[], Any]) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            return ask()
        except (BotoCoreError, ClientError) as error:
            raise Unavailable(f"cannot read {self.place}: {error}") from None


def _jobs_in_bucket(place: str) -> list[str]:
    bucket = _Bucket(place)
    return sorted(bucket.folders(bucket.prefix))


def _in_bucket(place: str, job: str) -> _Kept:
    bucket = _Bucket(place)
    start = f"{bucket.prefix}{job}/"
    return _Kept(
        runs=bucket.folders(start),
        names=lambda run: bucket.files(f"{start}{run}/"),
        read=lambda name: bucket.read(start + name),
        begun=lambda run: bucket.written(f"{start}{run}/{_LINES}/"),
    )
