"""Kubernetes objects become the values of the model that decisions are made of. Pure; no I/O.

What a pod asks for and Spillway does not model is said in ``Pod.not_understood``, in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, cast

from autoscaler.kube.schema.constraints import (
    affinity_of,
    claims_of,
    host_ports_of,
    not_understood_in,
    pod_terms_of,
    spread_of,
    tolerations_of,
)
from autoscaler.kube.schema.core import DaemonSetJson, Meta, NodeJson, PodJson, PodStatus
from autoscaler.kube.schema.gang_detection import count, gang_of
from autoscaler.kube.schema.resource_requests import amounts_of, requests_of
from autoscaler.kube.schema.values import EPOCH, same, span_of, time_of
from autoscaler.model import labels as words
from autoscaler.model.cluster import FOREVER, DaemonSet, Node, NodeCondition, Notice, Pod
from autoscaler.model.constraints import Taint

_LIFECYCLE_TAINTS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Said by ``Node.ready``; they come and go by themselves."""
_NOTICES: Final = ("interruption", "rebalance", "maintenance")
_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
"""Said by ``Node.cordoned``."""
_KUBELETS_CONDITIONS: Final = frozenset(
    {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}
)
"""Ready is ``Node.ready``, and what the others say is a taint, too."""
_ROLE_LABELS: Final = (words.ROLE, "training.kubeflow.org/replica-type")
_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_DO_NOT_DISRUPT: Final = {
    words.DO_NOT_DISRUPT: "true",
    "karpenter.sh/do-not-disrupt": "true",
    _SAFE_TO_EVICT: "false",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
}
_CONSUMES: Final = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)

_KUBERNETES_OWN: Final = "default-scheduler"


def pod_from(raw: PodJson) -> Pod:
    """Returns the pod as the planner knows it."""
    meta, spec = raw.metadata, raw.spec
    owner = meta.owner()
    terms = affinity_of(spec)
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        requests=requests_of(spec),
        created=meta.creation_timestamp or EPOCH,
        labels=meta.labels,
        node=spec.node_name or None,
        phase=raw.status.phase,
        affinity=same(terms),
        tolerations=tolerations_of(spec),
        apart_from=pod_terms_of(spec.affinity.pod_anti_affinity, meta),
        near_to=pod_terms_of(spec.affinity.pod_affinity, meta),
        spread=spread_of(spec, meta),
        host_ports=host_ports_of(spec),
        claims=tuple(claims_of(meta, spec)),
        priority=spec.priority,
        gang=same(gang_of(meta, spec)),
        gates=same(tuple(gate.name for gate in spec.scheduling_gates)),
        started=raw.status.start_time,
        duration=span_of(meta.annotations.get(words.DURATION)),
        patience=span_of(meta.annotations.get(words.PATIENCE), forever=FOREVER),
        unread=tuple(_unread(meta)) if not spec.node_name else (),
        admitted_to=meta.annotations.get(words.ADMITTED_TO, ""),
        owner=f"{owner.kind}/{owner.name}" if owner else "",
        is_daemon=owner is not None and owner.kind in ("DaemonSet", "Node"),
        role=next((meta.labels[key] for key in _ROLE_LABELS if key in meta.labels), ""),
        scheduler=spec.scheduler_name if spec.scheduler_name != _KUBERNETES_OWN else "",
        unschedulable_because=_unschedulable(raw.status),
        nominated=raw.status.nominated_node_name if not spec.node_name else "",
        deleting=meta.deletion_timestamp is not None,
        completed=_completed(raw),
        consumes=next((meta.annotations[key] for key in _CONSUMES if key in meta.annotations), ""),
        do_not_disrupt=_do_not_disrupt(meta),
        safe_to_evict=meta.annotations.get(_SAFE_TO_EVICT) == "true",
        not_understood=tuple(not_understood_in(spec)),
    )


def node_from(raw: NodeJson) -> Node:
    """Returns the node; taints that only repeat that it is cordoned or not ready are left out."""
    meta, spec = raw.metadata, raw.spec
    condition = next((one for one in raw.status.conditions if one.type == "Ready"), None)
    ready = condition is not None and condition.status == "True"
    return Node(
        name=meta.name,
        allocatable=amounts_of(tuple(sorted(raw.status.allocatable.items()))),
        created=meta.creation_timestamp or EPOCH,
        labels=meta.labels,
        taints=same(
            tuple(
                Taint(one.key, one.value, one.effect)
                for one in spec.taints
                if one.key not in _LIFECYCLE_TAINTS and one.key != _CORDON_TAINT
            )
        ),
        ready=ready and not any(one.key in _LIFECYCLE_TAINTS for one in spec.taints),
        unready_since=condition.last_transition_time if condition is not None and not ready else None,
        cordoned=spec.unschedulable,
        cordoned_by=meta.annotations.get(words.CORDONED_BY, "") if spec.unschedulable else "",
        cordoned_at=time_of(meta.annotations.get(words.CORDONED_AT)) if spec.unschedulable else None,
        provider_id=spec.provider_id,
        do_not_disrupt=_do_not_disrupt(meta),
        deleting=meta.deletion_timestamp is not None,
        conditions=tuple(
            NodeCondition(one.type, one.status, one.reason, one.last_transition_time)
            for one in raw.status.conditions
            if one.type not in _KUBELETS_CONDITIONS
        ),
        notice=_notice(meta, spec.provider_id),
    )


def _notice(meta: Meta, provider_id: str) -> Notice | None:
    """What the node says of itself, where all of it makes sense."""
    kind, _, times = meta.annotations.get(words.INTERRUPTION, "").partition(" ")
    told, _, ends = times.partition(" ")
    instance, seen = provider_id.rsplit("/", 1)[-1], time_of(told)
    if seen is None or kind not in _NOTICES:
        return None
    return Notice(instance, cast("Literal['interruption', 'rebalance', 'maintenance']", kind), seen, time_of(ends))


def daemon_set_from(raw: DaemonSetJson) -> DaemonSet:
    """Returns the DaemonSet as the planner knows it."""
    spec = raw.spec.template.spec
    return DaemonSet(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        requests=requests_of(spec),
        affinity=affinity_of(spec),
        tolerations=tolerations_of(spec),
    )


def _completed(raw: PodJson) -> bool:
    """The phase is withheld until nothing of the pod is left: https://github.com/kubernetes/kubernetes/pull/108366.

    Until then it is the one before, also ``Pending`` where the programs have ended within a second.
    """
    if raw.status.phase in ("Succeeded", "Failed"):
        return raw.status.phase == "Succeeded"
    ends = [one.state.terminated for one in raw.status.container_statuses]
    return 0 < len(raw.spec.containers) <= len(ends) and all(end and end.exit_code == 0 for end in ends)


def _unschedulable(status: PodStatus) -> str:
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return condition.message
    return ""


def _do_not_disrupt(meta: Meta) -> bool:
    return any(meta.annotations.get(key) == value for key, value in _DO_NOT_DISRUPT.items())


def _unread(meta: Meta) -> Iterator[str]:
    for key, forever in ((words.PATIENCE, FOREVER), (words.DURATION, None)):
        text = meta.annotations.get(key)
        if text and span_of(text, forever=forever) is None:
            yield f"annotation {key} is {text!r} and counts as absent: it must be a span of time such as 90s, 10m or 1h"
    for key in (words.GANG_SIZE, words.GANG_MIN):
        text = meta.annotations.get(key)
        if text and count(text) is None:
            yield f"annotation {key} is {text!r} and counts as absent: it must be a number of pods, 1 or more"
