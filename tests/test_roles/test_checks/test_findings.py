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


def inside(name: str, folder: Path, **programs: str) -> list[str]:
    """The same, where the machine's own files are those in the folder."""
    shell = CHECKS[name].shell
    for path in ("/etc/", "/var/lib/", "/run/", "/dev/disk/", "/tmp)"):  # noqa: S108 - of the machine, as the checks write it
        shell = shell.replace(path, f"{folder}{path}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CHECKS, "checked", findings.Check("checked", "warning", shell, ""))
        return asked("checked", folder, **programs)


FSTAB: Final = """\
# UUID=comment /old ext4 defaults 0 2
UUID=aaaa / ext4 defaults 0 1
UUID=gone /data ext4 defaults 0 2
LABEL=gone /scratch xfs defaults,nofail 0 2
LABEL=away /later xfs rw,noauto 0 0
/dev/nowhere /more ext4 defaults 0 2
UUID=gone none swap sw 0 0
nfs:/home /home nfs defaults 0 0
"""


def test_what_the_next_boot_would_wait_for_in_vain_is_told(tmp_path: Path) -> None:
    """Not what may fail, is mounted by hand, is swap (the roles' own business), or comes from elsewhere."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "fstab").write_text(FSTAB, encoding="ascii")
    (tmp_path / "dev" / "disk" / "by-uuid").mkdir(parents=True)
    (tmp_path / "dev" / "disk" / "by-uuid" / "aaaa").touch()
    assert inside("boot-mounts", tmp_path) == [
        "/data: /etc/fstab has the boot wait for UUID=gone, which is not there".replace("/etc", f"{tmp_path}/etc"),
        "/more: /etc/fstab has the boot wait for /dev/nowhere, which is not there".replace("/etc", f"{tmp_path}/etc"),
    ]


@pytest.mark.parametrize(("free", "told"), [(102399, ["/boot has 99 MiB free"]), (102400, [])])
def test_a_full_folder_of_kernels_is_told(free: int, told: list[str], tmp_path: Path) -> None:
    """From less than 100 MiB on: an image of modules takes about as much while it is made."""
    said = f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 900000 1 {free} 9% /boot\n"
    assert asked("boot-space", tmp_path, df=said) == told


CNI: Final = '{"ipam": {"ranges": [[{\n  "subnet": "10.244.7.0/24"\n}]]}}'


@pytest.mark.parametrize(("bridge", "told"), [("10.42.0.1/24", "no new pod starts"), ("10.244.7.1/24", ""), ("", "")])
def test_a_bridge_of_another_subnet_is_told(bridge: str, told: str, tmp_path: Path) -> None:
    """The node is Ready all the same."""
    (tmp_path / "etc" / "cni" / "net.d").mkdir(parents=True)
    (tmp_path / "etc" / "cni" / "net.d" / "10-spillway.conflist").write_text(CNI, encoding="ascii")
    said = f"7: cni0    inet {bridge} brd 10.244.7.255 scope global cni0\n" if bridge else ""
    assert told in " ".join(inside("pod-network", tmp_path, ip=said))
    assert bool(inside("pod-network", tmp_path, ip=said)) == bool(told)


@pytest.mark.parametrize(
    ("taken", "running", "told"), [(99, 0, []), (100, 0, ["100 addresses are taken, and 0 pods run"]), (180, 81, [])]
)
def test_addresses_that_no_pod_gave_back_are_told(taken: int, running: int, told: list[str], tmp_path: Path) -> None:
    """Where a hundred more are taken than pods run."""
    networks, namespaces = tmp_path / "var/lib/cni/networks/spillway", tmp_path / "run/netns"
    for folder, names in (
        (networks, [f"10.244.7.{n}" for n in range(taken)] + ["last_reserved_ip.0", "lock"]),
        (namespaces, [f"cni-{n}" for n in range(running)]),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    assert inside("pod-network", tmp_path) == told


def test_what_every_program_relies_on_is_looked_at(tmp_path: Path) -> None:
    """An identity, a null device and a folder for temporary files that all may write to."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n", encoding="ascii")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    assert inside("basics", tmp_path) == []
    (tmp_path / "etc" / "machine-id").write_text("uninitialized\n", encoding="ascii")
    (tmp_path / "tmp").chmod(0o755)
    assert [line.rsplit("/", 1)[-1] for line in inside("basics", tmp_path)] == [
        "tmp has not the mode 1777",
        "machine-id names no machine",
    ]


def test_options_that_take_a_gpu_its_firmware_or_links_are_told(tmp_path: Path) -> None:
    """With the file that says so; what is harmless is not."""
    folder = tmp_path / "etc" / "modprobe.d"
    folder.mkdir(parents=True)
    (folder / "gsp.conf").write_text("options nvidia NVreg_EnableGpuFirmware=0 NVreg_X=1\n", encoding="ascii")
    (folder / "fine.conf").write_text("options nvidia NVreg_PreserveVideoMemoryAllocations=1\n", encoding="ascii")
    said = [line for line in inside("boot-line", tmp_path) if "modprobe.d" in line]
    assert said == [f"{folder}/gsp.conf:options nvidia NVreg_EnableGpuFirmware=0"]
