"""Controllers of a rolling change, killed at many points: how many, where, and the harm that came of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from stacks.local.ground.control_plane import BINARIES, control_plane, wait_for_namespace
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.ports import free_ports
from stacks.local.toolchain.tools import ensure_tools
from tests.bench.figure import Figure
from tests.live.conftest import Plane
from tests.live.deaths import MAX_DOWN, campaign
from tests.live.debian import why_not
from tests.live.hybrid import kept
from tests.live.machines import Bench


def deaths(many: int, *, first: int) -> Iterator[Figure]:
    """So many processes, on six machines; ``first`` goes on where another run stopped."""
    if reason := why_not():
        raise SystemExit(f"no machines to change: {reason}")
    tools = ensure_tools(BINARIES, progress=lambda line: print(f"  {line}", flush=True))
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place:
        folder = Path(place)
        ports = free_ports(3)
        made = control_plane(folder / "plane", tools=tools, ports=(ports[0], ports[1], ports[2]))
        with kept(made.processes, directory=folder / "plane"), Bench(folder / "bench") as bench:
            kube = KubeHttp(made.kubeconfig)
            wait_for_namespace(kube)
            plane = Plane.of(made, kube, folder)
            began = time.monotonic()
            found = campaign(plane, bench, folder / "run", deaths=many, first=first)
            seconds = time.monotonic() - began
    for entry, count in found.at.most_common():
        print(f"  {count:3} died at: {entry}")
    for one in found.harm:
        print(f"  HARM: {one}")
    yield Figure(
        f"{found.deaths} controllers killed during {found.versions} changes: harm done", len(found.harm), "", 0
    )
    yield Figure("most nodes down at a time, one of them by a person", found.worst, "", MAX_DOWN)
    yield Figure("seconds for each", seconds / max(found.deaths, 1), "s")
