"""A job as a Kubeflow TFJob (training-operator 1.x), which writes ``TF_CONFIG`` itself.

``cleanPodPolicy`` is said: its default, None, leaves parameter servers running for ever.
https://github.com/kubeflow/trainer/blob/v1.9.0/pkg/apis/kubeflow.org/v1/tensorflow_types.go
"""

from __future__ import annotations

from typing import Any, Final

from autoscaler.model.cluster import FOREVER
from autoscaler.model.errors import BadInput
from images.endpoints import directories, is_elastic
from images.job_roles import Role
from images.jobs import Job
from images.renderers.kubernetes import POD_LOSSES, launcherless_losses, metadata, pod
from images.renderers.rendering import Manifest, Rendering, losses, refuse

TYPES: Final = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
RESTARTS: Final = {"never": "Never", "node-failure": "ExitCode", "on-failure": "OnFailure", "always": "Always"}
PORT: Final = 2222
PORTS: Final[list[Manifest]] = [{"name": "tfjob-port", "containerPort": PORT}]
_REFUSED: Final = {"depends_on": "a TFJob's replicas start at once; JobSet (--to jobset) knows an order"}
_LOSSES: Final = {
    "elastic": "its size does not change",
    "roles.essential": "a TFJob ends with its chief, or its workers",
    "kind": "a TFJob ends when its program does",
}


def render(job: Job, *, run: str = "0") -> Rendering:
    """Renders a TFJob."""
    refuse(job, "tfjob", _REFUSED)
    for name, role in job.roles.items():
        if name not in TYPES or role.port != PORT:
            raise BadInput(
                f"job {job.name!r} cannot be rendered to tfjob: it knows the roles {', '.join(TYPES)}, "
                f"all at port {PORT}; {name} at port {role.port} is none of them"
            )
    spec: dict[str, Any] = {
        "runPolicy": _run_policy(job),
        "successPolicy": "" if job.success == "first" else "AllWorkers",
        "tfReplicaSpecs": {TYPES[name]: _replicas(job, name, role, run=run) for name, role in job.roles.items()},
    }
    if is_elastic(job):
        spec["enableDynamicWorker"] = True
    made = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata(job, job.name), "spec": spec}
    return Rendering(
        documents=(made,), losses=(*losses(job, _LOSSES | POD_LOSSES), *launcherless_losses(job, {*job.roles}))
    )


def _run_policy(job: Job) -> Manifest:
    policy: dict[str, Any] = {"cleanPodPolicy": "Running", "backoffLimit": job.failure.restarts}
    if job.retain < FOREVER:
        policy["ttlSecondsAfterFinished"] = int(job.retain.total_seconds())
    if job.failure.deadline is not None:
        policy["activeDeadlineSeconds"] = int(job.failure.deadline.total_seconds())
    scheduling: dict[str, Any] = {"minAvailable": job.needed} if job.gang else {}
    if job.queue:
        scheduling["queue"] = job.queue
    return policy | ({"schedulingPolicy": scheduling} if scheduling else {})


def _replicas(job: Job, name: str, role: Role, *, run: str) -> Manifest:
    template = operated_pod(job, name, backend="tfjob", container="tensorflow", run=run)
    del template["spec"]["restartPolicy"]  # the replica's own, below, is the one that counts
    del template["spec"]["subdomain"]  # each replica gets a Service of its own
    template["spec"]["containers"][0]["ports"] = PORTS
    return {"replicas": role.most, "restartPolicy": RESTARTS[role.restart], "template": template}


def operated_pod(job: Job, role: str, *, backend: str, container: str, run: str) -> Manifest:
    """A pod of an operator that tells tasks of the cluster itself: the program runs as it is, without the launcher."""
    task = job.roles[role]
    bare = job.model_copy(update={"roles": job.roles | {role: task.model_copy(update={"entry": (), "checkpoint": ()})}})
    template = pod(bare, role, backend=backend, run=run)
    made = template["spec"]["containers"][0]
    made |= {"name": container} | ({"command": list(task.entry)} if task.entry else {})
    made["env"] = [{"name": name, "value": value} for name, value in (directories(job) | task.env).items()]
    return template
