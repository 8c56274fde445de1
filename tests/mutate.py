"""Mutants of what decides, buys, drains, deletes or grants: a sample, and how many of it the unit tests kill.

    SPILLWAY_REACH=reach.jsonl python -m pytest -p tests.reach -m "not live" tests/test_autoscaler tests/test_roles ...
    python -m tests.mutate reach.jsonl [--seed 1] [--mutants 400] [--only PREFIX] [--from 1] [--seconds 90]

A mutant is the tree with one expression or statement changed: a comparison, a condition, an operator, a number, an
answer, a call that is left out. It is killed where a test fails with it, or hangs. Tried are the tests that enter its
function (of its module, where it stands in none), the nearest and quickest first, for so many CPU seconds; a survivor
is printed as it would stand in the source, with how many tests there were. What only other processes enter is tried by
the tests of its package. The exit status is 1 where fewer than 90 % die.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from tests import ROOT
from tests.reach import Reach

DECIDE: Final = (
    "autoscaler/planner",
    "autoscaler/executor.py",
    "autoscaler/loop.py",
    "autoscaler/cloud/autoscaling_groups.py",
    "autoscaler/kube/leader_election.py",
    "autoscaler/kube/writes.py",
    "stacks/aws/boundary.py",
    "stacks/aws/identities.py",
    "stacks/nodes/launch_templates.py",
    "stacks/on_prem_provider/drain.py",
    "stacks/recovery",
    "stacks/release",
    "roles/engine",
    "roles/membership",
    "roles/rollout",
    "images/backends",
    "images/experiment/halving.py",
    "images/experiment/slots.py",
)
"""Modules, or packages with all that is below."""
IN_OTHER_PROCESSES: Final = ("roles/engine", "roles/rollout")
"""Where tests start processes of their own, in which nothing is seen."""
ENOUGH: Final = 0.9
_GUARDS: Final = {"frozen", "kw_only", "slots", "strict"}
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
_HANGS: Final = 900
"""Seconds after which a run of tests counts as hanging: it ends by itself long before."""
_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module."""

    module: str
    line: int
    was: str
    now: str
    text: str
    """The whole module with the change."""
    function: int = 0
    """First line of the function that it stands in, decorators included; 0: in none."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a module may be changed: the number of a node of its syntax tree."""

    module: str
    node: int


def sites_of(module: str, source: str) -> list[Site]:
    """Every one of a module."""
    whole = ast.parse(source)
    hints = _annotations(whole)
    nodes = enumerate(ast.walk(whole))
    return [Site(module, number) for number, node in nodes if node not in hints and _change(node) is not None]


def mutant_at(site: Site, source: str) -> Mutant:
    """The module with that node changed."""
    whole = ast.parse(source)
    node = list(ast.walk(whole))[site.node]
    now, line = _change(node), _line(whole, node)
    assert now is not None
    was = _first_line(node)
    function = max(_functions(whole, node), default=0)
    _replace(whole, node, now)
    return Mutant(site.module, line, was, _first_line(now), ast.unparse(ast.fix_missing_locations(whole)), function)


def _functions(tree: ast.AST, node: ast.AST) -> Iterator[int]:
    """First lines of those around a node; its decorators and defaults are not in it."""
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef) and any(node is below for part in one.body for below in ast.walk(part)):
            yield min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])


def _line(tree: ast.AST, node: ast.AST) -> int:
    below = [getattr(one, "lineno", 0) for one in ast.walk(node)]
    return min(filter(None, below), default=0) if tree is not node else 0


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


