"""Where the tasks of a job are found, on each backend: the one place that knows addresses. Everything else is a view.

Some are known only on the machines: Slurm's as ``${HOST[N]}``, which the batch script fills in, and YARN's as
``${SERVICE_NAME}.${USER}.${DOMAIN}``, which its service framework does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from autoscaler.model.errors import BadInput
from images.jobs import Job
from images.launcher import TF_ROLES, expand, tf_config, views

Host = Callable[[Job, str, int, int], str]
"""Of a job, role and index; the last is the task's number among all of the job."""

_HOSTS: Final[Mapping[str, Host]] = {
    "kubernetes": lambda job, role, i, _n: f"{job.task_set(role)}-{i}.{job.name}.{job.namespace}.svc",
    "jobset": lambda job, role, i, _n: f"{job.task_set(role)}-0-{i}.{job.name}.{job.namespace}.svc",
    "tfjob": lambda job, role, i, _n: f"{job.task_set(role)}-{i}.{job.namespace}.svc",
    "volcano": lambda job, role, i, _n: f"{job.task_set(role)}-{i}.{job.name}.{job.namespace}.svc",
    "compose": lambda job, role, i, _n: f"{job.task_set(role)}-{i}",
    "aliyun-compose": lambda job, role, i, _n: f"{job.task_set(role)}{i}",
    "slurm": lambda _job, _role, _i, n: f"${{HOST[{n}]}}",
    "marathon": lambda job, role, i, _n: f"{role}-{i}-{job.name}.marathon.mesos",
    "yarn": lambda _job, role, i, _n: f"{role}-{i}.${{SERVICE_NAME}}.${{USER}}.${{DOMAIN}}",
    "local": lambda _job, _role, _i, _n: "127.0.0.1",
}
BACKENDS: Final = tuple(_HOSTS)
_SHARED: Final = frozenset({"slurm", "marathon", "local"})
"""Where tasks listen on their machine's own ports: each needs another."""
_PORT_MAX: Final = 65_535


def endpoints(job: Job, backend: str, *, shift: int = 0) -> dict[str, list[str]]:
    """``HOST:PORT`` of every task by role; of elastic roles, of as many as there may be.

    Where tasks share their machines' ports, each has its role's port plus ``shift`` plus its number among all tasks.
    Raises ``BadInput`` where two would have the same or there is no such port.
    """
    shares = backend in _SHARED or job.network == "host"
    found: dict[str, list[str]] = {role: [] for role in job.roles}
    for number, (role, index) in enumerate(job.tasks()):
        port = job.roles[role].port + (number + shift if shares else 0)
        found[role].append(f"{_HOSTS[backend](job, role, index, number)}:{port}")
    if shares:
        _refuse_clashes(job, found)
    return found


def _refuse_clashes(job: Job, found: Mapping[str, list[str]]) -> None:
    ports = Counter(int(address.rpartition(":")[2]) for addresses in found.values() for address in addresses)
    port, times = ports.most_common(1)[0]
    if times > 1:
        raise BadInput(
            f"job {job.name!r}: {times} tasks would listen at port {port} of one machine: "
            "give the roles ports that are further apart, or all the same"
        )
    if max(ports) > _PORT_MAX:
        raise BadInput(
            f"job {job.name!r}: its tasks would listen at ports up to {max(ports)}: give the roles lower ones"
        )


def is_elastic(job: Job) -> bool:
    """Whether tasks may come and go while the others run."""
    return any(role.least < role.most for role in job.roles.values())


def environment(job: Job, backend: str, role: str, index: int) -> dict[str, str]:
    """What a task without a launcher is told, all of it known beforehand; its own ``env`` last."""
    told = views(endpoints(job, backend), role, index, sparse=is_elastic(job))
    return told | directories(job) | {key: expand(value, told) for key, value in job.roles[role].env.items()}


def directories(job: Job) -> dict[str, str]:
    """Where data come from and results go, where the job says so."""
    return {key: path for key, path in (("DATA_DIR", job.data_dir), ("TRAIN_DIR", job.train_dir)) if path}


def tf_config_by_index(job: Job, backend: str, role: str, *, index: str) -> str:
    """``TF_CONFIG`` of the like tasks of a role, with a placeholder where each one's index goes."""
    config = tf_config(endpoints(job, backend), role, 0)
    text = json.dumps(config, separators=(",", ":"))
    return text.replace('"index":0', f'"index":{index}')


def launch_settings(job: Job, backend: str, role: str, *, run: str, shift: int = 0) -> dict[str, str]:
    """What the launcher of a role's tasks has to know, but for the index: ``launcher.Settings`` says what it means.

    ``run`` tells this run of the job from earlier ones that wrote their lines to the same directory.
    """
    task = job.roles[role]
    settings = {
        "SPILLWAY_ROLE": role,
        "SPILLWAY_CLUSTER": json.dumps(endpoints(job, backend, shift=shift), separators=(",", ":")),
        "SPILLWAY_NEEDS": _json({name: job.roles[name].least for name in _peers(job, role)}),
    }
    if role not in job.essential and not job.depends_on:
        settings["SPILLWAY_ESSENTIAL"] = _json({name: job.roles[name].least for name in job.essential})
        settings["SPILLWAY_SUCCESS"] = job.success
    if is_elastic(job):
        settings["SPILLWAY_SPARSE"] = "1"
    if task.checkpoint:
        settings["SPILLWAY_CHECKPOINT"] = json.dumps(task.checkpoint)
    if not task.has_usual_grace:
        settings["SPILLWAY_GRACE"] = f"{task.grace.total_seconds():g}"
    if task.idle:
        spans = {"after": task.idle.after.total_seconds(), "warning": task.idle.warning.total_seconds()}
        settings["SPILLWAY_IDLE"] = json.dumps({"job": job.name, **spans, "by": task.idle.by})
    if job.logs:
        key = "SPILLWAY_STATE" if job.shared_logs else "SPILLWAY_LOGS"
        settings[key] = f"{job.logs}/{job.name}/{run}"
    return settings | directories(job)


def _peers(job: Job, role: str) -> list[str]:
    """Tasks that one waits for: those of the training cluster for each other, all others for none."""
    return [name for name in job.roles if name in TF_ROLES and role in TF_ROLES and job.gang]


def _json(counts: Mapping[str, int]) -> str:
    return json.dumps(counts, separators=(",", ":"))
