"""A training job as plain Kubernetes objects, no operator needed: one Indexed Job per role and a headless Service.

The main role's Job owns the others, so that deleting it takes all along. Every pod carries the gang's scheduling gate:
the autoscaler lifts it for all of them when each has a place. Tasks that wait for ever say whom they end with, and the
autoscaler ends them (``spillway.dev/ends-with``): parameter servers and evaluators, and workers that serve a chief.

Pod names and indexes: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
"""

from __future__ import annotations

import json
from typing import Any, Final

from autoscaler.model import labels as words
from images.jobs import PORT, Role, Task, TrainingJob

Manifest = dict[str, Any]

_INDEX: Final = "$(TASK_INDEX)"
"""Expanded by the kubelet from the variable defined before it."""
_COMPLETION_INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def render(job: TrainingJob) -> list[Manifest]:
    """The objects of a job, the main Job first: the others are to be owned by it (``submit`` fills in its uid)."""
    roles = sorted(job.tasks, key=lambda role: role != job.main_role)
    main, *others = (_task_set(job, role, job.tasks[role]) for role in roles)
    return [main, _service(job), *others]


def _service(job: TrainingJob) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, job.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # tasks look for each other before any of them is ready
            "selector": {words.JOB: job.name},
            "ports": [{"name": "grpc", "port": PORT}],
        },
    }


def _task_set(job: TrainingJob, role: Role, task: Task) -> Manifest:
    metadata = _metadata(job, job.task_set(role), role=role)
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": task.count,
        "parallelism": task.count,
        "backoffLimit": job.restarts,
        "podReplacementPolicy": "Failed",  # the old pod must be gone before a new one takes its name
        # A node that is drained or lost is no fault of the task: it starts again, uncounted.
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": _pod(job, role, task),
    }
    if role == job.main_role:
        spec["ttlSecondsAfterFinished"] = int(job.keep_for.total_seconds())
    else:
        metadata["annotations"] = {words.ENDS_WITH: job.task_set(job.main_role)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _pod(job: TrainingJob, role: Role, task: Task) -> Manifest:
    annotations = task.annotations | {words.GANG_SIZE: str(job.size)}
    if job.same == "zone":
        annotations[words.GANG_ZONE] = words.ZONE
    for key, span in ((words.DURATION, job.expected), (words.PATIENCE, job.patience)):
        if span is not None:
            annotations[key] = f"{span.total_seconds():g}s"
    spec: dict[str, Any] = {
        "subdomain": job.name,
        "restartPolicy": "Never",
        "schedulingGates": [{"name": words.GATE}],
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(job, role, task)],
    }
    if task.gpus:
        # NCCL and data loaders pass tensors through shared memory, of which a container has 64 MB by default.
        # This one is as big as the task's memory limit, and counts towards it.
        spec["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    if job.priority:
        spec["priorityClassName"] = job.priority
    if job.node_selector:
        spec["nodeSelector"] = dict(job.node_selector)
    tolerations = _tolerations(job)
    if tolerations:
        spec["tolerations"] = tolerations
    labels = _labels(job, role=role) | {words.GANG: job.name}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def _tolerations(job: TrainingJob) -> list[Manifest]:
    tolerations = [entry.model_dump(exclude_defaults=True) | {"operator": entry.operator} for entry in job.tolerations]
    if any(task.gpus for task in job.tasks.values()):
        # Also for tasks without GPUs: beside those that have some is where the CPUs are that cost nothing.
        tolerations.append({"key": words.GPU, "operator": "Exists"})
    return tolerations


def _container(job: TrainingJob, role: Role, task: Task) -> Manifest:
    amounts: dict[str, str] = {"cpu": task.cpu, "memory": task.memory}
    limits = {"memory": task.memory}  # none on CPU: what the machine has left over may be used
    if task.gpus:
        amounts[words.GPU] = limits[words.GPU] = str(task.gpus)
    ports = {"grpc": PORT} | task.ports
    container: dict[str, Any] = {
        "name": role,
        "image": job.image,
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "env": [
            {"name": "TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": _COMPLETION_INDEX}}},
            {"name": "TF_CONFIG", "value": tf_config(job, role)},
            *({"name": name, "value": value} for name, value in task.env.items()),
        ],
        "resources": {"requests": amounts, "limits": limits},
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    if task.command:
        container["command"] = list(task.command)
    if task.args:
        container["args"] = list(task.args)
    if task.gpus:
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - in the container
    return container


def tf_config(job: TrainingJob, role: Role) -> str:
    """``TF_CONFIG`` of the tasks of a role, with ``$(TASK_INDEX)`` where each one's index goes."""
    config = {"cluster": job.addresses(), "task": {"type": role, "index": 0}}
    text = json.dumps(config, separators=(",", ":"))
    return text.replace('"index":0', f'"index":{_INDEX}')


def _metadata(job: TrainingJob, name: str, *, role: Role | None = None) -> Manifest:
    return {"name": name, "namespace": job.namespace, "labels": _labels(job, role=role)}


def _labels(job: TrainingJob, *, role: Role | None) -> dict[str, str]:
    return {words.JOB: job.name} | ({words.ROLE: role} if role else {})