def _annotations(tree: ast.AST) -> set[ast.AST]:
    """All that is written of types, which nothing evaluates, and options that only guard against mistakes of ours."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        hints = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"cast", "TypeVar"}:
            hints += node.args[:1]
        if isinstance(node, ast.Call):
            hints += [option.value for option in node.keywords if option.arg in _GUARDS]
        found.update(below for hint in hints if isinstance(hint, ast.AST) for below in ast.walk(hint))
    return found


def _change(node: ast.AST) -> ast.AST | None:
    """What may stand in the place of a node; ``None`` where it is left as it is."""
    change = _CHANGES.get(type(node))
    return change(node) if change is not None else None


def _of_compare(node: ast.Compare) -> ast.AST | None:
    by = _COMPARISONS.get(type(node.ops[0])) if len(node.ops) == 1 else None
    return _with(node, ops=[by()]) if by is not None else None


def _of_operation(node: ast.BinOp) -> ast.AST | None:
    by = _OPERATORS.get(type(node.op))
    return _with(node, op=by()) if by is not None else None


def _of_constant(node: ast.Constant) -> ast.AST | None:
    if isinstance(node.value, bool):
        return ast.Constant(not node.value)
    return ast.Constant(node.value + 1) if isinstance(node.value, int) else None


def _of_condition(node: ast.If | ast.IfExp) -> ast.AST | None:
    for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return None if for_types else _with(node, test=ast.UnaryOp(ast.Not(), node.test))


def _of_statement(node: ast.Expr) -> ast.AST | None:
    return ast.Pass() if isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom) else None


def _of_return(node: ast.Return) -> ast.AST | None:
    return None if node.value is None or isinstance(node.value, ast.Constant) else ast.Return(ast.Constant(None))


_CHANGES: Final[dict[type[ast.AST], Callable[[Any], ast.AST | None]]] = {
    ast.Compare: _of_compare,
    ast.BoolOp: lambda node: _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()),
    ast.BinOp: _of_operation,
    ast.UnaryOp: lambda node: node.operand if isinstance(node.op, ast.Not) else None,
    ast.Constant: _of_constant,
    ast.If: _of_condition,
    ast.IfExp: _of_condition,
    ast.Expr: _of_statement,
    ast.Return: _of_return,
    ast.Continue: lambda _: ast.Break(),
    ast.Break: lambda _: ast.Continue(),
    ast.comprehension: lambda node: _with(node, ifs=[]) if node.ifs else None,
}


def _with(node: ast.AST, **fields: object) -> ast.AST:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _replace(tree: ast.AST, node: ast.AST, by: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, by)
            elif isinstance(value, list) and node in value:
                value[value.index(node)] = by


def suites(module: str) -> list[str]:
    """The tests of a module and of its package: those that there are, nearest first."""
    room, *packages, name = Path(module).with_suffix("").parts
    nearest = Path("tests", f"test_{room}", *(f"test_{package}" for package in packages))
    return [str(path) for path in (nearest / f"test_{name}.py", nearest) if (ROOT / path).exists()]


def _file(test: str) -> str:
    return test.partition("::")[0]


class Tree:
    """A copy of the tree, in which one mutant at a time stands."""

    def __init__(self, folder: Path, reach: Reach, seconds: float) -> None:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        self._folder = folder
        self._reach = reach
        self._seconds = seconds
        self._written = 0

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Test files that enter its function and what of each does, nearest first, then quickest; or its package's."""
        where = f"{mutant.module}:{mutant.function}" if mutant.function else mutant.module
        return sorted(self._reach.tests.get(where, ()))

    def kills(self, mutant: Mutant) -> tuple[bool, int]:
        """Whether some test fails or hangs, and how many there were to try."""
        file = self._folder / mutant.module
        was, tests = file.read_text("utf-8"), self.tests_of(mutant)
        self._write(file, mutant.text)
        try:
            red = bool(tests) and not self._pass(mutant.module, tests)
            if not red and (not tests or mutant.module.startswith(IN_OTHER_PROCESSES)):
                red = any(not self._passes(suite) for suite in suites(mutant.module)[-1:])
        finally:
            self._write(file, was)
        return red, len(tests)

    def _write(self, file: Path, text: str) -> None:
        """With a time of its own: Python tells by time and size whether what it compiled is still true."""
        file.write_text(text, "utf-8")
        self._written += 1
        os.utime(file, (self._written, self._written))

    def _pass(self, module: str, tests: list[str]) -> bool:
        """Whether tests that enter it do."""
        near, took = suites(module), self._reach.took
        whole: defaultdict[str, float] = defaultdict(float)
        for test in tests:
            whole[_file(test)] += took[test]

        def rank(test: str) -> tuple[bool | float | str, ...]:
            """Quick ones first, file by file, the nearest file before that whose tests take least."""
            file = _file(test)
            return (took[test] >= _LONG, *(not file.startswith(suite) for suite in near), whole[file], file, took[test])

        chosen = self._folder / "chosen.json"
        ordered = sorted(tests, key=rank)
        chosen.write_text(json.dumps({"tests": ordered, "seconds": self._seconds}), "utf-8")
        return self._passes("-p", "tests.reach", *dict.fromkeys(map(_file, ordered)), SPILLWAY_CHOSEN=str(chosen))

    def _passes(self, *arguments: str, **environment: str) -> bool:
        """A process that has what takes long to import already: most runs end within a second."""
        child = os.fork()
        if not child:
            self._run(arguments, environment)
        watched = os.pidfd_open(child)
        try:
            if not select.select([watched], [], [], _HANGS)[0]:
                os.killpg(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in {0, 5}  # 5: no test was selected
        finally:
            os.close(watched)

    def _run(self, arguments: Sequence[str], environment: dict[str, str]) -> NoReturn:
        status = 1
        try:
            os.setsid()
            os.chdir(self._folder)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            # No bytecode: a mutant of the same second and length as the module would be taken for it.
            os.environ.update(environment, PYTHONPATH=str(self._folder), PYTHONDONTWRITEBYTECODE="1")
            sys.dont_write_bytecode = True
            sys.path.insert(0, str(self._folder))
            for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
                del sys.modules[name]
            status = pytest.main(["-q", "-x", "-m", "not live", "--timeout", "120", *arguments])
        finally:
            os._exit(status)


def sample(seed: int, size: int, only: str = "") -> list[Mutant]:
    """So many, each as likely as any other."""
    sources = {
        str(path.relative_to(ROOT)): path.read_text("utf-8") for name in DECIDE for path in _modules(ROOT / name)
    }
    sites = [site for name in sorted(sources) if name.startswith(only) for site in sites_of(name, sources[name])]
    drawn = random.Random(seed).sample(sites, min(size, len(sites)))  # noqa: S311 - a sample, no secret
    return [mutant_at(site, sources[site.module]) for site in drawn]


def _modules(path: Path) -> list[Path]:
    return [path] if path.suffix else sorted(path.rglob("*.py"))


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("reach", type=Path, help="what tests.reach wrote")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--only", default="", metavar="PREFIX", help="only modules whose path begins so")
    parser.add_argument("--from", type=int, default=1, dest="first", help="leave out those before this one")
    parser.add_argument("--seconds", type=float, default=90, help="CPU seconds for the tests of one mutant")
    asked = parser.parse_args(arguments)
    drawn = sample(asked.seed, asked.mutants, asked.only)[asked.first - 1 :]
    for name in _TAKE_LONG:
        importlib.import_module(name)
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder, "tree"), Reach.read(asked.reach), asked.seconds)
        for number, mutant in enumerate(drawn, start=asked.first):
            is_killed, tests = tree.kills(mutant)
            killed += is_killed
            if not is_killed:
                print(f"{mutant.module}:{mutant.line}: {mutant.was}  ->  {mutant.now}  ({tests} tests)", flush=True)
            if number % 10 == 0:
                print(f"{number} tried, {killed} of {number - asked.first + 1} killed", flush=True)
    print(f"{killed} of {len(drawn)} killed ({killed / max(1, len(drawn)):.1%})")
    return 0 if killed >= ENOUGH * len(drawn) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
