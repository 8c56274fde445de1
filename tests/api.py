"""A stand-in for the API server within the process: pods, nodes, and what ``autoscaler/kube/writes.py`` does to them.

It is the :class:`~autoscaler.kube.client.Kube` that the writes are given. Objects are kept as values of the model and
told as JSON, with a resource version that grows with each change of theirs; a patch is done to the JSON and read back
with the autoscaler's own decoders, and what comes back must be what was told. Refused is what the API server refuses:
404 for what is not there, 409 for another uid or version, 422 for a failed test of a JSON patch, for a node selector
that is changed on a pod without gates, for a nomination of a pod that is bound. The real one: ``tests/live``.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from autoscaler.kube.client import Refused
from autoscaler.kube.schema.convert import node_from, pod_from
from autoscaler.kube.schema.core import NodeJson, PodJson
from autoscaler.model import labels as words
from autoscaler.model.cluster import Node, Pod
from autoscaler.model.resources import CPU, PODS, Resources

T = TypeVar("T", Pod, Node)
_READY: Final = {"type": "Ready", "status": "True"}


@dataclass
class Api:
    """The server. Safe to use from threads."""

    pods: dict[str, Pod]
    nodes: dict[str, Node]
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """As JSON, version and all."""
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """ProvisioningRequests, as JSON too."""
    touch: Callable[[str], None] = lambda _what: None
    """Called before and after each write, with what it is: a fault point."""
    budget: Callable[[Pod], bool] = lambda _pod: True
    """Whether the PodDisruptionBudgets allow an eviction now."""
    evicted: Callable[[Pod], None] = lambda _pod: None
    """Called with each pod that is evicted: its controller makes it anew."""
    _known: dict[tuple[str, str], tuple[Pod | Node, int]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def version(self, kind: str, key: str) -> int:
        """Of the object as it is now."""
        now = self._shelf(kind)[key]
        was, version = self._known.get((kind, key), (None, 0))
        if was is not now:
            version += 1
            self._known[kind, key] = now, version
        return version

    def forget(self) -> None:
        """The versions of what is gone."""
        self._known = {(kind, key): one for (kind, key), one in self._known.items() if key in self._shelf(kind)}

    def get(self, path: str, **_query: str | int) -> bytes:
        """One object."""
        with self._lock:
            return json.dumps(self._told(*self._find(path))).encode()

    def pages(self, path: str, **query: str | int) -> Iterator[tuple[tuple[msgspec.Raw, ...], str]]:
        """The pods of a node, all in one page; no budgets, which are asked for each eviction alone."""
        if path.endswith("/poddisruptionbudgets"):
            yield (), "1"
            return
        assert path == "/api/v1/pods", path
        field_, _, node = str(query["fieldSelector"]).partition("=")
        assert field_ == "spec.nodeName", field_
        with self._lock:
            found = [self._told("pods", key) for key, pod in self.pods.items() if pod.node == node]
        yield tuple(msgspec.Raw(json.dumps(one).encode()) for one in found), "1"

    def send(self, method: str, path: str, body: object = None, *, content: str = "") -> bytes:
        """One write."""
        sent = json.loads(msgspec.json.encode(body))
        is_dry = isinstance(sent, dict) and "dryRun" in sent.get("deleteOptions", {})
        what = f"{method} {path}{' in a dry run' if is_dry else ''}"
        self.touch(f"before {what}")
        with self._lock:
            kind, key = self._find(path)
            if path.endswith("/eviction"):
                answer = self._evict(key, sent)
            else:
                answer = self._delete(kind, key, sent) if method == "DELETE" else self._patch(kind, key, sent, content)
        self.touch(f"after {what}")
        return json.dumps(answer).encode()

    def _shelf(self, kind: str) -> dict[str, Any]:
        shelves: dict[str, dict[str, Any]] = {
            "pods": self.pods,
            "nodes": self.nodes,
            "jobs": self.jobs,
            "provisioningrequests": self.requests,
        }
        return shelves[kind]

    def _find(self, path: str) -> tuple[str, str]:
        parts = (
            path.removeprefix("/api/v1/")
            .removeprefix("/apis/batch/v1/")
            .removeprefix("/apis/autoscaling.x-k8s.io/v1/")
            .removesuffix("/status")
            .removesuffix("/eviction")
            .split("/")
        )
        kind, key = ("nodes", parts[1]) if parts[0] == "nodes" else (parts[2], f"{parts[1]}/{parts[3]}")
        if key not in self._shelf(kind):
            raise Refused(404, f'{kind} "{key}" not found')
        return kind, key

    def _told(self, kind: str, key: str) -> dict[str, Any]:
        if kind in ("jobs", "provisioningrequests"):
            told: dict[str, Any] = self._shelf(kind)[key]
            return told
        value, version = self._shelf(kind)[key], self.version(kind, key)
        told = _node(value, version) if kind == "nodes" else _pod(value, version)
        assert _read(told, value) == value, f"{value} is not what is told of it: {told}"
        return told

    def _delete(self, kind: str, key: str, sent: dict[str, Any]) -> dict[str, Any]:
        told = self._told(kind, key)
        _hold(told, sent.get("preconditions", {}))
        del self._shelf(kind)[key]
        return told

    def _evict(self, key: str, sent: dict[str, Any]) -> dict[str, Any]:
        """https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/ ."""
        assert f"{sent['metadata']['namespace']}/{sent['metadata']['name']}" == key, sent
        pod = self.pods[key]
        if not self.budget(pod):
            raise Refused(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        if sent["deleteOptions"].get("dryRun") == ["All"]:
            told = self._told("pods", key)
            _hold(told, sent["deleteOptions"]["preconditions"])
            return told
        told = self._delete("pods", key, sent["deleteOptions"])
        self.evicted(pod)
        return told

    def _patch(self, kind: str, key: str, sent: Any, content: str) -> dict[str, Any]:
        told, value = self._told(kind, key), self._shelf(kind)[key]
        if content == "application/json-patch+json":
            changed = _json_patched(told, sent)
        else:
            meta = sent.get("metadata", {})
            _hold(told, {name: meta[name] for name in ("uid", "resourceVersion") if name in meta})
            changed = _merged(told, sent, strategic="strategic" in content)
        if kind == "jobs":
            _check_job(changed)
        if kind in ("jobs", "provisioningrequests"):
            changed["metadata"]["resourceVersion"] = str(int(told["metadata"]["resourceVersion"]) + 1)
            self._shelf(kind)[key] = changed
            return changed
        if isinstance(value, Pod):
            _check_pod(told, changed)
        now = _read(changed, value)
        if now != value:
            self._shelf(kind)[key] = now
        return self._told(kind, key)


def _hold(told: dict[str, Any], wanted: dict[str, str]) -> None:
    for name, value in wanted.items():
        if told["metadata"][name] != value:
            raise Refused(409, f"the object has been modified: its {name} is {told['metadata'][name]}, not {value}")


def _check_pod(was: dict[str, Any], now: dict[str, Any]) -> None:
    """https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement ."""
    if not was["spec"]["schedulingGates"] and was["spec"]["nodeSelector"] != now["spec"]["nodeSelector"]:
        raise Refused(422, "spec.nodeSelector: Forbidden: may not change once the gates are lifted")
    if any(one not in was["spec"]["schedulingGates"] for one in now["spec"]["schedulingGates"]):
        raise Refused(422, "spec.schedulingGates: Forbidden: only deletion is allowed")
    if was["spec"]["tolerations"] != now["spec"]["tolerations"][: len(was["spec"]["tolerations"])]:
        raise Refused(422, "spec.tolerations: Forbidden: existing toleration can not be modified")
    nominated = now["status"].get("nominatedNodeName")
    if was["spec"]["nodeName"] and nominated and nominated != was["status"]["nominatedNodeName"]:
        raise Refused(422, "status.nominatedNodeName: Invalid value: the pod is bound")


def _check_job(now: dict[str, Any]) -> None:
    """https://kubernetes.io/docs/concepts/workloads/controllers/job/#elastic-indexed-jobs ."""
    if now["spec"]["completions"] != now["spec"]["parallelism"]:
        raise Refused(422, "spec.completions: Invalid value: can only be modified in tandem with spec.parallelism")


