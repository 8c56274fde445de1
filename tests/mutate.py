"""Mutants of what decides, buys, drains, deletes or grants: a sample, and how many of it the unit tests kill.

    python -m tests.reach reach.jsonl -m "not live" tests/test_autoscaler tests/test_roles ...
    python -m tests.mutate reach.jsonl [--seed 1 --mutants 400 --only PREFIX] [--first 1 --last 400] [--seconds 60]

A mutant is killed where a test fails with it, or hangs. Tried are the tests that run its statement, and the properties
that enter its module, nearest and quickest first, for so many CPU seconds. All tests are collected once; each mutant is
a fork of that process in which the code of one function is changed, and the file too, for processes that tests start.
What runs on import is tried in a fork that has imported nothing of ours. A test that killed is run without the mutant
once: where it fails there as well, it has killed nothing.

A survivor is printed as it would stand in the source, with how many tests were tried of how many; with none, no unit
test runs its statement. The exit status is 1 where fewer than 90 % die.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO, Final, NoReturn

import pytest
from hypothesis import HealthCheck, Phase, settings

from stacks.local.process.reaper import leashed
from tests import ROOT
from tests.mutants import Mutant, sample
from tests.reach import Reach, copy_of_tree, cpu_seconds

ENOUGH: Final = 0.9
_TAKE_LONG: Final = (
    "boto3",
    "hypothesis",
    "numpy",
    "pulumi",
    "pulumi_aws",
    "pyinfra",
    "yaml",
    "pydantic",
    "urllib3",
    "cryptography",
)
"""To import: once, for all runs."""
_LONG: Final = 1.0
"""CPU seconds from which on a test waits for the others."""
_TIMES_AS_LONG: Final = 10
_HANGS: Final = 20
"""A test hangs that takes so many times as long, and so many CPU seconds more."""
_WAITS: Final = 60
"""Seconds after which a test that waits hangs."""
_HANGS_FOR_EVER: Final = 900
"""Seconds after which a fork is ended from outside."""
_FAILED: Final = " failed"
_COLLECTION: Final = "collection"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant."""

    killer: str
    """The test that failed; empty: none did."""
    tried: int
    tests: int
    """Of how many that run its statement."""


