"""Every dialect in which pods say of which gang they are: the marks on them, and the object that tells its size.

Which mark belongs to which object: the documentation of each API named below. What the objects say is in
``gang_kinds.py``. Pure; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from autoscaler.kube.schema.core import Meta, PodSpec
from autoscaler.kube.schema.gang_kinds import JOBS, LEADER_WORKER_SETS, NATIVE
from autoscaler.kube.schema.yunikorn import application_of, is_in_task_group, is_placeholder, task_groups
from autoscaler.model import labels as words
from autoscaler.model.cluster import GangRef

_COSCHEDULING: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
_VOLCANO: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_VOLCANO_MINIMUM: Final = "scheduling.volcano.sh/group-min-member"
_KUEUE, _KUEUE_COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
_KUEUE_ONE_BY_ONE: Final = "kueue.x-k8s.io/pod-group-fast-admission"
_KUEUE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
_LEADER_WORKER: Final = "leaderworkerset.sigs.k8s.io"
_KOORDINATOR: Final = "gang.scheduling.koordinator.sh"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_KUBEFLOW: Final = "training.kubeflow.org/job-name"
_KUBEFLOW_OWNERS: Final = frozenset({"TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"})


def gang_of(meta: Meta, spec: PodSpec) -> GangRef | None:
    """The gang that a pod names, by the first dialect that it speaks; our own annotations count in each of them."""
    dialects = (_yunikorn,) if is_in_task_group(meta, spec) else _DIALECTS
    found = next((ref for dialect in dialects if (ref := dialect(meta, spec)) is not None), None)
    if found is None:
        return None
    notes = meta.annotations
    return replace(
        found,
        size=count(notes.get(words.GANG_SIZE)) or found.size,
        minimum=count(notes.get(words.GANG_MIN)) or found.minimum,
        topology=notes.get(words.GANG_ZONE) or notes.get(_KUEUE_TOPOLOGY),
    )


def _own(meta: Meta, _spec: PodSpec) -> GangRef | None:
    return _ref(meta, meta.labels.get(words.GANG))


def _native_group(meta: Meta, spec: PodSpec) -> GangRef | None:
    """Kubernetes 1.36 and later: https://kubernetes.io/docs/concepts/workloads/pods/scheduling-group/ ."""
    name = spec.scheduling_group.pod_group_name
    return _ref(meta, name, size_source=f"{NATIVE}podgroups/{name}")


def _native_workload(meta: Meta, spec: PodSpec) -> GangRef | None:
    """Kubernetes 1.35: a group of a Workload, perhaps one of several replicas of it."""
    ref = spec.workload_ref
    name = "/".join(part for part in (ref.name, ref.pod_group, ref.pod_group_replica_key) if part)
    return _ref(meta, name, size_source=f"{NATIVE}workloads/{ref.name}/{ref.pod_group}")


def _coscheduling(meta: Meta, _spec: PodSpec) -> GangRef | None:
    name = _first(meta.labels, _COSCHEDULING)
    return _ref(meta, name, size_source=f"scheduling.x-k8s.io/podgroups/{name}")


def _volcano(meta: Meta, _spec: PodSpec) -> GangRef | None:
    name = _first(meta.annotations, _VOLCANO)
    minimum = count(meta.annotations.get(_VOLCANO_MINIMUM))
    return _ref(meta, name, minimum=minimum, size_source=f"scheduling.volcano.sh/podgroups/{name}")


def _kueue(meta: Meta, _spec: PodSpec) -> GangRef | None:
    """Plain pods as one group; the pods of Jobs are created once Kueue has admitted them, and are their Job's.

    A group that is admitted by its first pod alone is none: its others may be created once that runs, as those of a
    StatefulSet are. https://kueue.sigs.k8s.io/docs/reference/labels-and-annotations/
    """
    if meta.annotations.get(_KUEUE_ONE_BY_ONE) == "true":
        return None
    return _ref(meta, meta.labels.get(_KUEUE), size=count(meta.annotations.get(_KUEUE_COUNT)))


def _leader_worker(meta: Meta, _spec: PodSpec) -> GangRef | None:
    """Each group of a LeaderWorkerSet is a gang."""
    name, group = (meta.labels.get(f"{_LEADER_WORKER}/{key}", "") for key in ("name", "group-index"))
    size = count(meta.annotations.get(f"{_LEADER_WORKER}/size"))
    return _ref(meta, f"{name}/{group}" if name else "", size=size, size_source=f"{LEADER_WORKER_SETS}{name}")


def _koordinator(meta: Meta, _spec: PodSpec) -> GangRef | None:
    notes = {key: meta.annotations.get(f"{_KOORDINATOR}/{key}") for key in ("name", "min-available", "total-number")}
    size, minimum = count(notes["total-number"]), count(notes["min-available"])
    return _ref(meta, notes["name"], size=size, minimum=minimum)


def _jobset(meta: Meta, _spec: PodSpec) -> GangRef | None:
    name = meta.labels.get(_JOBSET)
    return _ref(meta, name, size_source=f"jobset.x-k8s.io/jobsets/{name}")


def _kubeflow(meta: Meta, _spec: PodSpec) -> GangRef | None:
    owner = meta.owner()
    name = meta.labels.get(_KUBEFLOW) or (owner.name if owner and owner.kind in _KUBEFLOW_OWNERS else "")
    return _ref(meta, name, size_source=f"kubeflow.org/{name}")


def _yunikorn(meta: Meta, _spec: PodSpec) -> GangRef | None:
    """The placeholders of an application's task groups are its gang: YuniKorn makes all of them at once.

    Its own pods take their places one by one, whenever they are created; there may be more of them, or fewer.
    https://yunikorn.apache.org/docs/design/gang_scheduling/
    """
    if not is_placeholder(meta):
        return None
    return _ref(meta, application_of(meta), size=sum(group.min_member for group in task_groups(meta)) or None)


def _indexed(meta: Meta, _spec: PodSpec) -> GangRef | None:
    """A gang only if its Job says that all indexes run at once (``gang_sizes.indexed_job_size``)."""
    owner = meta.owner()
    if (
        owner is None
        or owner.kind != "Job"
        or not (words.COMPLETION_INDEX in meta.labels or words.COMPLETION_INDEX in meta.annotations)
    ):
        return None
    return _ref(meta, owner.name, size_source=f"{JOBS}{owner.name}")


_DIALECTS: Final[tuple[Callable[[Meta, PodSpec], GangRef | None], ...]] = (
    _own,
    _native_group,
    _native_workload,
    _coscheduling,
    _volcano,
    _kueue,
    _leader_worker,
    _koordinator,
    _jobset,
    _kubeflow,
    _indexed,
)


def must_be_told(ref: GangRef) -> bool:
    """Whether its pods are held, by whatever schedules them, until the object that says the size is there."""
    return ref.size_source.startswith(NATIVE)


def may_be_alone(ref: GangRef) -> bool:
    """Whether its pods are no gang unless an object says so."""
    return ref.size_source.startswith(JOBS) and ref.size is None and ref.minimum is None


def _ref(
    meta: Meta, name: str | None, *, size: int | None = None, minimum: int | None = None, size_source: str = ""
) -> GangRef | None:
    if not name:
        return None
    return GangRef(namespace=meta.namespace, name=name, size=size, minimum=minimum, size_source=size_source)


def _first(mapping: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((mapping[key] for key in keys if mapping.get(key)), "")


def count(text: str | None) -> int | None:
    """A number of pods, as an annotation says it; ``None`` where it is none."""
    return int(text) if text and text.isdecimal() and int(text) > 0 else None
