"""Jobs in a Kubernetes cluster: submit, list, read their logs, stop, delete."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from autoscaler.kube.client import Kube, Refused
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from images.backends import kept
from images.backends.stages import gpus_of
from images.backends.states import Outcome, RoleState, State, tasks_in_words
from images.jobs import Job
from images.renderers.kubernetes import render
from images.renderers.rendering import Manifest

Json = dict[str, Any]

_APIS: Final[Mapping[str, str]] = {
    "Job": "/apis/batch/v1",
    "Service": "/api/v1",
    "Pod": "/api/v1",
    "ConfigMap": "/api/v1",
}
_NOT_FOUND, _CONFLICT = 404, 409
_UNENDED: Final = ("Pending", "Running")
_FAKE: Final = "kwok.x-k8s.io/node"
_PATIENCE: Final = 30.0
"""Seconds until a deletion that is still going on is left to itself."""


def submit(kube: Kube, job: Job) -> list[str]:
    """Create the job's objects, the main Job first, the others owned by it. Returns ``kind/name`` of each.

    Everything is tried without effect first, and what was created is removed again if the rest cannot be: a job is
    there as a whole or not at all. Raises ``BadInput`` where the API server finds a mistake or the job exists.
    """
    main, *others = render(job, run=f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}").documents
    for manifest in (main, *others):
        _try(kube, manifest)
    made = _create(kube, main)
    try:
        for manifest in others:
            _create(kube, _owned(manifest, by=made))
    except BaseException:
        with contextlib.suppress(Refused, Unavailable):
            _delete(kube, made)
        raise
    return [f"{manifest['kind'].lower()}/{manifest['metadata']['name']}" for manifest in (main, *others)]


def _try(kube: Kube, manifest: Manifest) -> None:
    """Have the API server check the object, and a pod of its template: the Job controller would fail unseen."""
    _create(kube, manifest, dry_run=True)
    if manifest["kind"] != "Job":
        return
    meta = manifest["metadata"]
    template = manifest["spec"]["template"]
    named = {"generateName": f"{meta['name']}-", "namespace": meta["namespace"]} | template["metadata"]
    try:
        _post(kube, {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}, dry_run=True)
    except Refused as refused:
        if "cannot create resource" not in str(refused):  # the right to create Jobs need not include pods
            raise BadInput(f"the API server refuses the pods of Job {meta['name']!r}: {_said(refused)}") from None


def _create(kube: Kube, manifest: Manifest, *, dry_run: bool = False) -> Json:
    try:
        return _post(kube, manifest, dry_run=dry_run)
    except Refused as refused:
        raise BadInput(_why_refused(manifest, refused)) from None


def _post(kube: Kube, manifest: Manifest, *, dry_run: bool) -> Json:
    path = _path(manifest["kind"], manifest["metadata"]["namespace"]) + ("?dryRun=All" if dry_run else "")
    made: Json = json.loads(kube.send("POST", path, manifest))
    return made


def _why_refused(manifest: Manifest, refused: Refused) -> str:
    kind, meta = manifest["kind"], manifest["metadata"]
    if refused.status == _CONFLICT:
        return (
            f"{kind} {meta['name']!r} is there already in namespace {meta['namespace']!r}: "
            f"choose another name, or `spillway jobs delete {meta['labels'][words.JOB]}{_option(meta['namespace'])}`"
        )
    if refused.status == _NOT_FOUND:
        return f"namespace {meta['namespace']!r} is not there: create it, or choose another in the job file"
    return f"the API server refuses {kind} {meta['name']!r}: {_said(refused)}"


def _said(refused: Refused) -> str:
    """The API server's words; what would help the autoscaler's account helps no researcher."""
    return str(refused).removesuffix(": apply autoscaler/rbac.yaml")


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


def stop(kube: Kube, *, namespace: str, name: str) -> bool:
    """Have the Jobs of a training job fail that have not ended: their pods get SIGTERM, and their grace.

    The Jobs stay, and with them what is shown of the job. Says whether there was one that had not ended. Raises
    ``BadInput`` where there is no such job.
    """
    left = [job for job in _jobs(kube, namespace, name) if _end(job) is None]
    with _told(f"cannot stop job {name!r}"):
        for job in left:
            _stop(kube, job)
    return bool(left)


def _stop(kube: Kube, job: Json) -> None:
    """Ends a Job by a deadline that is over; one that is suspended has none, and is resumed without a task.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-termination-and-cleanup
    """
    meta = job["metadata"]
    marks = {words.STOPPED: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    resumed = {"suspend": False, "parallelism": 0} if job["spec"].get("suspend") else {}
    body = {"metadata": {"uid": meta["uid"], "annotations": marks}, "spec": {"activeDeadlineSeconds": 0} | resumed}
    path = f"{_path('Job', meta['namespace'])}/{meta['name']}"
    try:
        kube.send("PATCH", path, body, content="application/merge-patch+json")
    except Refused as refused:
        if refused.status != _NOT_FOUND:  # it has been cleared away meanwhile
            raise


def _jobs(kube: Kube, namespace: str, name: str) -> list[Json]:
    found = _of_job(kube, "Job", namespace, name)
    if not found:
        raise BadInput(f"there is no training job {name!r} in namespace {namespace!r}: `spillway jobs list` shows them")
    return found


def delete(kube: Kube, *, namespace: str, name: str, patience: float = _PATIENCE) -> bool:
    """Delete the main Job of a training job; the cluster's garbage collector takes the rest along.

    Waits until the job's name is free again, and says whether it is. Raises ``BadInput`` where there is no such job.
    """
    jobs = _jobs(kube, namespace, name)
    uids = {job["metadata"]["uid"] for job in jobs}
    with _told(f"cannot delete job {name!r}"):
        for job in jobs:
            if not uids & {owner["uid"] for owner in job["metadata"].get("ownerReferences", ())}:
                _delete(kube, job)
    end = time.monotonic() + patience
    while any(_of_job(kube, kind, namespace, name) for kind in ("Job", "Service")):
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def _delete(kube: Kube, job: Mapping[str, Any]) -> None:
    """This very Job, not a later one of its name."""
    meta = job["metadata"]
    body = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
    try:
        kube.send("DELETE", f"{_path('Job', meta['namespace'])}/{meta['name']}", body)
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise


_ENDS: Final[Mapping[str, State]] = {"Complete": "done", "Failed": "failed"}


def states(kube: Kube, *, namespace: str | None = None) -> list[RoleState]:
    """Every training job's roles; of all namespaces where none is given."""
    pods = _items(kube, _path("Pod", namespace), words.JOB)
    jobs = _items(kube, _path("Job", namespace), words.JOB)
    found = [_state(job, [pod for pod in pods if _is_of(pod, job)]) for job in jobs]
    return sorted(found, key=lambda state: (state.namespace, state.job, state.role))


