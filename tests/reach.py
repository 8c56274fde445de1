"""A plugin for pytest: which functions each test enters, and runs of those tests alone that enter one of them.

    SPILLWAY_REACH=reach.jsonl python -m pytest -p tests.reach -m "not live" tests/test_autoscaler/test_planner

Adds a line for each test. Functions are told by their file and first line. What a fixture of more than one test enters
is entered by all tests of that file. What another process enters is not seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest
from hypothesis import is_hypothesis_test, settings

from tests import ROOT

_ROOMS: Final = tuple(str(ROOT / room) + os.sep for room in ("autoscaler", "stacks", "roles", "images"))


_EXAMPLES: Final = 3


class Recorder:
    """Watches calls of the rooms' functions."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._entered: dict[int, CodeType] = {}
        """By identity: the hash of a code object takes longer than what most of them do."""
        self._shared: dict[str, dict[int, CodeType]] = defaultdict(dict)
        """What fixtures of more than one test entered, by test file."""

    def pytest_sessionstart(self) -> None:
        """Watch this thread, and those to come."""
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        if id(code) not in self._entered:
            self._entered[id(code)] = code

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, object, object]:
        """Keep apart what is set up for more than one test."""
        if fixturedef.scope == "function":
            return (yield)
        outside, self._entered = self._entered, {}
        try:
            return (yield)
        finally:
            file = request.node.nodeid.split("::")[0]
            self._shared[file].update(self._entered)
            self._entered = outside

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Write a test's line."""
        self._entered, began = {}, time.process_time()
        times = _shorten(item)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            took = time.process_time() - began
            entered = {*map(_told, (*self._entered.values(), *self._shared[item.nodeid.split("::")[0]].values()))}
            line = {"test": item.nodeid, "took": round(took * times, 3), "entered": sorted(filter(None, entered))}
            with self._into.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _shorten(item: pytest.Item) -> float:
    """Have a property draw few examples, which enter what many do; how many times as long it would take."""
    test: Any = getattr(item, "obj", None)
    if not is_hypothesis_test(test):
        return 1.0
    usual = test._hypothesis_internal_use_settings
    test._hypothesis_internal_use_settings = settings(usual, max_examples=min(_EXAMPLES, usual.max_examples))
    return float(usual.max_examples) / _EXAMPLES


def _told(code: CodeType) -> str:
    known = code.co_filename.startswith(_ROOMS) and code.co_name != "<module>"
    return f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno}" if known else ""


@dataclass
class Reach:
    """What was written: tests by the functions that they enter, and how long each test takes in CPU seconds."""

    tests: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By ``file:line``, and by ``file`` for all of its functions."""
    took: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Reach:
        """All lines of a file."""
        found = cls()
        for line in file.read_text("utf-8").splitlines():
            said = json.loads(line)
            found.took[said["test"]] = said["took"]
            for where in said["entered"]:
                found.tests[where].add(said["test"])
                found.tests[where.rsplit(":", 1)[0]].add(said["test"])
        return found


class Chosen:
    """Only these tests run, in this order."""

    def __init__(self, tests: list[str], seconds: float) -> None:
        self._place = {test: number for number, test in enumerate(tests)}
        self._seconds = seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the others out."""
        chosen = [item for item in items if item.nodeid in self._place]
        items[:] = sorted(chosen, key=lambda item: self._place[item.nodeid])
        self._ends = time.process_time() + self._seconds

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        """End the run where it took too long; what is left then was not tried."""
        if time.process_time() > self._ends:
            pytest.exit("took as long as it may", returncode=pytest.ExitCode.OK)


def pytest_configure(config: pytest.Config) -> None:
    """Record, or choose, where the environment says so."""
    if into := os.environ.get("SPILLWAY_REACH"):
        config.pluginmanager.register(Recorder(Path(into)))
    if chosen := os.environ.get("SPILLWAY_CHOSEN"):
        config.pluginmanager.register(Chosen(**json.loads(Path(chosen).read_text("utf-8"))))
