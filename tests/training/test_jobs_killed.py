"""Whatever of a job is killed, nothing of it is left, and nothing of what it said is lost: a few of the bench's."""

from __future__ import annotations

import pytest

from tests.bench.jobs_killed import jobs_killed
from tests.live.bucket import Bucket

pytestmark = pytest.mark.training


@pytest.mark.parametrize(("many", "in_bucket"), [(10, False), (4, True)])
def test_jobs_whose_processes_are_killed_leave_nothing_and_lose_no_line(
    monkeypatch: pytest.MonkeyPatch, *, many: int, in_bucket: bool
) -> None:
    """Lines in a directory, and in a bucket that is away for seconds; 200: ``python -m tests.bench jobs-killed``."""
    for name in ("XDG_STATE_HOME", *Bucket("").environment):
        monkeypatch.setenv(name, "")  # which the bench sets, undone
    figures = list(jobs_killed(many, seed=4711, in_bucket=in_bucket))
    assert [figure.verdict() for figure in figures] == ["kept", "kept"], figures