class Runner:
    """Tries mutants in a copy of the tree that is this process's own."""

    def __init__(self, reach: Reach, seconds: float, told: Callable[[Mutant, Outcome], None]) -> None:
        self._reach = reach
        self._seconds = seconds
        self._told = told
        self._written = 0
        self._sound = {_COLLECTION: True}
        """Whether a test passes without a mutant."""

    def run(self, mutants: Sequence[Mutant]) -> None:
        """Those that run on import before this process imports what they change."""
        for mutant in mutants:
            if not mutant.function:
                self._told(mutant, self._outcome(mutant, self._tests(mutant), self._afresh))
        self._mutants = [mutant for mutant in mutants if mutant.function]
        files = sorted({_file(test) for mutant in self._mutants for test in self._tests(mutant)})
        pytest.main(["-q", "-s", "-x", "-m", "not live", "--timeout", str(_WAITS), *files], plugins=[self])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In the place of a run of all tests: one fork for each mutant."""
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._functions = _functions()
        gc.collect()
        gc.freeze()
        for mutant in self._mutants:
            self._told(mutant, self._outcome(mutant, self._tests(mutant), self._in_fork))
        return True

    def _tests(self, mutant: Mutant) -> list[str]:
        """Nearest and quickest first; what takes long at the end."""
        near, took = _suites(mutant.module), self._reach.took
        in_module = self._reach.by_module.get(mutant.module, set())
        on_line = self._reach.by_line.get((mutant.module, mutant.statement), set()) if mutant.function else in_module
        tests = on_line | (in_module & self._reach.draws if on_line else set())
        return sorted(
            tests,
            key=lambda test: (
                test not in on_line,
                took[test] >= _LONG,
                *(not test.startswith(suite) for suite in near),
                took[test],
                test,
            ),
        )

    def _outcome(
        self, mutant: Mutant, tests: list[str], attempt: Callable[[Mutant | None, list[str]], Outcome]
    ) -> Outcome:
        """Of the tests that pass without it."""
        while True:
            with self._written_to_file(mutant):
                outcome = attempt(mutant, tests)
            killer = outcome.killer
            if killer and killer not in self._sound:
                self._sound[killer] = not attempt(None, [killer]).killer
            if not killer or self._sound[killer]:
                return outcome
            tests = [test for test in tests if self._sound.get(test, True)]

    @contextlib.contextmanager
    def _written_to_file(self, mutant: Mutant) -> Iterator[None]:
        file = ROOT / mutant.module
        was = file.read_text("utf-8")
        self._write(file, mutant.text)
        try:
            yield
        finally:
            self._write(file, was)

    def _write(self, file: Path, text: str) -> None:
        """With a time of its own: Python tells by time and size whether what it compiled is still true."""
        file.write_text(text, "utf-8")
        self._written += 1
        os.utime(file, (self._written, self._written))

    def _in_fork(self, mutant: Mutant | None, tests: list[str]) -> Outcome:
        """With the code of one function changed."""

        def changed(say: Callable[[str], None]) -> None:
            if mutant is not None:
                _put_in(mutant, self._functions)
            self._run_items([self._items[test] for test in tests if test in self._items], say)

        return _forked(changed, len(tests))

    def _run_items(self, items: list[pytest.Item], say: Callable[[str], None]) -> None:
        session, ends = self._session, cpu_seconds() + self._seconds
        for item, following in zip(items, [*items[1:], None], strict=True):
            if cpu_seconds() > ends:
                break
            _limit(self._reach.took[item.nodeid])
            say(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                say(_FAILED)
                break
        session._setupstate.teardown_exact(None)

    def _afresh(self, mutant: Mutant | None, tests: list[str]) -> Outcome:
        """In a process that imports all of ours anew: as many tests as there is time for."""
        chosen, takes = [], 0.0
        for test in tests:
            takes += self._reach.took[test]
            if chosen and takes > self._seconds:
                break
            chosen.append(test)
        files = [*dict.fromkeys(map(_file, chosen))]

        def anew(say: Callable[[str], None]) -> None:
            watched = _Chosen(self, chosen, say)
            words = ["-q", "-s", "-x", "-m", "not live", "--timeout", str(_WAITS), *files]
            if pytest.main(words, plugins=[watched]) != pytest.ExitCode.OK:
                say(_FAILED)

        return _forked(anew, len(tests)) if chosen else Outcome("", 0, 0)


class _Chosen:
    """Only these tests run, in this order; a file that cannot be collected is a failure."""

    def __init__(self, runner: Runner, tests: list[str], say: Callable[[str], None]) -> None:
        self._runner = runner
        self._tests = tests
        self._say = say
        say(_COLLECTION)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(_FAILED)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._runner._session = session
        items = {item.nodeid: item for item in session.items}
        self._runner._run_items([items[test] for test in self._tests if test in items], self._say)
        return True


def _forked(work: Callable[[Callable[[str], None]], None], tests: int) -> Outcome:
    """What a fork that does this says: a line for each test that it begins, and one where the last of them failed."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        child = os.fork()
        if not child:
            _work_and_end(work, said)
        watched = os.pidfd_open(child)
        in_time, _, _ = select.select([watched], [], [], _HANGS_FOR_EVER)
        os.close(watched)
        if not in_time:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        said.seek(0)
        lines = said.read().splitlines()
    begun = [line for line in lines if line != _FAILED]
    killer = begun[-1] if begun and (status != 0 or _FAILED in lines) else ""
    return Outcome(killer, sum(line != _COLLECTION for line in begun), tests)


