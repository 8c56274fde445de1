"""Every dialect in which a gang is spoken of: marks on its pods, and the objects that say how many it has.

Which mark belongs to which object: the documentation of each API named below; shapes are of the versions in
:data:`SERVED`. Pure; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from autoscaler import labels as words
from autoscaler.cluster import GangRef, GangSize
from autoscaler.objects import Json, Meta, PodSpec

Said = tuple[tuple[str, GangSize], ...]
"""What an object says: (``GangRef.told_by``, size) of each gang it speaks of."""

_COSCHEDULING: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
_VOLCANO: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_VOLCANO_MINIMUM: Final = "scheduling.volcano.sh/group-min-member"
_KUEUE, _KUEUE_COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
_KUEUE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
_LEADER_WORKER: Final = "leaderworkerset.sigs.k8s.io"
_KOORDINATOR: Final = "gang.scheduling.koordinator.sh"
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_KUBEFLOW: Final = "training.kubeflow.org/job-name"
_KUBEFLOW_OWNERS: Final = frozenset({"TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"})
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_LAUNCHER: Final = "Launcher"


def gang_of(meta: Meta, spec: PodSpec) -> GangRef | None:
    """The gang that a pod names, by the first dialect that it speaks; our own annotations count in each of them."""
    found = next((ref for dialect in _DIALECTS if (ref := dialect(meta, spec)) is not None), None)
    if found is None:
        return None
    notes = meta.annotations
    return replace(
        found,
        size=_count(notes.get(words.GANG_SIZE)) or found.size,
        minimum=_count(notes.get(words.GANG_MIN)) or found.minimum,
        topology=notes.get(words.GANG_ZONE) or notes.get(_KUEUE_TOPOLOGY),
    )


def _own(meta: Meta, _spec: PodSpec) -> GangRef | None:
    return _ref(meta, meta.labels.get(words.GANG))


def _native_group(meta: Meta, spec: PodSpec) -> GangRef | None:
    """Kubernetes 1.36 and later: https://kubernetes.io/docs/concepts/workloads/pods/scheduling-group/ ."""
    name = spec.scheduling_group.pod_group_name
    return _ref(meta, name, told_by=f"{_NATIVE}podgroups/{name}")


def _native_workload(meta: Meta, spec: PodSpec) -> GangRef | None:
    """Kubernetes 1.35: a group of a Workload, perhaps one of several replicas of it."""
    ref = spec.workload_ref
    name = "/".join(part for part in (ref.name, ref.pod_group, ref.pod_group_replica_key) if part)
    return _ref(meta, name, told_by=f"{_NATIVE}workloads/{ref.name}/{ref.pod_group}")


def _coscheduling(meta: Meta, _spec: PodSpec) -> GangRef | None:
    name = _first(meta.labels, _COSCHEDULING)
    return _ref(meta, name, told_by=f"scheduling.x-k8s.io/podgroups/{name}")


def _volcano(meta: Meta, _spec: PodSpec) -> GangRef | None:
    name = _first(meta.annotations, _VOLCANO)
    minimum = _count(meta.annotations.get(_VOLCANO_MINIMUM))
    return _ref(meta, name, minimum=minimum, told_by=f"scheduling.volcano.sh/podgroups/{name}")


def _kueue(meta: Meta, _spec: PodSpec) -> GangRef | None:
    """Plain pods as one group; the pods of Jobs are created once Kueue has admitted them, and are their Job's."""
    return _ref(meta, meta.labels.get(_KUEUE), size=_count(meta.annotations.get(_KUEUE_COUNT)))


def _leader_worker(meta: Meta, _spec: PodSpec) -> GangRef | None:
    """Each group of a LeaderWorkerSet is a gang."""
    name, group = (meta.labels.get(f"{_LEADER_WORKER}/{key}", "") for key in ("name", "group-index"))
    size = _count(meta.annotations.get(f"{_LEADER_WORKER}/size"))
    return _ref(meta, f"{name}/{group}" if name else "", size=size)


def _koordinator(meta: Meta, _spec: PodSpec) -> GangRef | None:
    notes = {key: meta.annotations.get(f"{_KOORDINATOR}/{key}") for key in ("name", "min-available", "total-number")}
    size, minimum = _count(notes["total-number"]), _count(notes["min-available"])
    return _ref(meta, notes["name"], size=size, minimum=minimum)


