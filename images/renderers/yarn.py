"""A job as a YARN service: a component per role, hosts and indexes filled in by its service framework.

https://hadoop.apache.org/docs/r3.4.1/hadoop-yarn/hadoop-yarn-site/yarn-service/YarnServiceAPI.html
"""

from __future__ import annotations

import shlex
from typing import Any, Final

from images.endpoints import directories, tf_config_by_index
from images.jobs import Job, Role
from images.launcher import expand
from images.renderers.kubernetes import POD_LOSSES, launcherless_losses
from images.renderers.rendering import (
    Rendering,
    elastic_losses,
    image_of,
    losses,
    mebibytes,
    refuse,
    serving_losses,
    whole_cpus,
)

_REFUSED: Final = {"depends_on": "YARN's dependencies wait until components are ready, not until they have ended"}
_LOSSES: Final = {
    "success": "a service does not say when the whole has succeeded",
    "retain": "the log aggregation keeps what it is set up to keep",
    "priority": "services have no priority",
    "namespace": "YARN has no namespaces",
    "expected": "nothing plans by it",
    "patience": "nothing is bought",
    "same": "YARN knows racks, not zones",
    "node_selector": "labels of Kubernetes nodes mean nothing to YARN",
    "tolerations": "YARN knows no taints",
    "roles.annotations": "they are for Kubernetes",
    "kind": "a service runs until it is stopped, or its components end and are not started again",
    "failure.restarts": "a component is started again without a limit, or never",
}
_RESTARTS: Final = {"never": "NEVER", "node-failure": "NEVER", "on-failure": "ON_FAILURE", "always": "ALWAYS"}


def render(job: Job, *, run: str = "0") -> Rendering:  # noqa: ARG001 - nothing here is kept by run
    """The service, to be sent to ``/app/v1/services``."""
    refuse(job, "yarn", _REFUSED)
    made: dict[str, Any] = {
        "name": job.name,
        "version": "1.0.0",
        "components": [_component(job, name, role) for name, role in job.roles.items()],
    }
    if job.queue:
        made["queue"] = job.queue
    if job.failure.deadline is not None:
        made["lifetime"] = int(job.failure.deadline.total_seconds())
    lost = [*losses(job, _LOSSES | POD_LOSSES), *elastic_losses(job, "the most are started"), *serving_losses(job)]
    if job.gang:
        lost.append("gang: YARN gives containers one by one")
    lost += [
        f"roles.{name}.restart: YARN does not tell a lost node from another end"
        for name, role in job.roles.items()
        if role.restart == "node-failure"
    ]
    return Rendering(documents=(made,), losses=(*lost, *launcherless_losses(job, {*job.roles})), form="json")


def _component(job: Job, name: str, role: Role) -> dict[str, Any]:
    told = {"TASK_ROLE": name, "TASK_INDEX": "${COMPONENT_ID}"} | directories(job)
    told["TF_CONFIG"] = tf_config_by_index(job, "yarn", name, index="${COMPONENT_ID}")
    environment = told | role.env
    if job.network == "host":
        environment["YARN_CONTAINER_RUNTIME_DOCKER_CONTAINER_NETWORK"] = "host"
    if role.volumes:
        environment["YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS"] = ",".join(
            f"{volume.host or volume.claim}:{volume.mount}:{'ro' if volume.read_only else 'rw'}"
            for volume in role.volumes
        )
    resource: dict[str, Any] = {"cpus": whole_cpus(role), "memory": str(mebibytes(role))}
    if role.gpus:
        resource["additional"] = {"yarn.io/gpu": {"value": role.gpus, "unit": ""}}
    made: dict[str, Any] = {
        "name": name,
        "number_of_containers": role.most,
        "artifact": {"id": image_of(name, role, backend="yarn"), "type": "DOCKER"},
        "resource": resource,
        "restart_policy": _RESTARTS[role.restart],
        "configuration": {"env": environment},
    }
    command = [expand(word, told) for word in (*role.entry, *role.args)]
    return made | ({"launch_command": " ".join(map(_word, command))} if command else {})


def _word(word: str) -> str:
    """For the shell, but for what the framework fills in."""
    return "${COMPONENT_ID}".join(shlex.quote(part) if part else "" for part in word.split("${COMPONENT_ID}")) or "''"
