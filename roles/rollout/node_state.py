"""The rollout's door to the Kubernetes API: nodes and the pods on them, cordons of its own, evictions.

What a node carries of a rollout are three annotations: what cordoned it, its phase, and how a plan ended there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from autoscaler.kube.client import Kube, Refused
from autoscaler.kube.schema.core import NodeJson, PodJson
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from roles.membership.node_patch import patch_node
from roles.rollout.model import Outcome, Phase, Resident

NODES: Final = "spillway-nodes"
"""The name in ``cordoned-by``: cordons of others are never lifted."""
PHASE: Final = f"{words.PREFIX}/nodes-phase"
OUTCOME: Final = f"{words.PREFIX}/nodes-outcome"
"""``failed:<identity of the plan>``."""
_MIRROR: Final = "kubernetes.io/config.mirror"
_NEVER: Final = {
    words.DO_NOT_DISRUPT: "true",
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A node as the API server has it."""

    name: str
    rack: str = ""
    is_ready: bool = False
    is_cordoned: bool = False
    is_ours: bool = False
    phase: Phase = Phase.IDLE
    outcome: Outcome = Outcome.NONE
    outcome_of: str = ""
    """The plan that ended so."""
    residents: tuple[Resident, ...] = ()


class Marks:
    """Looks at nodes, marks them, and asks pods to leave."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def look(self) -> dict[str, Seen]:
        """Every node with its pods. Raises ``Unavailable``."""
        pods: dict[str, list[PodJson]] = defaultdict(list)
        for items, _ in self._kube.pages("/api/v1/pods"):
            for raw in items:
                pod = msgspec.json.decode(raw, type=PodJson)
                pods[pod.spec.node_name].append(pod)
        nodes: dict[str, Seen] = {}
        for items, _ in self._kube.pages("/api/v1/nodes"):
            for raw in items:
                node = msgspec.json.decode(raw, type=NodeJson)
                nodes[node.metadata.name] = _seen(node, pods[node.metadata.name])
        return nodes

    def begin(self, name: str, phase: Phase, *, cordon: bool) -> None:
        """Write the phase, and close the node with it unless somebody else has: that cordon stays theirs."""

        def change(node: NodeJson) -> dict[str, Any]:
            marks: dict[str, str | None] = {PHASE: phase.value, OUTCOME: None}
            return _closed(marks, node) if cordon else _annotated(marks, node)

        self._patch(name, change)

    def mark(self, name: str, phase: Phase, outcome: str = "") -> None:
        """Go on to the next phase; ``outcome`` says how a plan ended. A node that failed is closed, if it was not."""
        marks: dict[str, str | None] = {PHASE: phase.value}
        if outcome:
            marks[OUTCOME] = outcome
        self._patch(name, partial(_closed if phase is Phase.FAILED else _annotated, marks))

    def finish(self, name: str, outcome: str | None = None) -> None:
        """Take the phase away and open the node, both at once, where the cordon is ours; ``None``: it went well."""

        def change(node: NodeJson) -> dict[str, Any]:
            marks: dict[str, str | None] = {PHASE: None, OUTCOME: outcome}
            if node.metadata.annotations.get(words.CORDONED_BY) != NODES:
                return {"metadata": {"annotations": marks}}
            marks |= {words.CORDONED_BY: None, words.CORDONED_AT: None}
            return {"metadata": {"annotations": marks}, "spec": {"unschedulable": None}}

        self._patch(name, change)

    def forget_outcomes(self, names: Iterable[str]) -> None:
        """An operator says to try again."""
        seen = self.look()
        for name in names:
            node = seen.get(name)
            if node and (node.outcome is not Outcome.NONE or node.phase is Phase.FAILED):
                phase = Phase.VERIFYING.value if node.phase is Phase.FAILED else node.phase.value or None
                marks = {OUTCOME: None, PHASE: phase}
                self._patch(name, partial(_annotated, marks))

    def evict(self, pod: Resident) -> str:
        """Ask it to leave; gives why it may not now (a PodDisruptionBudget), empty where it goes or is gone."""
        namespace, _, name = pod.key.partition("/")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        try:
            self._kube.send("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body)
        except Refused as refused:
            if refused.status in (_NOT_FOUND, _CONFLICT):  # gone already, or another pod of that name
                return ""
            return f"{pod.key}: {refused}"
        except Unavailable as busy:  # 429 is how a disruption budget says no
            if "disruption budget" not in str(busy):
                raise
            return f"{pod.key}: its disruption budget does not allow it now"
        return ""

    def run_pod(self, body: dict[str, Any]) -> None:
        """Create a pod; one of that name that is there already is as good."""
        try:
            self._kube.send("POST", f"/api/v1/namespaces/{body['metadata']['namespace']}/pods", body)
        except Refused as refused:
            if refused.status != _CONFLICT:
                raise

    def pod_phase(self, namespace: str, name: str) -> str:
        """The phase of a pod; empty where there is none."""
        try:
            pod = json.loads(self._kube.get(f"/api/v1/namespaces/{namespace}/pods/{name}"))
        except Refused as refused:
            if refused.status == _NOT_FOUND:
                return ""
            raise
        return str(pod.get("status", {}).get("phase", ""))

    def remove_pod(self, namespace: str, name: str) -> None:
        """Delete a pod of our own at once."""
        try:
            self._kube.send("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise

    def _patch(self, name: str, change: Callable[[NodeJson], dict[str, Any]]) -> None:
        patch_node(self._kube, name, lambda raw: change(msgspec.convert(raw, NodeJson)))


def _closed(marks: Mapping[str, str | None], node: NodeJson) -> dict[str, Any]:
    """Returns the patch, with our cordon unless the node is cordoned otherwise."""
    if node.spec.unschedulable and node.metadata.annotations.get(words.CORDONED_BY) != NODES:
        return _annotated(marks, node)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ours = {**marks, words.CORDONED_BY: NODES, words.CORDONED_AT: at}
    return {"metadata": {"annotations": ours}, "spec": {"unschedulable": True}}


def _annotated(marks: Mapping[str, str | None], _node: NodeJson) -> dict[str, Any]:
    return {"metadata": {"annotations": marks}}


def _seen(node: NodeJson, pods: Iterable[PodJson]) -> Seen:
    marks = node.metadata.annotations
    outcome, _, plan = marks.get(OUTCOME, "").partition(":")
    conditions = {one.type: one.status for one in node.status.conditions}
    return Seen(
        name=node.metadata.name,
        rack=node.metadata.labels.get(words.RACK, ""),
        is_ready=conditions.get("Ready") == "True",
        is_cordoned=node.spec.unschedulable,
        is_ours=marks.get(words.CORDONED_BY) == NODES,
        phase=Phase(marks.get(PHASE, "")) if marks.get(PHASE, "") in set(Phase) else Phase.IDLE,
        outcome=Outcome(outcome) if outcome in set(Outcome) else Outcome.NONE,
        outcome_of=plan,
        residents=tuple(_resident(pod) for pod in pods if _counts(pod)),
    )


def _counts(pod: PodJson) -> bool:
    """Neither over, nor a daemon's, nor the kubelet's own."""
    owner = pod.metadata.owner()
    daemon = owner is not None and owner.kind in ("DaemonSet", "Node")
    over = pod.status.phase in ("Succeeded", "Failed")
    return not (daemon or over or _MIRROR in pod.metadata.annotations)


def _resident(pod: PodJson) -> Resident:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    wanted = [amounts for one in containers for amounts in (one.resources.requests, one.resources.limits)]
    return Resident(
        key=f"{pod.metadata.namespace}/{pod.metadata.name}",
        uid=pod.metadata.uid,
        holds_gpu=any(name.startswith(words.GPU) or "nvidia.com/mig" in name for one in wanted for name in one),
        stays=_why_it_stays(pod),
    )


def _why_it_stays(pod: PodJson) -> str:
    for mark, value in _NEVER.items():
        if pod.metadata.annotations.get(mark) == value:
            return f"is not to be disrupted ({mark})"
    if pod.metadata.labels.get(words.GANG) and pod.status.phase == "Running":
        return f"is part of the running gang {pod.metadata.labels[words.GANG]}"
    return ""
