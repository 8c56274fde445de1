"""Lines that were kept, read after the job is gone: of all attempts, in the order in which they were written."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from autoscaler.model.errors import BadInput, Unavailable
from images.backends import kept

FILES = {
    "2/logs/worker-0.1.log": "1 t old\n",
    "10/logs/worker-0.10.log": "1 t three\n2 t not whole",
    "10/logs/worker-0.2.log": "1 t again\n",
    "10/logs/worker-0.1.log": "1 t one\n2 t two words\n",
    "10/logs/worker-10.1.log": "1 t ten\n",
    "10/logs/ps-0.1.log": "1 t ps\n",
    "10/other/worker-0.1.log": "1 t other\n",
}
"""Of one job that was submitted twice, by path below it in a directory."""
AGAIN = "spillway: here worker 0 was started again"


class Bucket:
    """S3 with these files of job ``j`` under a prefix; a line to a part; it answers two at a time."""

    def __init__(self, prefix: str, *, refuses: str = "") -> None:
        self.files = {
            f"{prefix}j/{name.removesuffix('.log')}/{number:08}": line
            for name, text in FILES.items()
            for number, line in enumerate(text.splitlines(keepends=True), 1)
        }
        self.refuses = refuses
        self.modified: dict[str, datetime] = {}

    def _maybe_refuse(self, operation: str) -> None:
        if self.refuses == operation:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)

    def get_paginator(self, name: str) -> Bucket:
        """Of lists of objects."""
        assert name == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str, Delimiter: str = "") -> Iterator[dict[str, Any]]:  # noqa: N803
        """As S3 tells them."""
        self._maybe_refuse("ListObjectsV2")
        assert Bucket == "b"
        names = sorted(name for name in self.files if name.startswith(Prefix))
        if Delimiter:
            starts = sorted({f"{Prefix}{name.removeprefix(Prefix).split('/')[0]}/" for name in names})
            yield {"CommonPrefixes": [{"Prefix": one} for one in starts]}
        for first in range(0, len(names), 2) if not Delimiter else ():
            yield {"Contents": [{"Key": name} for name in names[first : first + 2]]}
        yield {}

    def list_objects_v2(self, *, Bucket: str, Prefix: str, MaxKeys: int) -> dict[str, Any]:  # noqa: N803
        """The first ones by name."""
        assert Bucket == "b"
        names = sorted(name for name in self.files if name.startswith(Prefix))[:MaxKeys]
        return {"Contents": [{"Key": name, "LastModified": self.modified[name]} for name in names]} if names else {}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        """One file."""
        self._maybe_refuse("GetObject")
        assert Bucket == "b"
        return {"Body": io.BytesIO(self.files[Key].encode())}


@pytest.fixture(params=["directory", "s3://b", "s3://b/some/where"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where they are kept."""
    if request.param != "directory":
        prefix = request.param.removeprefix("s3://b").removeprefix("/")
        monkeypatch.setattr(boto3, "client", lambda _service: Bucket(f"{prefix}/" if prefix else ""))
        return str(request.param)
    for name, text in FILES.items():
        file = tmp_path / "j" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "j" / "99").touch()
    return str(tmp_path)


def test_a_task_s_lines_are_those_of_the_last_run_in_order(place: str) -> None:
    """Attempts and parts by number; without the number and time of each line, nor what is being written."""
    found = list(kept.lines(place=place, job="j", role="worker", index=0))
    assert found == ["one", "two words", AGAIN, "again", AGAIN, "three"]
    assert list(kept.lines(place=place, job="j", role="worker", index=10)) == ["ten"]


RAN = {
    "train/7/exits/worker-0": '{"status": 1, "at": "2026-11-21T09:00:00+00:00"}',
    "train/8/logs/worker-0.0.log": "1 t done\n",
    "train/8/logs/worker-1.0.log": "1 t done\n",
    "train/8/logs/ps-0.0.log": "1 t serves\n",
    "train/8/logs/board-0.0.log": "1 t serves\n",
    "train/8/exits/board-0": '{"status": 143, "at": "2026-11-21T09:06:00+00:00"}',
    "train/8/exits/worker-0": '{"status": 0, "at": "2026-11-21T09:05:00.250+00:00"}',
    "train/8/exits/worker-1": '{"status": 3, "at": "2026-11-21T09:04:00+00:00"}',
    "serve/20261121T090000Z/logs/web-front-0.0.log": "1 t up\n",
    "serve/20261121T090000Z/exits/web-front-0": '{"status": 0, "at": "2026-11-21T09:07:00+00:00"}',
}
"""Of two jobs by different backends; one was submitted twice, and a server of it has not ended."""


