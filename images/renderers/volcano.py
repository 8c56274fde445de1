"""A job as a Volcano Job: gang by ``minAvailable``, and its end when the main role's tasks are complete.

https://volcano.sh/en/docs/vcjob/
"""

from __future__ import annotations

from typing import Any, Final

from autoscaler.model.cluster import FOREVER
from images.job_roles import Role
from images.jobs import Job
from images.renderers.kubernetes import POD_LOSSES, launcherless_losses, metadata
from images.renderers.rendering import Manifest, Rendering, losses
from images.renderers.tfjob import operated_pod

_LOSSES: Final = {
    "elastic": "its size does not change",
    "kind": "a Volcano Job ends when its program does",
    "failure.deadline": "a Volcano Job has no deadline",
    "success": "its policies speak of all tasks of a role",
}
_LOST_NODE: Final = {"event": "PodEvicted", "action": "RestartTask"}
_FAILED: Final = {"event": "PodFailed", "action": "RestartTask"}


def render(job: Job, *, run: str = "0") -> Rendering:
    """Renders a Volcano Job."""
    spec: dict[str, Any] = {
        "schedulerName": "volcano",
        "minAvailable": job.needed if job.gang else 1,
        "maxRetry": job.failure.restarts,
        "plugins": {"svc": ["--publish-not-ready-addresses=true"], "env": []},
        "tasks": [_task(job, name, role, run=run) for name, role in job.roles.items()],
    }
    if any(name in ("chief", "worker", "ps") for name in job.roles):
        spec["plugins"]["tensorflow"] = [f"--port={next(iter(job.roles.values())).port}"]
    if job.queue:
        spec["queue"] = job.queue
    if job.priority:
        spec["priorityClassName"] = job.priority
    if job.retain < FOREVER:
        spec["ttlSecondsAfterFinished"] = int(job.retain.total_seconds())
    made = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata(job, job.name),
        "spec": spec,
    }
    lost = (*losses(job, _LOSSES | POD_LOSSES), *launcherless_losses(job, {*job.roles}))
    return Rendering(documents=(made,), losses=lost)


def _task(job: Job, name: str, role: Role, *, run: str) -> Manifest:
    template = operated_pod(job, name, backend="volcano", container=name, run=run)
    del template["spec"]["subdomain"]  # the svc plugin writes it
    template["spec"].pop("schedulingGates", None)  # the gang is Volcano's own
    template["spec"]["restartPolicy"] = "Always" if role.restart == "always" else "Never"
    policies: list[Manifest] = []
    if role.restart != "never":
        policies.append(_LOST_NODE)
    if role.restart == "on-failure":
        policies.append(_FAILED)
    if name == job.main_role:
        policies.append({"event": "TaskCompleted", "action": "CompleteJob"})
    made: Manifest = {"name": name, "replicas": role.most, "policies": policies, "template": template}
    if role.least < role.most:
        made["minAvailable"] = role.least
    others = job.depends_on.get(name, ())
    return made | ({"dependsOn": {"name": list(others), "iteration": "all"}} if others else {})
