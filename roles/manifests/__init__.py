"""What runs on every GPU node as pods: the device plugin, and the exporter of GPU metrics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.kube.client import Kube, Refused
from autoscaler.model.errors import BadInput, Unavailable
from roles.settings.machine import MachineSettings
from roles.settings.version_matrix import Chosen, choose, read_matrix

PARTS: Final = ("device_plugin", "dcgm_exporter")
_PATHS: Final = {
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Service": "/api/v1/namespaces/{namespace}/services",
}


def gpu_manifests(chosen: Chosen) -> str:
    """All of them as one YAML text, in the versions of the matrix."""
    texts = (file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parent.glob("*.yaml")))
    whole = "---\n".join(texts)
    for part in PARTS:
        whole = whole.replace(f"{{{part}}}", getattr(chosen, part))
    return whole


def chosen_for(machines: Iterable[MachineSettings]) -> Chosen:
    """The versions that the machines with GPUs agree on. Raises ``BadInput`` where they do not: a DaemonSet has one."""
    matrix = read_matrix()
    of_all = {one.name: choose(matrix, one.versions, machine=one.name) for one in machines if one.gpu_count}
    for part in PARTS:
        found = {getattr(chosen, part): name for name, chosen in of_all.items()}
        if len(found) > 1:
            told = ", ".join(f"{version} on {name}" for version, name in sorted(found.items()))
            raise BadInput(f"versions.{part}: {told}: one DaemonSet runs on all machines; write it into the fleet's")
    return next(iter(of_all.values()), choose(matrix, {}, machine="the matrix"))


def apply_manifests(kube: Kube, text: str) -> list[str]:
    """Have the cluster hold them, by server-side apply; gives what was applied. Raises ``Unavailable``."""
    applied = []
    for manifest in yaml.safe_load_all(text):
        name = manifest["metadata"]["name"]
        try:
            _apply(kube, manifest)
        except Refused as refused:
            raise Unavailable(f"{manifest['kind']} {name}: the API server refuses it: {refused}") from None
        applied.append(f"{manifest['kind']} {name}")
    return applied


def _apply(kube: Kube, manifest: dict[str, Any]) -> None:
    folder = _PATHS[manifest["kind"]].format(namespace=manifest["metadata"].get("namespace", ""))
    path = f"{folder}/{manifest['metadata']['name']}?fieldManager=spillway-nodes&force=true&fieldValidation=Strict"
    kube.send("PATCH", path, manifest, content="application/apply-patch+yaml")
