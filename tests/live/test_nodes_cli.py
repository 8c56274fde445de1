"""`spillway nodes` on machines with sshd and nothing else: plan, apply, drift, faults. Each call is a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.live.debian import why_not
from tests.live.machines import Bench, Host
from tests.live.operating import Operator

pytestmark = pytest.mark.live

ROLE = "tests.test_roles.small_role:prepare"
NAMES = ("n0", "n1", "n2")
IGNORED = ("--ignore", "systemd")
"""These machines have none: an error of the preflight, which an operator may answer for."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    """Three light machines."""
    if reason := why_not():
        pytest.skip(reason)
    with Bench(tmp_path_factory.mktemp("bench")) as bench:
        yield {host.name: host for host in bench.light(*NAMES)}


@pytest.fixture
def operator(machines: dict[str, Host], tmp_path: Path) -> Operator:
    """An operator before three bare machines."""
    rolling = ("--no-cluster", "--health-seconds", "0", *IGNORED)
    operator = Operator(machines, tmp_path, role=ROLE, rolling=rolling)
    for host in operator.hosts.values():
        host.run(
            "rm -rf /etc/sysctl.d/90-test.conf /etc/modules-load.d/test.conf /etc/spillway-name /etc/test-link"
            " /var/lib/test-spool /etc/containerd /etc/driver-version /var/lib/spillway /run/spillway"
        )
    return operator


def test_plan_apply_and_plan_again(operator: Operator) -> None:
    """Bare machines drift in everything, then in nothing; the journal's chain holds until a line is changed."""
    status, said = operator.call("plan")
    assert status == 2
    assert "base | Kernel settings" in said
    assert "+vm.swappiness = 1" in said
    assert "containerd | Configuration  [containerd-restart]" in said
    assert operator.hosts["n0"].run("ls /etc/spillway-name", check=False).returncode != 0  # a plan writes nothing
    status, said = operator.call("apply", "--batch", "2")
    assert status == 0, said
    assert operator.hosts["n1"].run("cat /etc/spillway-name").stdout == "n1\n"
    assert operator.call("plan")[0] == 0
    page = (operator.folder / "state" / "report.html").read_text(encoding="utf-8")
    assert "<title>Nodes " in page
    assert "http" not in page.replace("https://json", "")
    book = operator.folder / "state" / "journal.jsonl"
    check = [sys.executable, "-m", "spillway", "nodes", "journal", "--state", str(operator.folder / "state")]
    assert subprocess.run(check, cwd=ROOT, check=False, capture_output=True).returncode == 0
    book.write_text(book.read_text(encoding="utf-8").replace("n1", "n9", 1), encoding="utf-8")
    told = subprocess.run(check, cwd=ROOT, check=False, capture_output=True, text=True)
    assert told.returncode == 1
    assert "was changed after it was written" in told.stdout


def test_a_machine_that_fails_its_preflight_is_left_alone(operator: Operator) -> None:
    """Nothing is changed there, the others are; the report says what was found and how to answer for it."""
    alone = operator.hosts["n1"]
    alone.run("mount -t tmpfs -o size=1m tmpfs /var")
    try:
        status, record = operator.record("apply", "--batch", "3")
    finally:
        alone.run("umount /var")
    assert (status, record["counts"]) == (2, {"clean": 2, "drifted": 1})
    assert record["changed"] == ["n0", "n2"]
    assert "disk: /var has 1 MiB free (free at least 1 GiB" in record["held"]["n1"]
    assert alone.run("ls /etc/spillway-name", check=False).returncode != 0
    assert operator.call("apply", "--ignore", "disks")[0] == 64
    assert operator.call("apply")[0] == 0
    assert operator.call("plan")[0] == 0


def test_drift_and_a_machine_that_is_away(operator: Operator) -> None:
    """The drift of one, the silence of another, and their exit statuses; the record says who is the odd one out."""
    operator.call("apply", "--batch", "3")
    operator.hosts["n2"].run("echo 'vm.swappiness = 60' > /etc/sysctl.d/90-test.conf; chmod 600 /etc/spillway-name")
    status, record = operator.record("plan")
    assert status == 2
    assert record["counts"] == {"clean": 2, "drifted": 1}
    (drifted,) = [one for one in record["machines"] if one["state"] == "drifted"]
    assert [change["resource"] for change in drifted["changes"]] == ["base | Kernel settings", "base | Name"]
    assert "-vm.swappiness = 60" in drifted["changes"][0]["diff"]
    operator.write_inventory(n0="198.18.255.254")
    status, record = operator.record("plan")
    assert status == 4
    assert record["counts"] == {"clean": 1, "drifted": 1, "unreachable": 1}
    assert operator.call("plan", "--limit", "n1")[0] == 0
    assert operator.call("plan", "--limit", "n0")[0] == 3
    status, said = operator.call("plan", "--limit", "nobody")
    assert (status, "there are n0, n1, n2" in said) == (64, True)
    status, said = operator.call("reconcile")
    assert status == 3, said  # what could be reached is mended
    assert operator.call("plan", "--limit", "n1,n2")[0] == 0


