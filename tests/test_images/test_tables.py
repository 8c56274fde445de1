"""Tables of jobs and tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from images.backends.states import TaskState
from images.tables import age, print_tasks


def test_gpus_are_told_by_number_where_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Else how many there are; a task that has none shows nothing."""
    now = datetime(2026, 11, 26, tzinfo=UTC)
    made = {"state": "running", "since": now - timedelta(minutes=3)}
    tasks = [TaskState("worker", 0, gpus=2, devices=("3", "5"), **made), TaskState("worker", 1, gpus=2, **made)]
    print_tasks([*tasks, TaskState("ps", 0, "waiting", None, why="has no pod yet")], now=now)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["worker", "0", "running", "for", "3", "min", "0", "3,", "5"],
        ["worker", "1", "running", "for", "3", "min", "0", "2"],
        ["ps", "0", "waiting", "0", "has", "no", "pod", "yet"],
    ]


def test_ages_are_told_in_one_unit() -> None:
    """The biggest of which there are at least two."""
    spans = {0: "0 s", 119: "119 s", 120: "2 min", 7_199: "119 min", 7_200: "2 h", 172_800: "2 d"}
    assert {seconds: age(timedelta(seconds=seconds)) for seconds in spans} == spans
