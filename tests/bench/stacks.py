"""A whole `pulumi up` on the local AWS, beside what the engine needs for as many resources that are nothing.

The example is ``tests/live/largest.py``; its instances boot at once, so that no time is the stand-in's. Both runs are
the same engine on the same machine, one after the other: their ratio says what our program and provider add.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from stacks.local.ground.lifecycle import ENGINE_BINARIES
from stacks.local.process.reaper import leashed
from stacks.local.toolchain.pulumi_engine import EngineSettings, environment, prepare
from stacks.local.toolchain.tools import ensure_tools
from tests import ROOT
from tests.bench.figure import Figure
from tests.live.hybrid import stand_in_aws
from tests.live.largest import GROUPS, overrides

_TIMES_THE_ENGINE: Final = 8.0
_CREATED: Final = re.compile(r"\+ (\d+) created")


def stacks() -> Iterator[Figure]:
    """Time and steps of the largest example, and how many times the bound that is."""
    tools = dict(ensure_tools(ENGINE_BINARIES, progress=print))
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as made:
        folder = Path(made)
        policy = folder / "policy.yaml"
        policy.write_text(json.dumps({"cluster": "bench", "groups": GROUPS}), encoding="utf-8")
        with stand_in_aws(folder, boot_delay="0s") as aws:
            settings = EngineSettings(
                directory=folder / "whole",
                tools=tools,
                policy=policy,
                inventory=None,
                env=aws.env,
                aws_url=aws.url,
                cluster="bench",
                region="us-east-1",
                overrides=overrides(folder),
            )
            steps, took = _up(settings, {})
            empty = replace(settings, directory=folder / "empty", programs=Path(__file__).parent / "empty_program")
            _, bound = _up(empty, {"RESOURCES": str(steps)})
    yield Figure("pulumi up of the largest example: steps of the engine", steps, "")
    yield Figure("pulumi up of the largest example", took, "s")
    yield Figure("the engine with as many empty resources", bound, "s")
    yield Figure("pulumi up of the largest example: times that", took / bound, "x", _TIMES_THE_ENGINE)


def _up(settings: EngineSettings, env: Mapping[str, str]) -> tuple[int, float]:
    """Steps that the engine took, and the seconds."""
    prepare(settings)
    provider = settings.directory / "bin" / "pulumi-resource-empty"
    provider.write_text(
        f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.bench.empty_provider\n", encoding="utf-8"
    )
    provider.chmod(0o755)
    root = str(ROOT)
    env = {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))), **env}
    _pulumi(settings, env, "stack", "select", "--create", "--stack", settings.stack)
    began = time.monotonic()
    said = _pulumi(settings, env, "up", "--stack", settings.stack, "--yes", "--skip-preview")
    took = time.monotonic() - began
    created = _CREATED.search(said)
    return int(created[1]) if created else 0, took


def _pulumi(settings: EngineSettings, env: Mapping[str, str], *arguments: str) -> str:
    command = [str(settings.tools["pulumi"]), *arguments, "--non-interactive", "--color", "never"]
    done = subprocess.run(
        leashed(command),
        cwd=settings.directory / "project",
        env={**environment(settings), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout
