"""Whether the real scheduler binds what the planner has a place for, once all that is told of a case is carried out.

Each case is laid out in a namespace of its own: its nodes, and those that the plan buys, as KWOK nodes; its pods as
they are then, each pinned to the node that it is planned on, as the autoscaler does with those behind its gate. Several
cases are there at a time: none sees the nodes of another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.cluster import Group, Node, Pod
from autoscaler.model.constraints import PodTerm, Taint, Term
from autoscaler.model.resources import CPU, PODS, Resources
from autoscaler.planner.supply.node_places import labels_of
from stacks.local.kubeapi.client import KubeHttp
from tests.bench.fidelity import NODES, ground
from tests.carried_out import carried_out_all
from tests.live.hybrid import send_all
from tests.waiting_cases import Case

_AT_A_TIME: Final = 25
_PATIENCE: Final = 120.0
"""Seconds that the pods of so many cases may take; what is not bound by then is told with what the scheduler says."""
_NAMESPACES: Final = "/api/v1/namespaces"
_AS_NAMES: Final = str.maketrans({"+": "-bought-", "~": "-coming-", "#": "-part-"})
"""What names of the planner's have and Kubernetes' may not."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is laid out of one case."""

    number: int
    nodes: tuple[dict[str, Any], ...]
    pods: tuple[dict[str, Any], ...]
    unplanned: tuple[str, ...]
    """Names of pods that were to be helped and that the planner has no place for."""

    @property
    def path(self) -> str:
        """Of its pods."""
        return f"{_NAMESPACES}/{_stem(self.number)}/pods"


def asked_of_scheduler(cases: Iterable[Case]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """By number of the case, what is against it: nothing where every pod is bound."""
    layouts = [layout(case) for case in cases]
    with ground() as on:
        for several in _in_batches(layouts):
            yield from _tried(on.kube, several)


def layout(case: Case) -> Layout:
    """The case with all changes carried out, and planned again."""
    after, helped = carried_out_all(case)
    assignments, groups = after.plan().memory.assignments, {group.name: group for group in after.cluster.groups}
    new = {one.node: one.group for one in assignments.values()}
    there = {node.name for node in after.cluster.nodes}
    nodes = [_registered(node, case.number) for node in after.cluster.nodes]
    nodes += [_bought(groups[group], name, case.number) for name, group in new.items() if name not in there]
    homes = {
        pod.key: pod.node or (assignments[pod.key].node if pod.key in assignments else "") for pod in after.cluster.pods
    }
    return Layout(
        number=case.number,
        nodes=tuple(nodes),
        pods=tuple(_pod(pod, homes[pod.key], case.number) for pod in after.cluster.pods if homes[pod.key]),
        unplanned=tuple(sorted(key for key in helped if not homes[key])),
    )


def _in_batches(layouts: Sequence[Layout]) -> Iterator[Sequence[Layout]]:
    for start in range(0, len(layouts), _AT_A_TIME):
        yield layouts[start : start + _AT_A_TIME]


def _tried(kube: KubeHttp, several: Sequence[Layout]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for one in several:
        kube.send("POST", _NAMESPACES, {"metadata": {"name": _stem(one.number)}})
    send_all(kube, [("POST", NODES, node) for one in several for node in one.nodes])
    send_all(kube, [("POST", one.path, pod) for one in several for pod in one.pods])
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and any(_unbound(kube, one) for one in several):
        time.sleep(0.5)
    for one in several:
        yield one.number, (*one.unplanned, *_unbound(kube, one))
    send_all(kube, [("DELETE", f"{one.path}?gracePeriodSeconds=0", None) for one in several])
    send_all(kube, [("DELETE", f"{NODES}/{node['metadata']['name']}", None) for one in several for node in one.nodes])


def _unbound(kube: KubeHttp, one: Layout) -> list[str]:
    """Its pods without a node, with what the scheduler says."""
    return [
        f"{pod['metadata']['name']}: {''.join(said.get('message', '') for said in pod['status'].get('conditions', ()))}"
        for pod in kube.get(one.path)["items"]
        if not pod["spec"].get("nodeName")
    ]


# --- As the API server takes it ---------------------------------------------------------------------------------------


def _stem(number: int) -> str:
    return f"case-{number}"


def _named(name: str, number: int) -> str:
    return f"{_stem(number)}-{name.translate(_AS_NAMES)}"


def _registered(node: Node, number: int) -> dict[str, Any]:
    """What is not ready is closed: nothing may go there, and what is there counts."""
    closed = node.cordoned or not node.ready
    return _node(node.name, number, labels=node.labels, taints=node.taints, room=node.allocatable, closed=closed)


def _bought(group: Group, name: str, number: int) -> dict[str, Any]:
    return _node(name, number, labels=labels_of(group, name), taints=group.taints, room=group.allocatable)


def _node(
    name: str,
    number: int,
    *,
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    room: Resources,
    closed: bool = False,
) -> dict[str, Any]:
    named = _named(name, number)
    amounts = _quantities(room)
    return {
        "metadata": {
            "name": named,
            "labels": dict(labels) | {words.HOSTNAME: named},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {
            "unschedulable": closed,
            "taints": [{"key": one.key, "value": one.value, "effect": one.effect} for one in taints],
        },
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def _pod(pod: Pod, home: str, number: int) -> dict[str, Any]:
    """Where it is bound already that is said; where it waits it may go nowhere else."""
    namespace, named = _stem(number), _named(home, number)
    asked = _quantities(Resources({name: amount for name, amount in pod.requests.items() if name != PODS}))
    limits = {name: amount for name, amount in asked.items() if "/" in name}
    fields = [{"key": "metadata.name", "operator": "In", "values": [named]}]
    terms = [{"matchExpressions": _expressions(term), "matchFields": fields} for term in pod.affinity or ((),)]
    near = [_term(one, namespace) for one in pod.near_to]
    apart = [_term(one, namespace) for one in pod.apart_from]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": near},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart},
    }
    return {
        "metadata": {"name": _named(pod.name, number), "namespace": namespace, "labels": dict(pod.labels)},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": asked, "limits": limits}}],
            "tolerations": [
                {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
                for one in pod.tolerations
            ],
        }
        | ({"nodeName": named} if pod.node else {"affinity": affinity}),
    }


def _term(one: PodTerm, namespace: str) -> dict[str, Any]:
    return {
        "topologyKey": one.topology_key,
        "labelSelector": {"matchExpressions": _expressions(one.selector)},
        "namespaces": [namespace],
    }


def _expressions(term: Term) -> list[dict[str, Any]]:
    return [{"key": one.key, "operator": one.operator, "values": list(one.values)} for one in term]


def _quantities(amounts: Resources) -> dict[str, str]:
    return {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts.items()}
