"""Environments of frameworks, made once and kept in the user's cache, outside the product's own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from stacks.local.process.paths import cache_root

_HOROVOD: Final = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_DEBUG": "1",  # not optimized, which takes a third less
    "MAKEFLAGS": "-j2",  # else eight compilers at once, beside other tests
}


def environment(name: str, *, built: str = "", told: Mapping[str, str] = MappingProxyType({})) -> Path:
    """The virtual environment with the packages of ``NAME.txt``, made where it is missing: a minute, 1.6 GB.

    ``built``: a package that is built against those, with the variables ``told``. Skips the test where no package
    registry can be reached; fails where the packages cannot be installed.
    """
    packages = Path(__file__).with_name(f"{name}.txt")

    def make(place: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        _install(place, "-r", str(packages))
        if built:
            _install(place, "--no-build-isolation", built, told=told)

    key = packages.read_bytes() + f"{sys.version}{built}{sorted(told.items()) or ''}".encode()
    return made_once(name, key, make)


def horovod() -> Path:
    """That of Horovod and the TensorFlow of its time: the first time two minutes of compiling."""
    return environment("horovod", built="horovod==0.28.1", told=_HOROVOD)


def activate(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Have its programs first on the path. Bytecode of what they import is kept beside it, for other checkouts too."""
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)


def made_once(name: str, key: bytes, make: Callable[[Path], None]) -> Path:
    """A folder in the cache, made where there is none for this key; older ones of its name go."""
    place = cache_root() / "frameworks" / f"{name}-{hashlib.sha256(key).hexdigest()[:8]}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            for old in place.parent.glob(f"{name}-*"):
                shutil.rmtree(old)
            make(place)
            (place / "complete").touch()
    return place


def _install(place: Path, *what: str, told: Mapping[str, str] = MappingProxyType({})) -> None:
    install = [place / "bin" / "python", "-m", "pip", "install", "--no-compile", "--no-cache-dir", "--no-input"]
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, **told, "PATH": path}
    done = subprocess.run([*install, *what], env=environment, capture_output=True, text=True, check=False)
    if done.returncode and "connection broken by" in done.stderr:
        pytest.skip(f"{what[-1]} is not in {place.parent}, and no package registry can be reached")
    assert done.returncode == 0, done.stderr[-2000:]
