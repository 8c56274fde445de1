"""Objects that say how many pods a gang has: PodGroups, JobSets, training jobs, Indexed Jobs and others.

Shapes are of the versions in :data:`SERVED`; which mark on a pod belongs to which object is said in
``gang_detection.py``. Pure; no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Generic, TypeVar

import msgspec

from autoscaler.kube.schema.core import Json, Meta
from autoscaler.model.cluster import GangSize

GangSizes = tuple[tuple[str, GangSize], ...]
"""What an object says: (``GangRef.size_source``, size) of each gang it speaks of."""

NATIVE: Final = "scheduling.k8s.io/"
JOBS: Final = "batch/jobs/"
LEADER_WORKER_SETS: Final = "leaderworkerset.x-k8s.io/leaderworkersets/"
"""How ``size_source`` begins for Kubernetes' own groups, for an Indexed Job, and for a LeaderWorkerSet."""
_LAUNCHER: Final = "Launcher"
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_BY_NODE_LABELS: Final = "alpha.jobset.sigs.k8s.io/node-selector"
_LEADER_FIRST: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""Annotations by which the pods of each job, or group, have a topology domain of their own: that of the first pod."""


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
    """Workload of ``scheduling.k8s.io``, as Kubernetes 1.35 has it."""

    metadata: Meta
    spec: _WorkloadSpec = _WorkloadSpec()


class JobPods(Json, frozen=True):
    """batchv1.JobSpec, as far as it says how many pods there are."""

    parallelism: int = 1
    completions: int | None = None

    @property
    def at_once(self) -> int:
        """How many run at the same time."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)


class _JobTemplate(Json, frozen=True):
    metadata: Meta = Meta()
    spec: JobPods = JobPods()


class _DependsOn(Json, frozen=True):
    name: str = ""


class _ReplicatedJob(Json, frozen=True):
    name: str = ""
    replicas: int = 1
    template: _JobTemplate = _JobTemplate()
    depends_on: tuple[_DependsOn, ...] = ()


class _StartupPolicy(Json, frozen=True):
    startup_policy_order: str = ""


class _JobSetSpec(Json, frozen=True):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()
    startup_policy: _StartupPolicy = _StartupPolicy()


class JobSetJson(Json, frozen=True):
    """JobSet: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/."""

    metadata: Meta
    spec: _JobSetSpec = _JobSetSpec()

    def stages(self) -> tuple[int, ...]:
        """How many pods there are once the jobs have begun that depend on none, then on these, and so on.

        Where each job has a topology domain of its own, its first pod comes before its others.
        """
        in_order = self.spec.startup_policy.startup_policy_order == "InOrder"
        stage_of: dict[str, int] = {}
        pods = Counter[tuple[int, bool]]()
        for number, job in enumerate(self.spec.replicated_jobs):
            after = [stage_of.get(one.name, 0) for one in job.depends_on]
            stage_of[job.name] = stage = number if in_order else max(after, default=-1) + 1
            notes, many = {**self.metadata.annotations, **job.template.metadata.annotations}, job.template.spec.at_once
            leads = min(many, 1) if _EXCLUSIVE in notes and _BY_NODE_LABELS not in notes else many
            pods[stage, False] += job.replicas * leads
            pods[stage, True] += job.replicas * (many - leads)
        return tuple(accumulate(pods[stage] for stage in sorted(pods) if pods[stage]))


class _LeaderWorkerTemplate(Json, frozen=True):
    size: int = 1


class _LeaderWorkerSetSpec(Json, frozen=True):
    startup_policy: str = ""
    leader_worker_template: _LeaderWorkerTemplate = _LeaderWorkerTemplate()


class LeaderWorkerSetJson(Json, frozen=True):
    """LeaderWorkerSet: https://lws.sigs.k8s.io/docs/reference/leaderworkerset.v1/."""

    metadata: Meta
    spec: _LeaderWorkerSetSpec = _LeaderWorkerSetSpec()


class _Replicas(Json, frozen=True):
    replicas: int = 1


class _KubeflowPolicy(Json, frozen=True):
    min_available: int | None = None


class _RunPolicy(Json, frozen=True):
    scheduling_policy: _KubeflowPolicy | None = None


class _Elastic(Json, frozen=True):
    min_replicas: int | None = None


R = TypeVar("R")


class KubeflowRoles(Json, Generic[R], frozen=True):
    """What each kind of the Kubeflow operators says of its roles."""

    tf_replica_specs: dict[str, R] = msgspec.field(default_factory=dict)
    pytorch_replica_specs: dict[str, R] = msgspec.field(default_factory=dict)
    mpi_replica_specs: dict[str, R] = msgspec.field(default_factory=dict)
    xgb_replica_specs: dict[str, R] = msgspec.field(default_factory=dict)
    paddle_replica_specs: dict[str, R] = msgspec.field(default_factory=dict)
    jax_replica_specs: dict[str, R] = msgspec.field(default_factory=dict)

    def roles(self) -> dict[str, R]:
        """Returns the replica specs by the names of their roles."""
        return (
            self.tf_replica_specs
            | self.pytorch_replica_specs
            | self.mpi_replica_specs
            | self.xgb_replica_specs
            | self.paddle_replica_specs
            | self.jax_replica_specs
        )


