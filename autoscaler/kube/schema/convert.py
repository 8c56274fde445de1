"""Kubernetes objects become the nouns that decisions are made of. Pure; no I/O.

What a pod asks for and Spillway does not model is said in ``Pod.not_understood``, in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, cast

import msgspec

from autoscaler.config.documents import parse_span
from autoscaler.kube.schema.core import (
    DaemonSetJson,
    JobJson,
    Meta,
    NodeJson,
    PodAffinity,
    PodJson,
    PodSpec,
    PodStatus,
    Quantities,
    ResourceNeeds,
)
from autoscaler.kube.schema.gang_detection import count, gang_of
from autoscaler.kube.schema.gang_kinds import GangSizes, indexed_job_size
from autoscaler.kube.schema.storage import ClaimJson
from autoscaler.model import labels as words
from autoscaler.model.cluster import FOREVER, DaemonSet, ElasticRole, Node, NodeCondition, Notice, Pod
from autoscaler.model.constraints import PodTerm, Requirement, Spread, Taint, Term, Toleration
from autoscaler.model.resources import CPU, MEMORY, PODS, Resources

EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Job:
    """A batch/v1 Job, reduced to how it has ended, whose end it waits for, its gang, and its size."""

    namespace: str
    name: str
    ended: bool
    """Complete, failed, or being deleted."""
    ends_with: str
    gang_sizes: GangSizes = ()
    elastic: ElasticRole | None = None
    result: Literal["", "succeeded", "failed"] = ""
    """How it has ended, or is about to: certain some seconds before it has ``ended``."""
    of: str = ""
    """The training job that it is a part of."""
    depends_on: tuple[str, ...] = ()
    """Jobs of its namespace after which it begins; empty where it was stopped."""
    waits: bool = False
    """It is suspended, and was never begun."""
    began: datetime | None = None
    """When Spillway resumed it."""
    uid: str = ""
    completions: int | None = None
    """Number of its tasks, where it is an Indexed Job."""


_SUCCEEDED: Final = {"SuccessCriteriaMet", "Complete"}
_FAILED: Final = {"FailureTarget", "Failed"}
"""Conditions of a Job: the first of each says what the second will, from Kubernetes 1.31 on.

