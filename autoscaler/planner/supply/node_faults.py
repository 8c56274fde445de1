"""Nodes whose hardware is at fault: something says so of them, and nothing is started there while it does.

Conditions of the Node are set by others: ``AcceleratedHardwareReady`` is ``False`` after an Xid or an ECC error by the
EKS node monitoring agent (https://docs.aws.amazon.com/eks/latest/userguide/node-health.html), and by the health check
of our own machines (``roles/deploys/health.py``); others by node-problem-detector. The DCGM exporter tells of Xids and
ECC errors where no agent does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from autoscaler.config.policy import Faults, Policy
from autoscaler.model.cluster import Cluster, GpuHealth, Node
from autoscaler.model.labels import AUTOSCALER
from autoscaler.model.node_index import NodeIndex


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """Which nodes are at fault."""

    closed: Mapping[str, str] = field(default_factory=dict)
    """Name of a node on which nothing is started -> why, in words."""
    told: Mapping[str, str] = field(default_factory=dict)
    """Likewise, of nodes beyond the share that may be closed at one time."""
    wake_at: datetime | None = None
    """When time alone makes another node one of these, or one of these none."""


@dataclass(frozen=True, slots=True)
class _Sign:
    """What a condition, or the exporter, says of a node."""

    of: str
    fault: str
    """In words; empty: the node is well."""
    since: datetime


def node_faults(cluster: Cluster, nodes: NodeIndex, policy: Policy) -> NodeFaults:
    """Finds faults by what the policy names; those of nodes that are closed for it already come first.

    A fault counts when it has lasted for ``faults.after``; of a machine that we own and have closed, at once.
    """
    after, found, due = policy.faults.after, dict[str, str](), list[datetime]()
    measured = {one.node: one for one in cluster.gpu_health or ()} if policy.faults.dcgm else {}
    ill = (nodes.named[name] for name, one in measured.items() if one.errors and name in nodes.named)
    watched = {node.name: node for node in (*nodes.conditioned, *ill, *nodes.unsettled)}
    for node in sorted(watched.values(), key=lambda one: (not _is_ours(one), one.name)):
        is_ours, is_own = _is_ours(node), _is_ours(node) and not node.instance_id
        for sign in _signs(node, policy.faults, measured.get(node.name)):
            has_lasted = sign.since + after <= cluster.seen_at
            if sign.fault or is_ours:
                due.append(sign.since + after)
            if sign.fault and (has_lasted or is_own):
                found.setdefault(node.name, f"{sign.fault} since {_at(sign.since)}")
            elif not sign.fault and is_own and not has_lasted:
                found.setdefault(node.name, f"{sign.of} is well again only since {_at(sign.since)}")
        if is_own and policy.faults.dcgm and _is_unknown(node, cluster.gpu_health, measured):
            found.setdefault(node.name, "the DCGM exporter does not say whether its GPUs are well again")
    most = max(1, int(policy.faults.share * len(cluster.nodes)))
    return NodeFaults(
        closed=dict(list(found.items())[:most]),
        told=dict(list(found.items())[most:]),
        wake_at=min((one for one in due if one > cluster.seen_at), default=None),
    )


def _is_ours(node: Node) -> bool:
    return node.cordoned and node.cordoned_by == AUTOSCALER


def _signs(node: Node, faults: Faults, measured: GpuHealth | None) -> Iterator[_Sign]:
    for condition in node.conditions:
        if condition.type in faults.conditions:
            is_fault = condition.status == str(faults.conditions[condition.type])
            reason = f" ({condition.reason})" if condition.reason else ""
            fault = f"{condition.type} is {condition.status}{reason}" if is_fault else ""
            yield _Sign(condition.type, fault, condition.since or node.created)
    if measured is not None and measured.errors is not None and measured.since is not None:
        fault = f"the DCGM exporter tells of {measured.errors}" if measured.errors else ""
        yield _Sign("what DCGM measures", fault, measured.since)


def _is_unknown(node: Node, health: tuple[GpuHealth, ...] | None, measured: Mapping[str, GpuHealth]) -> bool:
    """No exporter was asked so far, or that of this node does not answer."""
    return health is None or (node.name in measured and measured[node.name].errors is None)


def _at(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
