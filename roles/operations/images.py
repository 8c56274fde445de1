"""Container images from archives, for machines that reach no registry."""

from __future__ import annotations

import hashlib
import shlex
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.containers import ImageMarks, MissingImages
from roles.operations.downloads import fetching
from roles.operations.files import Commands

FOLDER: Final = "/var/lib/spillway/images"


@operation()
def imported(image: str, *, url: str, sha256: str) -> Commands:
    """Have the image of this name from the archive of this digest; an archive that has another image is refused."""
    if (image, sha256) in host.get_fact(ImageMarks, folder=FOLDER):
        host.noop(f"{image} is there")
        return
    archive = f"{FOLDER}/{sha256}.tar"
    mark = f"{FOLDER}/{hashlib.sha256(image.encode()).hexdigest()[:16]}.imported"
    quoted = shlex.quote(image)
    yield StringCommand(fetching(url, archive, sha256=sha256))
    yield StringCommand(
        f"ctr -n k8s.io images import {archive} >/dev/null && rm -f {archive}"
        f" && {{ ctr -n k8s.io images ls -q | grep -qxF {quoted}"
        f" || {{ echo the archive has no image named {quoted} >&2; exit 1; }}; }}"
        f" && echo {quoted} {sha256} > {mark}"
    )


@operation()
def of_kubeadm(version: str) -> Commands:
    """Have the images that kubeadm starts a control plane of this version from, by containerd's way to a registry."""
    if not host.get_fact(MissingImages, version=version):
        host.noop("they are there")
        return
    yield StringCommand(f"kubeadm config images pull --kubernetes-version v{version} >/dev/null")