def _read(told: dict[str, Any], value: T) -> T:
    """What the autoscaler makes of it; a gang's label is told of the value, which need not have it."""
    raw = json.dumps(told).encode()
    if isinstance(value, Node):
        return node_from(msgspec.json.decode(raw, type=NodeJson))
    return replace(pod_from(msgspec.json.decode(raw, type=PodJson)), labels=value.labels)


def _json_patched(told: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902, of ``test``, ``add`` and ``remove``."""
    changed = json.loads(json.dumps(told))
    for one in patch:
        *way, last = one["path"].strip("/").split("/")
        place = changed
        for step in way:
            place = place[int(step) if isinstance(place, list) else step]
        at: Any = int(last) if isinstance(place, list) and last != "-" else last
        match one["op"]:
            case "test":
                is_there = at < len(place) if isinstance(place, list) else at in place
                if not is_there or place[at] != one["value"]:
                    raise Refused(422, f"testing path {one['path']} failed")
            case "add" if isinstance(place, list):
                place.insert(len(place) if at == "-" else at, one["value"])
            case "add":
                place[at] = one["value"]
            case "remove":
                del place[at]
    return dict(changed)


def _merged(told: Any, patch: Any, *, strategic: bool) -> Any:
    """RFC 7386; a strategic patch knows gates by their names."""
    if strategic and isinstance(patch, list):
        gone = {one["name"] for one in patch if one.get("$patch") == "delete"}
        return [one for one in told if one["name"] not in gone]
    if not isinstance(patch, dict):
        return patch
    changed = dict(told) if isinstance(told, dict) else {}
    for key, value in patch.items():
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = _merged(changed.get(key), value, strategic=strategic)
    return changed


def _quantities(amounts: Resources) -> dict[str, str]:
    return {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts.items()}


def _meta(name: str, uid: str, version: int, created: datetime) -> dict[str, Any]:
    return {"name": name, "uid": uid, "resourceVersion": str(version), "creationTimestamp": created.isoformat()}


def _node(node: Node, version: int) -> dict[str, Any]:
    marks = {words.CORDONED_BY: node.cordoned_by} if node.cordoned_by else {}
    marks |= {words.CORDONED_AT: node.cordoned_at.isoformat()} if node.cordoned_at else {}
    said = [
        {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "lastTransitionTime": one.since and one.since.isoformat(),
        }
        for one in node.conditions
    ]
    return {
        "metadata": _meta(node.name, f"uid-{node.name}", version, node.created)
        | {"labels": dict(node.labels), "annotations": marks},
        "spec": {
            "unschedulable": node.cordoned,
            "taints": [{"key": one.key, "value": one.value, "effect": one.effect} for one in node.taints],
            "providerID": node.provider_id,
        },
        "status": {
            "allocatable": _quantities(node.allocatable),
            "conditions": [*said, *([_READY] if node.ready else [])],
        },
    }


def _pod(pod: Pod, version: int) -> dict[str, Any]:
    requests = Resources({name: amount for name, amount in pod.requests.items() if name != PODS})
    terms = [
        {"matchExpressions": [{"key": r.key, "operator": r.operator, "values": list(r.values)} for r in term]}
        for term in pod.affinity
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    tolerations = [
        {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect} for one in pod.tolerations
    ]
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": pod.unschedulable_because}
    gang = pod.gang
    return {
        "metadata": _meta(pod.name, pod.uid, version, pod.created)
        | {
            "namespace": pod.namespace,
            "labels": dict(pod.labels) | ({words.GANG: gang.name} if gang else {}),
            "annotations": dict(_notes(pod)),
            "ownerReferences": [_owner(pod)] if pod.owner else [],
        },
        "spec": {
            "nodeName": pod.node or "",
            "containers": [{"resources": {"requests": _quantities(requests)}}],
            "nodeSelector": {},
            "affinity": {"nodeAffinity": required} if terms else {},
            "tolerations": tolerations,
            "schedulingGates": [{"name": one} for one in pod.gates],
            "priority": pod.priority,
        },
        "status": {
            "phase": pod.phase,
            "nominatedNodeName": pod.nominated,
            "conditions": [said] if pod.unschedulable_because else [],
            "startTime": pod.started.isoformat() if pod.started else None,
        },
    }


def _owner(pod: Pod) -> dict[str, Any]:
    kind, _, name = pod.owner.partition("/")
    return {"kind": kind, "name": name, "controller": True}


def _notes(pod: Pod) -> Iterator[tuple[str, str]]:
    spans: tuple[tuple[str, timedelta | None], ...] = ((words.DURATION, pod.duration), (words.PATIENCE, pod.patience))
    for key, span in spans:
        if span is not None:
            yield key, f"{span.total_seconds():g}s"
    for key, number in ((words.GANG_SIZE, pod.gang and pod.gang.size), (words.GANG_MIN, pod.gang and pod.gang.minimum)):
        if number is not None:
            yield key, str(number)
    if pod.gang and pod.gang.topology:
        yield words.GANG_ZONE, pod.gang.topology
    if pod.admitted_to:
        yield words.ADMITTED_TO, pod.admitted_to
    if pod.do_not_disrupt:
        yield words.DO_NOT_DISRUPT, "true"
    if pod.safe_to_evict:
        yield "cluster-autoscaler.kubernetes.io/safe-to-evict", "true"
    if pod.consumes:
        yield "autoscaling.x-k8s.io/consume-provisioning-request", pod.consumes
