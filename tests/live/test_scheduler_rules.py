"""Rules between pods: the planner's word on one node, and what the real scheduler does with the same pod, by chance.

Each case has a namespace and nodes of its own, some without a zone, with pods on them. One pod waits, with rules, and
one of the nodes alone has room for it; the others count all the same. It is bound there, or not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec
import pytest

from autoscaler.kube.schema.convert import node_from, pod_from
from autoscaler.kube.schema.core import NodeJson, PodJson
from autoscaler.model.feasibility import Reason
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place
from stacks.local.kubeapi.client import KubeHttp
from tests.live.conftest import Plane
from tests.live.hybrid import send_all

pytestmark = pytest.mark.live
CASES: Final = 150
PATIENCE: Final = 60.0
"""Seconds in which the scheduler has to have thought of a pod; it tries again what comes before its nodes."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
NAMESPACES, NODES = "/api/v1/namespaces", "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Case:
    """One pod that waits, and what is there."""

    name: str
    nodes: tuple[dict[str, Any], ...]
    """Of which the first has room."""
    pods: tuple[dict[str, Any], ...]
    pending: dict[str, Any]

    @property
    def path(self) -> str:
        """Of its pods."""
        return f"{NAMESPACES}/{self.name}/pods"

    def why_not(self, nodes: list[Any], pods: list[Any]) -> Reason | None:
        """Why the planner would not have the pod on the first node. ``nodes``, ``pods``: as the API server has them."""
        there = [node_from(msgspec.convert(node, NodeJson)) for node in nodes]
        known = [pod_from(msgspec.convert(pod, PodJson)) for pod in pods]
        (pending,) = (pod for pod in known if pod.node is None)
        assert not pending.not_understood
        places = [
            Place(node.name, node.labels, node.taints, dict(node.allocatable.items()), tier=0, node=node)
            for node in there
        ]
        snapshot = Snapshot(places, [pod for pod in known if pod.node], [pending])
        return snapshot.why_not(snapshot.shape(pending), places[0])


def drawn_case(number: int) -> Case:
    """Two to five nodes, up to six pods there, and one that waits."""
    dice, name = Random(number), f"case-{number}"  # noqa: S311 - the same cases every time
    nodes = [_node(dice, f"{name}-{place}", case=name, has_room=not place) for place in range(dice.randint(2, 5))]
    there = [
        _pod(f"there-{place}", dice, nodeName=dice.choice(nodes)["metadata"]["name"], affinity=affinity)
        for place in range(dice.randint(0, 6))
        for affinity in [{"podAntiAffinity": {REQUIRED: _terms(dice)}} if dice.random() < 0.3 else {}]
    ]
    selector = {"case": name} | ({"disk": "ssd"} if dice.random() < 0.3 else {})
    rules: dict[str, Any] = {"affinity": {}, "nodeSelector": selector}
    for kind in dice.choices(("podAffinity", "podAntiAffinity", "spread"), (2, 1, 2), k=dice.choice((1, 1, 2))):
        if kind == "spread":
            rules["topologySpreadConstraints"] = _spreads(dice)
        else:
            rules["affinity"][kind] = {REQUIRED: _terms(dice)}
    if dice.random() < 0.15:
        zone = {"key": ZONE, "operator": dice.choice(("In", "NotIn")), "values": ["a"]}
        rules["affinity"]["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    return Case(name, tuple(nodes), tuple(there), _pod("pending", dice, **rules))


def _node(dice: Random, name: str, *, case: str, has_room: bool) -> dict[str, Any]:
    labels = {"case": case, HOSTNAME: name}
    for key, values, often in ((ZONE, "ab", 0.8), ("rack", "pq", 0.5), ("disk", ("ssd",), 0.5)):
        if dice.random() < often:
            labels[key] = dice.choice(values)
    room = {"cpu": "8" if has_room else "100m", "memory": "32Gi", "pods": "110"}
    fake = {"kwok.x-k8s.io/node": "fake"}
    return {
        "metadata": {"name": name, "labels": labels, "annotations": fake},
        "status": {"allocatable": room, "capacity": room},
    }


def _pod(name: str, dice: Random, **spec: Any) -> dict[str, Any]:
    labels = {"app": dice.choice(("web", "db"))} | ({"tier": dice.choice("xy")} if dice.random() < 0.6 else {})
    asked = {} if "nodeName" in spec else {"requests": {"cpu": "1"}}
    containers = [{"name": "main", "image": "i", "resources": asked}]
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers} | spec}