def _work_and_end(work: Callable[[Callable[[str], None]], None], said: IO[str]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        work(lambda line: print(line, file=said, flush=True))
        status = 0
    finally:
        os._exit(status)


def _limit(usual: float) -> None:
    """End this process where the test that begins takes far longer than it does."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime + _HANGS + _TIMES_AS_LONG * usual) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _functions() -> dict[tuple[str, str, int], list[FunctionType]]:
    """All that are there, by file, qualified name and line."""
    found: defaultdict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            found[_key(one.__code__)].append(one)
    return found


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _put_in(mutant: Mutant, functions: dict[tuple[str, str, int], list[FunctionType]]) -> None:
    """Give each function of this process its changed code; where it has none of the module, others read the file."""
    file = str(ROOT / mutant.module)
    whole = compile(mutant.tree, file, "exec", dont_inherit=True)
    codes = [code for code in _codes(whole) if code.co_qualname == mutant.function]
    changed = [function for code in codes for function in functions.get(_key(code), ())]
    if not changed and any(name == file for name, *_ in functions):
        raise LookupError(mutant)  # the mutant counts as a survivor: no test was begun
    for code in codes:
        for function in functions.get(_key(code), ()):
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for below in code.co_consts:
        if isinstance(below, CodeType):
            yield below
            yield from _codes(below)


def _suites(module: str) -> list[str]:
    """Where the tests of a module, of its package and of its room are."""
    room, *packages, name = Path(module).with_suffix("").parts
    nearest = Path("tests", f"test_{room}", *(f"test_{package}" for package in packages))
    return [f"{nearest / f'test_{name}.py'}", f"{nearest}/", f"tests/test_{room}/"]


def _file(test: str) -> str:
    return test.partition("::")[0]


class _Tally:
    """Prints what survives, and the table at the end."""

    def __init__(self) -> None:
        self._rooms: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def told(self, mutant: Mutant, outcome: Outcome) -> None:
        counts = self._rooms[mutant.module.partition("/")[0]]
        became = "died" if outcome.killer else "survived" if outcome.tests else "not run"
        counts[became] += 1
        if not outcome.killer:
            print(f"{mutant}  ({outcome.tried} of {outcome.tests} tests)", flush=True)
        whole = self.whole()
        if whole.total() % 10 == 0:
            print(f"{whole.total()} tried, {whole['died']} died, {cpu_seconds():.0f} CPU s", flush=True)

    def whole(self) -> Counter[str]:
        return sum(self._rooms.values(), Counter())

    def table(self) -> str:
        """By room; what no unit test runs has survived as well, and is counted apart."""
        rooms = {**self._rooms, "all": self.whole()}
        lines = [f"{'room':12} sampled  died  survived  of no test"]
        for room, counts in rooms.items():
            survived = counts["survived"] + counts["not run"]
            lines.append(f"{room:12} {counts.total():7} {counts['died']:5} {survived:9} {counts['not run']:11}")
        return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("reach", type=Path, help="what tests.reach wrote")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--only", default=[""], nargs="*", metavar="PREFIX", help="modules whose path begins so")
    parser.add_argument("--first", type=int, default=1, help="leave out those before this one")
    parser.add_argument("--last", type=int, help="and those after this one")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds for the tests of one mutant")
    parser.add_argument("--in-this-tree", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if not asked.in_this_tree:
        return _in_a_copy([str(asked.reach.resolve()), *arguments[1:], "--in-this-tree"])
    settings.register_profile("mutants", _quick())
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    for name in _TAKE_LONG:
        importlib.import_module(name)
    tally = _Tally()
    drawn = sample(asked.seed, asked.mutants, asked.only)[asked.first - 1 : asked.last]
    Runner(Reach.read(asked.reach), asked.seconds, tally.told).run(drawn)
    whole = tally.whole()
    print(tally.table())
    print(f"{whole['died']} of {len(drawn)} died ({whole['died'] / max(1, len(drawn)):.1%})")
    return 0 if whole["died"] >= ENOUGH * len(drawn) else 1


def _quick() -> settings:
    """The examples of each run, and an end at the first that fails."""
    return settings(
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
    )


def _in_a_copy(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        copy_of_tree(tree)
        command = [sys.executable, "-m", "tests.mutate", *arguments]
        # No bytecode: a mutant of the second and length of the module before it would be taken for that.
        own = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        # A mutant of what supervises a job may leave the job running, in a session of its own.
        return subprocess.run(leashed(command), cwd=tree, env=own, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
