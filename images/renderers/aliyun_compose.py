"""A job as a compose file of Aliyun's container service: version 2, what the service knows beyond that in labels.

``aliyun.gpu=N``, ``com.docker.swarm.reschedule-policies``, ``aliyun.project_type``, ``aliyun.remove_containers``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from autoscaler.model.cluster import FOREVER
from autoscaler.model.resources import parse_quantity
from images.endpoints import environment
from images.job_roles import Role
from images.jobs import Job
from images.launcher import VIEWS, expand
from images.renderers.compose import ONE_ENGINE, mounts, restart
from images.renderers.kubernetes import POD_LOSSES, launcherless_losses
from images.renderers.rendering import Rendering, elastic_losses, image_of, losses, mebibytes, refuse, serving_losses

RESCHEDULE: Final = 'com.docker.swarm.reschedule-policies=["on-node-failure"]'
_REFUSED: Final = {"depends_on": "version 2 files know no end of a service; compose (--to compose) does"}
_LOSSES: Final = ONE_ENGINE | {
    "gang": "services start one by one",
    "failure.deadline": "the service has no deadline",
    "success": "the service does not say when the whole has succeeded",
}


def render(job: Job, *, run: str = "0") -> Rendering:  # noqa: ARG001 - nothing here is kept by run
    """The file as one document."""
    refuse(job, "aliyun-compose", _REFUSED)
    made: dict[str, Any] = {"version": "2"}
    if job.kind == "batch":
        made["labels"] = {"aliyun.project_type": "batch"}
    made["services"] = {f"{role}-{index}": _service(job, role, index) for role, index in job.tasks()}
    claims = {volume.claim for role in job.roles.values() for volume in role.volumes if volume.claim}
    if claims:
        made["volumes"] = {claim: {} for claim in sorted(claims)}
    return Rendering(
        documents=(made,),
        losses=(
            *losses(job, _LOSSES | POD_LOSSES),
            *elastic_losses(job, "the most are started"),
            *serving_losses(job),
            *launcherless_losses(job, {*job.roles}),
            *_retain_losses(job),
        ),
    )


def _retain_losses(job: Job) -> tuple[str, ...]:
    if job.kind == "service" or job.retain in (FOREVER, timedelta(0)):
        return ()
    return ("retain: containers stay, or go at once; these stay",)


def _service(job: Job, name: str, index: int) -> dict[str, Any]:
    role = job.roles[name]
    told = environment(job, "aliyun-compose", name, index)
    made: dict[str, Any] = {
        "image": image_of(name, role, backend="aliyun-compose"),
        "restart": restart(job, role),
        "container_name": f"{job.task_set(name)}{index}",
    }
    if role.entry:
        made["entrypoint"] = [_escaped(expand(word, told)) for word in role.entry]
    if role.args:
        made["command"] = [_escaped(expand(word, told)) for word in role.args]
    made |= _environment(role, told)
    made |= {"mem_limit": f"{mebibytes(role)}m", "cpu_shares": max(2, int(parse_quantity(role.cpus) * 1024))}
    if not role.has_usual_grace:
        made["stop_grace_period"] = f"{role.grace.total_seconds():g}s"
    if job.network == "host":
        made["network_mode"] = "host"
    if role.volumes:
        made["volumes"] = mounts(role)
    labels = _labels(job, role)
    return made | ({"labels": labels} if labels else {})


def _environment(role: Role, told: dict[str, str]) -> dict[str, Any]:
    """A program that is told of the cluster by its arguments is not told twice."""
    said = any(f"$({view})" in word for view in VIEWS for word in (*role.entry, *role.args))
    kept = {key: _escaped(value) for key, value in told.items() if not said or key not in VIEWS or "_DIR" in key}
    return {"environment": kept} if kept else {}


def _labels(job: Job, role: Role) -> list[str]:
    labels = [f"aliyun.gpu={role.gpus}"] if role.gpus else []
    if role.restart != "never":
        labels.append(RESCHEDULE)
    if job.kind == "batch":
        labels.append(f"aliyun.remove_containers=remove-{'none' if job.retain else 'all'}")
    return labels


def _escaped(text: str) -> str:
    """A ``$`` is a variable to compose; two are one."""
    return text.replace("$", "$$")
