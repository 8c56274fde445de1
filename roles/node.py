"""What a node is: its roles in order. Read :func:`prepare` as a checklist.

pyinfra roles.inventory.machines roles.node.prepare
"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from roles.container_runtime import container_runtime
from roles.container_toolkit import containerd_sound
from roles.control_plane import control_plane
from roles.gpus import gpus
from roles.health import health
from roles.kubelet import kubelet
from roles.logs import logs
from roles.pod_network import pod_network
from roles.reboot import reboots
from roles.sources import node_sources
from roles.system import system
from roles.users import accounts


@deploy("Prepare a node")
def prepare() -> None:
    """From a bare Debian or Ubuntu machine to a working member of the cluster, and the same again tonight."""
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
    control_plane()
    reboots()
