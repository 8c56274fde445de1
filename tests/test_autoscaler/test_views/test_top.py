"""The terminal view: what it shows, in 80 and 200 columns, and what it leaves out where there is no room."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

import spillway
from autoscaler.model import labels as words
from autoscaler.model import node_states
from autoscaler.model.actions import Memory, Plan
from autoscaler.model.pauses import Pause
from autoscaler.planner.explanation.overview import Overview, overview
from autoscaler.planner.plan import plan
from autoscaler.views.top import _COLORS, _URGENT, frame
from tests import ROOT
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later, nodes_of
from tests.test_autoscaler.fake_api import fake_api
from tests.test_autoscaler.test_replica.test_door import answering, deciding, lease, opened, serving

OLD = NOW - timedelta(hours=5)


def morning(nodes: int = 2) -> Overview:
    """Machines and EC2, busy, idle, dead and on their way; pods that wait for several reasons; a pause."""
    gpus, cpu = a_group("gpu-a100", joined=nodes, desired=nodes + 2), a_group("cpu", joined=1)
    ours = [replace(an_on_prem_node(f"dgx-{n}", created=OLD), ready=n > 0) for n in range(2)]
    there = [replace(one, name=f"{one.name}.us-east-1.compute.internal") for one in (*nodes_of(gpus), *nodes_of(cpu))]
    there[-1] = replace(there[-1], cordoned=True, cordoned_by=words.AUTOSCALER, cordoned_at=NOW)
    busy = [a_pod(f"p-{n}", gpus=3, node=one.name, phase="Running", started=OLD) for n, one in enumerate(there[:-1])]
    cluster = a_cluster(
        nodes=[*ours, *there],
        groups=[gpus, cpu, a_group("gpu-a10g")],
        pods=[*busy, *a_gang("llama", pods=6, gpus=8), a_pod("huge", gpus=16)],
        pauses=(Pause("group.gpu-a10g", "audit", "ada", NOW, later(hours=2)),),
    )
    policy = a_policy(an_entry("gpu-a10g"), an_entry("gpu-a100", max=nodes + 2), an_entry("cpu"))
    return overview(cluster, policy, plan(cluster, policy, Memory()))


def drawn(seen: Overview, width: int, height: int | None = None) -> list[str]:
    """Lines of the terminal."""
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(frame(seen, "acting: brain-0", width=width, height=height))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in str(text).splitlines()]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_what_matters_is_shown_at_any_width(width: int) -> None:
    """Who acts, what it costs, what is paused; groups with use and price; causes; nodes by state. No line is longer."""
    lines = drawn(morning(), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    for said in (
        "acting: brain-0",
        "decided 2026-11-21 09:00:00 UTC",
        "88.60 $/h",
        "7 pods wait",
        "is paused until",
        "by ada: audit",
    ):
        assert said in text
    [group] = [line for line in lines if line.startswith("local-gpu-a100-us-east-1a ")]
    assert "6/32" in group
    assert "87.83" in group
    assert "2 joining, 2 busy" in group
    assert any(line.startswith("   1  impossible") and "team/huge" in line for line in lines)
    assert any(line.startswith("   6  limit") for line in lines)
    assert "max of group gpu-a100 is " in " ".join(text.split())
    assert any(line.startswith("dgx-0 ") and " dead " in line for line in lines)
    assert any(" idle " in line and "ip-i-local-cpu-us-east-1a-0" in line for line in lines)
    assert any(line.startswith("+2 ") and "joining" in line for line in lines)


def test_a_wide_terminal_has_every_column() -> None:
    """Types, processors, memory, prices; a narrow one the names of hosts without their domain."""
    wide, narrow = drawn(morning(), 200), drawn(morning(), 80)
    for line in (" CPU ", " MEMORY ", "p4d.24xlarge", "compute.internal", "not ready since 2026-11-21 04:00:00 UTC"):
        assert any(line in one for one in wide), line
    assert not any("compute.internal" in one for one in narrow)


def test_what_has_no_room_is_counted_and_the_urgent_comes_first() -> None:
    """Of forty nodes in a terminal of 30 lines."""
    lines = drawn(morning(nodes=40), 80, 30)
    assert len(lines) < 30
    assert any(line.startswith("dgx-0") for line in lines)
    [left_out] = [line for line in lines if "more nodes" in line]
    shown = sum(" busy " in line or " dead " in line or " idle " in line or " joining " in line for line in lines[9:])
    assert shown
    assert int(left_out.split()[1]) < 44


def test_in_a_low_terminal_every_reason_takes_one_line() -> None:
    """Of 24 lines: all reasons, and room for some nodes."""
    lines = drawn(morning(nodes=40), 80, 24)
    assert len(lines) < 24
    [head] = [number for number, line in enumerate(lines) if line.startswith("WAIT")]
    assert [line.split()[1] for line in lines[head + 1 : head + 3]] == ["impossible", "limit"]
    assert sum(line.endswith("…") for line in lines) >= 2
    assert any(line.startswith("dgx-0") for line in lines)


def test_every_state_has_a_color_and_a_place() -> None:
    """Also one that is added."""
    assert set(_COLORS) == set(_URGENT) == set(node_states.STATES)


def test_an_empty_cluster_is_no_mistake() -> None:
    """Nothing is there and nothing waits."""
    empty = a_cluster(groups=())
    lines = drawn(overview(empty, a_policy(), Plan()), 80)
    assert "0 of 0 GPUs held" in lines[1]


def test_one_frame_comes_from_the_acting_replica(tmp_path: Path) -> None:
    """As JSON, value for value."""
    loop = deciding()
    url = opened(answers=answering(loop))
    with fake_api() as api:
        serving(api, lease(url))
        done = CliRunner().invoke(spillway.cli, ["top", "--once", "--kubeconfig", str(api.kubeconfig(tmp_path))])
        assert done.exit_code == 0, done.output
        assert done.output.startswith("acting: one")
        assert "3 pods wait" in done.output


def test_it_lives_in_a_terminal_as_wide_as_that_is_and_leaves_it_as_it_was(tmp_path: Path) -> None:
    """On a screen of its own, anew after a while, in 80 columns and in 200; Ctrl-C ends it."""
    loop = deciding()
    url = opened(answers=answering(loop))
    with fake_api() as api:
        serving(api, lease(url))
        line = [
            sys.executable,
            "-m",
            "spillway",
            "top",
            "--every",
            "0.5",
            "--kubeconfig",
            str(api.kubeconfig(tmp_path)),
        ]
        shown = {columns: _in_a_terminal(line, columns) for columns in (80, 200)}
    for columns, text in shown.items():
        assert text.index(_ANOTHER_SCREEN) < text.index("acting: one") < text.index(_FIRST_SCREEN)
        drawn_lines = [_CONTROL.sub("", one) for one in re.split(r"[\r\n]+|\x1b\[H", text)]
        assert columns - 40 < max(map(len, drawn_lines)) <= columns, columns
        assert "3 pods wait" in text


_ANOTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def _in_a_terminal(line: list[str], columns: int) -> str:
    """What is written to one of that width until two frames are drawn, and after a Ctrl-C."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    settings = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        line, stdin=there, stdout=there, stderr=there, cwd=ROOT, env=settings | {"TERM": "xterm-256color"}
    )
    os.close(there)
    text = b""
    try:
        while text.count(b"acting: one") < 2:
            assert select.select([here], [], [], 60)[0], text
            text += os.read(here, 2**16)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the other end is closed
            while found := os.read(here, 2**16):
                text += found
        assert process.wait(60) == 0, text
    finally:
        process.kill()
        process.wait()
        os.close(here)
    return text.decode()


def test_what_travels_is_what_was_seen() -> None:
    """Through JSON and back."""
    seen: Any = json.loads(json.dumps(msgspec.to_builtins(morning()), default=str))
    assert msgspec.convert(seen, Overview, strict=False) == morning()
