"""Debian and Ubuntu machines to try roles on: light ones (sshd in an overlay root), and whole ones (systemd as PID 1).

    with Bench(directory) as bench:
        hosts = bench.light("a", "b")         # sshd only: 40 of them take a second or two
        nodes = bench.machines("c", "d")      # systemd, sshd, apt; booted when the call comes back
        hosts[0].run("cat /etc/hostname")     # over SSH, as root, with a checked host key
        bench.restart(nodes[0])

All share a root folder, built once by mmdebstrap in the user's cache; each writes into a folder of its own. They
hang on one bridge whose address (``bench.gateway``) is this machine, which lets them out (for apt) by NAT.

Whatever happens, nothing stays: a machine's mounts, network and processes live in namespaces that the kernel takes away
with its first process, and that process ends with the test process. What the kernel keeps (bridge, firewall rules,
control groups, settings of the kernel) is undone at the end, or by the next bench if this process was killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from stacks.local.process.supervisor import die_with_parent
from tests.live.bridge import SUBNETS, remove_groups, set_up, take_down
from tests.live.debian import BenchError, System, apt_settings, cached_root, debian, run

_START: Final = Path(__file__).with_name("start_machine.sh")
_ALONE: Final = ("unshare", "-m", "-n", "-u", "-i", "-p", "-f", "--mount-proc", "--kill-child=KILL")
_AS_ON_HARDWARE: Final = """[Unit]
Description=Control groups can be written, as on hardware
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=-/bin/sh -c 'for one in /sys/fs/cgroup/*/; do mount -o remount,bind,rw $one; done'
"""
_QUICK: Final = "-oKexAlgorithms=curve25519-sha256"
"""As paramiko has it. OpenSSH's own first choice, sntrup761, takes a tenth of a second of CPU at each end."""
_DISKS: Final = ("upper", "containerd")
_BOOT_PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that runs, reached by SSH as root."""

    name: str
    address: str
    key: Path
    """Private key that its root lets in."""
    known_hosts: Path
    """Holds the host key of every machine of the bench."""
    upper: Path
    """What it has written, as a folder of this machine: the upper layer of its root."""
    log: Path
    process: subprocess.Popen[bytes]

    def run(self, command: str, *, check: bool = True, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """A shell command over SSH. Raises ``BenchError`` where it fails and ``check`` is set."""
        options = [f"-oUserKnownHostsFile={self.known_hosts}", "-oBatchMode=yes", "-oConnectTimeout=10"]
        done = subprocess.run(
            ["ssh", "-i", str(self.key), *options, _QUICK, f"root@{self.address}", command],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if check and done.returncode:
            raise BenchError(f"{self.name}: {command}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def boot_id(self) -> str:
        """When its PID 1 started, in ticks since this machine's boot: differs after each start of the machine."""
        return self.run("cut -d' ' -f22 /proc/1/stat").stdout.strip()

    def ssh_data(self) -> dict[str, object]:
        """What pyinfra must know to connect."""
        return {
            "ssh_hostname": self.address,
            "ssh_user": "root",
            "ssh_key": str(self.key),
            "ssh_known_hosts_file": str(self.known_hosts),
            "ssh_strict_host_key_checking": "yes",
        }


