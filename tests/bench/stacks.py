"""A whole `pulumi up` on the local AWS, beside what the engine needs for as many resources that are nothing.

The example has every option of a node group, a bundle of the roles, a kubeadm control plane of three members, three
zones with a NAT gateway each, endpoints, flow logs and a VPN; its instances boot at once, so that no time is the
stand-in's. Both runs are the same engine on the same machine, one after the other: their ratio says what our program
and provider add.
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
from typing import Any, Final

from stacks.local.engine import EngineSettings, environment, prepare
from stacks.local.ground import ENGINE_BINARIES
from stacks.local.leash import leashed
from stacks.local.tools import ensure_tools
from tests.bench.figure import Figure
from tests.live.hybrid import stand_in_aws
from tests.test_stacks.test_node_bundle import bundle

_ZONES: Final = ["us-east-1a", "us-east-1b", "us-east-1c"]
_GROUPS: Final[list[dict[str, Any]]] = [
    {"name": "gpu-a10g", "instance_type": "g5.12xlarge", "zones": _ZONES, "max": 8},
    {"name": "gpu-a100", "instance_type": "p4d.24xlarge", "zones": _ZONES, "max": 8},
    {"name": "gpu-l4", "instance_type": "g6.12xlarge", "zones": _ZONES, "max": 8, "capacity_type": "spot"},
    {"name": "set", "instance_types": ["g5.12xlarge", "g5.24xlarge"], "zones": _ZONES, "max": 8},
    {"name": "fabric", "instance_type": "p4d.24xlarge", "zones": _ZONES[:1], "max": 4, "efa": True},
    {"name": "close", "instance_type": "p4d.24xlarge", "zones": _ZONES[1:2], "max": 4, "placement": "cluster"},
    {"name": "cpu", "instance_type": "m5.4xlarge", "zones": _ZONES, "max": 20},
]
_NETWORK: Final = {
    "nat": "per-zone",
    "flow_logs": {"to": "s3"},
    "endpoints": ["ecr.api", "ecr.dkr", "sts"],
    "on_prem": ["10.80.0.0/16"],
}
_IMAGE: Final = "ami-12c6146b"
_CONTROL_PLANE: Final = {"kind": "kubeadm", "ami": _IMAGE, "instances": 3}
_VPN: Final = {"kind": "vpn", "address": "198.51.100.7"}
_TIMES_THE_ENGINE: Final = 8.0
_CREATED: Final = re.compile(r"\+ (\d+) created")


def stacks() -> Iterator[Figure]:
    """Time and steps of the largest example, and how many times the bound that is."""
    tools = dict(ensure_tools(ENGINE_BINARIES, progress=print))
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as made:
        folder = Path(made)
        policy = folder / "policy.yaml"
        policy.write_text(json.dumps({"cluster": "bench", "groups": _GROUPS}), encoding="utf-8")
        nodes = {"ami": _IMAGE, "roles": "bundle", "bundle": str(bundle(folder))}
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
                overrides={
                    "spillway:network": _NETWORK,
                    "spillway:connectivity": _VPN,
                    "spillway:control_plane": _CONTROL_PLANE,
                    "spillway:nodes": nodes,
                },
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
    root = str(Path(__file__).parents[2])
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
