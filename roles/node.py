"""What a node is: its roles in order. Read :func:`prepare` as a checklist.

pyinfra roles.inventory.machines roles.node.prepare
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from roles.deploys.apt_sources import node_sources
from roles.deploys.container_runtime import container_runtime
from roles.deploys.control_plane import control_plane
from roles.deploys.health import health
from roles.deploys.interruptions import interruptions
from roles.deploys.kubelet import kubelet
from roles.deploys.logs import logs
from roles.deploys.pod_network import pod_network
from roles.deploys.reboot import reboots
from roles.deploys.system import system
from roles.deploys.users import accounts
from roles.gpu.container_toolkit import containerd_sound
from roles.gpu.stack import gpus


@deploy("Prepare a node")
def prepare() -> None:
    """Makes a bare Debian or Ubuntu machine a working member of the cluster, and keeps it one each night."""
    node_sources()
    system()
    accounts()
    container_runtime()
    gpus()
    containerd_sound()
    pod_network()
    logs()
    health()
    kubelet()
    interruptions()
    control_plane()
    reboots()
