"""A job in a cluster, followed from the queue to its end: what is seen of it, and a line for each change."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import msgspec

from autoscaler.kube.client import Kube, Refused
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from autoscaler.planner.explanation.explain import Coming
from autoscaler.replica.acting_replica import acting_replica, asked
from images.backends.stages import JOB_NAME, Json, Look, depends_on_others, stage_of, tasks_of
from images.backends.states import Stage, TaskState

_EVERY: Final = 1.0
"""Seconds between two looks."""


def follow(
    kube: Kube, *, namespace: str, name: str, autoscaler: str, sleep: Callable[[float], object] = time.sleep
) -> Iterator[Stage]:
    """Each stage of the job as it changes; the last has a status. ``autoscaler``: the autoscaler's namespace.

    An API server that does not answer for a while is asked again. Raises ``BadInput`` where there is no such job, also
    where it is deleted meanwhile; ``Unavailable`` where the server does not answer the first time.
    """
    last: Stage | None = None
    while last is None or last.status is None:
        try:
            stage = stage_of(look(kube, namespace=namespace, name=name, autoscaler=autoscaler))
        except Unavailable:
            if last is None:
                raise
            stage = last
        if stage != last:
            yield stage
        last = stage
        if stage.status is None:
            sleep(_EVERY)


def show(kube: Kube, *, namespace: str, name: str, autoscaler: str) -> tuple[Stage, list[TaskState]]:
    """How far the job has come, and each of its tasks. Raises ``BadInput`` where it is not there."""
    seen = look(kube, namespace=namespace, name=name, autoscaler=autoscaler)
    return stage_of(seen), tasks_of(seen)


def look(kube: Kube, *, namespace: str, name: str, autoscaler: str) -> Look:
    """What is seen of the job now. Raises ``BadInput`` where there is none."""
    where = f"namespaces/{quote(namespace, safe='')}"
    of_job = f"labelSelector={quote(f'{words.JOB}={name}')}"
    jobs = _items(kube, f"/apis/batch/v1/{where}/jobs?{of_job}")
    if not jobs:
        raise BadInput(f"there is no training job {name!r} in namespace {namespace!r}: `spillway jobs list` shows them")
    pods = _items(kube, f"/api/v1/{where}/pods?{of_job}")
    pending = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
    has_steps = any(map(depends_on_others, jobs))
    if has_steps and not pending and not any(map(_runs, pods)):
        return Look(jobs=jobs, pods=pods, why=_why_not_begun(kube, autoscaler))
    if pods and not pending:
        return Look(jobs=jobs, pods=pods)
    step = pending[0]["metadata"]["labels"][JOB_NAME] if has_steps else name
    nodes, why = _told(kube, f"{namespace}/{step}", autoscaler)
    if why and not any(pod["spec"].get("nodeName") for pod in pending):
        return Look(jobs=jobs, pods=pods, nodes=nodes, why=why)
    events = _items(kube, f"/api/v1/{where}/events?fieldSelector=involvedObject.kind%3DPod")
    events.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    return Look(jobs=jobs, pods=pods, events=events, nodes=nodes, why=why)


def _runs(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _why_not_begun(kube: Kube, autoscaler: str) -> str:
    """Empty where an autoscaler acts, which begins the next step."""
    with contextlib.suppress(BadInput, Unavailable, Refused):
        return "" if acting_replica(kube, namespace=autoscaler).acts else "no autoscaler acts, which would begin it"
    return ""


def _told(kube: Kube, job: str, autoscaler: str) -> tuple[tuple[Coming, ...], str]:
    """What the acting autoscaler says of the job; where none acts, that. Nothing where it has not seen it yet."""
    try:
        replica = acting_replica(kube, namespace=autoscaler)
        if not replica.acts:
            return (), "no autoscaler acts, which would find a place for its tasks"
        said = asked(kube, replica, "explain", "job", *job.split("/"), namespace=autoscaler)
    except (BadInput, Unavailable, Refused):
        return (), ""
    _whole, *lines = said["lines"]
    return msgspec.convert(said["coming"], tuple[Coming, ...]), "; ".join(lines)


def _items(kube: Kube, path: str) -> list[Json]:
    try:
        return [json.loads(bytes(item)) for items, _version in kube.pages(path) for item in items]
    except Refused as refused:
        raise BadInput(f"cannot follow the job: {refused}") from None