https://kubernetes.io/docs/concepts/workloads/controllers/job/#terminal-job-conditions
"""
_LIFECYCLE_TAINTS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_NOTICES: Final = ("interruption", "rebalance", "maintenance")
"""Said by ``Node.ready``; they come and go by themselves."""
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
_POD_LEVEL: Final = (CPU, MEMORY)
"""What pod-level requests may speak of, besides huge pages."""

_KUBERNETES_OWN: Final = "default-scheduler"
_CLAIM, _OWN_CLAIM = "persistentVolumeClaim", "ephemeral"
_EVERYWHERE: Final = frozenset(
    {
        *("configMap", "downwardAPI", "emptyDir", "gitRepo", "hostPath", "image", "nfs", "projected", "secret"),
        *("cephfs", "csi", "fc", "flexVolume", "flocker", "glusterfs", "quobyte", "scaleIO", "storageos"),
    }
)
"""Kinds of volume that the scheduler asks nothing about."""

T = TypeVar("T")
_Asked = tuple[tuple[str, str | int | float], ...]


def pod_from(raw: PodJson) -> Pod:
    """The noun."""
    meta, spec = raw.metadata, raw.spec
    owner = meta.owner()
    terms = _affinity(spec)
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        requests=requests_of(spec),
        created=meta.creation_timestamp or EPOCH,
        labels=meta.labels,
        node=spec.node_name or None,
        phase=raw.status.phase,
        affinity=_same(terms),
        tolerations=_tolerations(spec),
        apart_from=_pod_terms(spec.affinity.pod_anti_affinity, meta),
        near_to=_pod_terms(spec.affinity.pod_affinity, meta),
        spread=_spread(spec, meta),
        host_ports=_host_ports(spec),
        claims=tuple(_claims(meta, spec)),
        priority=spec.priority,
        gang=_same(gang_of(meta, spec)),
        gates=_same(tuple(gate.name for gate in spec.scheduling_gates)),
        started=raw.status.start_time,
        duration=_span(meta.annotations.get(words.DURATION)),
        patience=_span(meta.annotations.get(words.PATIENCE), forever=FOREVER),
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
        not_understood=tuple(_not_understood(spec)),
    )


def node_from(raw: NodeJson) -> Node:
    """The noun. Taints that only repeat that it is cordoned or not ready are left out: its own fields say so."""
    meta, spec = raw.metadata, raw.spec
    condition = next((one for one in raw.status.conditions if one.type == "Ready"), None)
    ready = condition is not None and condition.status == "True"
    return Node(
        name=meta.name,
        allocatable=_amounts(tuple(sorted(raw.status.allocatable.items()))),
        created=meta.creation_timestamp or EPOCH,
        labels=meta.labels,
        taints=_same(
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
        cordoned_at=_time(meta.annotations.get(words.CORDONED_AT)) if spec.unschedulable else None,
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
    instance, seen = provider_id.rsplit("/", 1)[-1], _time(told)
    if seen is None or kind not in _NOTICES:
        return None
    return Notice(instance, cast("Literal['interruption', 'rebalance', 'maintenance']", kind), seen, _time(ends))


def daemon_set_from(raw: DaemonSetJson) -> DaemonSet:
    """The noun."""
    spec = raw.spec.template.spec
    return DaemonSet(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        requests=requests_of(spec),
        affinity=_affinity(spec),
        tolerations=_tolerations(spec),
    )


def job_from(raw: JobJson) -> Job:
    """The noun."""
    true = {condition.type for condition in raw.status.conditions if condition.status == "True"}
    return Job(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        ended=bool(true & {"Complete", "Failed"}) or raw.metadata.deletion_timestamp is not None,
        ends_with=raw.metadata.annotations.get(words.ENDS_WITH, ""),
        gang_sizes=indexed_job_size(
            raw.metadata.name,
            mode=raw.spec.completion_mode,
            parallelism=raw.spec.parallelism,
            completions=raw.spec.completions,
        ),
        elastic=_elastic(raw),
        result="succeeded" if true & _SUCCEEDED else "failed" if true & _FAILED else "",
        of=raw.metadata.labels.get(words.JOB, ""),
        depends_on=_depends_on(raw),
        waits=raw.spec.suspend and words.STEP_BEGAN not in raw.metadata.annotations,
        began=_time(raw.metadata.annotations.get(words.STEP_BEGAN)),
        uid=raw.metadata.uid,
        completions=raw.spec.completions if raw.spec.completion_mode == "Indexed" else None,
    )


def _depends_on(raw: JobJson) -> tuple[str, ...]:
    notes = raw.metadata.annotations
    if words.STEP_STOPPED in notes:
        return ()
    return tuple(name for one in notes.get(words.DEPENDS_ON, "").split(",") if (name := one.strip()))


def _elastic(raw: JobJson) -> ElasticRole | None:
    """What is said of its size, where all of it makes sense: a Job that is not all at once is none of ours."""
    meta, spec, notes = raw.metadata, raw.spec, raw.metadata.annotations
    least, _, most = notes.get(words.ELASTIC, "").partition("..")
    minimum, maximum = count(least), count(most)
    if minimum is None or maximum is None or not minimum <= spec.parallelism <= maximum:
        return None
    if spec.completion_mode != "Indexed" or spec.completions != spec.parallelism:
        return None
    return ElasticRole(
        namespace=meta.namespace,
        name=meta.name,
        size=spec.parallelism,
        minimum=minimum,
        maximum=maximum,
        created=meta.creation_timestamp or EPOCH,
        changed=_time(notes.get(words.RESIZED_AT)),
        follows=notes.get(words.FOLLOWS, ""),
        stays=bool(raw.status.succeeded) or spec.suspend,
        restart=_span(notes.get(words.ELASTIC_RESTART)),
        warm_up=_span(notes.get(words.ELASTIC_WARM_UP)),
        usd_per_hour=_usd(notes.get(words.ELASTIC_USD)),
    )


def _usd(text: str | None) -> float | None:
    try:
        usd = float(text or "")
    except ValueError:
        return None
    return usd if 0 <= usd < math.inf else None


def requests_of(spec: PodSpec) -> Resources:
    """What the scheduler counts for a pod, with one of ``pods``.

    The sum of the containers and sidecars, or what the initialisation needs at its peak where that is more; pod-level
    requests in place of both where they are given; plus the overhead of its runtime class.
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    if not (spec.init_containers or spec.overhead or spec.resources.requests or spec.resources.limits):
        return _sum_of(tuple(_asked(container.resources) for container in spec.containers))
    running = Resources.total(_needs(container.resources) for container in spec.containers)
    sidecars = peak = Resources()
    for container in spec.init_containers:
        needs = _needs(container.resources)
        if container.restart_policy == "Always":
            running, sidecars = running + needs, sidecars + needs
        else:
            peak = _larger(peak, needs + sidecars)
    whole = _pod_level(_larger(running, peak), spec.resources)
    return _same(whole + _amounts(tuple(sorted(spec.overhead.items()))) + _ONE_POD)


