"""A Kubeflow TFJob as a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.model import labels as words
from images.importers.reading import Foreign, Imported
from images.launcher import GRACE
from images.renderers import tfjob

Path = tuple[str | int, ...]
_ROLES: Final = {kind: role for role, kind in tfjob.TYPES.items()} | {"Master": "chief"}
_RESTARTS: Final = {policy: restart for restart, policy in tfjob.RESTARTS.items()}
_MADE_ANEW: Final = (
    ("metadata", "labels"),
    *(("metadata", "annotations", key) for key in (words.GANG_SIZE, words.GANG_MIN)),
    *(("spec", key) for key in ("enableServiceLinks", "automountServiceAccountToken", "schedulingGates", "dnsPolicy")),
    ("spec", "securityContext"),
    *(("spec", "containers", 0, key) for key in ("name", "ports", "securityContext")),
)
"""Of a pod: what ours have anyway."""


def read(document: Mapping[str, Any]) -> Imported:
    """The job. Raises ``BadInput`` where the document is no TFJob."""
    source = Foreign(document, what="TFJob")
    policy = ("spec", "runPolicy")
    owner = source.take("metadata", "labels", words.OWNER, default="")
    for path in (("apiVersion",), ("kind",), ("metadata", "labels"), (*policy, "cleanPodPolicy")):
        source.take(*path)
    if source.take("spec", "enableDynamicWorker"):
        source.tell("spec.enableDynamicWorker: counts are taken as fixed: write MIN..MAX")
    kinds = list(source.peek("spec", "tfReplicaSpecs") or source.need("spec", "tfReplicaSpecs"))
    retain, deadline = source.take(*policy, "ttlSecondsAfterFinished"), source.take(*policy, "activeDeadlineSeconds")
    failure = {"restarts": source.take(*policy, "backoffLimit", default=3)}
    data: dict[str, Any] = {
        "name": source.need("metadata", "name"),
        "namespace": source.take("metadata", "namespace", default="default"),
        "gang": source.take(*policy, "schedulingPolicy", "minAvailable") is not None,
        "queue": source.take(*policy, "schedulingPolicy", "queue", default=""),
        "owner": owner,
        "success": "all" if source.take("spec", "successPolicy") == "AllWorkers" else "first",
        "retain": "forever" if retain is None else f"{retain}s",
        "failure": failure | ({"deadline": f"{deadline}s"} if deadline else {}),
    }
    roles: dict[str, Any] = {}
    for kind in kinds:
        roles[_ROLES.get(kind, kind.lower())] = _role(source, ("spec", "tfReplicaSpecs", kind))
        data |= _placing(source, ("spec", "tfReplicaSpecs", kind, "template"))
        for variable, key in (("DATA_DIR", "data_dir"), ("TRAIN_DIR", "train_dir")):
            data[key] = roles[_ROLES.get(kind, kind.lower())]["env"].pop(variable, data.get(key, ""))
    return source.imported(data | {"roles": roles})


def _role(source: Foreign, base: tuple[str, ...]) -> dict[str, Any]:
    template = (*base, "template")
    policy = source.take(*base, "restartPolicy", default="Never")
    for path in _MADE_ANEW:
        source.take(*template, *path)
    container: Path = (*template, "spec", "containers", 0)
    return {
        "count": source.take(*base, "replicas", default=1),
        "restart": _RESTARTS.get(policy, policy),
        "image": source.need(*container, "image"),
        "entry": source.take(*container, "command", default=()),
        "args": source.take(*container, "args", default=()),
        "env": _environment(source, container),
        "annotations": {
            key: value
            for key, value in source.take(*template, "metadata", "annotations", default={}).items()
            if value is not None  # taken above
        },
        "volumes": _volumes(source, template),
        "grace": f"{source.take(*template, 'spec', 'terminationGracePeriodSeconds', default=GRACE)}s",
        **_amounts(source, container),
    }


def _amounts(source: Foreign, container: Path) -> dict[str, Any]:
    requests, limits = ((*container, "resources", key) for key in ("requests", "limits"))
    found: dict[str, Any] = {}
    for key, name, assumed in (("cpus", "cpu", 1), ("memory", "memory", "1Gi")):
        asked, most = source.take(*requests, name), source.take(*limits, name)
        if asked is None and most is None:
            source.tell(f"{'.'.join(map(str, container[:3]))}: it asks for no {name}: {assumed} is assumed")
        found[key] = asked or most or assumed
    gpus = source.take(*limits, words.GPU), source.take(*requests, words.GPU)
    return found | {"gpus": int(gpus[0] or gpus[1] or 0)}


def _environment(source: Foreign, container: Path) -> dict[str, str]:
    entries = source.peek(*container, "env") or []
    plain = {number: entry["name"] for number, entry in enumerate(entries) if "valueFrom" not in entry}
    for number in plain:
        source.take(*container, "env", number, "name")
    return {name: source.take(*container, "env", number, "value", default="") for number, name in plain.items()}


def _volumes(source: Foreign, template: tuple[str, ...]) -> list[dict[str, Any]]:
    mounts: Path = (*template, "spec", "containers", 0, "volumeMounts")
    places: dict[str, tuple[int | None, dict[str, Any]]] = {
        mount["name"]: (number, mount) for number, mount in enumerate(source.peek(*mounts) or [])
    }
    found: list[dict[str, Any]] = []
    for number, volume in enumerate(source.peek(*template, "spec", "volumes") or []):
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        host = (volume.get("hostPath") or {}).get("path")
        where, mount = places.get(volume["name"], (None, {}))
        if volume["name"] == "shm" or (where is not None and (claim or host)):
            source.take(*template, "spec", "volumes", number)
            source.take(*mounts, where or 0)
        if where is not None and (claim or host):
            read_only = {"read_only": True} if mount.get("readOnly") else {}
            found.append({"mount": mount["mountPath"], "claim": claim, "host": host} | read_only)
    return found


def _placing(source: Foreign, template: tuple[str, ...]) -> dict[str, Any]:
    """What is said of each pod there, and of the job here; of the last role that says it."""
    spec = (*template, "spec")
    found: dict[str, Any] = {
        "priority": source.take(*spec, "priorityClassName"),
        "node_selector": source.take(*spec, "nodeSelector"),
        "tolerations": [
            entry for entry in source.take(*spec, "tolerations", default=[]) if entry.get("key") != words.GPU
        ],
    }
    if source.take(*spec, "hostNetwork"):
        found["network"] = "host"
    return {key: value for key, value in found.items() if value}
