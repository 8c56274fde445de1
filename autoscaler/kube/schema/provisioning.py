"""ProvisioningRequests, with which Kueue and others ask for room before there are pods, and the PodTemplates they name.

https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md (ProvisioningRequest); API group
``autoscaling.x-k8s.io``, v1. Pure; no I/O.
"""

from __future__ import annotations

from typing import Final

from autoscaler.kube.schema.convert import pod_from
from autoscaler.kube.schema.core import Condition, Json, Meta, Named, PodJson, Template
from autoscaler.kube.schema.values import EPOCH
from autoscaler.model.cluster import Pod, PodSet, ProvisioningRequest

_CHECK: Final = "check-capacity.autoscaling.x-k8s.io"
_BUY: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
_OVER: Final = frozenset({"Failed", "BookingExpired", "CapacityRevoked"})
"""Conditions with which nothing is asked for any more."""


class _PodSet(Json, frozen=True):
    pod_template_ref: Named
    count: int = 1


class _RequestSpec(Json, frozen=True):
    provisioning_class_name: str = ""
    pod_sets: tuple[_PodSet, ...] = ()


class _RequestStatus(Json, frozen=True):
    conditions: tuple[Condition, ...] = ()


class RequestJson(Json, frozen=True):
    """ProvisioningRequest of ``autoscaling.x-k8s.io``."""

    metadata: Meta
    spec: _RequestSpec = _RequestSpec()
    status: _RequestStatus = _RequestStatus()


class PodTemplateJson(Json, frozen=True):
    """corev1.PodTemplate."""

    metadata: Meta
    template: Template = Template()


def request_from(raw: RequestJson) -> ProvisioningRequest | None:
    """Returns the request without its templates; ``None`` where it asks for nothing any more, or another autoscaler."""
    said = {one.type: one for one in raw.status.conditions}
    is_over = any(one.type in _OVER and one.status == "True" for one in raw.status.conditions)
    if is_over or raw.spec.provisioning_class_name not in (_CHECK, _BUY):
        return None
    created, answer = raw.metadata.creation_timestamp or EPOCH, said.get("Provisioned")
    since = (answer.last_transition_time or created) if answer is not None and answer.status == "True" else None
    return ProvisioningRequest(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        uid=raw.metadata.uid,
        created=created,
        pod_sets=tuple(PodSet(None, one.count, one.pod_template_ref.name) for one in raw.spec.pod_sets),
        may_buy=raw.spec.provisioning_class_name == _BUY,
        provisioned=since,
        refused=answer is not None and answer.status == "False",
    )


def template_from(raw: PodTemplateJson) -> Pod:
    """A pod as the template has it, by the template's own name."""
    given, meta = raw.template.metadata, raw.metadata
    named = Meta(name=meta.name, namespace=meta.namespace, labels=given.labels, annotations=given.annotations)
    return pod_from(PodJson(metadata=named, spec=raw.template.spec))
