"""Whatever of a job is killed, nothing of it is left, and nothing of what it said is lost: a few of the bench's."""

from __future__ import annotations

import pytest

from tests.bench.jobs_killed import jobs_killed

pytestmark = pytest.mark.training


def test_jobs_whose_processes_are_killed_leave_nothing_and_lose_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of them; 200: ``python -m tests.bench jobs-killed``."""
    monkeypatch.setenv("XDG_STATE_HOME", "")  # which the bench sets, undone
    figures = list(jobs_killed(10, seed=4711))
    assert [figure.verdict() for figure in figures] == ["kept", "kept"], figures
