"""Kinds of workload objects, and the pods that the controller of each makes: Deployments, Jobs, JobSets, and more.

A pod gets the marks (labels, annotations) that its controller would give it, so that its gang is found as that of a pod
of the API server is (``kube/schema/gang_detection.py``). Fields and defaults are those of each kind's API reference,
named at its class. Pure; no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from autoscaler.kube.schema.core import JobStatus, Json, Meta, Template
from autoscaler.kube.schema.gang_kinds import JobPods, KubeflowRoles
from autoscaler.kube.schema.storage import ClaimJson


@dataclass(frozen=True, slots=True)
class Replicas:
    """Pods of one template.

    ``name`` is what their names begin with; ``labels`` and ``annotations`` are what the controller adds.
    """

    name: str
    count: int
    template: Template
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[ClaimJson, ...] = ()
    """Each pod gets one of each, named after the template and itself."""


class _ReplicasSpec(Json, frozen=True):
    replicas: int = 1
    template: Template = Template()
    volume_claim_templates: tuple[ClaimJson, ...] = ()
    """Of a StatefulSet."""


class _Replicated(Json, frozen=True):
    """appsv1 Deployment, ReplicaSet, StatefulSet; corev1 ReplicationController; Argo's Rollout, Kubeflow's Notebook."""

    metadata: Meta
    spec: _ReplicasSpec = _ReplicasSpec()

    def scaled(self, least: int, most: int) -> _Replicated:
        """Returns it with so many pods; one that is at zero stays there (HorizontalPodAutoscaler is off then)."""
        many = self.spec.replicas and max(least, min(most, self.spec.replicas))
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, replicas=many))

    def pods(self) -> Iterator[Replicas]:
        spec = self.spec
        yield Replicas(self.metadata.name, spec.replicas, spec.template, claims=spec.volume_claim_templates)


class _JobSpec(JobPods, frozen=True):
    """batchv1.JobSpec."""

    completion_mode: str = ""
    template: Template = Template()

    def replicas(self, name: str) -> Replicas:
        """The pods that run at the same time."""
        index = {"batch.kubernetes.io/job-completion-index": "0"} if self.completion_mode == "Indexed" else {}
        return Replicas(name, self.at_once, self.template, labels=index)


class _Job(Json, frozen=True):
    """batchv1.Job."""

    metadata: Meta
    spec: _JobSpec = _JobSpec()
    status: JobStatus = JobStatus()

    def pods(self) -> Iterator[Replicas]:
        ended = any(one.type in ("Complete", "Failed") and one.status == "True" for one in self.status.conditions)
        found = self.spec.replicas(self.metadata.name)
        yield replace(found, count=0) if ended else found


class _JobTemplate(Json, frozen=True):
    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(Json, frozen=True):
    name: str = ""
    replicas: int = 1
    template: _JobTemplate = _JobTemplate()


class _JobSetSpec(Json, frozen=True):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()


class _JobSet(Json, frozen=True):
    """https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/."""

    metadata: Meta
    spec: _JobSetSpec = _JobSetSpec()

    def pods(self) -> Iterator[Replicas]:
        mark = {"jobset.sigs.k8s.io/jobset-name": self.metadata.name}
        for job in self.spec.replicated_jobs:
            one = job.template.spec.replicas(f"{self.metadata.name}-{job.name}")
            yield replace(one, count=one.count * job.replicas, labels={**one.labels, **mark})


class _KubeflowReplicas(Json, frozen=True):
    replicas: int = 1
    template: Template = Template()


class _Kubeflow(Json, frozen=True):
    """TFJob, PyTorchJob, MPIJob, ...: https://www.kubeflow.org/docs/components/trainer/legacy-v1/reference/."""

    metadata: Meta
    spec: KubeflowRoles[_KubeflowReplicas] = KubeflowRoles()

    def pods(self) -> Iterator[Replicas]:
        for role, one in self.spec.roles().items():
            marks = {
                "training.kubeflow.org/job-name": self.metadata.name,
                "training.kubeflow.org/replica-type": role.lower(),
            }
            yield Replicas(f"{self.metadata.name}-{role.lower()}", one.replicas, one.template, labels=marks)


class _LeaderWorker(Json, frozen=True):
    size: int = 1
    leader_template: Template | None = None
    worker_template: Template = Template()


class _LeaderWorkerSetSpec(Json, frozen=True):
    replicas: int = 1
    leader_worker_template: _LeaderWorker = _LeaderWorker()


class _LeaderWorkerSet(Json, frozen=True):
    """https://lws.sigs.k8s.io/docs/reference/leaderworkerset.v1/: each group is a gang."""

    metadata: Meta
    spec: _LeaderWorkerSetSpec = _LeaderWorkerSetSpec()

    def pods(self) -> Iterator[Replicas]:
        name, both = self.metadata.name, self.spec.leader_worker_template
        for group in range(self.spec.replicas):
            labels = {
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
            }
            size = {"leaderworkerset.sigs.k8s.io/size": str(both.size)}
            leader = both.leader_template or both.worker_template
            yield Replicas(f"{name}-{group}-leader", 1, leader, labels, size)
            yield Replicas(f"{name}-{group}", both.size - 1, both.worker_template, labels, size)


