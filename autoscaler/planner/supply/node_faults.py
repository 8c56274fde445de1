"""Nodes whose hardware is at fault: a condition of the Node says so, and nothing is started there while it does.

Conditions are set by others: ``AcceleratedHardwareReady`` is ``False`` after an Xid or an ECC error by the EKS node
monitoring agent (https://docs.aws.amazon.com/eks/latest/userguide/node-health.html), and by the health check of our own
machines (``roles/deploys/health.py``); others by node-problem-detector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from autoscaler.config.policy import Faults, Policy
from autoscaler.model.cluster import Cluster, Node, NodeCondition
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


def node_faults(cluster: Cluster, nodes: NodeIndex, policy: Policy) -> NodeFaults:
    """By the conditions that the policy names; those that are closed for it already come first."""
    faults, found, due = policy.faults, dict[str, str](), list[datetime]()
    for node in sorted(nodes.conditioned, key=lambda one: (not _is_ours(one), one.name)):
        for condition in node.conditions:
            since = condition.since or node.created
            if condition.type not in faults.conditions:
                continue
            is_fault = _is_fault(condition, faults)
            if is_fault or _is_ours(node):
                due.append(since + faults.after)
            if is_fault and since + faults.after <= cluster.seen_at:
                found.setdefault(node.name, _in_words(condition, since))
            elif not is_fault and _is_ours(node) and not node.instance_id and cluster.seen_at < since + faults.after:
                found.setdefault(node.name, f"{condition.type} is well again only since {_at(since)}")
    most = max(1, int(faults.share * len(cluster.nodes)))
    return NodeFaults(
        closed=dict(list(found.items())[:most]),
        told=dict(list(found.items())[most:]),
        wake_at=min((one for one in due if one > cluster.seen_at), default=None),
    )


def _is_ours(node: Node) -> bool:
    return node.cordoned and node.cordoned_by == AUTOSCALER


def _is_fault(condition: NodeCondition, faults: Faults) -> bool:
    return condition.status == str(faults.conditions[condition.type])


def _in_words(condition: NodeCondition, since: datetime) -> str:
    reason = f" ({condition.reason})" if condition.reason else ""
    return f"{condition.type} is {condition.status}{reason} since {_at(since)}"


def _at(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"
