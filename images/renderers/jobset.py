"""A job as one JobSet: it succeeds with its essential roles, and takes parameter servers along then.

https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
"""

from __future__ import annotations

from typing import Any, Final

from autoscaler.model.cluster import FOREVER
from autoscaler.model.errors import BadInput
from images.jobs import Job
from images.renderers.kubernetes import POD_LOSSES, job_losses, job_spec, launcher_map, metadata
from images.renderers.rendering import Manifest, Rendering, losses

_LOSSES: Final = {
    "elastic": "the sizes of its Jobs do not change",
    "queue": "a JobSet has no queue of its own",
    "kind": "it runs as Jobs, which end when their program does",
}


def render(job: Job, *, run: str = "0") -> Rendering:
    """The JobSet, then the launcher where any role has it run its program."""
    spec: dict[str, Any] = {
        "network": {"enableDNSHostnames": True, "subdomain": job.name, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": list(job.essential)},
        "failurePolicy": {"maxRestarts": 0},  # tasks start again one by one, by their Job's backoffLimit
        # One takes only dependencies on those that stand before it.
        "replicatedJobs": [_replicated(job, role, run=run) for step in job.by_step().values() for role in step.roles],
    }
    if job.retain < FOREVER:
        spec["ttlSecondsAfterFinished"] = int(job.retain.total_seconds())
    made: Manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(job, job.name),
        "spec": spec,
    }
    return Rendering(
        documents=(made, *launcher_map(job)), losses=(*losses(job, _LOSSES | POD_LOSSES), *job_losses(job))
    )


def _replicated(job: Job, role: str, *, run: str) -> Manifest:
    spec = job_spec(job, role, backend="jobset", run=run, size=job.roles[role].most)
    del spec["template"]["spec"]["subdomain"]  # the controller writes it
    made: Manifest = {"name": role, "replicas": 1, "template": {"spec": spec}}
    others = job.depends_on.get(role, ())
    if len(others) > 1:
        raise BadInput(
            f"job {job.name!r}: depends_on.{role} names {len(others)} roles, and a JobSet knows one: "
            "let each role wait for the one before it"
        )
    return made | ({"dependsOn": [{"name": others[0], "status": "Complete"}]} if others else {})
