"""A job as plain processes of this machine: what `spillway jobs submit --to local` starts, and its supervisor reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoscaler.model.errors import BadInput
from images.endpoints import endpoints, launch_settings
from images.jobs import Job
from images.renderers.rendering import Rendering, elastic_losses, losses

_LOSSES: Final = {
    "kind": "processes end when their program does",
    "retain": "what a job wrote stays until `spillway jobs delete`",
    "priority": "all processes are alike",
    "queue": "nothing queues here",
    "owner": "nothing is paid for",
    "namespace": "one machine has no namespaces",
    "expected": "nothing plans by it",
    "patience": "nothing is bought",
    "same": "one machine is in one place",
    "node_selector": "there is one machine",
    "tolerations": "there is one machine",
    "gang": "all processes start at once",
    "roles.image": "no containers: the machine's own programs run; give python to say which",
    "roles.annotations": "they are for Kubernetes",
    "roles.volumes": "processes see the machine's directories as they are",
    "roles.cpus": "processes are not held to it",
    "roles.memory": "processes are not held to it",
    "roles.gpus": "where the machine has GPUs, each task is told its own by CUDA_VISIBLE_DEVICES; else none",
}


def render(
    job: Job,
    *,
    run: str = "0",
    shift: int = 0,
    state: str | None = None,
    directory: str = ".",
    gpus: Mapping[tuple[str, int], tuple[str, ...]] | None = None,
) -> Rendering:
    """Each task's command and environment, and what ends the job.

    ``state``: where lines go if the job does not say; ``directory``: where programs start; ``gpus``: of each task, by
    number or UUID.
    """
    found = endpoints(job, "local", shift=shift)
    told = job if job.shared_logs or not state else job.model_copy(update={"logs": state})
    tasks = [_task(told, role, index, run=run, shift=shift) for role, index in job.tasks()]
    for task in tasks:
        if gpus is not None:
            task["gpus"] = list(gpus[task["role"], task["index"]])
            task["environment"].setdefault("CUDA_VISIBLE_DEVICES", ",".join(task["gpus"]))
    if job.logs != told.logs and job.logs:
        for task in tasks:
            task["environment"]["SPILLWAY_LOGS"] = f"{job.logs}/{job.name}/{run}"
    deadline = job.failure.deadline
    made: dict[str, Any] = {
        "job": job.name,
        "state": f"{told.shared_logs}/{job.name}/{run}" if told.shared_logs else None,
        "directory": directory,
        "ports": sorted(int(address.rpartition(":")[2]) for one in found.values() for address in one),
        "essential": list(job.essential),
        "success": job.success,
        "restarts": job.failure.restarts,
        "ends_within": max(role.ends_within for role in job.roles.values()),
        "deadline": deadline.total_seconds() if deadline else None,
        "depends_on": {role: list(others) for role, others in job.depends_on.items()},
        "tasks": tasks,
    }
    lost = [*losses(job, _LOSSES), *elastic_losses(job, "the most are started")]
    if job.network == "own":
        lost.append("network: processes use the machine's own network")
    return Rendering(documents=(made,), losses=tuple(lost), form="json")


def _task(job: Job, name: str, index: int, *, run: str, shift: int) -> dict[str, Any]:
    role = job.roles[name]
    if not role.entry:
        raise BadInput(f"job {job.name!r} cannot be run as processes: roles.{name}.entry is missing: say what runs")
    told = launch_settings(job, "local", name, run=run, shift=shift) | {"SPILLWAY_INDEX": str(index)} | role.env
    made = {"role": name, "index": index, "command": [*role.entry, *role.args], "environment": told}
    return made | {"restart": role.restart} | ({"path": f"{role.python}/bin"} if role.python else {})