@pytest.mark.parametrize("kind", ["directory", "bucket"])
def test_jobs_of_whatever_backend_are_listed_by_what_was_kept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By role, of the run that was submitted last: how their tasks have ended, and when."""
    began = datetime(2026, 11, 21, 9, tzinfo=UTC)
    if kind == "bucket":
        bucket = Bucket("some/")
        bucket.files = {f"some/{name}": text for name, text in RAN.items()}
        bucket.modified = dict.fromkeys(bucket.files, began)
        monkeypatch.setattr(boto3, "client", lambda _service: bucket)
        found = kept.states(place="s3://b/some")
    else:
        for name, text in RAN.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            os.utime(file, times=(began.timestamp(), began.timestamp()))
        (tmp_path / "train" / "8" / "exits" / ".worker-2.half").write_text("{")
        found = kept.states(place=str(tmp_path))
    assert [(one.job, one.role, one.state, one.running, one.succeeded, one.failed) for one in found] == [
        ("serve", "web-front", "done", 0, 1, 0),
        ("train", "board", "stopped", 0, 0, 0),
        ("train", "ps", "running", 1, 0, 0),
        ("train", "worker", "failed", 0, 1, 1),
    ]
    assert {(one.waiting, one.gpus, one.namespace) for one in found} == {(0, 0, "-")}
    assert [one.since - began for one in found] == [
        timedelta(minutes=7),
        timedelta(minutes=6),
        timedelta(0),
        timedelta(minutes=5, milliseconds=250),
    ]


def test_a_task_or_job_of_which_nothing_is_kept_is_named(place: str) -> None:
    """With those there are."""
    told = r"has no lines of worker 1 of job 'j'; it has ps-0, worker-0, worker-10"
    with pytest.raises(BadInput, match=told):
        list(kept.lines(place=place, job="j", role="worker", index=1))
    with pytest.raises(BadInput, match="has no run of a job 'x': is it the place that `logs` of its file names"):
        list(kept.lines(place=place, job="x", role="worker", index=0))


@pytest.mark.parametrize("refuses", ["ListObjectsV2", "GetObject"])
def test_a_bucket_that_may_not_be_read_is_told(monkeypatch: pytest.MonkeyPatch, refuses: str) -> None:
    """In S3's own words."""
    monkeypatch.setattr(boto3, "client", lambda _service: Bucket("", refuses=refuses))
    with pytest.raises(Unavailable, match=rf"cannot read s3://b: .*AccessDenied.*{refuses}"):
        list(kept.lines(place="s3://b", job="j", role="worker", index=0))


@pytest.mark.parametrize(
    ("before", "last"),
    [
        ("container_1761_9999", "container_1761_10000"),
        ("container_e9_1761_0007", "container_e10_1761_0001"),
        ("container_1761_0002", "container_e01_1761_0001"),
        ("20261124T235959Z", "20261125T000000Z"),
        ("9.10", "10.0"),
    ],
)
def test_the_last_run_is_the_last_by_its_numbers(tmp_path: Path, before: str, last: str) -> None:
    """YARN's have four digits until there have been 9999, and an epoch once its resource manager was started again."""
    for run in (before, last):
        (tmp_path / "j" / run / "logs").mkdir(parents=True)
        (tmp_path / "j" / run / "logs" / "worker-0.0.log").write_text(f"1 t {run}\n")
    assert list(kept.lines(place=str(tmp_path), job="j", role="worker", index=0)) == [last]


@pytest.mark.parametrize("in_bucket", [True, False])
@pytest.mark.parametrize("last", ["20261124T100000Z", "777.0", "container_1761_0001"])
def test_between_runs_of_several_backends_the_last_is_the_last_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, *, in_bucket: bool
) -> None:
    """Their names cannot be compared."""
    runs = ["20261123T100000Z", "20261124T100000Z", "9.0", "777.0", "container_1760_9999", "container_1761_0001"]
    names = {run: f"{run}/logs/worker-0.1.log" for run in runs}
    hour = {run: 3600.0 * (number + 9 * (run == last)) for number, run in enumerate(runs)}
    bucket = Bucket("")
    bucket.files = {f"j/{names[run]}/00000001": f"1 t {run}\n" for run in runs}
    bucket.modified = {f"j/{names[run]}/00000001": datetime.fromtimestamp(hour[run], UTC) for run in runs}
    monkeypatch.setattr(boto3, "client", lambda _service: bucket)
    for run in runs:
        file = tmp_path / "j" / names[run]
        file.parent.mkdir(parents=True)
        file.write_text(f"1 t {run}\n")
        os.utime(file, (hour[run], hour[run]))
    place = "s3://b" if in_bucket else str(tmp_path)
    assert list(kept.lines(place=place, job="j", role="worker", index=0)) == [last]
