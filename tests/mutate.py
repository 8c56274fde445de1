"""Mutants of what decides, buys, drains, deletes or grants: a sample, and how many of it the unit tests kill.

    python -m tests.mutate [--seed 1] [--mutants 400] [--only PREFIX] [--jobs 2]

A mutant is the tree with one expression or statement changed: a comparison, a condition, an operator, a number, an
answer, a call that is left out. It is killed where a test fails with it, or hangs: first the tests of its module, then
those of its package, then those of its room; tests that fail without a mutant, too, end the run. The survivors are
printed as they would stand in the source; the exit status is 1 where fewer than 90 % die. Run it on a quiet machine: a
mutant takes from 2 s to minutes.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from tests import ROOT

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
ENOUGH: Final = 0.9
_HANGS: Final = 3600
"""Seconds after which a run of tests counts as hanging: a room's take minutes, and a test ends after two anyway."""
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
    _replace(whole, node, now)
    return Mutant(site.module, line, was, _first_line(now), ast.unparse(ast.fix_missing_locations(whole)))


def _line(tree: ast.AST, node: ast.AST) -> int:
    below = [getattr(one, "lineno", 0) for one in ast.walk(node)]
    return min(filter(None, below), default=0) if tree is not node else 0


def _first_line(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]


def _annotations(tree: ast.AST) -> set[ast.AST]:
    """All that is written of types, which nothing evaluates."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        hints = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"cast", "TypeVar"}:
            hints += node.args[:1]
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
    """The tests of a module, of its package, of its room: those that there are, nearest first."""
    room, *packages, name = Path(module).with_suffix("").parts
    nearest = Path("tests", f"test_{room}", *(f"test_{package}" for package in packages))
    found = [nearest / f"test_{name}.py", nearest, Path("tests", f"test_{room}")]
    return list(dict.fromkeys(str(path) for path in found if (ROOT / path).exists()))


class Copy:
    """A copy of the tree, in which one mutant at a time stands."""

    def __init__(self, folder: Path) -> None:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
        for name in filter(None, listed.stdout.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        shared = ROOT.parent / "shared"
        if shared.exists() and not (folder.parent / "shared").exists():
            (folder.parent / "shared").symlink_to(shared)
        self._folder = folder
        self._sound: set[str] = set()
        """Tests that pass without a mutant."""

    def kills(self, mutant: Mutant) -> bool:
        """Whether some test fails or hangs. Raises ``RuntimeError`` where it does so without the mutant, too."""
        file = self._folder / mutant.module
        was = file.read_text("utf-8")
        try:
            file.write_text(mutant.text, "utf-8")
            red = next((suite for suite in suites(mutant.module) if not self.passes(suite)), None)
        finally:
            file.write_text(was, "utf-8")
        if red and red not in self._sound:
            if not self.passes(red):
                raise RuntimeError(f"{red} fails without any mutant: nothing can be told by it")
            self._sound.add(red)
        return red is not None

    def passes(self, suite: str) -> bool:
        """Whether all of these tests do."""
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-m", "not live", "--timeout", "120", suite]
        try:
            ended = subprocess.run(
                command,
                cwd=self._folder,
                env=os.environ | {"PYTHONPATH": str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_HANGS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return ended.returncode in {0, 5}  # 5: no test was selected


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
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=400)
    parser.add_argument("--only", default="", metavar="PREFIX", help="only modules whose path begins so")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args(arguments)
    drawn = sample(asked.seed, asked.mutants, asked.only)
    survivors = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(asked.jobs):
            copies.put(Copy(Path(folder, f"copy-{number}")))
        tries = pool.map(lambda mutant: _is_killed(mutant, copies), drawn)
        for number, (mutant, is_killed) in enumerate(zip(drawn, tries, strict=True), start=1):
            survivors += not is_killed
            if not is_killed:
                print(f"{mutant.module}:{mutant.line}: {mutant.was}  ->  {mutant.now}", flush=True)
            if number % 10 == 0:
                print(f"{number} tried, {number - survivors} killed", flush=True)
    killed = len(drawn) - survivors
    print(f"{killed} of {len(drawn)} killed ({killed / max(1, len(drawn)):.1%})")
    return 0 if killed >= ENOUGH * len(drawn) else 1


def _is_killed(mutant: Mutant, copies: SimpleQueue[Copy]) -> bool:
    tree = copies.get()
    try:
        return tree.kills(mutant)
    finally:
        copies.put(tree)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