def outcome(kube: Kube, *, namespace: str, name: str) -> Outcome:
    """How the job stands; one that is deleted runs until its last pod has ended."""
    jobs = _of_job(kube, "Job", namespace, name)
    ends = [_end(job) for job in jobs if words.ENDS_WITH not in job["metadata"].get("annotations", {})]
    if not ends:
        pods = [pod for pod in _of_job(kube, "Pod", namespace, name) if pod["status"]["phase"] in _UNENDED]
        return "running" if jobs or pods else "gone"
    if any(end is not None and end[0] != "done" for end in ends):
        return "failed"
    return "done" if all(ends) else "running"


def _state(job: Json, pods: list[Json]) -> RoleState:
    meta, status = job["metadata"], job["status"]
    running = [pod for pod in pods if _runs(pod)]
    end = _end(job)
    wanted = 0 if end else job["spec"].get("completions", 1) - status.get("succeeded", 0)
    waiting = max(0, wanted - len(running))
    if end:
        state, since = end
    elif waiting:
        state, since = "waiting", min(map(_created, filter(_waits, pods)), default=_created(job))
    else:
        state, since = "running", max(map(_started, running), default=_created(job))
    return RoleState(
        job=meta["labels"][words.JOB],
        namespace=meta["namespace"],
        role=meta["labels"].get(words.ROLE, ""),
        waiting=waiting,
        running=len(running),
        succeeded=status.get("succeeded", 0),
        failed=status.get("failed", 0),
        gpus=sum(map(gpus_of, running)),
        state=state,
        since=datetime.fromisoformat(since),
    )


def _end(job: Json) -> tuple[State, str] | None:
    """How and when a Job ended."""
    for condition in job["status"].get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in _ENDS:
            is_stopped = condition["type"] == "Failed" and words.STOPPED in job["metadata"].get("annotations", {})
            return "stopped" if is_stopped else _ENDS[condition["type"]], str(condition["lastTransitionTime"])
    return None


