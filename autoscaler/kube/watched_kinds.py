"""The kinds of object that the autoscaler follows: where each is listed and watched, and how it is converted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from autoscaler.kube.schema.convert import daemon_set_from, node_from, pod_from
from autoscaler.kube.schema.core import DaemonSetJson, JobJson, Meta, NodeJson, PodJson
from autoscaler.kube.schema.gang_kinds import SERVED
from autoscaler.kube.schema.jobs import job_from
from autoscaler.kube.schema.provisioning import PodTemplateJson, RequestJson, request_from, template_from
from autoscaler.kube.schema.storage import (
    ClaimJson,
    ClassJson,
    DriversJson,
    NamespaceJson,
    VolumeJson,
    claim_from,
    class_from,
    drivers_from,
    volume_from,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object that is followed."""

    name: str
    path: str
    decode: Callable[[msgspec.Raw], tuple[Meta, Any]]


def _decoder(model: Any, convert: Callable[[Any], Any]) -> Callable[[msgspec.Raw], tuple[Meta, Any]]:
    decoder = msgspec.json.Decoder(model)

    def decode(raw: msgspec.Raw) -> tuple[Meta, Any]:
        seen = decoder.decode(raw)
        return seen.metadata, convert(seen)

    return decode


PODS: Final = Kind("pods", "/api/v1/pods", _decoder(PodJson, pod_from))
NODES: Final = Kind("nodes", "/api/v1/nodes", _decoder(NodeJson, node_from))
DAEMON_SETS: Final = Kind("daemonsets", "/apis/apps/v1/daemonsets", _decoder(DaemonSetJson, daemon_set_from))
JOBS: Final = Kind("jobs", "/apis/batch/v1/jobs", _decoder(JobJson, job_from))
KINDS: Final = (NODES, PODS, DAEMON_SETS, JOBS)
CLAIMS: Final = Kind("persistentvolumeclaims", "/api/v1/persistentvolumeclaims", _decoder(ClaimJson, claim_from))
VOLUMES: Final = Kind("persistentvolumes", "/api/v1/persistentvolumes", _decoder(VolumeJson, volume_from))
CLASSES: Final = Kind("storageclasses", "/apis/storage.k8s.io/v1/storageclasses", _decoder(ClassJson, class_from))
DRIVERS: Final = Kind("csinodes", "/apis/storage.k8s.io/v1/csinodes", _decoder(DriversJson, drivers_from))
NAMESPACES: Final = Kind("namespaces", "/api/v1/namespaces", _decoder(NamespaceJson, lambda raw: raw.metadata.labels))
STORAGE: Final = (CLAIMS, VOLUMES, CLASSES, DRIVERS)
LATE: Final = (*STORAGE, NAMESPACES)
"""Followed from when the first pod asks about them: in many a cluster none ever does."""
PAUSES: Final = "pauses"
"""Name of the kind that is the ConfigMap with the pauses (``kube.pauses_configmap``)."""
PROVISIONING: Final = "autoscaling.x-k8s.io"
"""API group of ProvisioningRequests."""
REQUESTS: Final = Kind(
    f"provisioningrequests.{PROVISIONING}",
    f"/apis/{PROVISIONING}/v1/provisioningrequests",
    _decoder(RequestJson, request_from),
)
POD_TEMPLATES: Final = Kind("podtemplates", "/api/v1/podtemplates", _decoder(PodTemplateJson, template_from))
"""Followed where ProvisioningRequests are served."""
SIZED: Final = {
    # API group -> for each of its resources that say a gang's size: the places to ask, the best first
    group: tuple(
        tuple(
            Kind(f"{api.resource}.{group}", f"/apis/{group}/{version}/{api.resource}", _decoder(api.model, api.says))
            for version in api.versions
        )
        for api in SERVED
        if api.group == group
    )
    for group in sorted({api.group for api in SERVED})
}
