"""containerd and Docker as Debian packs them, unpacked: nothing of them is installed, and nothing runs as a service."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from stacks.local.process.paths import cache_root
from tests.live.debian import debian_archive

_PROGRAMS: Final = {
    "containerd": ("containerd", "containerd-shim-runc-v2"),
    "docker.io": ("dockerd", "docker-proxy"),
}
"""Debian package, and the programs of it that are asked, or that those look for."""


def container_engines(suite: str) -> Path:
    """A folder with the programs of that Debian release, fetched the first time. Skips where they cannot be."""
    folder = cache_root() / "tools" / f"engines-{suite}"
    if not folder.exists():
        _fetch(suite, folder)
    return folder


def _fetch(suite: str, folder: Path) -> None:
    """With lists of packages of its own: nothing is installed, and this machine's apt is left as it is."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("there are no tools of Debian's here to fetch packages with")
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    for name in ("lists/partial", "cache/archives/partial"):
        (made / name).mkdir(parents=True)
    (made / "sources.list").write_text(f"deb {debian_archive()} {suite} main\n", encoding="ascii")
    settings = {
        "Dir::Etc::sourcelist": made / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": made / "lists",
        "Dir::Cache": made / "cache",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "1",
    }
    options = [f"-o{key}={value}" for key, value in settings.items()]
    try:
        for words in (["update"], ["download", *_PROGRAMS]):
            command = ["apt-get", "-q", *options, *words]
            subprocess.run(command, cwd=made, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=240)
        for package, programs in _PROGRAMS.items():
            (file,) = made.glob(f"{package}_*.deb")
            wanted = " ".join(f"'./usr/*bin/{program}'" for program in programs)
            shell = f"dpkg-deb --fsys-tarfile {file} | tar -x --wildcards --strip-components=3 -C {made} {wanted}"
            subprocess.run(["sh", "-c", shell], check=True, timeout=120)
            file.unlink()
        for name in ("lists", "cache"):
            shutil.rmtree(made / name)
        made.rename(folder)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        if not folder.exists():  # another process may have been first
            pytest.skip(f"the container engines of Debian {suite} cannot be fetched here: {error}")
    finally:
        shutil.rmtree(made, ignore_errors=True)
