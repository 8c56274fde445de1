"""What a mutant is: one expression or statement of a module changed, and the sample that is drawn of all of them."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests import ROOT

DECIDE: Final = (
    "autoscaler/planner",
    "autoscaler/executor.py",
    "autoscaler/loop.py",
    "autoscaler/step_batches.py",
    "autoscaler/cloud/autoscaling_groups.py",
    "autoscaler/cloud/group_reader.py",
    "autoscaler/cloud/group_writes.py",
    "autoscaler/cloud/launches.py",
    "autoscaler/cloud/prices.py",
    "autoscaler/cloud/purchases.py",
    "autoscaler/cloud/reservations.py",
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
_GUARDS: Final = {"frozen", "kw_only", "slots", "strict"}
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
    tree: ast.Module
    """The whole module with the change."""
    statement: int
    """Line on which the statement of a function begins that is changed; 0: it stands in none, and runs on import."""
    function: str
    """Qualified name of the outermost function that it stands in; empty: in none."""

    @property
    def text(self) -> str:
        """Of the whole module."""
        return ast.unparse(self.tree)

    def __str__(self) -> str:
        """As it would stand in the source."""
        return f"{self.module}:{self.line}: {self.was}  ->  {self.now}"


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
    statement, function = _place(whole, node)
    _replace(whole, node, now)
    return Mutant(site.module, line, was, _first_line(now), ast.fix_missing_locations(whole), statement, function)


def _place(tree: ast.AST, node: ast.AST) -> tuple[int, str]:
    """Line of the innermost statement of a function, and the function: decorators and defaults are not in it."""
    parents = {below: above for above in ast.walk(tree) for below in ast.iter_child_nodes(above)}
    around = [node]
    while around[-1] is not tree:
        around.append(parents[around[-1]])
    names: list[str] = []
    for number, one in zip(range(len(around) - 1, 0, -1), reversed(around), strict=False):
        if isinstance(one, ast.ClassDef | ast.FunctionDef):
            names.append(one.name)
        if isinstance(one, ast.FunctionDef) and around[number - 1] in one.body:
            return next(below.lineno for below in around if isinstance(below, ast.stmt)), ".".join(names)
    return 0, ""


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
        if isinstance(node, ast.Call | ast.ClassDef):
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


def sample(seed: int, size: int, only: Sequence[str] = ("",)) -> list[Mutant]:
    """So many, each as likely as any other, of the modules whose path begins so."""
    sources = {
        str(path.relative_to(ROOT)): path.read_text("utf-8") for name in DECIDE for path in modules_below(ROOT / name)
    }
    sites = [site for name in sorted(sources) if name.startswith(tuple(only)) for site in sites_of(name, sources[name])]
    drawn = random.Random(seed).sample(sites, min(size, len(sites)))  # noqa: S311 - a sample, no secret
    return [mutant_at(site, sources[site.module]) for site in drawn]


def modules_below(path: Path) -> list[Path]:
    """A module, or those of a package and of its packages."""
    return [path] if path.suffix else sorted(path.rglob("*.py"))
