"""What the autoscaler writes to the Kubernetes API, through the door that is ``client.py``, and its last looks before.

Each write is bound to what was seen (uid, version): where that has changed since, the server refuses it, and nobody
else's work is undone.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from autoscaler.kube.client import Expired, Kube, Refused
from autoscaler.kube.schema.core import BudgetJson, JobJson, Meta, NodeJson, PodJson
from autoscaler.model import labels as words
from autoscaler.model.cluster import Pod
from autoscaler.model.errors import Unavailable

K = TypeVar("K")
T = TypeVar("T")

NOT_OURS: Final = "another autoscaler may act by now: the lease was not renewed in time"
_MERGE: Final = "application/merge-patch+json"
_JSON_PATCH: Final = "application/json-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_NODE_DECODER: Final = msgspec.json.Decoder(NodeJson)
_POD_DECODER: Final = msgspec.json.Decoder(PodJson)
_JOB_DECODER: Final = msgspec.json.Decoder(JobJson)
_BUDGET_DECODER: Final = msgspec.json.Decoder(BudgetJson)


class Writes:
    """The writes, by one connection; safe to use from threads. They raise what ``Kube.send`` does."""

    def __init__(
        self,
        kube: Kube,
        *,
        may_write: Callable[[], bool] = lambda: True,
        pool: Callable[[int], Executor] = ThreadPoolExecutor,
    ) -> None:
        """``may_write`` is asked immediately before each write: a process that stood still may have lost its lease.

        ``pool``: given a number, what carries out so many writes at once.
        """
        self._kube = kube
        self._may_write = may_write
        self._pool = pool

    def _send(self, method: str, path: str, body: object, **more: str) -> bytes:
        if not self._may_write():
            raise Refused(409, NOT_OURS)
        return self._kube.send(method, path, body, **more)

    def node(self, name: str) -> NodeJson:
        """The node as it is now."""
        return _NODE_DECODER.decode(self._kube.get(f"/api/v1/nodes/{name}"))

    def pods_on(self, node: str) -> tuple[PodJson, ...]:
        """The pods bound to the node, as it is now."""
        pages = self._kube.pages("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        return tuple(_POD_DECODER.decode(raw) for raws, _ in pages for raw in raws)

    def budgets(self, namespace: str) -> tuple[BudgetJson, ...]:
        """The PodDisruptionBudgets of the namespace, as they are now."""
        pages = self._kube.pages(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
        return tuple(_BUDGET_DECODER.decode(raw) for raws, _ in pages for raw in raws)

    def cordon(self, name: str, *, at: datetime) -> NodeJson:
        """Close the node to new pods, marked as ours. Raises ``Refused`` where it is closed by something else."""
        node = self.node(name)
        if node.spec.unschedulable:
            raise Refused(409, f"node {name} is cordoned already")
        marks = {words.CORDONED_BY: words.AUTOSCALER, words.CORDONED_AT: _rfc3339(at)}
        return self._patch_node(node.metadata, {"unschedulable": True}, marks)

    def uncordon(self, name: str) -> NodeJson:
        """Open the node again. Raises ``Refused`` where the cordon is not ours."""
        node = self.node(name)
        if node.metadata.annotations.get(words.CORDONED_BY) != words.AUTOSCALER:
            raise Refused(409, f"the cordon of node {name} is not Spillway's: what set it lifts it")
        marks = {words.CORDONED_BY: None, words.CORDONED_AT: None}
        return self._patch_node(node.metadata, {"unschedulable": None}, marks)

    def reserve(self, whose: Mapping[str, str]) -> dict[str, NodeJson | Exception]:
        """Give each node's reservation (``spillway.dev/reserved``) a value, in parallel; one without stays as it is."""
        change = self._change_reservation
        tries = {name: partial(change, name, op="add", within="/value", value=value) for name, value in whose.items()}
        return self._each(8, tries)

    def unreserve(self, names: Iterable[str]) -> dict[str, NodeJson | Exception]:
        """Take each node's reservation off, in parallel."""
        return self._each(8, {name: partial(self._change_reservation, name, op="remove") for name in names})

    def _change_reservation(self, name: str, *, op: str, within: str = "", **value: str) -> NodeJson:
        """One operation on the taint, or ``within`` it. Refused where the node's taints have just changed."""
        node = self.node(name)
        number = next((at for at, one in enumerate(node.spec.taints) if one.key == words.RESERVED), None)
        if number is None:
            return node
        path = f"/spec/taints/{number}"
        body = [
            {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid},
            {"op": "test", "path": f"{path}/key", "value": words.RESERVED},
            {"op": op, "path": path + within, **value},
        ]
        return _NODE_DECODER.decode(self._send("PATCH", f"/api/v1/nodes/{name}", body, content=_JSON_PATCH))

    def let_in(self, pods: Iterable[tuple[Pod, str]]) -> dict[str, PodJson | Exception]:
        """Have each pod tolerate the reservation of that value as well, in parallel. Gives what came of it, by key.

        Of the spec of a pod that is there, tolerations may be added to
        (https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement).
        """
        return self._each(16, {pod.key: partial(self._let_in, pod, whose) for pod, whose in pods})

    def _let_in(self, pod: Pod, whose: str) -> PodJson:
        toleration = {"key": words.RESERVED, "operator": "Equal", "value": whose}
        path, value = ("/spec/tolerations/-", toleration) if pod.tolerations else ("/spec/tolerations", [toleration])
        body = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "add", "path": path, "value": value},
        ]
        where = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        return _POD_DECODER.decode(self._send("PATCH", where, body, content=_JSON_PATCH))

    def _patch_node(self, seen: Meta, spec: Mapping[str, Any], annotations: Mapping[str, str | None]) -> NodeJson:
        """A patch of what was seen: refused with 409 where the node changed in between."""
        meta = {"uid": seen.uid, "resourceVersion": seen.resource_version, "annotations": annotations}
        body = {"metadata": meta, "spec": spec}
        return _NODE_DECODER.decode(self._send("PATCH", f"/api/v1/nodes/{seen.name}", body, content=_MERGE))

    def delete_node(self, name: str, *, uid: str) -> None:
        """The node of an instance that was terminated; one that is gone already is no failure."""
        self._delete(f"/api/v1/nodes/{name}", uid=uid)

    def admit(self, placements: Mapping[tuple[str, str, str], str]) -> dict[tuple[str, str, str], PodJson | Exception]:
        """Pin each pod (namespace, name, uid) to a host name and lift our gate, in one patch per pod, in parallel.

        As many as there are connections at once: the scheduler binds the first of a gang while the last still waits.
        """
        return self._each(16, {pod: partial(self._admit, pod, host) for pod, host in placements.items()})

    def _admit(self, pod: tuple[str, str, str], host: str) -> PodJson:
        """The uid guards against a successor of that name; a pod without our gate refuses a new node selector."""
        namespace, name, uid = pod
        gate = {"$patch": "delete", "name": words.GATE}
        spec = {"nodeSelector": {words.HOSTNAME: host}, "schedulingGates": [gate]}
        body = {"metadata": {"uid": uid, "annotations": {words.ADMITTED_TO: host}}, "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        return _POD_DECODER.decode(self._send("PATCH", path, body, content=_STRATEGIC))

    def nominate(self, pods: Iterable[tuple[tuple[Pod, int], str]]) -> dict[str, PodJson | Exception]:
        """Name the node that the scheduler is to try first for each pod (with its version as seen), in parallel.

        An empty name takes back what was named. Gives what came of it, by key of the pod: 409 or 422 for one that has
        changed since, or is bound.
        """
        return self._each(16, {pod.key: partial(self._nominate, pod, version, node) for (pod, version), node in pods})

    def _nominate(self, pod: Pod, version: int, node: str) -> PodJson:
        meta = {"uid": pod.uid, "resourceVersion": str(version)}
        body = {"metadata": meta, "status": {"nominatedNodeName": node or None}}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        return _POD_DECODER.decode(self._send("PATCH", path, body, content=_MERGE))

    def evict(self, pods: Iterable[Pod], *, dry_run: bool = False) -> dict[str, Exception | None]:
        """Evict each pod, in parallel. Gives what came of it, by key: ``Refused`` 429 where a budget allows it not now.

        ``dry_run``: what would come of it, each pod by itself; nothing is done.
        https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
        """
        return self._each(8, {pod.key: partial(self._evict, pod, dry_run=dry_run) for pod in pods})

    def _evict(self, pod: Pod, *, dry_run: bool) -> None:
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if dry_run:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        try:
            self._send("POST", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction", body)
        except Refused as refused:
            if refused.status != 404:  # noqa: PLR2004 - gone already is what we wanted
                raise

    def delete_unbound(self, namespace: str, name: str, *, uid: str) -> None:
        """Delete a pod that has no node. Raises ``Refused`` where it has one by now, or changes at this moment."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        now = _POD_DECODER.decode(self._kube.get(path))
        if now.spec.node_name:
            raise Refused(409, f"pod {namespace}/{name} is bound to {now.spec.node_name} by now")
        version = now.metadata.resource_version
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid, "resourceVersion": version}}
        self._send("DELETE", path, body)

    def end_job(self, namespace: str, name: str) -> None:
        """Delete a Job and its pods, after one more look that the Job it ends with has succeeded or failed."""
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/"
        job = json.loads(self._kube.get(path + name))
        partner = job["metadata"].get("annotations", {}).get(words.ENDS_WITH, "")
        other = json.loads(self._kube.get(path + partner)) if partner else {}
        conditions = other.get("status", {}).get("conditions", [])
        if not any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions):
            raise Refused(409, f"job {partner or '(none named)'} that {namespace}/{name} ends with goes on")
        self._delete(path + name, uid=job["metadata"]["uid"], propagationPolicy="Background")

    def begin_step(self, namespace: str, name: str, *, at: datetime) -> JobJson:
        """Resume a suspended Job. Raises ``Refused`` where it has changed since this looks at it."""
        job = self._suspended(namespace, name)
        return self._patch_job(job, {words.STEP_BEGAN: _rfc3339(at)}, {"suspend": False})

    def stop_step(self, namespace: str, name: str, *, because: str) -> JobJson:
        """Have a suspended Job fail. Raises ``Refused`` where it has changed since this looks at it.

        A Job that is suspended never fails, nor does one without a deadline: it is resumed with no pod and none left.
        https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-termination-and-cleanup
        """
        job = self._suspended(namespace, name)
        spec = {"suspend": False, "parallelism": 0, "activeDeadlineSeconds": 0}
        return self._patch_job(job, {words.STEP_STOPPED: because}, spec)

    def _suspended(self, namespace: str, name: str) -> JobJson:
        job = self._job(namespace, name)
        if not job.spec.suspend:
            raise Refused(409, f"job {namespace}/{name} is not suspended any more")
        return job

    def _job(self, namespace: str, name: str) -> JobJson:
        return _JOB_DECODER.decode(self._kube.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"))

    def _patch_job(self, job: JobJson, marks: Mapping[str, str], spec: Mapping[str, Any]) -> JobJson:
        meta = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version, "annotations": marks}
        path = f"/apis/batch/v1/namespaces/{job.metadata.namespace}/jobs/{job.metadata.name}"
        return _JOB_DECODER.decode(self._send("PATCH", path, {"metadata": meta, "spec": spec}, content=_MERGE))

    def resize_job(self, namespace: str, name: str, *, was: int, to: int, at: datetime) -> JobJson:
        """Set how many tasks an Indexed Job has, all at once. Raises ``Refused`` where it is of another size by now.

        Both numbers change together, as Kubernetes allows since 1.27
        (https://kubernetes.io/docs/concepts/workloads/controllers/job/#elastic-indexed-jobs).
        """
        job = self._job(namespace, name)
        if (job.spec.parallelism, job.spec.completions) != (was, was):
            raise Refused(409, f"job {namespace}/{name} has {job.spec.parallelism} tasks by now, not {was}")
        return self._patch_job(job, {words.RESIZED_AT: _rfc3339(at)}, {"parallelism": to, "completions": to})

    def set_condition(
        self, namespace: str, name: str, condition: str, *, status: bool, because: str, at: datetime
    ) -> None:
        """Set one condition of a ProvisioningRequest, and that it was accepted; nothing where it is set so already.

        Raises ``Refused`` where it has changed since this looks at it.
        """
        path = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{namespace}/provisioningrequests/{name}"
        seen = json.loads(self._kube.get(path))
        conditions = {one["type"]: one for one in seen.get("status", {}).get("conditions", [])}
        reason = condition if status else "CapacityIsNotFound"
        told = {"Accepted": ("True", "Accepted", f"by {words.AUTOSCALER}")} if "Accepted" not in conditions else {}
        if conditions.get(condition, {}).get("status") != str(status):
            told[condition] = (str(status), reason, because)
        if not told:
            return
        for kind, (value, why, message) in told.items():
            conditions[kind] = {
                "type": kind,
                "status": value,
                "reason": why,
                "message": message[:32768],
                "lastTransitionTime": _rfc3339(at),
            }
        meta = {key: seen["metadata"][key] for key in ("uid", "resourceVersion")}
        body = {"metadata": meta, "status": {"conditions": list(conditions.values())}}
        self._send("PATCH", f"{path}/status", body, content=_MERGE)

    def tell_pod(self, *, namespace: str, name: str, uid: str, reason: str, message: str) -> bool:
        """One Event about a pod; ``False`` where this pod was told it before, by whatever autoscaler."""
        pod = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}
        return self._tell(pod, _digest(uid, reason), reason=reason, message=message)

    def tell_configmap(self, *, namespace: str, name: str, reason: str, message: str, is_warning: bool) -> bool:
        """One Event about a ConfigMap, each time it is told."""
        about = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": name}
        digest = _digest(reason, message, datetime.now(UTC).isoformat())
        return self._tell(about, digest, reason=reason, message=message, kind="Warning" if is_warning else "Normal")

    def _tell(self, about: Mapping[str, str], digest: str, *, reason: str, message: str, kind: str = "Warning") -> bool:
        now, name, namespace = _rfc3339(datetime.now(UTC)), about["name"], about["namespace"]
        event = {
            "metadata": {"name": f"{name[:230]}.{digest}", "namespace": namespace},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "action": "Plan",
            "source": {"component": words.AUTOSCALER},
            "reportingComponent": words.AUTOSCALER,
            "reportingInstance": socket.gethostname(),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._send("POST", f"/api/v1/namespaces/{namespace}/events", event)
        except Refused as refused:
            if refused.status == 409:  # noqa: PLR2004 - its name is made of pod and reason: it is there
                return False
            raise
        return True

    def _delete(self, path: str, *, uid: str, **options: str) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}} | options
        try:
            self._send("DELETE", path, body)
        except Refused as refused:
            if refused.status != 404:  # noqa: PLR2004 - gone already is what we wanted
                raise

    def _each(self, workers: int, tries: Mapping[K, Callable[[], T]]) -> dict[K, T | Exception]:
        """What came of each, so many at a time: a bad one fails alone."""

        def tried(one: Callable[[], T]) -> T | Exception:
            try:
                return one()
            except (Refused, Expired, Unavailable) as error:
                return error

        with self._pool(workers) as pool:
            return dict(zip(tries, pool.map(tried, tries.values()), strict=True))


def _rfc3339(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]
