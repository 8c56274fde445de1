"""Fake nodes in the Kubernetes API: their records, which KWOK keeps alive, and their end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.constraints import Taint
from autoscaler.model.resources import CPU, Resources
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError

KWOK: Final = "kwok.x-k8s.io/node"
"""Annotation: KWOK plays the kubelet of this node."""
_NOT_FOUND: Final = 404


def node_record(
    name: str,
    *,
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    provider_id: str,
    address: str,
    capacity: Resources,
    allocatable: Resources,
) -> dict[str, Any]:
    """The Node object as a kubelet registers it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels), "annotations": {KWOK: "fake"}},
        "spec": {"providerID": provider_id, "taints": [_written(taint) for taint in taints]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "capacity": quantities(capacity),
            "allocatable": quantities(allocatable),
            "nodeInfo": _node_info(labels.get(words.ARCH, "amd64")),
        },
    }


def quantities(amounts: Resources) -> dict[str, str]:
    """Returns the amounts as Kubernetes writes them."""
    return {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts.items()}


def delete_node(kube: KubeHttp, name: str) -> None:
    """The node goes, and the pods that were bound to it fail and go, as the pod garbage collector sees to."""
    with _unless_gone():
        kube.send("DELETE", f"/api/v1/nodes/{name}")
    for pod in kube.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")["items"]:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        with _unless_gone():
            if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                kube.send("PATCH", f"{path}/status", _failed(), content="application/strategic-merge-patch+json")
            kube.send("DELETE", f"{path}?gracePeriodSeconds=0")


def _written(taint: Taint) -> dict[str, str]:
    return {key: value for key, value in asdict(taint).items() if value}


def _node_info(arch: str) -> dict[str, str]:
    unknown = dict.fromkeys(("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "systemUUID"), "")
    return unknown | {
        "architecture": arch,
        "operatingSystem": "linux",
        "osImage": "stand-in",
        "containerRuntimeVersion": "stand-in://kwok",
        "kubeletVersion": "kwok",
    }


def _failed() -> dict[str, Any]:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return {"status": {"phase": "Failed", "conditions": [condition]}}


@contextlib.contextmanager
def _unless_gone() -> Any:
    try:
        yield
    except KubeRefusedError as refused:
        if refused.status != _NOT_FOUND:
            raise
