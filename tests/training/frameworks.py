"""Environments of frameworks, made once and kept in the user's cache, outside the product's own."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stacks.local.process.paths import cache_root


def environment(name: str) -> Path:
    """The virtual environment with the packages of ``NAME.txt``, made where it is missing: a minute, 1.6 GB.

    Skips the test where no package registry can be reached; fails where the packages cannot be installed.
    """
    packages = Path(__file__).with_name(f"{name}.txt")
    digest = hashlib.sha256(packages.read_bytes() + sys.version.encode()).hexdigest()[:8]
    place = cache_root() / "frameworks" / f"{name}-{digest}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            _make(place, packages)
    return place


def _make(place: Path, packages: Path) -> None:
    for old in place.parent.glob(f"{packages.stem}-*"):
        shutil.rmtree(old)
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    install = [place / "bin" / "python", "-m", "pip", "install", "--no-compile", "--no-cache-dir", "--no-input"]
    done = subprocess.run([*install, "-r", packages], capture_output=True, text=True, check=False)
    if done.returncode and "connection broken by" in done.stderr:
        pytest.skip(f"{packages.stem} is not in {place.parent}, and no package registry can be reached")
    assert done.returncode == 0, done.stderr[-2000:]
    (place / "complete").touch()
