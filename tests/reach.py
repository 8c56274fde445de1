"""Which statements of what decides, buys, drains, deletes or grants each test runs, for ``tests.mutate``.

    python -m tests.reach reach.jsonl -m "not live" tests/test_autoscaler tests/test_roles ...

Runs the tests in a copy of the tree, in which each statement of a function notes in a shared file that it ran: what
threads and other processes run is seen as well. Writes a line for each test that passed. What a fixture of more than
one test runs is run by all tests that ask for it. A property draws few examples here, which run most of what many do.
What only the first call of a process runs (``functools.cache``) is run by the first test that comes there.
"""

from __future__ import annotations

import ast
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import is_hypothesis_test, settings

from tests import ROOT
from tests.mutants import DECIDE, modules_below

_EXAMPLES: Final = 3
_PROBE: Final = "_statements_that_ran_"
_NOTES: Final = """
import mmap
try:
    with open({file!r}, "r+b") as notes:
        {probe} = mmap.mmap(notes.fileno(), 0)
except OSError:
    {probe} = bytearray({size})
"""


def copy_of_tree(folder: Path) -> None:
    """What git knows or would add, in another folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    return sum(os.times()[:4])


def probed(source: str, *, notes: Path, size: int, first: int) -> str:
    """A module in which each statement of a function notes, at ``first`` and its line, that it is about to run."""
    whole = ast.parse(source)
    in_functions = {
        id(below): below for one in ast.walk(whole) if isinstance(one, ast.FunctionDef) for below in ast.walk(one)
    }
    for node in in_functions.values():
        for name in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, name, None), list):
                setattr(node, name, [*_with_probes(block, first)])
    start = sum(1 for _ in _first_lines(whole))
    whole.body[start:start] = ast.parse(_NOTES.format(file=str(notes), probe=_PROBE, size=size)).body
    return ast.unparse(ast.fix_missing_locations(whole))


def _with_probes(block: list[ast.stmt], first: int) -> Iterator[ast.stmt]:
    for statement in block:
        if not _is_docstring(statement):
            yield from ast.parse(f"{_PROBE}[{first + statement.lineno}] = 1").body
        yield statement


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _first_lines(module: ast.Module) -> Iterator[ast.stmt]:
    """The docstring, and what must come before all else."""
    for statement in module.body:
        if not (
            _is_docstring(statement) or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")
        ):
            return
        yield statement


def main(arguments: Sequence[str]) -> int:
    """The command."""
    into, *chosen = arguments
    # The notes are below /dev, which a sandbox of the tests shares: elsewhere it would write into a copy of its own.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        tree, notes = Path(folder, "tree"), Path(memory, "notes")
        copy_of_tree(tree)
        sources = {path: path.read_text("utf-8") for name in DECIDE for path in modules_below(tree / name)}
        size, places = 0, {}
        for path, source in sources.items():
            places[str(path.relative_to(tree))] = size
            size += source.count("\n") + 2
        notes.write_bytes(bytes(size))
        for path, source in sources.items():
            first = places[str(path.relative_to(tree))]
            path.write_text(probed(source, notes=notes, size=size, first=first), "utf-8")
        told = json.dumps({"into": str(Path(into).resolve()), "notes": str(notes), "places": places})
        command = [sys.executable, "-m", "pytest", "-p", "tests.reach", "-q", *chosen]
        with_tree = os.environ | {"SPILLWAY_REACH": told, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(command, cwd=tree, env=with_tree, check=False).returncode


class Recorder:
    """Watches the shared file, test by test."""

    def __init__(self, into: str, notes: str, places: dict[str, int]) -> None:
        self._into = Path(into)
        with Path(notes).open("r+b") as file:
            self._notes = mmap.mmap(file.fileno(), 0)
        self._starts = sorted((first, module) for module, first in places.items())
        self._shared: dict[int, bytes] = {}
        """What the fixtures of more than one test ran."""
        self._passed: dict[str, bool] = {}

    def _take(self) -> bytes:
        ran = self._notes[:]
        self._notes[:] = bytes(len(ran))
        return ran

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Keep apart what is set up for more than one test."""
        if fixturedef.scope == "function":
            return (yield)
        outside = self._take()
        try:
            return (yield)
        finally:
            self._shared[id(fixturedef)] = self._take()
            self._notes[:] = outside

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Only what passes as a whole is of use."""
        self._passed[report.nodeid] = self._passed.get(report.nodeid, True) and report.passed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Generator[None, object, object]:
        """Write a test's line."""
        self._take()
        times, began = _shorten(item), cpu_seconds()
        try:
            return (yield)
        finally:
            took, ran = cpu_seconds() - began, self._take()
            fixtures = [one for known in item._fixtureinfo.name2fixturedefs.values() for one in known]
            parts = [ran, *filter(None, (self._shared.get(id(fixture)) for fixture in fixtures))]
            line = {
                "test": item.nodeid,
                "took": round(took * times, 3),
                "draws": times > 1,
                "ran": self._lines({place for part in parts for place, hit in enumerate(part) if hit}),
            }
            if self._passed.get(item.nodeid):
                with self._into.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")

    def _lines(self, places: set[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        ends = [first for first, _ in self._starts[1:]] + [len(self._notes)]
        for (first, module), end in zip(self._starts, ends, strict=True):
            if lines := sorted(place - first for place in places if first <= place < end):
                found[module] = lines
        return found


def _shorten(item: pytest.Item) -> float:
    """Have a property draw few examples; how many times as long it would take."""
    test: Any = getattr(item, "obj", None)
    usual = getattr(test, "_hypothesis_internal_use_settings", None)
    if usual is None or not is_hypothesis_test(test):  # a state machine has its own
        return 1.0
    test._hypothesis_internal_use_settings = settings(usual, max_examples=min(_EXAMPLES, usual.max_examples))
    return float(usual.max_examples) / _EXAMPLES


@dataclass
class Reach:
    """What was written: tests by what they run, and how long each takes in CPU seconds."""

    by_line: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    by_module: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    took: dict[str, float] = field(default_factory=dict)
    draws: set[str] = field(default_factory=set)
    """The properties: with more examples they may run more."""

    @classmethod
    def read(cls, file: Path) -> Reach:
        """All lines of a file."""
        found = cls()
        for line in file.read_text("utf-8").splitlines():
            said = json.loads(line)
            test = said["test"]
            found.took[test] = said["took"]
            if said["draws"]:
                found.draws.add(test)
            for module, lines in said["ran"].items():
                found.by_module[module].add(test)
                for one in lines:
                    found.by_line[module, one].add(test)
        return found


def pytest_configure(config: pytest.Config) -> None:
    """Record where the environment says so."""
    if told := os.environ.get("SPILLWAY_REACH"):
        config.pluginmanager.register(Recorder(**json.loads(told)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
