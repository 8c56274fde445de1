"""A job as plain Kubernetes objects, no operator needed: one Indexed Job per role, a headless Service, the launcher.

The main role's Job owns the others, so that deleting it takes all along. Every pod of a gang carries its scheduling
gate: the autoscaler lifts it for all of them when each has a place. An elastic role starts with the least tasks, and
its Job's size is changed by the autoscaler (``spillway.dev/elastic``). Tasks that wait for ever say what they end with:
the autoscaler ends them (``spillway.dev/ends-with``): parameter servers and evaluators, and workers that serve a chief.
Steps of a workflow are suspended Jobs that say what they depend on: the autoscaler resumes each in its turn
(``spillway.dev/depends-on``), or has it fail where one before it has failed.

Pod names and indexes: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.cluster import FOREVER
from autoscaler.model.errors import BadInput
from images.endpoints import directories, launch_settings, tf_config_by_index
from images.job_roles import Role
from images.job_values import seconds
from images.jobs import Job
from images.launcher import __file__ as launcher_file
from images.renderers.rendering import INDEX, Manifest, Rendering, image_of, losses

LAUNCHER: Final = "/opt/spillway/launcher.py"
"""Where containers have it."""
LOGS_SECRET: Final = "spillway-logs"  # noqa: S105 - a name
"""In the job's namespace: AWS_ACCESS_KEY_ID and the like, by which launchers write to a bucket."""
POD_SECURITY: Final[Manifest] = {"seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Final[Manifest] = {"allowPrivilegeEscalation": False}
_COMPLETION_INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_LOSSES: Final = {
    "queue": "plain Kubernetes has no queues",
    "kind": "it runs as Jobs, which end when their program does",
}
_LAST_STEPS: Final = "retain: steps that nothing waits for end each at its own time; delete the job when all have ended"
POD_LOSSES: Final = {"roles.python": "containers bring their own Python; the image's is used"}
_LOST_MACHINE: Final = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
"""A node that is drained or lost is no fault of the task: it starts again, uncounted."""


def render(job: Job, *, run: str = "0") -> Rendering:
    """The objects of a job, the main Job first: the others are to be owned by it (``submit`` fills in its uid)."""
    roles = sorted(job.roles, key=lambda role: role != job.main_role)
    main, *others = (_task_set(job, role, run=run) for role in roles)
    return Rendering(
        documents=(main, service(job), *launcher_map(job), *others),
        losses=(
            *losses(job, _LOSSES | POD_LOSSES),
            *job_losses(job),
            *([] if job.ends_last(job.main_role) else [_LAST_STEPS]),
        ),
    )


def job_losses(job: Job) -> tuple[str, ...]:
    """What Indexed Jobs, and containers that run no launcher, cannot say."""
    lost = [
        f"roles.{name}.restart: a Job starts tasks again after failures, not after success"
        for name, role in job.roles.items()
        if role.restart == "always"
    ]
    return (*lost, *launcherless_losses(job, {name for name, role in job.roles.items() if not role.entry}))


def launcherless_losses(job: Job, roles: set[str]) -> tuple[str, ...]:
    """What the tasks of these roles leave undone as no launcher runs in them."""
    lost = []
    for name in [name for name in job.roles if name in roles]:
        if job.logs:
            lost.append(f"logs: {name} runs without the launcher, which numbers and keeps lines")
        if job.roles[name].checkpoint:
            lost.append(f"roles.{name}.checkpoint: it runs without the launcher, which would call it")
        if job.roles[name].idle:
            lost.append(f"roles.{name}.idle: it runs without the launcher, which would watch it")
    return tuple(lost)


def service(job: Job) -> Manifest:
    """Gives every task its stable name."""
    ports = sorted({role.port for role in job.roles.values()})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, job.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # tasks look for each other before any of them is ready
            "selector": {words.JOB: job.name},
            "ports": [{"name": f"port-{port}", "port": port} for port in ports],
        },
    }


def launcher_map(job: Job) -> list[Manifest]:
    """The launcher as a ConfigMap, where any role has it run its program."""
    if not any(role.entry for role in job.roles.values()):
        return []
    with open(launcher_file, encoding="utf-8") as file:  # noqa: PTH123 - a part of this very program
        text = file.read()
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(job, _launcher_name(job)),
            "immutable": True,
            "data": {PurePosixPath(LAUNCHER).name: text},
        }
    ]