_ONE_POD: Final = Resources({PODS: 1})


def _needs(needs: ResourceNeeds) -> Resources:
    """Requests; where there is none, the limit, as the API server fills it in for pods (but not for templates)."""
    return _amounts(_asked(needs))


def _asked(needs: ResourceNeeds) -> _Asked:
    both: Quantities = {**needs.limits, **needs.requests}
    return tuple(sorted(both.items()))


@lru_cache(maxsize=8192)
def _sum_of(containers: tuple[_Asked, ...]) -> Resources:
    """Of a pod that asks for nothing besides; ten thousand pods ask for a few dozen amounts."""
    return Resources.total((*map(_amounts, containers), _ONE_POD))


def _pod_level(containers: Resources, needs: ResourceNeeds) -> Resources:
    given = _needs(needs)
    if not given:
        return containers
    said = {name for name in given if name in _POD_LEVEL or name.startswith("hugepages-")}
    return Resources({**containers, **{name: given[name] for name in said}})


@lru_cache(maxsize=4096)
def _amounts(quantities: _Asked) -> Resources:
    return Resources.parse(dict(quantities))


def _larger(one: Resources, other: Resources) -> Resources:
    return Resources({name: max(one[name], other[name]) for name in {*one, *other}})


@lru_cache(maxsize=2048)
def _kept(value: Any) -> Any:
    return value


def _same(value: T) -> T:
    """One copy of equal values: ten thousand pods share a few dozen shapes."""
    return cast("T", _kept(value))


def _affinity(spec: PodSpec) -> tuple[Term, ...]:
    """Node selector and required node affinity as alternatives, each complete in itself."""
    chosen = tuple(Requirement(key, "In", (value,)) for key, value in sorted(spec.node_selector.items()))
    required = spec.affinity.node_affinity.required
    if required is None:
        return (chosen,) if chosen else ()
    return tuple(
        chosen + tuple(expression.noun() for expression in term.match_expressions)
        for term in required.node_selector_terms
        if term.match_expressions
    ) or ((chosen,) if chosen else ())


def _tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    return _same(
        tuple(
            Toleration(one.key, "Exists" if one.operator == "Exists" else "Equal", one.value, one.effect)
            for one in spec.tolerations
        )
    )


def _pod_terms(affinity: PodAffinity, meta: Meta) -> tuple[PodTerm, ...]:
    return _same(
        tuple(
            PodTerm(
                topology_key=term.topology_key,
                selector=term.label_selector.term()
                + _by_keys(term.match_label_keys, meta, "In")
                + _by_keys(term.mismatch_label_keys, meta, "NotIn"),
                namespaces=frozenset(
                    term.namespaces or (() if term.namespace_selector is not None else (meta.namespace,))
                ),
                namespace_selector=None if term.namespace_selector is None else term.namespace_selector.term(),
            )
            for term in affinity.required
            if term.label_selector is not None  # without one the term is about no pod at all
        )
    )


