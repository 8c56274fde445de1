"""A job as a Marathon group: an app per task, on its machine's own network, found by Mesos-DNS.

https://mesosphere.github.io/marathon/docs/application-groups.html
"""

from __future__ import annotations

import math
from typing import Any, Final

from autoscaler.model.resources import parse_quantity
from images.endpoints import endpoints, environment
from images.jobs import Job
from images.launcher import expand
from images.renderers.kubernetes import POD_LOSSES, launcherless_losses
from images.renderers.rendering import Rendering, elastic_losses, image_of, losses, mebibytes, refuse, serving_losses

_REFUSED: Final = {
    "depends_on": "Marathon's dependencies wait for a start, not for an end",
    "roles.checkpoint": "no launcher runs there that would call it",
}
_LOSSES: Final = {
    "success": "Marathon does not say when a group has succeeded",
    "failure.restarts": "Marathon starts apps again as often as they end",
    "failure.deadline": "apps have no deadline",
    "retain": "a group stays until it is deleted",
    "priority": "apps have no priority",
    "queue": "Marathon has no queues",
    "owner": "Spillway buys nothing for groups",
    "namespace": "groups have no namespace",
    "expected": "nothing plans by it",
    "patience": "nothing is bought",
    "same": "zones are attributes of agents that Spillway does not know",
    "tolerations": "Mesos knows no taints",
    "roles.annotations": "they are for Kubernetes",
}


def render(job: Job, *, run: str = "0") -> Rendering:  # noqa: ARG001 - nothing here is kept by run
    """The group, to be sent to ``/v2/groups``."""
    refuse(job, "marathon", _REFUSED)
    apps = [_app(job, role, index) for role, index in job.tasks()]
    lost = [*losses(job, _LOSSES | POD_LOSSES), *elastic_losses(job, "the most are started"), *serving_losses(job)]
    if job.gang:
        lost.append("gang: Marathon starts apps one by one")
    if job.network == "own":
        lost.append("network: tasks use the machine's own network")
    if job.kind == "batch":
        lost.append("kind: Marathon starts an app again that has ended: delete the group when its work is done")
    lost += [
        f"roles.{name}.restart: Marathon starts apps again whenever they end"
        for name, role in job.roles.items()
        if role.restart != "always"
    ]
    return Rendering(
        documents=({"id": f"/{job.name}", "apps": apps},),
        losses=(*lost, *launcherless_losses(job, {*job.roles})),
        form="json",
    )


def _app(job: Job, name: str, index: int) -> dict[str, Any]:
    role = job.roles[name]
    told = environment(job, "marathon", name, index)
    port = int(endpoints(job, "marathon")[name][index].rpartition(":")[2])
    container: dict[str, Any] = {
        "type": "MESOS",
        "docker": {"image": image_of(name, role, backend="marathon")},
    }
    if role.volumes:
        container["volumes"] = [
            {
                "containerPath": volume.mount,
                "hostPath": volume.host or volume.claim,
                "mode": "RO" if volume.read_only else "RW",
            }
            for volume in role.volumes
        ]
    made: dict[str, Any] = {
        "id": f"/{job.name}/{name}-{index}",
        "instances": 1,
        "cpus": float(parse_quantity(role.cpus)),
        "mem": mebibytes(role),
        "container": container,
        "networks": [{"mode": "host"}],
        "portDefinitions": [{"port": port, "name": "task", "protocol": "tcp"}],
        "requirePorts": True,
        "env": told,
    }
    if role.gpus:
        made["gpus"] = role.gpus
    if not role.has_usual_grace:
        made["taskKillGracePeriodSeconds"] = math.ceil(role.grace.total_seconds())
    if role.entry or role.args:
        made["args"] = [expand(word, told) for word in (*role.entry, *role.args)]
    if job.node_selector:
        made["constraints"] = [[key, "LIKE", value] for key, value in job.node_selector.items()]
    return made
