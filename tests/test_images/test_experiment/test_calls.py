"""Functions that travel, and what comes back."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from images.experiment import calls, report
from images.experiment.calls import RemoteTraceback, Result, TaskFailed

TASK = {"SPILLWAY_ROLE": "worker", "SPILLWAY_INDEX": "0"}


def carried(function: Callable[..., Any], *arguments: Any, path: tuple[str, ...] = ()) -> tuple[Result, list[str]]:
    """The function, run by another process from variables alone; its result and its lines."""
    packed = calls.in_variables(calls.pack(function, arguments, {}))
    bare = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join((*path, cloudpickle_alone()))}
    done = subprocess.run(
        calls.entry(sys.executable, None),
        env=bare | TASK | packed,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    found = calls.result_in(lines)
    assert found, (done.stdout, done.stderr)
    return calls.parse_result(found), lines


def cloudpickle_alone() -> str:
    """Where cloudpickle is."""
    return str(Path(sys.modules["cloudpickle"].__file__ or "").parents[1])


def test_a_function_runs_where_there_is_nothing_of_spillway_and_reports() -> None:
    """Closures, values and reports travel through variables and lines."""
    offset = 40

    def add(one: int) -> dict[str, Any]:
        report(loss=0.5)
        report(loss=0.25)
        return {"sum": one + offset, "big": "x" * 300_000}

    result, lines = carried(add, 2)
    assert result.get()["sum"] == 42
    assert len(result.get()["big"]) == 300_000
    assert result.began <= result.at
    assert [json.loads(line)["step"] for line in calls.reports_in(lines).splitlines()] == [1, 2]
    report(loss=1.0)  # here it does nothing
    assert "EXPERIMENT_FOLDER" not in os.environ


def test_what_is_raised_comes_back_with_its_traceback() -> None:
    """The function's own frames, none of what runs it; also where the exception itself cannot travel."""

    def inner() -> None:
        raise KeyError("lr")

    def fails() -> None:
        inner()

    result, _ = carried(fails)
    with pytest.raises(KeyError, match="lr") as caught:
        result.get()
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    told = str(caught.value.__cause__)
    assert "in fails" in told
    assert "in inner" in told
    assert "in _call" not in told

    def fails_strangely() -> None:
        class Strange(Exception):  # noqa: N818
            def __init__(self, one: int, two: int) -> None:
                super().__init__("odd")

        raise Strange(1, 2)

    result, _ = carried(fails_strangely)
    with pytest.raises(TaskFailed, match="Strange: odd"):
        result.get()


def test_another_version_of_python_is_told() -> None:
    """Instead of a crash in the middle of a pickle."""
    packed = calls.pack(len, ("abc",), {})
    header, _, rest = packed.partition(b"\n")
    other = json.dumps(json.loads(header) | {"python": "2.7"}).encode() + b"\n" + rest
    done = subprocess.run(
        calls.entry(sys.executable, None),
        env=TASK | calls.in_variables(other),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the function comes from Python 2.7 and this task runs 3." in done.stderr


def test_what_cannot_travel_is_refused_at_once() -> None:
    """A lock, or more than a variable holds."""
    lock = threading.Lock()
    with pytest.raises(BadInput, match=r"<lambda> cannot travel to its tasks .*make what it uses inside of it"):
        calls.pack(lambda: lock, (), {})
    noise = os.urandom(100_000)
    with pytest.raises(BadInput, match=r"packed, and without a directory that all tasks see they may have 98304"):
        calls.in_variables(calls.pack(lambda: noise, (), {}))


def test_a_result_too_big_for_a_log_is_told_as_such() -> None:
    """With what helps."""
    result, _ = carried(lambda: os.urandom(1_000_000))
    with pytest.raises(TaskFailed, match="give a directory that all see"):
        result.get()


def test_a_result_that_is_not_all_there_is_none_yet() -> None:
    """Of two attempts the last counts."""
    whole = [f"spillway-result {n}/2 {part}" for n, part in ((1, "eJxLTE"), (2, "oGAAJNASc="))]  # abc
    assert calls.result_in(["other", *whole, "line"]) == b"abc"
    assert calls.result_in(whole[:1]) is None
    assert calls.result_in([*whole, whole[0]]) is None
    assert calls.result_in([]) is None


def test_results_are_read_without_being_unpickled(tmp_path: Path) -> None:
    """Whether a task returned is plain text; the value is made only where it is asked for."""
    (tmp_path / "results").mkdir()
    header = json.dumps({"word": "returned", "began": 1.0, "at": 2.0}).encode()
    (tmp_path / "results" / "worker-0").write_bytes(header + b"\nnot a pickle")
    result = calls.read_result(tmp_path, "worker-0")
    assert result is not None
    assert (result.word, result.at) == ("returned", 2.0)
    with pytest.raises(pickle.UnpicklingError):
        result.get()
    assert calls.read_result(tmp_path, "worker-1") is None
