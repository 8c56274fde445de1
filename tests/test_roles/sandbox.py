"""A copy of this machine that shares nothing writable with it, in which the roles run for real as root.

    with Sandbox(folder) as sandbox:
        found = sandbox.run({"plant": "touch /etc/x", "users": [...], "watch": ["/etc/x"]})

Its root is an overlay of this machine's, in namespaces that end with its first process: accounts are made with useradd,
and root's and the accounts' commands are the ones that a machine would run. There is no systemd and no sshd in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

import pytest

from roles.inventory.instance_settings import NOBODY
from tests import ROOT
from tests.test_roles.signing import Signer

KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS ada"

_SET_UP: Final = """\
set -e; cd "$1"; mkdir -p upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
for one in dev sys; do mount --rbind /$one root/$one; done
mount -t proc proc root/proc
mount -t tmpfs -o mode=755 tmpfs root/run; mkdir -p root/home root/srv/tests
mount --bind "$2" root/srv/tests
shift 2
exec chroot root sh -c 'cd /srv/tests && exec "$@"' sh "$@"
"""


class Sandbox:
    """Runs cases one after the other. Skips the test where there is no root, or no overlay."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        """Start it."""
        if os.geteuid() != 0:
            pytest.skip("needs root: it makes accounts, and acts as each of them")
        root = ROOT
        alone = ("unshare", "-m", "-p", "-f", "--propagation", "private", "--kill-child=KILL")
        self._process = subprocess.Popen(
            [*alone, "sh", "-c", _SET_UP, "sh", str(self._folder), str(root), sys.executable, "-m", _DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and what it has started."""
        self._process.kill()
        self._process.wait()

    def plant(self, script: str) -> None:
        """Have root run this shell in it."""
        self.run({"plant": script, "nothing_more": True})

    def written(self, *but: str) -> dict[str, str]:
        """All that differs from this machine by now, below none of these paths: path to owner, mode, and content."""
        upper = self._folder / "upper"
        found = {f"/{path.relative_to(upper)}": path for path in upper.rglob("*")}
        return {name: _state(path) for name, path in found.items() if not f"{name}/".startswith(but)}

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        """What became of one case; ``tests/test_roles/sandbox_role.py`` says what it may hold."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


def whole_node(folder: Path) -> dict[str, Any]:
    """Settings of a node with everything, whose packages are nowhere to be had."""
    signer = Signer("the tests")
    (folder / "key.asc").write_bytes(signer.public)
    known = {"key": str(folder / "key.asc"), "fingerprints": [signer.fingerprint]}
    names = ("nvidia-cuda", "nvidia-container-toolkit", "kubernetes", "docker")
    return {
        "gpu_product": "NVIDIA-A100-SXM4-40GB",
        "gpu_count": 2,
        "gpu": {"mig": {"0": ["3g.20gb", "3g.20gb"]}, "fabric_manager": True, "cuda": True, "docker": True},
        "sources": {"mirror": "http://127.0.0.1:9", "repositories": dict.fromkeys(names, known)},
        "kubelet": {"server": "https://192.0.2.1:6443", "authority": NOBODY},
        "container_runtime": {"package": "containerd"},
        "pod_network": {"kind": "bridge", "pods": "10.244.7.0/24"},
        "logs": {"ship_to": "192.0.2.1:514"},
        "time": {"servers": ["192.0.2.1"]},
        "users": [{"name": "ada", "keys": [KEY], "sudo": True}],
        "ssh_passwords": "refused",
    }


def _state(path: Path) -> str:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        said = str(path.readlink())
    else:
        said = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(found.st_mode) else ""
    return f"{stat.filemode(found.st_mode)} {found.st_uid}:{found.st_gid} {found.st_rdev} {said}"


_DRIVER: Final = "tests.test_roles.sandbox_role"