def _launcher_name(job: Job) -> str:
    return f"{job.name}-launcher"


def _task_set(job: Job, role: str, *, run: str) -> Manifest:
    meta = metadata(job, job.task_set(role), role=role)
    size = job.roles[role].least if job.gang else job.roles[role].most
    spec = job_spec(job, role, backend="kubernetes", run=run, size=size)
    marks = _elastic_marks(job, role)
    if role in job.depends_on:
        spec["suspend"] = True
        marks[words.DEPENDS_ON] = ",".join(map(job.task_set, job.depends_on[role]))
    if role == job.main_role:
        if job.retain < FOREVER and job.ends_last(role):
            spec["ttlSecondsAfterFinished"] = int(job.retain.total_seconds())
    elif role not in job.essential:
        marks |= {words.ENDS_WITH: job.task_set(job.main_role)}
    if marks:
        meta["annotations"] = marks
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _elastic_marks(job: Job, role: str) -> dict[str, str]:
    """Annotations by which the autoscaler changes the number of tasks; none where there is one number."""
    task = job.roles[role]
    if not job.gang or task.least == task.most:
        return {}
    marks = {words.ELASTIC: task.count}
    if role != job.leading_role:
        return marks | {words.FOLLOWS: job.task_set(job.leading_role)}
    if job.elastic.restart:
        marks[words.ELASTIC_RESTART] = seconds(job.elastic.restart)
    if job.elastic.usd_per_hour is not None:
        marks[words.ELASTIC_USD] = f"{job.elastic.usd_per_hour:g}"
    return marks | {words.ELASTIC_WARM_UP: seconds(job.elastic.warm_up)}


def job_spec(job: Job, role: str, *, backend: str, run: str, size: int) -> Manifest:
    """The spec of the Indexed Job of a role, with so many tasks."""
    task = job.roles[role]
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": size,
        "parallelism": size,
        "backoffLimit": job.failure.restarts if task.restart in ("on-failure", "always") else 0,
        "podReplacementPolicy": "Failed",  # the old pod must be gone before a new one takes its name
    }
    if task.restart != "never":
        spec["podFailurePolicy"] = {"rules": [_LOST_MACHINE]}
    if job.failure.deadline is not None:
        spec["activeDeadlineSeconds"] = int(job.failure.deadline.total_seconds())
    if job.success == "first" and role == job.main_role:
        spec["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
    return spec | {"template": pod(job, role, backend=backend, run=run)}


def pod(job: Job, role: str, *, backend: str, run: str) -> Manifest:
    """The template of a role's pods."""
    task = job.roles[role]
    mounts = _mounts(job, task)
    container = {
        "name": role,
        "image": image_of(role, task, backend=backend),
        **_program(task),
        "ports": [{"name": "task", "containerPort": task.port}],
        "env": _environment(job, role, backend=backend, run=run),
        "resources": _amounts(task),
        "securityContext": CONTAINER_SECURITY,
    }
    if task.entry and job.logs and not job.shared_logs:
        container["envFrom"] = [{"secretRef": {"name": LOGS_SECRET, "optional": True}}]
    if mounts:
        container["volumeMounts"] = [mount for _source, mount in mounts]
    spec: dict[str, Any] = {
        "subdomain": job.name,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
    }
    if task.entry or not task.has_usual_grace:
        spec["terminationGracePeriodSeconds"] = task.ends_within
    if mounts:
        spec["volumes"] = [source for source, _mount in mounts]
    return {"metadata": _pod_metadata(job, role), "spec": spec | placing(job)}


def placing(job: Job) -> Manifest:
    """What of a pod's spec says where it may run."""
    spec: dict[str, Any] = {}
    if job.gang:
        spec["schedulingGates"] = [{"name": words.GATE}]
    if job.network == "host":
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if job.priority:
        spec["priorityClassName"] = job.priority
    if job.node_selector:
        spec["nodeSelector"] = dict(job.node_selector)
    tolerations = [entry.model_dump(exclude_defaults=True) | {"operator": entry.operator} for entry in job.tolerations]
    if any(task.gpus for task in job.roles.values()):
        # Also for tasks without GPUs: beside those that have some is where the CPUs are that cost nothing.
        tolerations.append({"key": words.GPU, "operator": "Exists"})
    return spec | ({"tolerations": tolerations} if tolerations else {})


def _pod_metadata(job: Job, role: str) -> Manifest:
    annotations = dict(job.roles[role].annotations)
    labels = _labels(job, role=role)
    if job.gang:
        labels[words.GANG] = job.name
        annotations[words.GANG_SIZE] = str(job.size)
        if job.needed < job.size:
            annotations[words.GANG_MIN] = str(job.needed)
    else:
        annotations[words.GANG_MIN] = "1"  # else an Indexed Job all of whose tasks run at once is taken for a gang
    if job.same == "zone":
        annotations[words.GANG_ZONE] = words.ZONE
    for key, span in ((words.DURATION, job.expected), (words.PATIENCE, job.patience)):
        if span is not None:
            annotations[key] = seconds(span)
    return {"labels": labels, "annotations": annotations}


def _program(task: Role) -> Manifest:
    """What the container runs: the launcher, which runs ``entry``; without one, the image's own program."""
    if task.entry:
        return {"command": ["python3", LAUNCHER, *task.entry], "args": list(task.args)}
    return {"args": list(task.args)} if task.args else {}


def _environment(job: Job, role: str, *, backend: str, run: str) -> list[Manifest]:
    """The index first: what stands after it may say ``$(TASK_INDEX)``, which the kubelet fills in."""
    task = job.roles[role]
    if task.entry:
        told = launch_settings(job, backend, role, run=run) | {"SPILLWAY_INDEX": INDEX}
    else:
        told = {"TF_CONFIG": tf_config_by_index(job, backend, role, index=INDEX)} | directories(job)
    index = {"name": "TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": _COMPLETION_INDEX}}}
    return [index, *({"name": name, "value": value} for name, value in (told | task.env).items())]


