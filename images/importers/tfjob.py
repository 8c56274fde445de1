"""A Kubeflow TFJob as a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.model import labels as words
from images.importers.reading import Foreign, Imported, asked_amounts
from images.launcher import GRACE
from images.renderers import kubernetes, tfjob

Path = tuple[str | int, ...]
_ROLES: Final = {kind: role for role, kind in tfjob.TYPES.items()} | {"Master": "chief"}
_RESTARTS: Final = {policy: restart for restart, policy in tfjob.RESTARTS.items()}
_OUR_LABELS: Final = (words.JOB, words.ROLE, words.OWNER, words.GANG)
_MADE_ANEW: Final[tuple[tuple[Path, tuple[Any, ...]], ...]] = (
    (("spec", "enableServiceLinks"), (False,)),
    (("spec", "automountServiceAccountToken"), (False,)),
    (("spec", "schedulingGates"), ([{"name": words.GATE}],)),
    (("spec", "dnsPolicy"), ("ClusterFirst", "ClusterFirstWithHostNet")),
    (("spec", "securityContext"), (kubernetes.POD_SECURITY,)),
    (("spec", "containers", 0, "securityContext"), (kubernetes.CONTAINER_SECURITY,)),
    (("spec", "containers", 0, "ports"), (tfjob.PORTS,)),
)
"""Of a pod: what ours have anyway."""
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - in the container


def read(document: Mapping[str, Any]) -> Imported:
    """The job. Raises ``BadInput`` where the document is no TFJob."""
    source = Foreign(document, what="TFJob")
    policy = ("spec", "runPolicy")
    owner = source.take("metadata", "labels", words.OWNER, default="")
    for key in ("apiVersion", "kind"):
        source.take(key)
    source.skip(*policy, "cleanPodPolicy", as_in=("Running",))
    _skip_labels(source, ("metadata",))
    if source.take("spec", "enableDynamicWorker"):
        source.tell("spec.enableDynamicWorker: counts are taken as fixed: write MIN..MAX")
    kinds = list(source.mapped("spec", "tfReplicaSpecs") or source.need("spec", "tfReplicaSpecs"))
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


def _role(source: Foreign, base: Path) -> dict[str, Any]:
    template = (*base, "template")
    policy = source.take(*base, "restartPolicy", default="Never")
    container: Path = (*template, "spec", "containers", 0)
    for path, values in _MADE_ANEW:
        source.skip(*template, *path, as_in=values)
    for key in (words.GANG_SIZE, words.GANG_MIN):
        source.take(*template, "metadata", "annotations", key)
    source.take(*container, "name")
    _skip_labels(source, (*template, "metadata"))
    amounts = _amounts(source, container)
    return {
        "count": source.take(*base, "replicas", default=1),
        "restart": _RESTARTS.get(str(policy), policy),
        "image": source.need(*container, "image"),
        "entry": source.take(*container, "command", default=()),
        "args": source.take(*container, "args", default=()),
        "env": _environment(source, container),
        "annotations": {
            key: value
            for key in list(source.mapped(*template, "metadata", "annotations"))
            if (value := source.take(*template, "metadata", "annotations", key)) is not None  # taken above
        },
        "volumes": _volumes(source, template, with_gpus=amounts["gpus"] > 0),
        "grace": f"{source.take(*template, 'spec', 'terminationGracePeriodSeconds', default=GRACE)}s",
        **amounts,
    }


def _skip_labels(source: Foreign, metadata: Path) -> None:
    for key in _OUR_LABELS:
        source.take(*metadata, "labels", key)


def _amounts(source: Foreign, container: Path) -> dict[str, Any]:
    resources = (*container, "resources")
    gpus = [source.take(*resources, part, words.GPU) for part in ("limits", "requests")]
    asked = asked_amounts(source, resources, whose=".".join(map(str, container[:3])))
    return asked | {"gpus": source.whole(gpus[0] or gpus[1] or 0, *resources)}


def _environment(source: Foreign, container: Path) -> dict[str, str]:
    entries = enumerate(source.records(*container, "env"))
    plain = {number: str(entry.get("name")) for number, entry in entries if "valueFrom" not in entry}
    for number in plain:
        source.take(*container, "env", number, "name")
    return {name: source.take(*container, "env", number, "value", default="") for number, name in plain.items()}


def _volumes(source: Foreign, template: Path, *, with_gpus: bool) -> list[dict[str, Any]]:
    """Claims and folders of the machine; a task with GPUs has shared memory anyway."""
    mounts: Path = (*template, "spec", "containers", 0, "volumeMounts")
    places = {str(mount.get("name")): (number, mount) for number, mount in enumerate(source.records(*mounts))}
    found: list[dict[str, Any]] = []
    for number, volume in enumerate(source.records(*template, "spec", "volumes")):
        at, (where, mount) = (*template, "spec", "volumes", number), places.get(str(volume.get("name")), (0, {}))
        is_memory = source.peek(*at, "emptyDir", "medium") == "Memory" and mount.get("mountPath") == _SHARED_MEMORY
        paths = {"claim": ("persistentVolumeClaim", "claimName"), "host": ("hostPath", "path")}
        held = {key: source.take(*at, *path) for key, path in paths.items() if mount and source.peek(*at, *path)}
        if not held and not (is_memory and with_gpus):
            continue
        if held:
            read_only = {"read_only": True} if mount.get("readOnly") else {}
            found.append({"mount": mount.get("mountPath")} | held | read_only)
        source.take(*at, "emptyDir", "medium")
        source.take(*at, "name")
        for key in ("name", "mountPath", "readOnly"):
            source.take(*mounts, where, key)
    return found


def _placing(source: Foreign, template: Path) -> dict[str, Any]:
    """What is said of each pod there, and of the job here; of the last role that says it."""
    spec = (*template, "spec")
    found: dict[str, Any] = {
        "priority": source.take(*spec, "priorityClassName"),
        "node_selector": source.take(*spec, "nodeSelector"),
        "tolerations": [entry for entry in source.records(*spec, "tolerations") if entry.get("key") != words.GPU],
    }
    source.take(*spec, "tolerations")
    if source.take(*spec, "hostNetwork"):
        found["network"] = "host"
    return {key: value for key, value in found.items() if value}
