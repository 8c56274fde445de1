"""Role: what a member of a kubeadm control plane calls, and nothing of any cluster: for an image that it boots from.

The member itself is made at its first boot, by its user data (``stacks/boot/control_plane.sh``).
"""

from __future__ import annotations

from typing import Final

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from roles.facts.packages import OsRelease
from roles.operations import images, packages
from roles.settings.machine import settings
from roles.settings.version_matrix import choose, read_matrix

_TOOLS: Final = ("etcd-client",)
_WITHOUT_AWS_CLI: Final = ("ubuntu-24.04",)
"""Releases whose distribution has no such package: AWS's own snap it is there."""


@deploy("Tools of a control plane")
def control_plane() -> None:
    """Makes an image for members of a control plane; nothing where the machine is to be no such image."""
    machine = settings()
    if machine.control_plane is None:
        return
    version = choose(read_matrix(), machine.versions, machine=machine.name).kubelet
    wanted = dict.fromkeys(("kubeadm", "kubectl", "kubelet"), f"{version}-*")
    packages.pinned(pins_of="control-plane", wanted=wanted, name="Kubernetes' version is pinned")
    packages.installed(wanted=wanted, name=f"kubeadm, kubectl and kubelet {version}")
    has_no_package = host.get_fact(OsRelease) in _WITHOUT_AWS_CLI
    tools = [*_TOOLS, *([] if has_no_package else ["awscli"])]
    packages.installed(name="tools that a member calls", wanted=dict.fromkeys(tools, "*"), hold=False)
    if has_no_package:
        packages.snapped(snap="aws-cli", command="aws", name="the AWS CLI")
    images.of_kubeadm(version=version, name=f"images of Kubernetes {version}")