def test_a_full_disk_is_one_machines_trouble(operator: Operator) -> None:
    """Its file stays whole, the others are changed, and the next run finishes."""
    operator.call("apply", "--batch", "3")
    for host in operator.hosts.values():
        host.run("echo old > /etc/containerd/config.toml")
    full = operator.hosts["n1"]
    full.run(
        "cp -a /etc/containerd /tmp/c; mount -t tmpfs -o size=8k tmpfs /etc/containerd; cp -a /tmp/c/. /etc/containerd"
    )
    full.run("head -c 4096 /dev/zero > /etc/containerd/filler")
    try:
        status, record = operator.record("reconcile")
        assert status == 2
        assert "No space left on device" in record["failed"]["n1"]
        assert record["changed"] == ["n0", "n2"]
        assert full.run("cat /etc/containerd/config.toml").stdout == "old\n"
        assert full.run("ls -A /etc/containerd").stdout.split() == ["config.toml", "filler"]
    finally:
        full.run("umount /etc/containerd")
    assert operator.call("reconcile")[0] == 0


_SWAPS = """
printf 'Filename Type Size Used Priority\\n' > /run/swaps && mount --bind /run/swaps /proc/swaps
"""
"""A machine shares its kernel with this one, whose own swap is nobody's business."""
_SWAPS_OF_ONE = """
echo '/swapfile file 1048572 900000 -2' >> /run/swaps; echo '/swapfile none swap sw 0 0' > /etc/fstab
"""
_SWAPOFF = """#!/bin/sh
[ -e /run/memory ] && first=$(head -n 1 /run/swaps) && echo "$first" > /run/swaps && exit 0
echo 'swapoff: /swapfile: swapoff failed: Cannot allocate memory' >&2
exit 2
"""
"""As swapoff(8) ends where what was swapped out does not fit into memory."""


def test_swap_that_does_not_fit_into_memory_is_told(machines: dict[str, Host], tmp_path: Path) -> None:
    """Its machine is as it was, the other is changed; once there is memory, the next run gets on."""
    pair = {name: machines[name] for name in ("n0", "n1")}
    rolling = ("--no-cluster", "--health-seconds", "0", *IGNORED)
    operator = Operator(pair, tmp_path, role="tests.live.swap_role:prepare", rolling=rolling)
    full = pair["n0"]
    for host in pair.values():
        put = "chmod 755 /run/swapoff; mount --bind /run/swapoff /sbin/swapoff"
        host.run(f"cat > /run/swapoff <<'END'\n{_SWAPOFF}END\n{put}\n{_SWAPS}")
    full.run(_SWAPS_OF_ONE)
    try:
        status, record = operator.record("reconcile", "--batch", "2")
        assert (status, record["changed"]) == (2, ["n1"])
        assert "Cannot allocate memory" in record["failed"]["n0"]
        assert full.run("cat /etc/fstab").stdout == "/swapfile none swap sw 0 0\n", "it still boots with its swap"
        full.run("touch /run/memory")
        status, record = operator.record("reconcile")
        assert (status, record["changed"]) == (0, ["n0"])
        assert full.run("cat /etc/fstab").stdout == ""
    finally:
        for host in pair.values():
            host.run("umount /proc/swaps; umount /sbin/swapoff; rm -f /run/swapoff /etc/fstab /run/swaps /run/memory")


def test_a_controller_that_is_killed_goes_on(operator: Operator) -> None:
    """With SIGKILL in the middle of a change; a second run beside the first is refused."""
    stalled = operator.hosts["n0"]
    stalled.run("cd /usr/sbin; printf '#!/bin/sh\\ntouch /run/stalled; sleep 600\\n' > sync; chmod 755 sync")
    first = operator.start("apply", "--batch", "1")
    try:
        until = time.monotonic() + 90
        while stalled.run("ls /run/stalled", check=False).returncode and time.monotonic() < until:
            time.sleep(0.1)
        status, said = operator.call("apply")
        assert status == 1, said
        assert "is running already" in said
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        stalled.run("rm /usr/sbin/sync")
    status, said = operator.call("apply", "--batch", "3")
    assert status == 0, said
    assert operator.call("plan")[0] == 0


def test_check_names_each_finding_and_its_remedy(operator: Operator) -> None:
    """These machines have no systemd, and one is away."""
    operator.write_inventory(n0="198.18.255.254")
    status, said = operator.call("check")
    assert status == 4
    assert "n1: error: systemd: PID 1 is " in said
    assert "    boot the machine with systemd" in said
    assert "n0: error: connection: " in said
