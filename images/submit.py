"""Training jobs in a cluster: submit, list, read their logs, delete."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoscaler import labels as words
from autoscaler.failures import BadInput, Unavailable
from autoscaler.kube import Kube, Refused
from images.jobs import TrainingJob
from images.kubernetes import Manifest, render

_PLURALS: Final[Mapping[str, str]] = {"Job": "/apis/batch/v1", "Service": "/api/v1"}
_CONFLICT, _NOT_FOUND = 409, 404


def submit(kube: Kube, job: TrainingJob) -> list[str]:
    """Create the job's objects, the main Job first, the others owned by it. Returns ``kind/name`` of each.

    Everything is tried without effect first, and what was created is removed again if the rest cannot be: a job is
    there as a whole or not at all. Raises ``BadInput`` where the API server finds a mistake or the job exists.
    """
    manifests = render(job)
    for manifest in manifests:
        _create(kube, manifest, dry_run=True)
    main = _create(kube, manifests[0])
    try:
        for manifest in manifests[1:]:
            _create(kube, _owned(manifest, by=main))
    except BaseException:
        with contextlib.suppress(BadInput, Unavailable):
            delete(kube, namespace=job.namespace, name=job.name)
        raise
    return [f"{manifest['kind'].lower()}/{manifest['metadata']['name']}" for manifest in manifests]


def delete(kube: Kube, *, namespace: str, name: str) -> None:
    """Delete the main Job of a training job; the cluster's garbage collector takes the rest along.

    Raises ``BadInput`` where there is no such job.
    """
    jobs = _jobs(kube, namespace, name)
    if not jobs:
        raise BadInput(f"there is no training job {name!r} in namespace {namespace!r}: `spillway jobs list` shows them")
    for job in jobs:
        if not job["metadata"].get("ownerReferences"):  # the main Job: it owns the others
            path = f"{_path('Job', namespace)}/{job['metadata']['name']}?propagationPolicy=Background"
            kube.send("DELETE", path)


@dataclass(frozen=True, slots=True)
class RoleState:
    """The tasks of one role of a job, counted."""

    job: str
    namespace: str
    role: str
    waiting: int
    running: int
    succeeded: int
    failed: int
    gpus: int
    """Held by those that run."""
    since: str
    """When the role's object was made, RFC 3339."""


def states(kube: Kube, *, namespace: str | None = None) -> list[RoleState]:
    """Every training job's roles; of all namespaces where none is given."""
    where = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    jobs_at = f"/apis/batch/v1/namespaces/{namespace}/jobs" if namespace else "/apis/batch/v1/jobs"
    pods = _items(kube, where, words.JOB)
    found = []
    for job in _items(kube, jobs_at, words.JOB):
        meta = job["metadata"]
        mine = [pod for pod in pods if _is_of(pod, meta)]
        running = [pod for pod in mine if _runs(pod)]
        succeeded, failed = job["status"].get("succeeded", 0), job["status"].get("failed", 0)
        found.append(
            RoleState(
                job=meta["labels"][words.JOB],
                namespace=meta["namespace"],
                role=meta["labels"].get(words.ROLE, ""),
                waiting=max(0, job["spec"].get("completions", 1) - succeeded - len(running)),
                running=len(running),
                succeeded=succeeded,
                failed=failed,
                gpus=sum(_gpus(pod) for pod in running),
                since=meta["creationTimestamp"],
            )
        )
    return sorted(found, key=lambda state: (state.namespace, state.job, state.role))


def logs(kube: Kube, *, namespace: str, name: str, role: str, index: int, follow: bool) -> Iterator[str]:
    """Lines of one task's log. Raises ``BadInput`` where there is no such task or it has not started."""
    index_label = "batch.kubernetes.io/job-completion-index"
    pods = [
        pod
        for pod in _items(kube, f"/api/v1/namespaces/{namespace}/pods", f"{words.JOB}={name},{words.ROLE}={role}")
        if pod["metadata"].get("annotations", {}).get(index_label) == str(index)
    ]
    if not pods:
        raise BadInput(f"job {name!r} has no task {role} {index}: `spillway jobs list` shows what there is")
    newest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    path = f"/api/v1/namespaces/{namespace}/pods/{newest['metadata']['name']}/log"
    try:
        if follow:
            yield from kube.lines(f"{path}?follow=true")
        else:
            yield from kube.get(path).decode(errors="replace").splitlines()
    except Refused as refused:
        raise BadInput(f"{role} {index} of job {name!r} has no log yet: {refused}") from None


def _create(kube: Kube, manifest: Manifest, *, dry_run: bool = False) -> dict[str, Any]:
    meta = manifest["metadata"]
    path = _path(manifest["kind"], meta["namespace"]) + ("?dryRun=All" if dry_run else "")
    try:
        made: dict[str, Any] = json.loads(kube.send("POST", path, manifest))
    except Refused as refused:
        raise BadInput(_why_refused(manifest, refused)) from None
    return made


def _why_refused(manifest: Manifest, refused: Refused) -> str:
    kind, meta = manifest["kind"], manifest["metadata"]
    if refused.status == _CONFLICT:
        return (
            f"{kind} {meta['name']!r} is there already in namespace {meta['namespace']!r}: "
            "choose another name, or `spillway jobs delete` the old job"
        )
    if refused.status == _NOT_FOUND:
        return f"namespace {meta['namespace']!r} is not there: create it, or choose another in the job file"
    return f"the API server refuses {kind} {meta['name']!r}: {refused}"


def _owned(manifest: Manifest, *, by: Mapping[str, Any]) -> Manifest:
    owner = {
        "apiVersion": by["apiVersion"],
        "kind": by["kind"],
        "name": by["metadata"]["name"],
        "uid": by["metadata"]["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }
    return manifest | {"metadata": manifest["metadata"] | {"ownerReferences": [owner]}}


def _path(kind: str, namespace: str) -> str:
    return f"{_PLURALS[kind]}/namespaces/{namespace}/{kind.lower()}s"


def _jobs(kube: Kube, namespace: str, name: str) -> Sequence[dict[str, Any]]:
    return _items(kube, _path("Job", namespace), f"{words.JOB}={name}")


def _items(kube: Kube, path: str, selector: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(kube.get(path, labelSelector=selector))["items"]
    return listed


def _is_of(pod: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    return any(owner["uid"] == job["uid"] for owner in pod["metadata"].get("ownerReferences", []))


def _runs(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] in ("Pending", "Running")


def _gpus(pod: Mapping[str, Any]) -> int:
    containers = pod["spec"]["containers"]
    return sum(int(one.get("resources", {}).get("limits", {}).get(words.GPU, 0)) for one in containers)
