"""The same look gives the same plan on every kind of CPU, whatever numpy and OpenBLAS make of it there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from typing import Any, Final

import numpy as np

from tests import ROOT

_PLANS: Final = """
from autoscaler.model.actions import Memory
from autoscaler.planner.plan import plan
from tests.drawn_mixes import drawn_mix, mix_of_many_sizes
for mix in (drawn_mix(12), drawn_mix(25), mix_of_many_sizes(3)):
    found = plan(mix.cluster, mix.policy, Memory())
    print(found.usd_per_hour, found.lower_bound_usd_per_hour, found.steps, found.memory.assignments)
"""
_DECIDING: Final = ("planner", "solver", "model")
_BY_THE_CPU: Final = {
    *("dot", "inner", "linalg", "matmul", "tensordot", "vdot", "vecdot"),
    *("argpartition", "exp", "log", "power"),
}


def test_a_plan_does_not_depend_on_the_kind_of_cpu() -> None:
    """Of pods of few and of many sizes: here, and as on the oldest CPU that numpy runs on, with one thread."""
    core: Any = np._core._multiarray_umath
    chosen = [name for name in core.__cpu_dispatch__ if core.__cpu_features__[name]]
    oldest = {
        "OPENBLAS_CORETYPE": "Prescott",
        "OPENBLAS_NUM_THREADS": "1",
        "NPY_DISABLE_CPU_FEATURES": " ".join(chosen),
    }
    here, there = (_said(told) for told in ({}, oldest))
    assert here.count("\n") == 3
    assert here == there


def test_nothing_that_decides_leaves_the_order_of_its_sums_to_the_cpu() -> None:
    """``@`` and what else of numpy goes to BLAS or LAPACK, functions with a code of each CPU, and unstable sorts."""
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for room in _DECIDING
        for path in sorted((ROOT / "autoscaler" / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if _is_by_the_cpu(node)
    ]
    assert not found


def _is_by_the_cpu(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=ast.MatMult()):
            return True
        case ast.Attribute(value=ast.Name("np"), attr=name):
            return name in _BY_THE_CPU
        case ast.Call(func=ast.Attribute(attr="argsort"), keywords=given):
            return all(ast.unparse(one) != "kind='stable'" for one in given)
    return False


def _said(told: dict[str, str]) -> str:
    """What a new process says of the plans, with these variables."""
    done = subprocess.run(
        [sys.executable, "-c", _PLANS], cwd=ROOT, env=os.environ | told, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
