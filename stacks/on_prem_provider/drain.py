"""Empties a node by the eviction API, which respects PodDisruptionBudgets, within a time; says what blocks.

https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.on_prem_provider.kube import NOT_FOUND, TOO_MANY, Kube, RefusedError

ROUND_SECONDS: Final = 1.0
_MIRROR: Final = "kubernetes.io/config.mirror"
_SHOWN: Final = 6
Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Drain:
    """How a node is emptied."""

    kube: Kube
    node: str
    timeout: timedelta
    pause: Callable[[float], None] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def run(self) -> None:
        """Evict pod after pod until none is left that has to leave. Raises ``Unavailable`` saying what blocks."""
        ends_at = self.clock() + self.timeout.total_seconds()
        refusals: dict[str, str] = {}
        while pods := leaving(self._pods()):
            stuck = [f"{_name(pod)}: {reason}" for pod in pods if (reason := why_not(pod))]
            if stuck:
                raise Unavailable(_blocked(self.node, "is cordoned; these pods are nobody's to evict", stuck))
            if self.clock() >= ends_at:
                told = [f"{_name(pod)}: {_waiting_for(pod, refusals)}" for pod in pods]
                seconds = self.timeout.total_seconds()
                raise Unavailable(_blocked(self.node, f"is cordoned, but not empty after {seconds:.0f} s", told))
            for pod in pods:
                refusals[_name(pod)] = "" if _is_ending(pod) else self._evict(pod)
            self.pause(ROUND_SECONDS)

    def _pods(self) -> Sequence[Pod]:
        found: Sequence[Pod] = self.kube.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.node}")["items"]
        return found

    def _evict(self, pod: Pod) -> str:
        """Why it was refused; empty where the pod goes, or is gone."""
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        try:
            self.kube.send("POST", path, body)
        except RefusedError as refused:
            if refused.status == NOT_FOUND:
                return ""
            if refused.status == TOO_MANY:
                return str(refused)
            return f"the API server refuses ({refused.status}): {refused}"
        return ""


def leaving(pods: Sequence[Pod]) -> list[Pod]:
    """Those that have to leave: neither finished, nor of the machine itself (static), nor of a DaemonSet."""
    return [pod for pod in pods if not (_is_finished(pod) or _is_static(pod) or _owner(pod) == "DaemonSet")]


def why_not(pod: Pod) -> str:
    """Why a pod may not be evicted; empty: it may."""
    if _is_ending(pod):
        return ""
    if (pod["metadata"].get("annotations") or {}).get(words.DO_NOT_DISRUPT) == "true":
        return f"it asks not to be disrupted ({words.DO_NOT_DISRUPT}): wait for its end, or take the annotation off"
    if not _owner(pod):
        return "no controller would make it anew: delete it by hand, if nobody needs it"
    return ""


def abandon(kube: Kube, node: str) -> None:
    """Delete the pods of a node whose machine is down for good, without waiting for a kubelet that is not there."""
    for pod in kube.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"]:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        kube.delete(path, gracePeriodSeconds=0, preconditions={"uid": meta["uid"]})


def _blocked(node: str, what: str, pods: Sequence[str]) -> str:
    lines = [f"\n  - {pod}" for pod in pods[:_SHOWN]]
    if len(pods) > _SHOWN:
        lines.append(f"\n  - and {len(pods) - _SHOWN} more")
    return (
        f"node {node} {what}:{''.join(lines)}\n"
        "Nothing was unregistered: mend that and destroy again. A machine that is down for good goes with "
        "force_removal: true, once that is in its state (pulumi up)"
    )


def _waiting_for(pod: Pod, refusals: Mapping[str, str]) -> str:
    if _is_ending(pod):
        return f"is ending since {pod['metadata']['deletionTimestamp']} (is its kubelet up? has it a finalizer?)"
    return refusals.get(_name(pod), "") or "was evicted, and is still there"


def _name(pod: Pod) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _owner(pod: Pod) -> str:
    """Kind of the controller that would make it anew."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner["kind"]) for owner in owners if owner.get("controller")), "")


def _is_static(pod: Pod) -> bool:
    return _MIRROR in (pod["metadata"].get("annotations") or {})


def _is_finished(pod: Pod) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_ending(pod: Pod) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
