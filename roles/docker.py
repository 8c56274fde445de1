"""Docker with the nvidia runtime, on machines where people start containers by hand: ``docker run --gpus all``.

Kubernetes needs none of it. Docker shares the machine's containerd, in a namespace of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyinfra.api.deploy import deploy

from roles.operations import files, packages, services

VALIDATE: Final = "! dockerd --help | grep -q -e --validate || dockerd --validate --config-file={path}"
"""Docker 23 and later can try a file; Debian 12 has 20.10, which takes the option for a mistake."""


@deploy("Docker with the nvidia runtime")
def docker(*, wanted: Mapping[str, str], systemd_cgroup: bool) -> None:
    """The packages ``wanted``, and one writer of Docker's configuration: this role."""
    packages.installed(name="Docker installed and held", wanted=wanted)
    with services.restarts("docker"):
        files.place(
            name="Docker's configuration",
            dest="/etc/docker/daemon.json",
            content=json.dumps(docker_config(systemd_cgroup=systemd_cgroup), indent=2) + "\n",
            meaning="json",
            validate=VALIDATE,
        )
    services.running(name="Docker runs", unit="docker.service")


def docker_packages(containerd: str) -> dict[str, str]:
    """Docker's own packages beside Docker's containerd, else the distribution's."""
    return {"docker-ce": "*", "docker-ce-cli": "*"} if containerd == "containerd.io" else {"docker.io": "*"}


def docker_config(*, systemd_cgroup: bool) -> dict[str, Any]:
    """With the runtime as ``nvidia-ctk runtime configure --runtime=docker --cdi.enabled`` adds it."""
    return {
        "exec-opts": [f"native.cgroupdriver={'systemd' if systemd_cgroup else 'cgroupfs'}"],
        "features": {"cdi": True},
        "log-driver": "json-file",
        "log-opts": {"max-file": "3", "max-size": "50m"},
        "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
    }
