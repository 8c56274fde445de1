"""What hangs is ended on the machine itself, what is cut off is told, and the other machines go on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.debian import why_not
from tests.live.machines import Bench

pytestmark = pytest.mark.live


def test_faults_of_machines(tmp_path: Path) -> None:
    """One after the other, on two machines."""
    if reason := why_not():
        pytest.skip(reason)
    with Bench(tmp_path / "bench") as bench:
        first, second = bench.light("f0", "f1")
        link = f"sv{first.process.pid}"
        given = {
            "machines": [(one.name, one.ssh_data()) for one in (first, second)],
            "cut": ["ip", "link", "set", link, "down"],
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.live.nodes_faults"],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
            timeout=150,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["asked"][1] == 1, "the second machine is asked everything at once"
        assert all("sleep 777" in failed for failed in found["fact"].values())
        assert all(found["command"])
        assert found["cut"]["f0"] != ""
        assert found["cut"]["f1"] == ""
        subprocess.run(["ip", "link", "set", link, "up"], check=True)
        for machine in (first, second):
            left = machine.run("ps ax -o args | grep '^sleep 77' || true").stdout
            assert left == "", f"{machine.name}: an orphan is left: {left}"
        assert second.run("ls /run/went-on").returncode == 0