def _spread(spec: PodSpec, meta: Meta) -> tuple[Spread, ...]:
    return _same(
        tuple(
            Spread(
                topology_key=one.topology_key,
                max_skew=one.max_skew,
                selector=one.label_selector.term() + _by_keys(one.match_label_keys, meta, "In"),
                min_domains=one.min_domains,
            )
            for one in spec.topology_spread_constraints
            if one.when_unsatisfiable == "DoNotSchedule" and one.label_selector is not None
        )
    )


def _by_keys(keys: Iterable[str], meta: Meta, operator: Literal["In", "NotIn"]) -> Term:
    """``matchLabelKeys``: the pod's own value of each."""
    return tuple(Requirement(key, operator, (meta.labels[key],)) for key in keys if key in meta.labels)


def _host_ports(spec: PodSpec) -> frozenset[tuple[str, int]]:
    ports = [port for container in spec.containers for port in container.ports if port.host_port]
    return _same(frozenset((port.protocol, port.host_port) for port in ports))


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


def _not_understood(spec: PodSpec) -> Iterator[str]:
    """Each rule that may keep the pod from a node on which we would place it."""
    if spec.resource_claims:
        yield f"resource claims ({', '.join(claim.name for claim in spec.resource_claims)})"
    for volume in spec.volumes:
        for kind in volume.keys() - _EVERYWHERE - {"name", _CLAIM, _OWN_CLAIM}:
            yield f"volume {volume.get('name', '')} of kind {kind}"
    for spread in spec.topology_spread_constraints:
        if spread.when_unsatisfiable == "DoNotSchedule" and (
            spread.node_affinity_policy != "Honor" or spread.node_taints_policy != "Ignore"
        ):
            yield f"topology spread by {spread.topology_key} with its own node policies"
    required = spec.affinity.node_affinity.required
    if required is not None and any(term.match_fields for term in required.node_selector_terms):
        yield "node affinity with matchFields"


def own_claims(spec: PodSpec) -> Iterator[tuple[str, ClaimJson]]:
    """The pod's ephemeral volumes, each with the template of its claim."""
    for volume in spec.volumes:
        if _OWN_CLAIM in volume:
            template = (volume[_OWN_CLAIM] or {}).get("volumeClaimTemplate") or {}
            made = {"metadata": {}, "spec": template.get("spec") or {}}
            yield str(volume.get("name", "")), msgspec.convert(made, ClaimJson, strict=False)


def _claims(meta: Meta, spec: PodSpec) -> Iterator[str]:
    """An ephemeral volume has a claim of its own, named after the pod and itself."""
    for volume in spec.volumes:
        if _CLAIM in volume:
            yield str(volume[_CLAIM].get("claimName", ""))
        elif _OWN_CLAIM in volume:
            yield f"{meta.name}-{volume.get('name', '')}"


def _span(text: str | None, *, forever: timedelta | None = None) -> timedelta | None:
    """``forever``: what that word means, if anything."""
    if text == "forever":
        return forever
    try:
        return parse_span(text) if text else None
    except ValueError:
        return None


def _unread(meta: Meta) -> Iterator[str]:
    for key, forever in ((words.PATIENCE, FOREVER), (words.DURATION, None)):
        text = meta.annotations.get(key)
        if text and _span(text, forever=forever) is None:
            yield f"annotation {key} is {text!r} and counts as absent: it must be a span of time such as 90s, 10m or 1h"
    for key in (words.GANG_SIZE, words.GANG_MIN):
        text = meta.annotations.get(key)
        if text and count(text) is None:
            yield f"annotation {key} is {text!r} and counts as absent: it must be a number of pods, 1 or more"


def _time(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
