"""The on-prem machines of the local ground: a fake node for each machine of an inventory.

A stand-in: a real machine is prepared and registered by ``roles/``. What the node says of itself is the same.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.instance_types import MIB, allocatable_of
from autoscaler.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from stacks.local.kubeapi.nodes import node_record
from stacks.settings.inventory import Inventory, Machine

_CONFLICT: Final = 409
_PATCH: Final = "application/merge-patch+json"


def register_on_prem(kube: KubeHttp, inventory: Inventory) -> None:
    """Have a node for every machine. Doing it again brings labels, taints and sizes up to date.

    Raises ``Unavailable`` where the API server does not answer.
    """
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda machine: _register(kube, machine), inventory.machines))


def on_prem_node(machine: Machine) -> dict[str, Any]:
    """The Node object of one machine."""
    capacity = machine.capacity()
    return node_record(
        machine.name,
        labels=machine.node_labels(),
        taints=[taint.as_taint() for taint in machine.taints],
        provider_id=f"onprem://{machine.name}",
        address=machine.address,
        capacity=capacity,
        allocatable=allocatable_of(
            vcpus=capacity[CPU] // 1000,
            memory_mib=capacity[MEMORY] // MIB,
            gpus=capacity[words.GPU],
            max_pods=capacity[PODS],
            disk=capacity[EPHEMERAL_STORAGE],
            virtual=False,
        ),
    )


def _register(kube: KubeHttp, machine: Machine) -> None:
    node = on_prem_node(machine)
    try:
        kube.send("POST", "/api/v1/nodes", node)
    except KubeRefusedError as refused:
        if refused.status != _CONFLICT:
            raise
        path = f"/api/v1/nodes/{machine.name}"
        wanted = {"metadata": {"labels": node["metadata"]["labels"]}, "spec": {"taints": node["spec"]["taints"]}}
        kube.send("PATCH", path, wanted, content=_PATCH)
        sizes = {key: node["status"][key] for key in ("capacity", "allocatable")}
        kube.send("PATCH", f"{path}/status", {"status": sizes}, content=_PATCH)
