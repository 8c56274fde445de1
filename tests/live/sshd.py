"""A real sshd for tests, on a port of its own, with keys of its own; without root it runs as whoever runs the test.

It is taken from the system, or from Debian's package, unpacked into the cache: nothing is installed.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stacks.local.process.paths import cache_root
from stacks.local.process.ports import free_ports
from stacks.local.process.supervisor import die_with_parent

_PACKAGES = ("openssh-server", "libwrap0")
_AS_ROOT = """
mount --bind {passwd} /etc/passwd && mount -t tmpfs tmpfs /run && mkdir -p /run/sshd && exec "$@"
"""
"""As root sshd wants a user and a folder of its own for its child, which this machine need not have."""


@dataclass
class SshMachine:
    """A host that answers on a port of this machine, with a folder of programs of its own first on its PATH."""

    folder: Path
    port: int
    host_key: str
    key: Path
    process: subprocess.Popen[bytes]

    @property
    def entry(self) -> dict[str, object]:
        """``ssh`` of its entry in an inventory."""
        return {"user": getpass.getuser(), "port": self.port, "key": str(self.key), "host_key": self.host_key}

    def program(self, name: str, script: str) -> None:
        """Put a program on its PATH, such as an nvidia-smi where there is no GPU."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def down(self) -> None:
        """It does not answer any more."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def hang(self) -> None:
        """The port still takes connections; nobody speaks."""
        os.killpg(self.process.pid, signal.SIGSTOP)


def find_sshd() -> tuple[Path, dict[str, str]]:
    """The daemon, and what its environment needs. Skips the test where there is none to be had."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found:
        return Path(found), {}
    root = cache_root() / "tools" / "openssh-server"
    if not (root / "usr/sbin/sshd").exists():
        _unpack(root)
    libraries = ":".join(str(path) for path in sorted((root / "usr/lib").glob("*-linux-gnu")))
    return root / "usr/sbin/sshd", {"LD_LIBRARY_PATH": libraries}


def _unpack(root: Path) -> None:
    """With lists of packages of our own, so that it needs neither root nor a fresh `apt-get update`."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("there is no sshd here, nor Debian's tools to fetch one")
    made = root.with_name(f"{root.name}.{os.getpid()}")
    folders = {"Dir::State::lists": made / "lists", "Dir::Cache": made / "cache"}
    options = [f"-o{key}={path}" for key, path in folders.items()]
    for path in folders.values():
        (path / "partial").mkdir(parents=True)
    try:
        for command in (["update"], ["download", *_PACKAGES]):
            subprocess.run(
                ["apt-get", "-q", *options, "-oDebug::NoLocking=1", "-oAPT::Sandbox::User=", *command],
                cwd=made,
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=120,
            )
        for package in made.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(made)], check=True, timeout=60)
        made.rename(root)
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(made, ignore_errors=True)
        if not root.exists():  # another process may have been first
            pytest.skip(f"there is no sshd here, and Debian's package of it cannot be fetched: {error}")


@contextlib.contextmanager
def ssh_machine(folder: Path, *, settings: str = "") -> Iterator[SshMachine]:
    """A machine for the length of a ``with`` block."""
    sshd, environment = find_sshd()
    for name in ("bin", "etc"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    key, host = _keygen(folder / "etc/login"), _keygen(folder / "etc/host")
    authorized = folder / "etc/authorized"
    shutil.copy(key.with_suffix(".pub"), authorized)
    [port] = free_ports(1)
    config = folder / "etc/sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nAuthorizedKeysFile {authorized}\n"
        f"StrictModes no\nUsePAM no\nUseDNS no\nPidFile none\nPermitRootLogin prohibit-password\n"
        f"PasswordAuthentication no\nMaxStartups 100\n"
        f"SetEnv PATH={folder / 'bin'}:/usr/bin:/bin:/usr/sbin:/sbin\n{settings}",
        encoding="utf-8",
    )
    command = [str(sshd), "-D", "-e", "-f", str(config)]
    process = subprocess.Popen(
        _as_root(folder, command) if os.geteuid() == 0 else command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stderr=(folder / "sshd.log").open("wb"),
        start_new_session=True,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it takes no lock in the child
    )
    public = host.with_suffix(".pub").read_text(encoding="utf-8").split()[:2]
    machine = SshMachine(folder=folder, port=port, host_key=" ".join(public), key=key, process=process)
    try:
        _wait(machine)
        yield machine
    finally:
        machine.down()


def _as_root(folder: Path, command: list[str]) -> list[str]:
    passwd = folder / "etc/passwd"
    passwd.write_text("root:x:0:0::/root:/bin/sh\nsshd:x:65533:65533::/run/sshd:/bin/false\n", encoding="utf-8")
    return ["unshare", "--mount", "sh", "-c", _AS_ROOT.format(passwd=passwd), "sh", *command]


def _keygen(path: Path) -> Path:
    if not path.exists():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
        subprocess.run(command, check=True, timeout=20)
    return path


def _wait(machine: SshMachine) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if machine.process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", machine.port), timeout=1):
            return
        time.sleep(0.02)
    said = (machine.folder / "sshd.log").read_text(encoding="utf-8")
    pytest.fail(f"sshd did not come up: {said}")
