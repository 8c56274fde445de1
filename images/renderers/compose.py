"""A job as a compose file: a service per task, found by its container's name. ``docker compose up`` runs it.

https://github.com/compose-spec/compose-spec/blob/main/spec.md
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from autoscaler.model.resources import parse_quantity
from images.endpoints import environment, launch_settings
from images.job_roles import Role
from images.jobs import Job
from images.launcher import __file__ as launcher_file
from images.launcher import expand
from images.renderers.kubernetes import LAUNCHER, POD_LOSSES, launcherless_losses
from images.renderers.rendering import Rendering, elastic_losses, image_of, losses, mebibytes, serving_losses

ONE_ENGINE: Final = {
    "priority": "one engine has no priorities",
    "queue": "one engine has no queues",
    "owner": "nothing is paid for",
    "namespace": "one engine has no namespaces",
    "expected": "nothing plans by it",
    "patience": "nothing is bought",
    "same": "one engine is in one place",
    "node_selector": "one engine chooses no machines",
    "tolerations": "one engine chooses no machines",
    "roles.annotations": "they are for Kubernetes",
}
"""What compose files have no words for."""
_LOSSES: Final = ONE_ENGINE | {
    "kind": "a compose file only starts services",
    "retain": "containers stay until `docker compose down`",
    "failure.deadline": "a compose file has no deadline",
    "success": "a compose file does not say when the whole has succeeded",
    "gang": "all services start one by one, on one engine",
}


def render(job: Job, *, run: str = "0") -> Rendering:
    """The file as one document."""
    services = {f"{role}-{index}": _service(job, role, index, run=run) for role, index in job.tasks()}
    made: dict[str, Any] = {"name": job.name, "services": services}
    if any(role.entry for role in job.roles.values()):
        text = Path(launcher_file).read_text(encoding="utf-8")
        made["configs"] = {"launcher": {"content": text}}
    claims = {volume.claim for role in job.roles.values() for volume in role.volumes if volume.claim}
    if claims:
        made["volumes"] = {claim: {} for claim in sorted(claims)}
    bare = {name for name, role in job.roles.items() if not role.entry}
    return Rendering(
        documents=(_escaped(made),),
        losses=(
            *losses(job, _LOSSES | POD_LOSSES),
            *elastic_losses(job, "the most are started"),
            *(serving_losses(job) if bare or not job.shared_logs else ()),
            *launcherless_losses(job, bare),
            *_node_losses(job),
        ),
    )


def _node_losses(job: Job) -> tuple[str, ...]:
    return tuple(
        f"roles.{name}.restart: one engine has no other machine to go to"
        for name, role in job.roles.items()
        if role.restart == "node-failure"
    )


def _service(job: Job, name: str, index: int, *, run: str) -> dict[str, Any]:
    role = job.roles[name]
    made: dict[str, Any] = {
        "image": image_of(name, role, backend="compose"),
        "container_name": f"{job.task_set(name)}-{index}",
    }
    if role.entry:
        told = launch_settings(job, "compose", name, run=run) | {"SPILLWAY_INDEX": str(index)} | role.env
        made |= {"entrypoint": ["python3", LAUNCHER, *role.entry], "command": list(role.args)}
        made["configs"] = [{"source": "launcher", "target": LAUNCHER}]
    else:
        told = environment(job, "compose", name, index)
        made |= {"command": [expand(word, told) for word in role.args]} if role.args else {}
    if role.entry or not role.has_usual_grace:
        made["stop_grace_period"] = f"{role.ends_within}s"
    made["environment"] = told
    made["restart"] = restart(job, role)
    made["deploy"] = {"resources": _amounts(role)}
    if job.network == "host":
        made["network_mode"] = "host"
    if role.volumes:
        made["volumes"] = mounts(role)
    others = [f"{other}-{i}" for other in job.depends_on.get(name, ()) for i in range(job.roles[other].most)]
    if others:
        made["depends_on"] = {other: {"condition": "service_completed_successfully"} for other in others}
    return made


def restart(job: Job, role: Role) -> str:
    """Returns the restart policy in Compose's words."""
    if role.restart == "on-failure":
        return f"on-failure:{job.failure.restarts}" if job.failure.restarts else "no"
    return "always" if role.restart == "always" else "no"


def mounts(role: Role) -> list[str]:
    """Returns the volumes in Compose's short form."""
    return [f"{v.host or v.claim}:{v.mount}{':ro' if v.read_only else ''}" for v in role.volumes]


def _amounts(role: Role) -> dict[str, Any]:
    limits = {"memory": f"{mebibytes(role)}m"}
    reserved: dict[str, Any] = {"cpus": str(float(parse_quantity(role.cpus)))}
    if role.gpus:
        reserved["devices"] = [{"driver": "nvidia", "count": role.gpus, "capabilities": ["gpu"]}]
    return {"limits": limits, "reservations": reserved}


def _escaped(data: Any) -> Any:
    """A ``$`` is a variable to compose; two are one."""
    if isinstance(data, dict):
        return {key: _escaped(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_escaped(value) for value in data]
    return data.replace("$", "$$") if isinstance(data, str) else data
