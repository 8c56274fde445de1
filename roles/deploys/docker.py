"""Docker with the nvidia runtime, on machines where people start containers by hand: ``docker run --gpus all``.

Kubernetes needs none of it. Docker shares the machine's containerd, in a namespace of its own.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pyinfra.api.deploy import deploy

from roles.engine.disruption import Disruption, disrupts
from roles.operations import files, packages, services

VALIDATE: Final = "! dockerd --help | grep -q -e --validate || dockerd --validate --config-file={path}"
"""Docker 23 and later can try a file; Debian 12 has 20.10, which takes the option for a mistake."""

SOCKET: Final = "docker.socket"
_STAY: Final = (
    "( systemctl -q is-active docker || exit 0; systemctl reload docker; for n in $(seq 50); do"
    """ [ "$(docker info -f '{{.LiveRestoreEnabled}}')" != true ] || exit 0; sleep 0.1; done;"""
    " echo 'Docker does not take live-restore, as in a swarm: a restart would end its containers' >&2; exit 1 )"
)
"""A daemon that was started without that setting has it before it ends: people's containers stay."""


@deploy("Docker with the nvidia runtime")
def docker(*, containerd: str, systemd_cgroup: bool) -> None:
    """The packages that go with the one of containerd, and one writer of Docker's configuration: this role."""
    wanted, others = docker_packages(containerd), docker_packages(other_containerd(containerd))
    with disrupts(Disruption.CONTAINERD_RESTART):  # by the packages themselves, which start their service anew
        packages.installed(name="Docker installed and held", wanted=wanted, instead_of=tuple(others))
    with services.restarts("docker"):
        files.place(
            name="Docker's configuration",
            dest="/etc/docker/daemon.json",
            content=json.dumps(docker_config(systemd_cgroup=systemd_cgroup), indent=2) + "\n",
            meaning="json",
            validate=VALIDATE,
        )
    docker_units()
    files.guarded(dest="/run/docker.sock", mode="660", group="docker", name="Docker listens to its group alone")


@deploy("Docker's units")
def docker_units() -> None:
    """Service and socket as they are packed. A socket that starts anew has its service do so, too."""
    for unit in (SOCKET, "docker.service"):
        with services.restarts(services.DAEMON_RELOAD), services.restarts(unit):
            services.no_unit_of_that_name(unit=unit, name=f"{unit} is the packaged one")
            services.only_drop_ins(unit=unit, name=f"{unit} has no overrides")
    services.daemon_reload(name="systemd knows Docker's units")
    services.running(name="Docker's socket is there", unit=SOCKET, before=_STAY)
    services.running(name="Docker runs", unit="docker", before=_STAY)


def other_containerd(package: str) -> str:
    """The package of containerd that this one takes the place of."""
    return "containerd" if package == "containerd.io" else "containerd.io"


def docker_packages(containerd: str) -> dict[str, str]:
    """Docker's own packages beside Docker's containerd, else the distribution's."""
    return {"docker-ce": "*", "docker-ce-cli": "*"} if containerd == "containerd.io" else {"docker.io": "*"}


def docker_config(*, systemd_cgroup: bool) -> dict[str, Any]:
    """Returns the configuration as ``nvidia-ctk runtime configure --runtime=docker --cdi.enabled`` makes it."""
    return {
        "exec-opts": [f"native.cgroupdriver={'systemd' if systemd_cgroup else 'cgroupfs'}"],
        "features": {"cdi": True},
        "live-restore": True,
        "log-driver": "json-file",
        "log-opts": {"max-file": "3", "max-size": "50m"},
        "runtimes": {"nvidia": {"args": [], "path": "/usr/bin/nvidia-container-runtime"}},
    }