def _jobset(meta: Meta, _spec: PodSpec) -> GangRef | None:
    name = meta.labels.get(_JOBSET)
    return _ref(meta, name, told_by=f"jobset.x-k8s.io/jobsets/{name}")


def _kubeflow(meta: Meta, _spec: PodSpec) -> GangRef | None:
    owner = meta.owner()
    name = meta.labels.get(_KUBEFLOW) or (owner.name if owner and owner.kind in _KUBEFLOW_OWNERS else "")
    return _ref(meta, name, told_by=f"kubeflow.org/{name}")


def _indexed(meta: Meta, _spec: PodSpec) -> GangRef | None:
    """A gang only if its Job says that all indexes run at once (:func:`indexed_job_size`)."""
    owner = meta.owner()
    if owner is None or owner.kind != "Job" or not (_INDEX in meta.labels or _INDEX in meta.annotations):
        return None
    return _ref(meta, owner.name, told_by=f"{JOBS}{owner.name}")


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
_NATIVE: Final = "scheduling.k8s.io/"
JOBS: Final = "batch/jobs/"
"""How ``told_by`` begins for an Indexed Job."""


def must_be_told(ref: GangRef) -> bool:
    """Whether its pods are held, by whoever schedules them, until the object that says the size is there."""
    return ref.told_by.startswith(_NATIVE)


def may_be_alone(ref: GangRef) -> bool:
    """Whether its pods are no gang unless an object says so."""
    return ref.told_by.startswith(JOBS) and ref.size is None and ref.minimum is None


def indexed_job_size(name: str, *, mode: str, parallelism: int, completions: int | None) -> Said:
    """An Indexed Job whose indexes all run at once is one gang, as the Job controller of Kubernetes 1.36 takes it."""
    together = mode == "Indexed" and parallelism == completions and parallelism > 1
    return ((f"{JOBS}{name}", GangSize(size=parallelism)),) if together else ()


# --- Objects that say a size ------------------------------------------------------------------------------------------


class _Gang(Json, frozen=True):
    min_count: int = 0


class _SchedulingPolicy(Json, frozen=True):
    gang: _Gang | None = None


class _GroupSpec(Json, frozen=True):
    min_member: int = 0
    scheduling_policy: _SchedulingPolicy = _SchedulingPolicy()


class PodGroupJson(Json, frozen=True):
    """PodGroup of Kubernetes itself, of the coscheduling plugin, and of Volcano."""

    metadata: Meta
    spec: _GroupSpec = _GroupSpec()


class _WorkloadGroup(Json, frozen=True):
    name: str
    policy: _SchedulingPolicy = _SchedulingPolicy()


class _WorkloadSpec(Json, frozen=True):
    pod_groups: tuple[_WorkloadGroup, ...] = ()


class WorkloadJson(Json, frozen=True):
    """Workload of Kubernetes 1.35."""

    metadata: Meta
    spec: _WorkloadSpec = _WorkloadSpec()


class _JobSpec(Json, frozen=True):
    parallelism: int = 1


class _JobTemplate(Json, frozen=True):
    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(Json, frozen=True):
    replicas: int = 1
    template: _JobTemplate = _JobTemplate()


class _JobSetSpec(Json, frozen=True):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()


class JobSetJson(Json, frozen=True):
    """JobSet: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/."""

    metadata: Meta
    spec: _JobSetSpec = _JobSetSpec()


class _Replicas(Json, frozen=True):
    replicas: int = 1


class _KubeflowPolicy(Json, frozen=True):
    min_available: int | None = None


class _RunPolicy(Json, frozen=True):
    scheduling_policy: _KubeflowPolicy | None = None


class _Elastic(Json, frozen=True):
    min_replicas: int | None = None


_Specs = dict[str, _Replicas]


class _KubeflowSpec(Json, frozen=True):
    tf_replica_specs: _Specs = msgspec.field(default_factory=dict)
    pytorch_replica_specs: _Specs = msgspec.field(default_factory=dict)
    mpi_replica_specs: _Specs = msgspec.field(default_factory=dict)
    xgb_replica_specs: _Specs = msgspec.field(default_factory=dict)
    paddle_replica_specs: _Specs = msgspec.field(default_factory=dict)
    jax_replica_specs: _Specs = msgspec.field(default_factory=dict)
    run_policy: _RunPolicy = _RunPolicy()
    elastic_policy: _Elastic | None = None
    launcher_creation_policy: str = ""

    def roles(self) -> dict[str, int]:
        """Pods by role that come at once."""
        kinds = (
            self.tf_replica_specs,
            self.pytorch_replica_specs,
            self.mpi_replica_specs,
            self.xgb_replica_specs,
            self.paddle_replica_specs,
            self.jax_replica_specs,
        )
        late = _LAUNCHER if self.launcher_creation_policy == "WaitForWorkersReady" else ""
        return {role: one.replicas for specs in kinds for role, one in specs.items() if role != late}


