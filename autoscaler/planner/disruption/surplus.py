"""EC2 nodes above a limit that was lowered: idle ones go first and at once, nothing that runs is ended.

A surplus node is taken out of the picture that pods are planned on, so that it empties and is not filled again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoscaler.config.policy import Policy
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.labels import GPU, HOSTNAME
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.demand.gangs import pinned_to
from autoscaler.planner.disruption.interruptions import why_left_alone
from autoscaler.planner.placement.available_offerings import ceilings
from autoscaler.planner.placement.offerings import CENT, Ceilings
from autoscaler.planner.supply.candidate_nodes import COMING_TIER, Place
from autoscaler.planner.supply.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Surplus:
    """What is above the policy's limits."""

    nodes: frozenset[str]
    """Names of idle nodes that go at once."""
    warnings: tuple[str, ...]


def surplus(cluster: Cluster, policy: Policy, fleet: Fleet) -> Surplus:
    """Idle nodes to terminate until the limits hold, the dearest that helps first; and each limit that is exceeded."""
    left = ceilings(cluster, policy, fleet)
    warnings = tuple(_exceeded(left, cluster, policy, fleet))
    if not warnings:
        return Surplus(frozenset(), ())
    pinned = {host for pod in pod_index_of(cluster.pods).unbound if (host := pinned_to(pod))}
    found = []
    spare = Counter({group.name: fleet.spare_of(group) for group in cluster.groups})
    for leaving in _go_anyhow(policy, fleet):
        if spare[leaving.name] > 0:
            spare[leaving.name] -= 1
            left.take(leaving, -1)
    for place in sorted(fleet.places, key=lambda place: (-_usd(place.group), place.name)):
        group = place.group
        if (
            group is None
            or group.name in fleet.hands_off
            or not _is_idle(place, pinned)
            or spare[group.name] < 1
            or not _is_over(left, group)
        ):
            continue
        found.append(place.name)
        spare[group.name] -= 1
        left.take(group, -1)
    return Surplus(frozenset(found), warnings)


def without(fleet: Fleet, gone: Surplus) -> Fleet:
    """The fleet as pods are planned on it."""
    if not gone.nodes:
        return fleet
    why = dict.fromkeys(gone.nodes, "above a limit of the policy that was lowered")
    places = tuple(place for place in fleet.places if place.name not in gone.nodes)
    return replace(fleet, places=places, unusable={**fleet.unusable, **why})


def _go_anyhow(policy: Policy, fleet: Fleet) -> Iterator[Group]:
    """The group of each empty node that EC2 takes back, or may: these are terminated too."""
    for name in sorted(fleet.noticed) if policy.scale_down.enabled else ():
        node, group = fleet.nodes.named[name], fleet.group_of[name]
        if not fleet.residents.get(name) and not why_left_alone(node, group, fleet):
            yield group


def _usd(group: Group | None) -> float:
    return group.usd_per_hour if group is not None else 0.0


def _is_idle(place: Place, pinned: set[str]) -> bool:
    """It has joined, and no pod is on it or bound for it."""
    node = place.node
    if node is None or place.standing or place.tier == COMING_TIER or node.do_not_disrupt:
        return False
    return node.labels.get(HOSTNAME, node.name) not in pinned


def _is_over(left: Ceilings, group: Group) -> bool:
    """Whether one node less of the group brings a limit that is exceeded nearer."""
    return (
        left.entries.get(group.entry, 0) < 0
        or (left.usd is not None and left.usd < -CENT and group.usd_per_hour > 0)
        or (left.nodes is not None and left.nodes < 0)
        or (left.gpus is not None and left.gpus < 0 and group.allocatable[GPU] > 0)
    )


def _exceeded(left: Ceilings, cluster: Cluster, policy: Policy, fleet: Fleet) -> Iterator[str]:
    limits = policy.limits
    if limits.usd_per_hour is not None and left.usd is not None and left.usd < -CENT:
        running = sum(fleet.size_of(group) * group.usd_per_hour for group in cluster.groups)
        yield _said("limits.usd_per_hour", f"{limits.usd_per_hour:g} $/h", f"{running:.4f} $/h")
    if limits.nodes is not None and left.nodes is not None and left.nodes < 0:
        yield _said("limits.nodes", str(limits.nodes), f"{limits.nodes - left.nodes} nodes")
    if limits.gpus is not None and left.gpus is not None and left.gpus < 0:
        yield _said("limits.gpus", str(limits.gpus), f"{limits.gpus - left.gpus} GPUs")
    for entry in policy.groups:
        if left.entries.get(entry.name, 0) < 0:
            yield _said(f"max of group {entry.name}", str(entry.max), f"{entry.max - left.entries[entry.name]} nodes")


def _said(limit: str, wanted: str, running: str) -> str:
    return (
        f"{limit} is {wanted}, and {running} run or were asked for: nothing is bought, "
        "and nodes above it are terminated as soon as no pod is on them"
    )
