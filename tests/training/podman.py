"""Podman from Debian on a bench's machine, for compose files: Docker Compose speaks to it as to Docker's own engine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from tests.live.debian import (
    IN_ROOT,
    SUITE,
    System,
    as_here_resolved,
    bootstrap,
    built_once,
    debian_archive,
    root_folder,
)
from tests.live.machines import Host

PACKAGES: Final = ("podman", "crun", "netavark", "aardvark-dns", "iptables")
"""Netavark and aardvark-dns: a network in which containers find each other by name."""
_STORAGE: Final = """\
[storage]
driver = "overlay"
graphroot = "/var/lib/containerd/podman"
runroot = "/run/containers/storage"
"""
"""On the disk of its own that a machine of the bench has: an overlay does not hold the upper layer of another."""
_IMAGES: Final = '[storage.options]\nadditionalimagestores = ["{store}"]\n'
_ENGINE: Final = """\
[network]
network_backend = "netavark"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
log_driver = "k8s-file"
"""


def podman_system(store: Path | None = None) -> System:
    """Debian with Podman, which has the images of ``store``, a folder that its machines must see; else none."""

    def furnish(upper: Path, _name: str) -> None:
        as_here_resolved(upper)
        folder = upper / "etc/containers"
        folder.mkdir(parents=True, exist_ok=True)
        images = _IMAGES.format(store=store) if store else ""
        (folder / "storage.conf").write_text(_STORAGE + images, encoding="ascii")
        (folder / "containers.conf").write_text(_ENGINE, encoding="ascii")

    return System(built_once(root_folder(SUITE, *IN_ROOT, *PACKAGES), _build), furnish)


def compose(host: Host, program: Path, file: Path, *words: str) -> str:
    """What ``docker compose WORDS`` says on the machine, given its program and a file that the machine sees."""
    command = shlex.join(["timeout", "300", str(program), "--file", str(file), *words])
    return host.run(f"DOCKER_HOST=unix:///run/podman/podman.sock {command}", timeout=310).stdout


def _build(root: Path) -> None:
    bootstrap(SUITE, root, debian_archive(), include=(*IN_ROOT, *PACKAGES))
