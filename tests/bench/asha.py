"""A search by ASHA, ours and Ray Tune's after each other: time to target, and the CPU seconds of all processes.

The same function, settings and rule (:mod:`tests.bench.asha_run`); Ray is in an environment of its own, made once
(80 MB to fetch). Time counts from the call, with Ray's own start in it and without the imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.bench import asha_run
from tests.bench.figure import Figure
from tests.training.frameworks import environment


def asha() -> Iterator[Figure]:
    """Of each search; Ray Tune's is left out, and it is said why, where it cannot be installed."""
    yield from _figures("Spillway", "spillway", sys.executable)
    try:
        place = environment("ray")
    except pytest.skip.Exception as why:
        print(f"Ray Tune is left out: {why}")
        return
    yield from _figures("Ray Tune", "ray", str(place / "bin" / "python"))


def _figures(name: str, whose: str, python: str) -> Iterator[Figure]:
    told = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, str(Path(asha_run.__file__)), whose], env=told, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    yield Figure(f"{name}: time to target", found["to_target"], "s")
    yield Figure(f"{name}: time in all", found["took"], "s")
    yield Figure(f"{name}: CPU time", found["cpu"], "s")
    yield Figure(f"{name}: steps", found["steps"])
