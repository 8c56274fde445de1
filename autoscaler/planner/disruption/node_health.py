"""Nodes that do not answer: those of instances that are gone are deleted, those of live instances are replaced.

Where no cloud-controller-manager runs (kubeadm, existing clusters) nothing else deletes the Node of an instance that
EC2 has ended. A machine that we own is never touched, only told of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Cordon, DeleteNode, Remove, Step
from autoscaler.model.cluster import Cluster, Group, Node
from autoscaler.model.enumeration import few
from autoscaler.model.labels import AUTOSCALER
from autoscaler.planner.disruption.drain_brake import DrainBrake
from autoscaler.planner.supply.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """What is done about nodes that do not answer."""

    steps: tuple[Step, ...]
    replaced: frozenset[str]
    """Names of nodes whose instances are terminated although pods are on them."""
    warnings: tuple[str, ...]
    wake_at: datetime | None
    """When the next one has not answered for long enough."""


def unhealthy(cluster: Cluster, policy: Policy, fleet: Fleet, brake: DrainBrake) -> Unhealthy:
    """Delete ghosts; cordon, then terminate nodes that have not been ready for ``scale_down.unready_after``.

    No more of these than the brake lets: where many are silent at once, it is rather what they would answer to.
    """
    steps: list[Step] = list(_ghosts(fleet))
    warnings: list[str] = []
    replaced: set[str] = set()
    due: list[datetime] = []
    for node in fleet.nodes.unsettled:
        group = fleet.group_of.get(node.name)
        if not fleet.residents.get(node.name) or not _is_silent(node, group, cluster, policy, fleet):
            continue
        end = _since(node) + policy.scale_down.unready_after
        why_left = _why_left_alone(node, group, policy, fleet)
        if not why_left and cluster.seen_at >= end and not brake.lets(node.name):
            why_left = brake.why_held()
        warnings.append(_told(node, fleet, why_left or f"its instance is terminated at {end:%Y-%m-%d %H:%M:%S} UTC"))
        if why_left or group is None:
            continue
        if cluster.seen_at < end:
            due.append(end)
            continue
        replaced.add(node.name)
        because = f"{node.name} has not been ready since {_since(node):%Y-%m-%d %H:%M:%S} UTC"
        if node.cordoned:
            steps.append(Remove(group.name, node.instance_id or "", node.name, because, is_dead=True))
        else:
            steps.append(Cordon(node.name, because))
    return Unhealthy(tuple(steps), frozenset(replaced), tuple(warnings), min(due, default=None))


def _ghosts(fleet: Fleet) -> Iterator[DeleteNode]:
    for name in sorted(fleet.ghosts):
        instance = fleet.nodes.instances[name]
        yield DeleteNode(name, instance, f"no Auto Scaling group has its instance {instance}")


def _is_silent(node: Node, group: Group | None, cluster: Cluster, policy: Policy, fleet: Fleet) -> bool:
    """Says whether the node is not ready, and neither booting nor on its way out."""
    if node.ready or node.deleting or node.name in fleet.leaving or node.name in fleet.ghosts:
        return False
    return group is None or cluster.seen_at >= node.created + policy.scale_up.boot_timeout


def _since(node: Node) -> datetime:
    return node.unready_since or node.created


def _why_left_alone(node: Node, group: Group | None, policy: Policy, fleet: Fleet) -> str:
    if group is None:
        return "no Auto Scaling group has it: look at the machine"
    if not policy.scale_down.enabled:
        return "scale_down.enabled is false: terminate its instance yourself"
    if group.name in fleet.hands_off:
        return "its group is paused"
    if node.do_not_disrupt:
        return "it is marked do-not-disrupt: terminate its instance yourself"
    if node.cordoned and node.cordoned_by != AUTOSCALER:
        return "it was cordoned by someone else: terminate its instance yourself"
    return ""


def _told(node: Node, fleet: Fleet, what_follows: str) -> str:
    pods = [pod.key for pod in fleet.residents[node.name]]
    return (
        f"node {node.name} has not been ready since {_since(node):%Y-%m-%d %H:%M:%S} UTC, with {few(pods)} on it: "
        f"{what_follows}"
    )
