"""The independent check of an offline plan for a Kubernetes List of pods: what they ask about each other, besides room.

From the JSON, the List and the catalogue alone, in time that is linear in pods for each different rule. A rule is
checked on the finished plan: as everyone stands, could each pod be where it is? A spread holds when a pod is bound, and
later pods may upset it (https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/). So the
scheduler has to be able to bind all pods in the order of the plan's placements: on machines at once, on nodes that are
bought once all of them are there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.checker import Row, faults

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
_UNITS = {"m": "0.001", "": "1", "k": "1e3", "M": "1e6", "G": "1e9", "Ki": "1024", "Mi": "1048576", "Gi": "1073741824"}


def faults_of_list(
    plan: Mapping[str, Any],
    *,
    pods: Sequence[Mapping[str, Any]],
    catalog: Sequence[Row],
    machines: Sequence[Row] = (),
    max_nodes: int | None = None,
    max_usd: float | None = None,
) -> list[str]:
    """Everything that is wrong with the plan, in words. Pods that have a node already are no demand, but are met."""
    nodes: dict[str, Mapping[str, Any]] = {node["name"]: node for node in plan["nodes"]}
    on_prem = {"instance_type": "", "zone": None}
    nodes |= {row["sn"]: {"name": row["sn"], **on_prem} for row in machines}
    there = {pod["metadata"]["name"]: pod for pod in pods}
    placed = [(pod, nodes[home]) for pod in pods if (home := pod["spec"].get("nodeName")) in nodes]
    placed += [
        (there[name], nodes[node]) for name, node in plan["placements"].items() if name in there and node in nodes
    ]
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    found = faults(plan, pods=[_row(pod) for pod in waiting], catalog=catalog, nodes=machines)
    found += [*_selected(placed, catalog), *_apart(placed), *_ports(placed)]
    found += _even(placed, list(nodes.values()), plan["nodes"], catalog)
    if max_nodes is not None and len(nodes) > max_nodes:
        found.append(f"{len(nodes)} nodes, {max_nodes} are allowed")
    if max_usd is not None and plan["usd_per_hour"] > max_usd + 1e-6:
        found.append(f"{plan['usd_per_hour']} $/h, {max_usd} are allowed")
    return found


Pod = Mapping[str, Any]
Node = Mapping[str, Any]
Placed = list[tuple[Pod, Node]]


def _row(pod: Mapping[str, Any]) -> Row:
    total: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        for name, text in container.get("resources", {}).get("requests", {}).items():
            total[name] += _amount(str(text))  # type: ignore[assignment]
    return {
        "name": pod["metadata"]["name"],
        "cpu_milli": str(total["cpu"] * 1000),
        "memory_mib": str(total["memory"] / Decimal(1048576)),
        "num_gpu": str(total["nvidia.com/gpu"]),
    }


def _amount(text: str) -> Decimal:
    number = text.rstrip("kKMGim")
    return Decimal(number) * Decimal(_UNITS[text[len(number) :]])


def _selected(placed: Placed, catalog: Sequence[Row]) -> Iterator[str]:
    arch = {"": "amd64"} | {row["instance_type"]: row["arch"] for row in catalog}
    for pod, node in placed:
        has = {
            "node.kubernetes.io/instance-type": node["instance_type"],
            ZONE: node["zone"],
            "kubernetes.io/arch": arch[node["instance_type"]],
        }
        for key, value in pod["spec"].get("nodeSelector", {}).items():
            if key in has and has[key] != value:
                yield f"{pod['metadata']['name']}: selects {key}={value}, is on {has[key]}"
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        if terms and not any(all(_holds(one, has) for one in term.get("matchExpressions", [])) for term in terms):
            yield f"{pod['metadata']['name']}: no node selector term holds on {node['name']}"


def _holds(expression: Mapping[str, Any], has: Mapping[str, Any]) -> bool:
    value, values = has.get(expression["key"]), expression.get("values", [])
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression["operator"]]


def _means(selector: Mapping[str, Any] | None, pod: Mapping[str, Any]) -> bool:
    labels = pod["metadata"].get("labels", {})
    wanted = (selector or {}).get("matchLabels", {})
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(one, labels) for one in (selector or {}).get("matchExpressions", [])
    )


def _terms(pod: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    affinity = pod["spec"].get("affinity", {}).get(kind, {})
    terms: list[Mapping[str, Any]] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return terms


def _domain(key: str) -> Callable[[Mapping[str, Any]], Any]:
    return (lambda node: node["name"]) if key == HOST else (lambda node: node["zone"])


def _apart(placed: Placed) -> Iterator[str]:
    for pod, others, term in _company(placed, "podAntiAffinity"):
        met = [other for other in others if other is not pod and _means(term.get("labelSelector"), other)]
        if met:
            yield f"{pod['metadata']['name']}: must be apart from {met[0]['metadata']['name']}"


def _company(placed: Placed, kind: str) -> Iterator[tuple[Any, list[Any], Mapping[str, Any]]]:
    """Each pod that has such a term, everyone in its domain, and the term; those it cannot mean are left out early."""
    by_domain: dict[tuple[str, Any, str], list[Any]] = defaultdict(list)
    asked = {
        (term["topologyKey"], repr(term.get("labelSelector"))): term for pod, _ in placed for term in _terms(pod, kind)
    }
    for (key, words), term in asked.items():
        for pod, node in placed:
            home = _domain(key)(node)
            if home is not None and _means(term.get("labelSelector"), pod):
                by_domain[key, home, words].append(pod)
    for pod, node in placed:
        for term in _terms(pod, kind):
            key = term["topologyKey"]
            yield pod, by_domain[key, _domain(key)(node), repr(term.get("labelSelector"))][:3], term


def _even(placed: Placed, nodes: Collection[Node], bought: Sequence[Node], catalog: Sequence[Row]) -> Iterator[str]:
    """Pods that a spread or an affinity keeps off their nodes at last."""
    yield from _Binding(nodes, {node["name"] for node in bought}, catalog).of(placed)


@dataclass
class _Spread:
    """Pods that a selector means, by domain of a topology key, among the nodes that a pod may go to."""

    constraint: Mapping[str, Any]
    counts: dict[Any, int]
    to_come: Collection[Any]
    """Domains that there are only when the nodes that are bought have joined."""

    def join(self) -> None:
        """They have."""
        for domain in self.to_come:
            self.counts.setdefault(domain, 0)

    def means(self, pod: Pod) -> bool:
        """Whether it counts."""
        return _means(self.constraint.get("labelSelector"), pod)

    def keeps_off(self, pod: Pod, node: Node) -> bool:
        """Whether the pod may not be bound there now."""
        home = _domain(self.constraint["topologyKey"])(node)
        if home not in self.counts:
            return True
        return self.counts[home] + self.means(pod) - min(self.counts.values()) > int(self.constraint["maxSkew"])


@dataclass
class _Binding:
    """All pods bound one after the other, those on machines first; those that cannot be, once more later."""

    nodes: Collection[Node]
    bought: Collection[str]
    catalog: Sequence[Row]
    spreads: dict[str, _Spread] = field(default_factory=dict)
    means: dict[str, list[_Spread]] = field(default_factory=dict)
    near: dict[str, tuple[Sequence[Mapping[str, Any]], Counter[Any]]] = field(default_factory=dict)
    """By terms of a pod the pods that all of them mean, by topology key and domain."""

    def of(self, placed: Placed) -> Iterator[str]:
        """What is left at last."""
        for pod, node in placed:
            self._of(pod)
            self._is_near(pod, node)
        left = self._all_bound([one for one in placed if one[1]["name"] not in self.bought])
        for spread in self.spreads.values():
            spread.join()
        for pod, node in self._all_bound(left + [one for one in placed if one[1]["name"] in self.bought]):
            name = pod["metadata"]["name"]
            for one in self._of(pod):
                if one.keeps_off(pod, node):
                    yield f"{name}: spread unevenly over {one.constraint['topologyKey']}"
            if not self._is_near(pod, node):
                yield f"{name}: nobody that it must be near to is in its topology.kubernetes.io/zone"

    def _all_bound(self, placed: Placed) -> Placed:
        """As far as they can be, again and again; gives those that are left."""
        left, before = placed, -1
        while len(left) != before:
            before, left = len(left), [one for one in left if not self._is_bound(*one)]
        return left

    def _is_bound(self, pod: Pod, node: Node) -> bool:
        """Whether it could be, and is."""
        is_new = not pod["spec"].get("nodeName")
        if is_new and (any(one.keeps_off(pod, node) for one in self._of(pod)) or not self._is_near(pod, node)):
            return False
        self._bind(pod, node)
        return True

    def _is_near(self, pod: Pod, node: Node) -> bool:
        """Whether pods that it must be near to are bound in its domain; the first of its kind may go anywhere."""
        terms = _terms(pod, "podAffinity")
        if not terms:
            return True
        counts = self.near.setdefault(repr(terms), (terms, Counter()))[1]
        domains = [(key, _domain(key)(node)) for key in (term["topologyKey"] for term in terms)]
        is_first = not counts.total() and all(_means(term.get("labelSelector"), pod) for term in terms)
        return all(value is not None and (is_first or counts[key, value]) for key, value in domains)

    def _bind(self, pod: Pod, node: Node) -> None:
        labels = repr(pod["metadata"].get("labels"))
        if labels not in self.means:
            self.means[labels] = [one for one in self.spreads.values() if one.means(pod)]
        for terms, counts in self.near.values():
            if all(_means(term.get("labelSelector"), pod) for term in terms):
                keys = {term["topologyKey"] for term in terms}
                counts.update((key, home) for key in keys if (home := _domain(key)(node)) is not None)
        for one in self.means[labels]:
            home = _domain(one.constraint["topologyKey"])(node)
            if home in one.counts:
                one.counts[home] += 1

    def _of(self, pod: Pod) -> list[_Spread]:
        spec = pod["spec"]
        asked = spec.get("topologySpreadConstraints", ())
        where = [spec.get("nodeSelector"), spec.get("affinity", {}).get("nodeAffinity")] if asked else []
        return [self._spread(pod, one, repr((one, where))) for one in asked]

    def _spread(self, pod: Pod, constraint: Mapping[str, Any], key: str) -> _Spread:
        if key not in self.spreads:
            domain = _domain(constraint["topologyKey"])
            nodes = [node for node in self.nodes if not any(_selected([(pod, node)], self.catalog))]
            there = {domain(node) for node in nodes if node["name"] not in self.bought} - {None}
            self.spreads[key] = _Spread(constraint, dict.fromkeys(there, 0), {domain(node) for node in nodes} - {None})
        return self.spreads[key]


def _ports(placed: Placed) -> Iterator[str]:
    taken: set[tuple[str, str, int]] = set()
    for pod, node in placed:
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                if port.get("hostPort"):
                    key = (node["name"], port.get("protocol", "TCP"), port["hostPort"])
                    if key in taken:
                        yield f"{pod['metadata']['name']}: host port {key[2]} is taken on {key[0]}"
                    taken.add(key)
