"""The bench on which roles are tried: machines come up, are reached, keep their disk, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stacks.local.process.supervisor import start_time
from tests import ROOT
from tests.live.debian import BenchError
from tests.live.machines import Bench

pytestmark = pytest.mark.live


def test_light_machines_are_machines_of_their_own(bench: Bench) -> None:
    """Each has its own name, disk and processes, and reaches the others and this machine."""
    one, two = bench.light("one", "two")
    one.run("echo mine > /etc/mark")
    assert one.run("hostname; cat /etc/mark").stdout.split() == ["one", "mine"]
    assert two.run("test -e /etc/mark", check=False).returncode == 1
    assert int(two.run("ls /proc | grep -c '^[0-9]'").stdout) < 12
    assert one.run(f"echo > /dev/tcp/{two.address}/22 && echo through").stdout.strip() == "through"


def test_a_whole_machine_keeps_its_disk_over_a_power_cut(bench: Bench) -> None:
    """Its PID 1 is systemd, units start, and a restart is seen as one."""
    (node,) = bench.machines("whole")
    assert node.run("systemctl is-system-running").stdout.strip() == "running"
    node.run("systemctl start systemd-logind && echo kept > /etc/mark")
    before = node.boot_id()
    node = bench.restart(node)
    assert node.run("cat /etc/mark").stdout.strip() == "kept"
    assert node.boot_id() != before


def test_a_command_that_fails_says_what_it_said(bench: Bench) -> None:
    """Machine, command, status, output."""
    (host,) = bench.light("failing")
    with pytest.raises(BenchError, match=r"failing: ls /nowhere: status 2\n.*No such file"):
        host.run("ls /nowhere")


def test_a_bench_whose_process_is_killed_leaves_nothing_for_long(bench: Bench, tmp_path: Path) -> None:
    """Machines end with it, at once; the next bench takes away bridge, firewall rules and folder."""
    program = (
        "import os, pathlib, signal, sys; from tests.live.machines import Bench;"
        "bench = Bench(pathlib.Path(sys.argv[1])).__enter__(); host, = bench.light('orphan');"
        "print(bench.bridge, host.process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "killed")]
    killed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    bridge, pid = killed.stdout.split()
    with Bench(tmp_path / "next"):
        assert bridge not in {one.name for one in Path("/sys/class/net").iterdir()}
        rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
        assert bridge not in rules
        assert bench.bridge in rules
        assert not (tmp_path / "killed" / "machines").exists()
        assert not start_time(pid)