class _KubeflowSpec(KubeflowRoles[_Replicas], frozen=True):
    run_policy: _RunPolicy = _RunPolicy()
    elastic_policy: _Elastic | None = None
    launcher_creation_policy: str = ""

    def at_once(self) -> dict[str, int]:
        """Pods by role that come at once."""
        late = _LAUNCHER if self.launcher_creation_policy == "WaitForWorkersReady" else ""
        return {role: one.replicas for role, one in self.roles().items() if role != late}


class KubeflowJson(Json, frozen=True):
    """TFJob, PyTorchJob, MPIJob, ... of the Kubeflow training and MPI operators."""

    metadata: Meta
    spec: _KubeflowSpec = _KubeflowSpec()


def pod_group_says(api_group: str) -> Callable[[PodGroupJson], GangSizes]:
    """Returns what reads the gang sizes that a PodGroup of an API group states."""

    def says(raw: PodGroupJson) -> GangSizes:
        is_native = f"{api_group}/" == NATIVE
        size = _native_size(raw.spec.scheduling_policy) if is_native else GangSize(minimum=raw.spec.min_member or None)
        return ((f"{api_group}/podgroups/{raw.metadata.name}", size),)

    return says


def _native_size(policy: _SchedulingPolicy) -> GangSize:
    """``basic``: its pods are placed one by one."""
    return GangSize(one_by_one=True) if policy.gang is None else GangSize(minimum=policy.gang.min_count or None)


def workload_says(raw: WorkloadJson) -> GangSizes:
    """One size for each of its groups."""
    name = raw.metadata.name
    return tuple((f"{NATIVE}workloads/{name}/{one.name}", _native_size(one.policy)) for one in raw.spec.pod_groups)


def jobset_says(raw: JobSetJson) -> GangSizes:
    """All pods of all its jobs; jobs that wait for others have none before those run."""
    stages = raw.stages()
    size = GangSize(size=stages[-1] if stages else None, stages=stages if len(stages) > 1 else ())
    return ((f"jobset.x-k8s.io/jobsets/{raw.metadata.name}", size),)


def leader_worker_set_says(raw: LeaderWorkerSetJson) -> GangSizes:
    """Returns the size of each of its groups; workers may have to wait until their leader is ready, or has a node."""
    size = raw.spec.leader_worker_template.size
    waits = raw.spec.startup_policy == "LeaderReady" or _LEADER_FIRST in raw.metadata.annotations
    said = GangSize(size=size, stages=(1, size) if waits and size > 1 else ())
    return ((f"{LEADER_WORKER_SETS}{raw.metadata.name}", said),)


def kubeflow_says(raw: KubeflowJson) -> GangSizes:
    """All replicas; together only the least of them where its policy names one."""
    roles, policy, elastic = raw.spec.at_once(), raw.spec.run_policy.scheduling_policy, raw.spec.elastic_policy
    size = sum(roles.values())
    minimum = policy.min_available if policy else None
    if minimum is None and elastic is not None and elastic.min_replicas is not None:
        minimum = size - roles.get("Worker", 0) + min(elastic.min_replicas, roles.get("Worker", 0))
    return ((f"kubeflow.org/{raw.metadata.name}", GangSize(size=size or None, minimum=minimum or None)),)


def indexed_job_size(name: str, *, mode: str, parallelism: int, completions: int | None) -> GangSizes:
    """An Indexed Job whose indexes all run at once is one gang, as the Job controller of Kubernetes 1.36 takes it."""
    together = mode == "Indexed" and parallelism == completions and parallelism > 1
    return ((f"{JOBS}{name}", GangSize(size=parallelism)),) if together else ()


@dataclass(frozen=True, slots=True)
class Api:
    """Where objects that say a size are served, once somebody has installed them."""

    group: str
    versions: tuple[str, ...]
    """The one to ask for first stands first."""
    resource: str
    model: Any
    says: Callable[[Any], GangSizes]


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
    Api("leaderworkerset.x-k8s.io", ("v1",), "leaderworkersets", LeaderWorkerSetJson, leader_worker_set_says),
    *(
        Api("kubeflow.org", ("v2beta1", "v1") if kind == "mpijobs" else ("v1",), kind, KubeflowJson, kubeflow_says)
        for kind in ("tfjobs", "pytorchjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs")
    ),
)