def _amounts(task: Role) -> Manifest:
    amounts: dict[str, str] = {"cpu": task.cpus, "memory": task.memory}
    limits = {"memory": task.memory}  # none on CPU: what the machine has left over may be used
    if task.gpus:
        amounts[words.GPU] = limits[words.GPU] = str(task.gpus)
    return {"requests": amounts, "limits": limits}


def _mounts(job: Job, task: Role) -> list[tuple[Manifest, Manifest]]:
    """Volumes of the pod, each with how the container sees it."""
    found: list[tuple[Manifest, Manifest]] = []
    for number, volume in enumerate(task.volumes):
        name = f"volume-{number}"
        if volume.claim:
            source: Manifest = {"persistentVolumeClaim": {"claimName": volume.claim}}
        else:
            source = {"hostPath": {"path": volume.host}}
        read_only = {"readOnly": True} if volume.read_only else {}
        found.append(({"name": name} | source, {"name": name, "mountPath": volume.mount} | read_only))
    if task.gpus:
        # NCCL and data loaders pass tensors through shared memory, of which a container has 64 MB by default.
        # This one is as big as the task's memory limit, and counts towards it.
        found.append(({"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "shm", "mountPath": "/dev/shm"}))  # noqa: S108 - in the container
    if task.entry:
        _refuse_lost_lines(job, task)
        mount = {"name": "launcher", "mountPath": str(PurePosixPath(LAUNCHER).parent), "readOnly": True}
        found.append(({"name": "launcher", "configMap": {"name": _launcher_name(job)}}, mount))
    return found


def _refuse_lost_lines(job: Job, task: Role) -> None:
    kept = [PurePosixPath(volume.mount) for volume in task.volumes if not volume.read_only]
    if job.shared_logs and not any(PurePosixPath(job.shared_logs).is_relative_to(mount) for mount in kept):
        raise BadInput(
            f"job {job.name!r}: logs = {job.logs!r} lies on no volume of each role, so that lines would go with the "
            f"container: give every role with an entry one, e.g. volumes: [{{mount: {job.logs}, claim: logs}}]"
        )


def metadata(job: Job, name: str, *, role: str | None = None) -> Manifest:
    """Returns the metadata of an object of the job."""
    return {"name": name, "namespace": job.namespace, "labels": _labels(job, role=role)}


def _labels(job: Job, *, role: str | None) -> dict[str, str]:
    owner = {words.OWNER: job.owner} if job.owner else {}
    return {words.JOB: job.name} | ({words.ROLE: role} if role else {}) | owner