class Bench:
    """Machines on one bridge. Use it in a ``with`` block; they end with the thread that starts them.

    ``directory``: where the machines write; a folder on a file system that can be the upper layer of an overlay.
    ``shared``: folders of this machine that whole machines see too, at the same path, as those of a file server.
    ``installed``: such folders that they cannot write to.
    """

    def __init__(self, directory: Path, *, shared: Sequence[Path] = (), installed: Sequence[Path] = ()) -> None:
        self._directory = directory
        self._mounts = [f"--bind={one}" for one in shared] + [f"--bind-ro={one}" for one in installed]
        self._hosts: dict[str, Host] = {}
        self._systems: dict[str, System] = {}
        self.bridge = ""
        self.subnet = SUBNETS[0]
        self.key = directory / "key"
        self.known_hosts = directory / "known_hosts"

    @property
    def gateway(self) -> str:
        """The address of this machine that its machines reach."""
        return str(self.subnet[1])

    def __enter__(self) -> Self:
        """Set up key and bridge; the first time on this machine, the root folder too (a minute)."""
        self._directory.mkdir(parents=True, exist_ok=True)
        cached_root()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", str(self.key))
        self.known_hosts.touch()
        self.bridge, self.subnet = set_up(self._directory / "machines")
        return self

    def __exit__(self, *_: object) -> None:
        """End all machines, and leave nothing of them."""
        for host in tuple(self._hosts.values()):
            self.end(host)
        shutil.rmtree(self._directory / "images", ignore_errors=True)  # some are a gigabyte
        take_down(self.bridge)

    def light(self, *names: str) -> list[Host]:
        """Machines with sshd and nothing else running; ready when this comes back."""
        return self._start(names, kind="light", system=debian())

    def machines(self, *names: str, system: System | None = None, image: Path | None = None) -> list[Host]:
        """Machines with systemd as PID 1, of Debian or of another ``system``; booted when this comes back.

        Bare, or with the disks of an image of that system.
        """
        hosts = self._start(names, kind="whole", system=system or debian(), image=image)
        for host in hosts:
            self._until_booted(host)
        return hosts

    def end(self, host: Host) -> None:
        """Cut its power; its disk goes too."""
        _kill(host.process)
        del self._hosts[host.name]
        remove_groups(f"{self.bridge}-{host.name}")
        shutil.rmtree(host.upper.parent, ignore_errors=True)

    def image_of(self, host: Host) -> Path:
        """Cut its power; its disks stay as an image."""
        _kill(host.process)
        del self._hosts[host.name]
        remove_groups(f"{self.bridge}-{host.name}")
        image = self._directory / "images" / host.name
        image.mkdir(parents=True)
        for disk in _DISKS:
            (host.upper.parent / disk).rename(image / disk)
        shutil.rmtree(host.upper.parent)
        return image

    def restart(self, host: Host, *, whole: bool = True, wait: bool = True) -> Host:
        """Cut its power and start it again from its disk; ``wait``: until it has booted, not only answers."""
        _kill(host.process)
        del self._hosts[host.name]
        remove_groups(f"{self.bridge}-{host.name}")
        again = self._launch(host.name, host.address, kind="whole" if whole else "light")
        self._until_answers(again)
        if whole and wait:
            self._until_booted(again)
        return again

    def _start(self, names: Sequence[str], *, kind: str, system: System, image: Path | None = None) -> list[Host]:
        hosts = []
        for name in names:
            assert name not in self._hosts, f"there is a machine {name} already"
            used = {host.address for host in self._hosts.values()}
            address = next(str(one) for one in list(self.subnet.hosts())[9:] if str(one) not in used)
            place = self._directory / "machines" / name
            place.mkdir(parents=True)
            if image:
                run("cp", "-a", *(str(image / disk) for disk in _DISKS), str(place))
            self._systems[name] = system
            self._furnish(name, address)
            hosts.append(self._launch(name, address, kind=kind))
        for host in hosts:
            self._until_answers(host)
        return hosts

    def _furnish(self, name: str, address: str) -> None:
        """What an installer would have asked for: name, addresses, keys, where packages come from."""
        upper = self._directory / "machines" / name / "upper"
        for mark in (
            upper / "root/.ssh",
            *upper.glob("etc/host*"),
            *upper.glob("etc/ssh/ssh_host_*"),
        ):  # an image may hold those of an overlay, which are devices
            if mark.is_char_device():
                mark.unlink()
        for folder in ("etc/ssh", "root/.ssh", "etc/apt/apt.conf.d", "etc/systemd/system/sysinit.target.wants"):
            (upper / folder).mkdir(parents=True, exist_ok=True)
        (upper / "root").chmod(0o700)
        (upper / "root/.ssh").chmod(0o700)
        shutil.copyfile(self.key.with_suffix(".pub"), upper / "root/.ssh/authorized_keys")
        host_key = upper / "etc/ssh/ssh_host_ed25519_key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(host_key))
        kind, public, *_ = host_key.with_suffix(".pub").read_text(encoding="ascii").split()
        with self.known_hosts.open("a", encoding="ascii") as known:
            known.write(f"{address} {kind} {public}\n")
        for file, text in (("hostname", f"{name}\n"), ("hosts", f"127.0.0.1 localhost\n{address} {name}\n")):
            (upper / "etc" / file).write_text(text, encoding="ascii")
        self._systems[name].furnish(upper, name)
        for file in apt_settings():
            shutil.copyfile(file, upper / "etc/apt/apt.conf.d" / file.name)
        units = upper / "etc/systemd/system"
        (units / "bench.service").write_text(_AS_ON_HARDWARE, encoding="ascii")
        link = units / "sysinit.target.wants/bench.service"
        link.unlink(missing_ok=True)
        link.symlink_to("/etc/systemd/system/bench.service")

    def _launch(self, name: str, address: str, *, kind: str) -> Host:
        place = self._directory / "machines" / name
        log, root = place / "console.log", self._systems[name].root
        with log.open("ab") as out:
            process = subprocess.Popen(
                [*_ALONE, "sh", str(_START), kind, str(root), str(place), name, address, *self._mounts],
                env={"PATH": os.environ["PATH"], "GATEWAY": self.gateway, "GROUP": f"{self.bridge}-{name}"},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it takes no lock in the child
            )
        host = Host(
            name=name,
            address=address,
            key=self.key,
            known_hosts=self.known_hosts,
            upper=place / "upper",
            log=log,
            process=process,
        )
        self._hosts[name] = host
        self._plug_in(process, f"sv{process.pid}")
        return host

    def _plug_in(self, process: subprocess.Popen[bytes], link: str) -> None:
        """Give it a cable once its network namespace is there, and the word to go on."""
        ours, its = Path("/proc/self/ns/net").readlink(), Path(f"/proc/{process.pid}/ns/net")
        while process.poll() is None and its.readlink() == ours:
            time.sleep(0.002)
        peer = ("peer", "name", "eth0", "netns", str(process.pid))
        run("ip", "link", "add", link, "master", self.bridge, "up", "type", "veth", *peer)
        assert process.stdin
        process.stdin.write(b"go\n")
        process.stdin.close()

    def _until_answers(self, host: Host) -> None:
        end = time.monotonic() + _BOOT_PATIENCE
        while not _has_banner(host.address):
            if host.process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"{host.name} did not come up:\n{host.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)

    def _until_booted(self, host: Host) -> None:
        end, state = time.monotonic() + _BOOT_PATIENCE, ""
        while state not in ("running", "degraded") and time.monotonic() < end:
            # One login that waits, not one after another. It comes back at once where systemd takes no questions yet.
            waits = f"timeout {_BOOT_PATIENCE:.0f} systemctl is-system-running --wait"
            state = host.run(waits, check=False).stdout.strip()
            time.sleep(0.1)
        if state != "running":
            failed = host.run("systemctl --failed --no-legend; journalctl -b -p warning --no-pager | tail -20").stdout
            raise BenchError(f"{host.name} is {state or 'silent'}:\n{failed}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Its namespaces, and all that runs in them, go with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _has_banner(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as line:
            return line.recv(4) == b"SSH-"
    except OSError:
        return False
