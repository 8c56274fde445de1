"""The images of the project's Dockerfiles, built by Buildah on a base of Debian packages; no image registry is asked.

Layers are kept in the user's cache, so that a second build of the same lines takes seconds. Buildah runs in namespaces
of its own: what it mounts and starts goes with it, also where it is killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

import images
from stacks.local.process.paths import cache_root
from stacks.local.process.reaper import leashed
from tests import ROOT
from tests.live.debian import SUITE, BenchError, bootstrap, debian_archive, root_folder, why_not

IMAGE: Final = "docker.io/spillway/tensorflow-linear:1"
"""What the job templates name, in full."""
AUTOSCALER: Final = "registry.example.org/spillway/autoscaler:0.1.0"
CONTEXT: Final = Path(str(images.__path__[0])) / "containers" / "tensorflow"
_VERSIONS: Final = Path(__file__).with_name("tensorflow.txt")
"""Those of the TensorFlow that the tests beside this one run: the one for machines without GPUs."""
_BASE: Final = "docker.io/library/python:3.11.13-slim-bookworm"
"""The Dockerfile builds on this; here Debian's own Python of the same minor version goes by the name."""
_IN_BASE: Final = ("ca-certificates", "python-is-python3", "python3", "python3-pip")
_ALONE: Final = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")
_WAYS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
"""Settings of pip that say by which way packages come, beside ``cert``."""


def why_no_image() -> str:
    """Why none can be built here; empty where one can. Installs Buildah where it is missing and apt can."""
    reason = why_not()
    if reason or shutil.which("buildah"):
        return reason
    if not shutil.which("apt-get"):
        return "this machine lacks buildah and has no apt-get to install it"
    words = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", "buildah")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return f"apt-get cannot install buildah: {done.stderr.strip()[-200:]}" if done.returncode else ""


def image_store() -> Path:
    """The store of Buildah and Podman that holds the image; the first time it is built for minutes.

    Skips the test where packages are not kept and no package registry can be reached.
    """
    pinned = next(line for line in _VERSIONS.read_text().splitlines() if line.startswith("tensorflow-cpu=="))
    with _builder() as builder:
        builder.build(IMAGE, f"--build-arg=TENSORFLOW={pinned}", str(CONTEXT))
        builder.run("rmi", "--prune")  # layers of older lines
    return builder.store


def first_image() -> None:
    """Build it where none was built before; a test sees to it that it is of today's lines."""
    if not _store().exists():
        image_store()


def image_archive(archive: Path) -> Path:
    """Write the image in the format that ``ctr images import`` takes: 1.8 GB."""
    with _builder() as builder:
        builder.push(IMAGE, archive)
    return archive


def autoscaler_archive(archive: Path) -> Path:
    """Build the autoscaler's image of this checkout and write it likewise.

    The layer with its dependencies is kept until ``requirements.lock`` changes.
    """
    with _builder() as builder:
        builder.build(AUTOSCALER, f"--file={CONTEXT.parent / 'autoscaler' / 'Dockerfile'}", str(ROOT))
        builder.push(AUTOSCALER, archive)
        builder.run("rmi", "--prune")
    return archive


@dataclass(frozen=True, slots=True)
class _Builder:
    """Buildah with a store of its own."""

    store: Path
    state: Path

    def run(self, *words: str) -> str:
        """What a command says. Raises ``BenchError`` where it fails; skips the test where pip reaches no registry."""
        places = ("--root", str(self.store), "--runroot", str(self.state), "--storage-driver=overlay")
        done = subprocess.run(
            leashed([*_ALONE, "buildah", *places, *words]),
            env=os.environ | {"TMPDIR": str(self.state)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and "connection broken by" in done.stderr:
            pytest.skip(f"the image is not in {self.store}, and no package registry can be reached")
        if done.returncode:
            raise BenchError(f"buildah {words[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def build(self, image: str, *words: str) -> None:
        """Build the image, on the base that goes by the name of Docker's; layers of lines that stay are kept."""
        if not self.has(_BASE):
            _make_base(self)
        mounted = [f"--volume={here}:{there}:ro" for here, there in _pip_settings(self.state).items()]
        self.run("build", "--isolation=chroot", "--layers", *mounted, f"--tag={image}", *words)

    def push(self, image: str, archive: Path) -> None:
        """Write the image into a file."""
        self.run("push", "--disable-compression", image, f"docker-archive:{archive}:{image}")

    def has(self, image: str) -> bool:
        """Whether it was built before."""
        return image in self.run("images", "--format={{.Name}}:{{.Tag}}").split()


@contextmanager
def _builder() -> Iterator[_Builder]:
    """One at a time; the others wait and find what the first one made."""
    store = _store()
    store.mkdir(parents=True, exist_ok=True)
    with (store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = _Builder(store / "storage", store / "state")
        shutil.rmtree(made.state, ignore_errors=True)  # this and the containers are of a build that was killed
        made.state.mkdir()
        try:
            made.run("rm", "--all")
            yield made
        finally:
            shutil.rmtree(made.state)


def _store() -> Path:
    return cache_root() / "containers" / root_folder(SUITE, *_IN_BASE).name


def _make_base(builder: _Builder) -> None:
    root, lines = builder.state / "base" / "root", builder.state / "base.Dockerfile"
    root.parent.mkdir()
    bootstrap(SUITE, root, debian_archive(), include=_IN_BASE)
    for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()  # in an image pip may install beside apt, as in the one whose name it has
    lines.write_text("FROM scratch\nCOPY root /\n", encoding="ascii")
    builder.run("build", f"--file={lines}", f"--tag={_BASE}", str(root.parent))


def _pip_settings(folder: Path) -> dict[Path, str]:
    """Files that the build sees, and where: pip finds packages as this machine's does, in the versions of the tests."""
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    known = dict(re.findall(r"^\S+?\.([a-z-]+)='(.*)'$", asked.stdout, re.MULTILINE))
    settings = {key: value for key, value in known.items() if key in _WAYS} | {"constraint": "/run/versions.txt"}
    found = {_VERSIONS: settings["constraint"]}
    if "cert" in known:
        settings["cert"] = found[Path(known["cert"])] = "/run/authority.pem"
    file = folder / "pip.conf"
    file.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()), encoding="utf-8")
    return found | {file: "/etc/pip.conf"}
