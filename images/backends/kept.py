"""Lines that a job's launchers kept, after its tasks and machines are gone: in a directory, or in a bucket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from autoscaler.model.errors import BadInput, Unavailable
from images.job_values import BUCKET

_LINES: Final = "logs"
_STARTED: Final = "%Y%m%dT%H%M%S.%f"
"""Of an attempt in a bucket, as the launcher writes it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The files of all runs of a job: ``RUN/logs/ROLE-INDEX.ATTEMPT``, in a bucket with a part behind."""

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
    kept = (_in_bucket if place.startswith(BUCKET) else _in_directory)(place, job)
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


def in_turn(task: str, attempts: Iterable[Iterable[str]]) -> Iterator[str]:
    """Lines of each attempt, and a line of our own where the next one begins."""
    for number, attempt in enumerate(attempts):
        if number:
            yield f"spillway: here {task} was started again"
        yield from attempt


def stripped(kept: bytes) -> Iterator[str]:
    """Without their numbers and times; of a line that is being written, nothing yet."""
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
        names=lambda run: (path.relative_to(folder / run).as_posix() for path in (folder / run).rglob("*.log")),
        read=lambda name: (folder / name).read_bytes(),
        begun=lambda run: min((path.stat().st_mtime for path in (folder / run).rglob("*.log")), default=0.0),
    )


def _in_bucket(place: str, job: str) -> _Kept:
    import boto3  # noqa: PLC0415 - slow, and only where lines are in a bucket
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    bucket, _, prefix = place.removeprefix(BUCKET).partition("/")
    start = f"{prefix}/{job}/" if prefix else f"{job}/"

    def told(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (BotoCoreError, ClientError) as error:
            raise Unavailable(f"cannot read {place}: {error}") from None

    def begun(run: str) -> float:
        found = s3.list_objects_v2(Bucket=bucket, Prefix=f"{start}{run}/{_LINES}/", MaxKeys=1)
        return max((one["LastModified"].timestamp() for one in found.get("Contents", ())), default=0.0)

    def listed(what: str, key: str, below: str, **more: str) -> tuple[str, ...]:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=below, **more)
        return tuple(one[key].removeprefix(below) for page in pages for one in page.get(what, ()))

    s3 = told(lambda: boto3.client("s3"))
    return _Kept(
        runs=tuple(one.rstrip("/") for one in told(lambda: listed("CommonPrefixes", "Prefix", start, Delimiter="/"))),
        names=lambda run: told(lambda: listed("Contents", "Key", f"{start}{run}/")),
        read=lambda name: told(lambda: s3.get_object(Bucket=bucket, Key=start + name)["Body"].read()),  # noqa: PLW0108 - what it calls may fail
        begun=lambda run: float(told(lambda: begun(run))),
    )
