"""Lines that a job's launchers kept, after its tasks and machines are gone: in a directory, or in a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaler.model.errors import BadInput, Unavailable
from images.jobs import BUCKET

_LINES: Final = "logs"


@dataclass(frozen=True, slots=True)
class _Run:
    """The files of one run of a job."""

    names: tuple[str, ...]
    """Below it, ``/`` between parts."""
    read: Callable[[str], bytes]


def lines(*, place: str, job: str, role: str, index: int) -> Iterator[str]:
    """Lines of one task of the job's last run, all attempts. ``place``: ``logs`` of the job's file.

    Raises ``BadInput`` where nothing is kept there, ``Unavailable`` where S3 does not answer.
    """
    run = (_in_bucket if place.startswith(BUCKET) else _in_directory)(place, job)
    task = f"{_LINES}/{role}-{index}."
    found = sorted((name for name in run.names if name.startswith(task)), key=_order)
    if not found:
        tasks = {name.split("/")[1].partition(".")[0] for name in run.names if name.startswith(f"{_LINES}/")}
        raise BadInput(
            f"{place} has no lines of {role} {index} of job {job!r}; it has {', '.join(sorted(tasks)) or 'none'}"
        )
    for name in found:
        yield from stripped(run.read(name))


def stripped(kept: bytes) -> Iterator[str]:
    """Without their numbers and times; of a line that is being written, nothing yet."""
    for line in kept.split(b"\n")[:-1]:
        yield line.split(b" ", 2)[2].decode(errors="replace")


def _order(name: str) -> tuple[tuple[int, str], ...]:
    """Runs, attempts and parts as they were written: 2 before 10."""
    return tuple((len(part) if part.isdigit() else 0, part) for part in name.replace("/", ".").split("."))


def _in_directory(place: str, job: str) -> _Run:
    found = (path for path in (Path(place) / job).glob("*") if path.is_dir())
    runs = sorted(found, key=lambda path: _order(path.name))
    if not runs:
        raise BadInput(f"{place} has no run of a job {job!r}: is it the place that `logs` of its file names?")
    names = (path.relative_to(runs[-1]).as_posix() for path in runs[-1].rglob("*.log"))
    return _Run(tuple(names), lambda name: (runs[-1] / name).read_bytes())


def _in_bucket(place: str, job: str) -> _Run:
    import boto3  # noqa: PLC0415 - slow, and only where lines are in a bucket
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    bucket, _, prefix = place.removeprefix(BUCKET).partition("/")
    start = f"{prefix}/{job}/" if prefix else f"{job}/"
    try:
        s3 = boto3.client("s3")
        runs = [one["Prefix"] for one in _pages(s3, "CommonPrefixes", Bucket=bucket, Prefix=start, Delimiter="/")]
        if not runs:
            raise BadInput(f"{place} has no run of a job {job!r}: is it the place that `logs` of its file names?")
        last = max(runs, key=_order)
        names = [one["Key"].removeprefix(last) for one in _pages(s3, "Contents", Bucket=bucket, Prefix=last)]
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(f"cannot read {place}: {error}") from None

    def read(name: str) -> bytes:
        try:
            body: bytes = s3.get_object(Bucket=bucket, Key=last + name)["Body"].read()
        except (BotoCoreError, ClientError) as error:
            raise Unavailable(f"cannot read {place}: {error}") from None
        return body

    return _Run(tuple(names), read)


def _pages(s3: Any, what: str, **asked: str) -> Iterator[dict[str, Any]]:
    for page in s3.get_paginator("list_objects_v2").paginate(**asked):
        yield from page.get(what, ())