def _is_of(pod: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    return any(owner["uid"] == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences", ()))


def _runs(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] in _UNENDED


def _waits(pod: Mapping[str, Any]) -> bool:
    return not pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending"


def _created(thing: Mapping[str, Any]) -> str:
    return str(thing["metadata"]["creationTimestamp"])


def _started(pod: Mapping[str, Any]) -> str:
    return str(pod["status"].get("startTime") or _created(pod))


def logs(kube: Kube, *, namespace: str, name: str, role: str, index: int, follow: bool = False) -> Iterator[str]:
    """Lines of one task, of all its attempts; to ``follow``, of the newest alone.

    Of pods that are gone, or whose machine is, those that their launcher put into a bucket. Raises ``BadInput`` where
    there is no such task or its newest pod has not started, ``Unavailable`` where it cannot be read.
    """
    found = _items(kube, _path("Pod", namespace), f"{words.JOB}={name},{words.ROLE}={role}")
    pods = [pod for pod in found if pod["metadata"].get("annotations", {}).get(words.COMPLETION_INDEX) == str(index)]
    pods.sort(key=_created)
    place = ""
    with contextlib.suppress(*(BadInput, Unavailable) if pods else ()):  # of pods there is more to tell than that
        place = "" if follow and pods else _bucket(kube, namespace, name)
    if not pods:
        if not place:
            tasks = tasks_in_words(filter(None, map(_task, _of_job(kube, "Pod", namespace, name))))
            has = f"it has {tasks}" if tasks else "`spillway jobs list` shows which jobs there are"
            raise BadInput(f"job {name!r} has no task {role} {index}: {has}")
        yield from kept.lines(place=place, job=name, role=role, index=index)
        return
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    with _told(f"{role} {index} of job {name!r} has no log"):
        try:
            if follow and pods[-1] in bound:
                path = f"{_path('Pod', namespace)}/{pods[-1]['metadata']['name']}/log?follow=true"
                yield from (line.decode(errors="replace") for line in kube.lines(path))
                return
            said = [_log(kube, pod) for pod in bound]
        except (Refused, Unavailable):  # its machine is gone, or the pod since it was seen
            if place:
                yield from kept.lines(place=place, job=name, role=role, index=index)
                return
            _refuse_a_fake_machine(kube, bound[-1])
            raise
    if place:
        with contextlib.suppress(BadInput, Unavailable):  # none is gone, or what is there is better than nothing
            before = datetime.fromisoformat(_created(pods[0]))
            said.insert(0, list(kept.lines(place=place, job=name, role=role, index=index, before=before)))
    yield from kept.in_turn(f"{role} {index}", said)
    if pods[-1] not in bound:
        ask = f"spillway autoscale explain pod {pods[-1]['metadata']['name']}{_option(namespace)} --policy FILE"
        raise BadInput(
            f"{role} {index} of job {name!r} waits for a machine and has no {'further ' if said else ''}log yet: "
            f"`{ask}` says what for"
        )


def _log(kube: Kube, pod: Json) -> list[str]:
    path = f"{_path('Pod', pod['metadata']['namespace'])}/{pod['metadata']['name']}/log"
    return kube.get(path).decode(errors="replace").splitlines()


def _task(pod: Json) -> tuple[str, int] | None:
    """Role and index, of a pod that has both."""
    meta = pod["metadata"]
    role, index = meta.get("labels", {}).get(words.ROLE), meta.get("annotations", {}).get(words.COMPLETION_INDEX)
    return (role, int(index)) if role and index else None


def _bucket(kube: Kube, namespace: str, name: str) -> str:
    """Where the launchers of the job put their lines, as its Jobs say; empty where in no bucket."""
    for job in _of_job(kube, "Job", namespace, name):
        for container in job["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env", ()):
                if variable["name"] == "SPILLWAY_LOGS":
                    return str(variable["value"]).rsplit("/", 2)[0]
    return ""


def _refuse_a_fake_machine(kube: Kube, pod: Json) -> None:
    """Raises ``BadInput`` where its node is one of the local ground's."""
    node = pod["spec"]["nodeName"]
    with contextlib.suppress(Refused):  # gone, or not for everyone to see
        if json.loads(kube.get(f"/api/v1/nodes/{node}"))["metadata"].get("annotations", {}).get(_FAKE):
            raise BadInput(f"{pod['metadata']['name']} is on {node}, a fake machine: nothing runs there that has a log")


def _option(namespace: str) -> str:
    return "" if namespace == "default" else f" -n {namespace}"


def _of_job(kube: Kube, kind: str, namespace: str, name: str) -> list[Json]:
    return _items(kube, _path(kind, namespace), f"{words.JOB}={name}")


def _items(kube: Kube, path: str, selector: str) -> list[Json]:
    with _told("cannot look for training jobs"):
        pages = kube.pages(f"{path}?labelSelector={quote(selector)}")
        return [json.loads(bytes(item)) for items, _version in pages for item in items]


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """A refusal of the API server in words."""
    try:
        yield
    except Refused as refused:
        raise BadInput(f"{what}: {_said(refused)}") from None


def _path(kind: str, namespace: str | None) -> str:
    where = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{_APIS[kind]}{where}/{kind.lower()}s"