class KubeflowJson(Json, frozen=True):
    """TFJob, PyTorchJob, MPIJob, ... of the Kubeflow training and MPI operators."""

    metadata: Meta
    spec: _KubeflowSpec = _KubeflowSpec()


def pod_group_says(api_group: str) -> Callable[[PodGroupJson], Said]:
    """For the PodGroups of an API group: what one of them says."""

    def says(raw: PodGroupJson) -> Said:
        is_native = f"{api_group}/" == _NATIVE
        size = _native_size(raw.spec.scheduling_policy) if is_native else GangSize(minimum=raw.spec.min_member or None)
        return ((f"{api_group}/podgroups/{raw.metadata.name}", size),)

    return says


def workload_says(raw: WorkloadJson) -> Said:
    """One size for each of its groups."""
    name = raw.metadata.name
    return tuple((f"{_NATIVE}workloads/{name}/{one.name}", _native_size(one.policy)) for one in raw.spec.pod_groups)


def jobset_says(raw: JobSetJson) -> Said:
    """All pods of all its jobs."""
    size = sum(job.replicas * job.template.spec.parallelism for job in raw.spec.replicated_jobs)
    return ((f"jobset.x-k8s.io/jobsets/{raw.metadata.name}", GangSize(size=size or None)),)


def kubeflow_says(raw: KubeflowJson) -> Said:
    """All replicas; together only the least of them where its policy names one."""
    roles, policy, elastic = raw.spec.roles(), raw.spec.run_policy.scheduling_policy, raw.spec.elastic_policy
    size = sum(roles.values())
    minimum = policy.min_available if policy else None
    if minimum is None and elastic is not None and elastic.min_replicas is not None:
        minimum = size - roles.get("Worker", 0) + min(elastic.min_replicas, roles.get("Worker", 0))
    return ((f"kubeflow.org/{raw.metadata.name}", GangSize(size=size or None, minimum=minimum or None)),)


@dataclass(frozen=True, slots=True)
class Api:
    """Where objects that say a size are served, once somebody has installed them."""

    group: str
    versions: tuple[str, ...]
    """The one to ask for first stands first."""
    resource: str
    model: Any
    says: Callable[[Any], Said]


SERVED: Final = (
    Api(
        "scheduling.k8s.io",
        ("v1", "v1beta1", "v1alpha3", "v1alpha2"),
        "podgroups",
        PodGroupJson,
        pod_group_says("scheduling.k8s.io"),
    ),
    Api("scheduling.k8s.io", ("v1alpha1",), "workloads", WorkloadJson, workload_says),
    Api("scheduling.x-k8s.io", ("v1alpha1",), "podgroups", PodGroupJson, pod_group_says("scheduling.x-k8s.io")),
    Api("scheduling.volcano.sh", ("v1beta1",), "podgroups", PodGroupJson, pod_group_says("scheduling.volcano.sh")),
    Api("jobset.x-k8s.io", ("v1alpha2",), "jobsets", JobSetJson, jobset_says),
    *(
        Api("kubeflow.org", ("v2beta1", "v1") if kind == "mpijobs" else ("v1",), kind, KubeflowJson, kubeflow_says)
        for kind in ("tfjobs", "pytorchjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs")
    ),
)


def _native_size(policy: _SchedulingPolicy) -> GangSize:
    """``basic``: its pods are placed one by one."""
    return GangSize(one_by_one=True) if policy.gang is None else GangSize(minimum=policy.gang.min_count or None)


def _ref(
    meta: Meta, name: str | None, *, size: int | None = None, minimum: int | None = None, told_by: str = ""
) -> GangRef | None:
    if not name:
        return None
    return GangRef(namespace=meta.namespace, name=name, size=size, minimum=minimum, told_by=told_by)


def _first(mapping: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((mapping[key] for key in keys if mapping.get(key)), "")


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and int(text) > 0 else None
