"""TrainJobs of Kubeflow Trainer as the JobSets that their runtimes make of them.

A runtime is a JobSet's template; a TrainJob says how many nodes it has and what each asks for. Pure; no I/O.
https://www.kubeflow.org/docs/components/trainer/operator-guides/runtime/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from autoscaler.inputs.kube_lists import Written
from autoscaler.kube.schema.core import Json, Meta, Quantities, ResourceNeeds

_GROUP: Final = "trainer.kubeflow.org"
_EVERYWHERE: Final = "ClusterTrainingRuntime"
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER: Final = "trainer"
"""Value of that label on the job of a runtime that trains; others prepare data and models."""
_NODE: Final = "node"
"""Name of the container of a node, and of the job of the nodes that an MPI launcher starts."""
_JOB_SET: Final = "jobset.x-k8s.io/v1alpha2"


class _RuntimeRef(Json, frozen=True):
    name: str = ""
    kind: str = _EVERYWHERE


class _Trainer(Json, frozen=True):
    num_nodes: int | None = None
    resources_per_node: ResourceNeeds = ResourceNeeds()


class _TrainJobSpec(Json, frozen=True):
    runtime_ref: _RuntimeRef = _RuntimeRef()
    trainer: _Trainer = _Trainer()


class _TrainJob(Json, frozen=True):
    metadata: Meta
    spec: _TrainJobSpec = _TrainJobSpec()


class _Mpi(Json, frozen=True):
    run_launcher_as_node: bool = False


class _Policy(Json, frozen=True):
    num_nodes: int = 1
    mpi: _Mpi | None = None


class _JobSetTemplate(Json, frozen=True):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class _RuntimeSpec(Json, frozen=True):
    ml_policy: _Policy = _Policy()
    template: _JobSetTemplate = _JobSetTemplate()


class _Runtime(Json, frozen=True):
    metadata: Meta
    spec: _RuntimeSpec = _RuntimeSpec()


_UNKNOWN: Final = _RuntimeSpec(
    template=_JobSetTemplate(
        {
            "replicatedJobs": [
                {
                    "name": _NODE,
                    "template": {
                        "metadata": {"labels": {_STEP: _TRAINER}},
                        "spec": {"template": {"spec": {"containers": [{"name": _NODE}]}}},
                    },
                }
            ]
        }
    )
)
"""Taken for a runtime that is not in the file: nodes of one container, which asks for what the TrainJob says."""


@dataclass(slots=True)
class TrainJobs:
    """Those of a file, and the runtimes in it."""

    jobs: list[tuple[Written, _TrainJob]] = field(default_factory=list)
    runtimes: dict[tuple[str, str, str], _RuntimeSpec] = field(default_factory=dict)
    """By kind, namespace (none where it is for all of them) and name."""
    assumed: list[str] = field(default_factory=list)
    """What is said of runtimes that are not in the file."""

    def read(self, one: Written) -> bool:
        """Whether the object is one of these. Raises ``BadInput`` where its fields are of other types."""
        if one.api_group != _GROUP or one.kind not in ("TrainJob", "TrainingRuntime", _EVERYWHERE):
            return False
        if one.kind == "TrainJob":
            self.jobs.append((one, one.read(_TrainJob)))
            return True
        found = one.read(_Runtime)
        namespace = "" if one.kind == _EVERYWHERE else found.metadata.namespace
        self.runtimes[one.kind, namespace, found.metadata.name] = found.spec
        return True

    def job_sets(self) -> Iterator[Written]:
        """The JobSet that the controller makes of each TrainJob."""
        for one, job in self.jobs:
            ref, meta = job.spec.runtime_ref, job.metadata
            runtime = self.runtimes.get((ref.kind, "" if ref.kind == _EVERYWHERE else meta.namespace, ref.name))
            if runtime is None:
                self.assumed.append(_assumed(one, job.spec))
            raw = one.plain().get("metadata")
            yield Written(one.source, "JobSet", _JOB_SET, {"metadata": raw, "spec": _spec(job.spec.trainer, runtime)})


def _assumed(one: Written, spec: _TrainJobSpec) -> str:
    ref, needs, many = spec.runtime_ref, spec.trainer.resources_per_node, spec.trainer.num_nodes or 1
    nodes = "1 node" if many == 1 else f"{many} nodes"
    what = "each with what resourcesPerNode says" if needs.requests or needs.limits else "asking for nothing"
    return f"{one.named()}: its {ref.kind} {ref.name} is not in the file: taken for {nodes}, {what}"


def _spec(trainer: _Trainer, runtime: _RuntimeSpec | None) -> dict[str, Any]:
    runtime = runtime or _UNKNOWN
    jobs = runtime.template.spec.get("replicatedJobs")
    made = [_replicated(job, trainer, runtime.ml_policy) for job in jobs] if isinstance(jobs, list) else jobs
    return {**runtime.template.spec, "replicatedJobs": made}


def _replicated(job: Any, trainer: _Trainer, policy: _Policy) -> Any:
    """One job of the runtime, with the TrainJob's nodes where it has them."""
    template = _fields(_fields(job).get("template"))
    trains = _fields(_fields(template.get("metadata")).get("labels")).get(_STEP) == _TRAINER
    nodes = _nodes(_fields(job).get("name"), trainer, policy, trains=trains)
    if nodes is None:
        return job
    of_job = template.get("spec") or {}
    of_pod = _fields(of_job).get("template") or {}
    pod = _fields(of_pod).get("spec") or {}
    if not all(isinstance(one, dict) for one in (of_job, of_pod, pod)):
        return job  # told when the JobSet is read
    containers = pod.get("containers")
    if isinstance(containers, list) and (trains or (policy.mpi is not None and policy.mpi.run_launcher_as_node)):
        containers = [_asking(one, trainer.resources_per_node) for one in containers]
    pods = {**of_pod, "spec": {**pod, "containers": containers}}
    sized = {**of_job, "parallelism": nodes, "completions": nodes, "completionMode": "Indexed", "template": pods}
    return {**job, "replicas": 1, "template": {**template, "spec": sized}}


def _nodes(name: object, trainer: _Trainer, policy: _Policy, *, trains: bool) -> int | None:
    """How many pods the job has; ``None``: as many as the runtime says.

    With MPI the launcher trains as one node, where it is told to, or starts all of them.
    """
    many = policy.num_nodes if trainer.num_nodes is None else trainer.num_nodes
    if policy.mpi is None:
        return many if trains else None
    if name == _NODE:
        return max(1, many - 1) if policy.mpi.run_launcher_as_node else many
    return 1 if trains else None


def _asking(container: Any, needs: ResourceNeeds) -> Any:
    """A node's container with what the TrainJob asks for, each resource in place of the runtime's."""
    if _fields(container).get("name") != _NODE:
        return container
    own = _fields(container.get("resources"))
    both: Mapping[str, Quantities] = {"requests": needs.requests, "limits": needs.limits}
    asked = {name: {**_fields(own.get(name)), **more} for name, more in both.items()}
    return {**container, "resources": asked}


def _fields(value: Any) -> dict[str, Any]:
    """The object's fields; none where it is no object."""
    return value if isinstance(value, dict) else {}