class _RayWorkers(Json, frozen=True):
    group_name: str = ""
    replicas: int | None = None
    min_replicas: int = 0
    num_of_hosts: int = 1
    template: Template = Template()


class _RayHead(Json, frozen=True):
    template: Template = Template()


class _RayClusterSpec(Json, frozen=True):
    head_group_spec: _RayHead = _RayHead()
    worker_group_specs: tuple[_RayWorkers, ...] = ()

    def pods(self, meta: Meta) -> Iterator[Replicas]:
        """A gang where KubeRay is told to make it one."""
        together = "ray.io/gang-scheduling-enabled" in meta.labels
        gang = {"scheduling.x-k8s.io/pod-group": meta.name} if together else {}
        yield Replicas(f"{meta.name}-head", 1, self.head_group_spec.template, labels=gang)
        for one in self.worker_group_specs:
            wanted = one.min_replicas if one.replicas is None else one.replicas
            yield Replicas(f"{meta.name}-{one.group_name}", wanted * one.num_of_hosts, one.template, labels=gang)


class _RayCluster(Json, frozen=True):
    """https://docs.ray.io/en/latest/cluster/kubernetes/user-guides/config.html; without its autoscaler's growth."""

    metadata: Meta
    spec: _RayClusterSpec = _RayClusterSpec()

    def pods(self) -> Iterator[Replicas]:
        yield from self.spec.pods(self.metadata)


_SUBMITTER: Final = msgspec.convert(
    {"spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}]}}, Template
)
"""What KubeRay makes where a RayJob gives no template for the pod that submits it."""


class _RayJobSpec(Json, frozen=True):
    ray_cluster_spec: _RayClusterSpec | None = None
    cluster_selector: dict[str, str] = msgspec.field(default_factory=dict)
    submission_mode: str = "K8sJobMode"
    submitter_pod_template: Template = _SUBMITTER


class _RayJob(Json, frozen=True):
    """Its cluster, and the pod that submits the job."""

    metadata: Meta
    spec: _RayJobSpec = _RayJobSpec()

    def pods(self) -> Iterator[Replicas]:
        if self.spec.ray_cluster_spec is not None and not self.spec.cluster_selector:
            yield from self.spec.ray_cluster_spec.pods(self.metadata)
        if self.spec.submission_mode == "K8sJobMode":
            yield Replicas(f"{self.metadata.name}-submitter", 1, self.spec.submitter_pod_template)


class _RayServiceSpec(Json, frozen=True):
    ray_cluster_config: _RayClusterSpec = msgspec.field(default=_RayClusterSpec(), name="rayClusterConfig")


class _RayService(Json, frozen=True):
    """Its cluster; while it is replaced there are two."""

    metadata: Meta
    spec: _RayServiceSpec = _RayServiceSpec()

    def pods(self) -> Iterator[Replicas]:
        yield from self.spec.ray_cluster_config.pods(self.metadata)


class _VolcanoTask(Json, frozen=True):
    name: str = ""
    replicas: int = 1
    template: Template = Template()


class _VolcanoSpec(Json, frozen=True):
    min_available: int | None = None
    tasks: tuple[_VolcanoTask, ...] = ()


class _VolcanoJob(Json, frozen=True):
    """https://volcano.sh/en/docs/vcjob/: a gang of at least ``minAvailable`` pods."""

    metadata: Meta
    spec: _VolcanoSpec = _VolcanoSpec()

    def pods(self) -> Iterator[Replicas]:
        name = self.metadata.name
        all_of_them = sum(task.replicas for task in self.spec.tasks)
        least = all_of_them if self.spec.min_available is None else self.spec.min_available
        marks = {"scheduling.k8s.io/group-name": name, "scheduling.volcano.sh/group-min-member": str(least)}
        for task in self.spec.tasks:
            yield Replicas(f"{name}-{task.name}", task.replicas, task.template, annotations=marks)


_KUBEFLOW: Final = ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
WORKLOADS: Final[Mapping[tuple[str, str], Any]] = {
    ("apps", "Deployment"): _Replicated,
    ("apps", "ReplicaSet"): _Replicated,
    ("apps", "StatefulSet"): _Replicated,
    ("", "ReplicationController"): _Replicated,
    ("argoproj.io", "Rollout"): _Replicated,
    ("batch", "Job"): _Job,
    ("jobset.x-k8s.io", "JobSet"): _JobSet,
    **{("kubeflow.org", kind): _Kubeflow for kind in _KUBEFLOW},
    ("kubeflow.org", "Notebook"): _Replicated,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _LeaderWorkerSet,
    ("ray.io", "RayCluster"): _RayCluster,
    ("ray.io", "RayJob"): _RayJob,
    ("ray.io", "RayService"): _RayService,
    ("batch.volcano.sh", "Job"): _VolcanoJob,
}
"""By API group and kind: the class that reads an object of it, whose ``pods`` are its ``Replicas``."""