def _selector(dice: Random) -> dict[str, Any] | None:
    app, tier = dice.choice(("web", "db")), dice.choice("xy")
    by_name = {"key": "app", "operator": dice.choice(("In", "NotIn")), "values": [app]}
    by_tier = {"key": "tier", "operator": dice.choice(("Exists", "DoesNotExist"))}
    found: dict[str, Any] | None = dice.choice(
        (
            {"matchLabels": {"app": app}},
            {"matchLabels": {"app": app}},
            {"matchLabels": {"tier": tier}},
            {"matchLabels": {"app": app, "tier": tier}},
            {"matchExpressions": [by_name]},
            {"matchExpressions": [by_tier]},
            {},
            None,
        )
    )
    return found


def _terms(dice: Random) -> list[dict[str, Any]]:
    return [
        {"labelSelector": _selector(dice), "topologyKey": dice.choice((HOSTNAME, ZONE, ZONE, "rack"))}
        for _ in range(dice.choice((1, 1, 2)))
    ]


def _spreads(dice: Random) -> list[dict[str, Any]]:
    made = []
    for key in dice.sample((HOSTNAME, ZONE, "rack"), dice.choice((1, 1, 2))):
        one: dict[str, Any] = {"topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": dice.choice((1, 2))}
        one["labelSelector"] = _selector(dice)
        if dice.random() < 0.2:
            one["minDomains"] = dice.randint(1, 3)
        if dice.random() < 0.2 and one["labelSelector"] is not None and "tier" not in str(one["labelSelector"]):
            one["matchLabelKeys"] = ["tier"]
        made.append(one)
    return made


@pytest.fixture
def cases(plane: Plane) -> Iterator[list[Case]]:
    """All of them, laid out: each with its own nodes, and the pods there first."""
    drawn = [drawn_case(number) for number in range(CASES)]
    send_all(plane.kube, [("POST", NAMESPACES, {"metadata": {"name": case.name}}) for case in drawn])
    try:
        send_all(plane.kube, [("POST", NODES, node) for case in drawn for node in case.nodes])
        send_all(plane.kube, [("POST", case.path, pod) for case in drawn for pod in case.pods])
        send_all(plane.kube, [("POST", case.path, case.pending) for case in drawn])
        yield drawn
    finally:
        send_all(plane.kube, [("DELETE", f"{case.path}?gracePeriodSeconds=0", None) for case in drawn])
        send_all(plane.kube, [("DELETE", f"{NAMESPACES}/{case.name}", None) for case in drawn])


def test_the_scheduler_binds_what_the_planner_has_a_place_for_and_nothing_else(plane: Plane, cases: list[Case]) -> None:
    """Affinity, anti-affinity and spreads, by host, zone and another label, with selectors of every kind."""
    nodes = {node["metadata"]["name"]: node for node in plane.kube.get(NODES)["items"]}
    wrong, bound = [], 0
    for case in cases:
        pods = plane.kube.get(case.path)["items"]
        waiting = [pod if pod["metadata"]["name"] != "pending" else _unbound(pod) for pod in pods]
        why = case.why_not([nodes[node["metadata"]["name"]] for node in case.nodes], waiting)
        is_bound, said = _outcome(plane.kube, case, is_expected=why is None)
        bound += is_bound
        if is_bound != (why is None):
            wrong.append(f"{case.name}: planner {why}; scheduler {said or 'bound it'}")
    assert wrong == []
    assert CASES / 5 < bound < CASES * 4 / 5


def _unbound(pod: dict[str, Any]) -> dict[str, Any]:
    return pod | {"spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}, "status": {}}


def _outcome(kube: KubeHttp, case: Case, *, is_expected: bool) -> tuple[bool, str]:
    """Whether the pod is bound, and what the scheduler says if not: its last word, or its first where that is no."""
    end = time.monotonic() + PATIENCE
    while True:
        pod = kube.get(f"{case.path}/pending")
        if pod["spec"].get("nodeName"):
            return True, ""
        said = [one.get("message", "") for one in pod["status"].get("conditions", ()) if one["status"] == "False"]
        if (said and not is_expected) or time.monotonic() > end:
            return False, " ".join(said) or "has not thought of it"
        time.sleep(0.1)
