"""The independent check of an offline plan for a Kubernetes List of pods: what they ask about each other, besides room.

From the JSON, the List and the catalogue alone, in time that is linear in pods for each different rule. A rule is
checked on the finished plan: as everyone stands, could each pod be where it is? A spread by host is checked for the
nodes that hold a pod that has it, one by zone over all zones in the plan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    placed = [
        (there[name], nodes[node]) for name, node in plan["placements"].items() if name in there and node in nodes
    ]
    placed += [(pod, nodes[node]) for pod in pods if (node := pod["spec"].get("nodeName")) in nodes]
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    found = faults(plan, pods=[_row(pod) for pod in waiting], catalog=catalog, nodes=machines)
    found += [*_selected(placed, catalog), *_apart(placed), *_near(placed), *_even(placed), *_ports(placed)]
    if max_nodes is not None and len(nodes) > max_nodes:
        found.append(f"{len(nodes)} nodes, {max_nodes} are allowed")
    if max_usd is not None and plan["usd_per_hour"] > max_usd + 1e-6:
        found.append(f"{plan['usd_per_hour']} $/h, {max_usd} are allowed")
    return found


Placed = list[tuple[Mapping[str, Any], Mapping[str, Any]]]


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


def _near(placed: Placed) -> Iterator[str]:
    meant: dict[str, list[Any]] = {}
    for pod, others, term in _company(placed, "podAffinity"):
        words = repr(term.get("labelSelector"))
        if words not in meant:
            meant[words] = [one for one, _ in placed if _means(term.get("labelSelector"), one)]
        elsewhere = any(one is not pod for one in meant[words][:2])
        if elsewhere and not any(other is not pod for other in others):
            yield f"{pod['metadata']['name']}: nobody that it must be near to is in its {term['topologyKey']}"


def _company(placed: Placed, kind: str) -> Iterator[tuple[Any, list[Any], Mapping[str, Any]]]:
    """Each pod that has such a term, everyone in its domain, and the term; those it cannot mean are left out early."""
    by_domain: dict[tuple[str, Any, str], list[Any]] = defaultdict(list)
    asked = {
        (term["topologyKey"], repr(term.get("labelSelector"))): term for pod, _ in placed for term in _terms(pod, kind)
    }
    for (key, words), term in asked.items():
        for pod, node in placed:
            if _means(term.get("labelSelector"), pod):
                by_domain[key, _domain(key)(node), words].append(pod)
    for pod, node in placed:
        for term in _terms(pod, kind):
            key = term["topologyKey"]
            yield pod, by_domain[key, _domain(key)(node), repr(term.get("labelSelector"))][:3], term


def _even(placed: Placed) -> Iterator[str]:
    zones = {node["zone"] for _, node in placed}
    counts: dict[tuple[str, str], Counter[Any]] = {}
    for pod, node in placed:
        for one in pod["spec"].get("topologySpreadConstraints", []):
            key, selector = one["topologyKey"], one.get("labelSelector")
            known = counts.get((key, repr(selector)))
            if known is None:
                known = Counter(_domain(key)(node) for other, node in placed if _means(selector, other))
                counts[key, repr(selector)] = known
            # How many there are in the emptiest zone; of hosts there may always be one without any.
            fewest = min(known[zone] for zone in zones) if key == ZONE else 0
            if known[_domain(key)(node)] - fewest > one["maxSkew"]:
                yield f"{pod['metadata']['name']}: spread unevenly over {key}"


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
