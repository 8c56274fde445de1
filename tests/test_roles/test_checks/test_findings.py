"""The preflight's questions, run as shell where what they look for is there."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from roles.checks import findings
from tests.test_roles.sandbox import Sandbox

CHECKS: Final = {one.name: one for one in findings.CHECKS}
SAVED: Final = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
-A INPUT -p tcp -m tcp --dport 10250 -j DROP
-A INPUT -p tcp -m tcp --dport 22 -j DROP
COMMIT
"""
RULES: Final = """\
table ip filter {
\tchain FORWARD {
\t\ttype filter hook forward priority filter; policy drop;
\t}
}
table inet lab {
\tchain input {
\t\ttype filter hook input priority filter; policy drop;
\t\ttcp dport { 22, 10250 } counter packets 0 bytes 0 reject
\t}
\tchain output {
\t\ttype filter hook output priority filter; policy accept;
\t}
}
"""


def asked(name: str, folder: Path, **programs: str) -> list[str]:
    """What a check prints; ``programs`` are stand-ins that print these texts."""
    for program, text in programs.items():
        place = folder / program.replace("_", "-")
        place.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n", encoding="ascii")
        place.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:/usr/bin:/bin"}
    run = ["sh", "-c", CHECKS[name].shell]
    return subprocess.run(run, env=environment, capture_output=True, text=True, check=False).stdout.splitlines()


def test_a_firewall_that_drops_is_seen_whichever_way_it_was_made(tmp_path: Path) -> None:
    """By policy, or the kubelet's port by a rule; what nft shows of the tables of iptables is not told twice."""
    assert asked("firewall", tmp_path, iptables_save=SAVED, nft=RULES) == [
        "iptables: -A INPUT -p tcp -m tcp --dport 10250 -j DROP",
        "iptables: FORWARD drops what it has no rule for",
        "nftables: inet lab:\t\ttcp dport { 22, 10250 } counter packets 0 bytes 0 reject",
        "nftables: inet lab: input drops what it has no rule for",
    ]


def test_a_firewall_that_lets_through_is_not_told(tmp_path: Path) -> None:
    """Nor one that is not there."""
    assert asked("firewall", tmp_path) == []
    assert asked("firewall", tmp_path, iptables_save=SAVED.splitlines(keepends=True)[1], nft="") == []


def test_whoever_holds_a_lock_of_apts_is_named(tmp_path: Path) -> None:
    """By process and program, without fuser."""
    lock = tmp_path / "lock-frontend"
    script = findings.APT_LOCK.replace("/var/lib/dpkg/lock-frontend", str(lock))
    with lock.open("w", encoding="ascii") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        if str(lock.stat().st_ino) not in Path("/proc/locks").read_text(encoding="ascii"):
            pytest.skip("this kernel does not say who holds a lock")
        said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
        assert said.startswith(f"held by process {os.getpid()} (")
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout == ""


def test_folders_that_are_file_systems_of_their_own_are_looked_at(tmp_path: Path) -> None:
    """A full /var/cache/apt, and a state folder that cannot be written; the root file system has room."""
    plant = (
        "mkdir -p /var/cache/apt/archives /var/lib/spillway; mount -t tmpfs -o size=1m tmpfs /var/cache/apt/archives\n"
        "mount -t tmpfs -o ro tmpfs /var/lib/spillway\n"
        f"(sh -c '{CHECKS['disk'].shell.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}') > /root/disk\n"
        f"(sh -c '{CHECKS['read-only'].shell.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}') > /root/read-only"
    )
    with Sandbox(tmp_path / "sandbox") as sandbox:
        said = sandbox.run({"plant": plant, "place": [], "watch": ["/root/disk", "/root/read-only"]})["after"]
    assert "/var/cache/apt/archives has 1 MiB free" in said["/root/disk"]
    assert "/var/lib/spillway cannot be written: it is mounted read-only, or immutable" in said["/root/read-only"]


def test_a_check_that_hangs_does_not_hold() -> None:
    """It said nothing, and so passed."""
    slow = findings.Check("slow", "warning", "sleep 600", "see why")
    script = findings.script((slow,)).replace("-k 1 10", "-k 1 0.2")
    said = subprocess.run(["sh"], input=script, capture_output=True, text=True, check=True)
    (found,) = findings.findings("n", said.stdout, (slow,))
    assert "could not be found out" in found.found
