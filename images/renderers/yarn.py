"""A job as a YARN service: a component per role, hosts and indexes filled in by its service framework.

The launcher travels in the service, as a file that the framework puts beside each container's own.
https://hadoop.apache.org/docs/r3.4.1/hadoop-yarn/hadoop-yarn-site/yarn-service/YarnServiceAPI.html
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

from images.endpoints import directories, launch_settings, tf_config_by_index
from images.job_roles import Role
from images.jobs import Job
from images.launcher import __file__ as launcher_file
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
    "owner": "Spillway buys nothing for services",
    "namespace": "YARN has no namespaces",
    "expected": "nothing plans by it",
    "patience": "nothing is bought",
    "same": "YARN knows racks, not zones",
    "node_selector": "labels of Kubernetes nodes mean nothing to YARN",
    "tolerations": "YARN knows no taints",
    "roles.annotations": "they are for Kubernetes",
    "kind": "a service runs until it is stopped, or its components end and are not started again",
    "failure.restarts": "a component is started again without a limit, or never",
    "roles.checkpoint": "it has yarn.nodemanager.sleep-delay-before-sigkill.ms: 250 ms where that is not set",
    "roles.grace": "it has yarn.nodemanager.sleep-delay-before-sigkill.ms",
}
_RESTARTS: Final = {"never": "NEVER", "node-failure": "NEVER", "on-failure": "ON_FAILURE", "always": "ALWAYS"}
_RUN: Final = "${CONTAINER_ID%_*_*}"
"""What the containers of one start of a service have in common, as the shell that starts them finds it."""
_FILLED_IN: Final = re.compile(r"\$\{(?:COMPONENT_ID|SERVICE_NAME|USER|DOMAIN|CONTAINER_ID%_\*_\*)\}")
_MEANT_OTHERWISE: Final = re.compile(r"\{(?=\{)|\}(?=\})|<(?=CPS>|LOG_DIR>)")
"""Node managers replace ``{{NAME}}``, ``<CPS>`` and ``<LOG_DIR>`` in all that they are told."""


def render(job: Job, *, run: str = _RUN) -> Rendering:
    """The service, to be sent to ``/app/v1/services``."""
    refuse(job, "yarn", _REFUSED)
    made: dict[str, Any] = {
        "name": job.name,
        "version": "1.0.0",
        "components": [_component(job, name, role, run=run) for name, role in job.roles.items()],
    }
    if job.queue:
        made["queue"] = job.queue
    if job.failure.deadline is not None:
        made["lifetime"] = int(job.failure.deadline.total_seconds())
    bare = {name for name, role in job.roles.items() if not role.entry}
    lost = [*losses(job, _LOSSES | POD_LOSSES), *elastic_losses(job, "the most are started")]
    if bare or not job.shared_logs:
        lost += serving_losses(job)
    if job.gang:
        lost.append("gang: YARN gives containers one by one")
    lost += [
        f"roles.{name}.restart: YARN does not tell a lost node from another end"
        for name, role in job.roles.items()
        if role.restart == "node-failure"
    ]
    return Rendering(documents=(made,), losses=(*lost, *launcherless_losses(job, bare)), form="json")


def _component(job: Job, name: str, role: Role, *, run: str) -> dict[str, Any]:
    configuration: dict[str, Any] = {}
    if role.entry:
        environment = launch_settings(job, "yarn", name, run=run) | {"SPILLWAY_INDEX": "${COMPONENT_ID}"}
        command = ["python3", "conf/launcher.py", *role.entry, *role.args]
        text = Path(launcher_file).read_text(encoding="utf-8")
        configuration["files"] = [{"type": "TEMPLATE", "dest_file": "launcher.py", "properties": {"content": text}}]
    else:
        environment = {"TASK_ROLE": name, "TASK_INDEX": "${COMPONENT_ID}"} | directories(job)
        environment["TF_CONFIG"] = tf_config_by_index(job, "yarn", name, index="${COMPONENT_ID}")
        command = [expand(word, environment) for word in role.args]
    environment |= role.env
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
        "configuration": configuration | {"env": {key: _quoted(value) for key, value in environment.items()}},
    }
    return made | ({"launch_command": _quoted(" ".join(map(shlex.quote, command)))} if command else {})


def _quoted(text: str) -> str:
    """Quotes text for the double quotes into which node managers put all that they are told, unescaped.

    Places of the framework's, and of its shell's, stay. A pair of quotes parts what would be read as another's.
    """
    own = [*_FILLED_IN.findall(text), ""]
    parts = (re.sub(r'[\\"`]', r"\\\g<0>", part).replace("$", '\\$""') for part in _FILLED_IN.split(text))
    whole = "".join(part + place for part, place in zip(parts, own, strict=True))
    return _MEANT_OTHERWISE.sub(r'\g<0>""', whole)
