"""What there is to buy and what is on its way, as the packing sees it: offerings, ceilings, nodes without a name."""

from __future__ import annotations

from functools import partial
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.cluster import Cluster, Group
from autoscaler.planner.placement.offerings import Ceilings, Offering
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import Fleet
from autoscaler.planner.supply.node_places import new_place

COMING: Final = "~"
"""In the name of a node that was asked for, between its group's and its number."""


def offerings(cluster: Cluster, policy: Policy, fleet: Fleet) -> list[Offering]:
    """Every group that the policy names, with how much of it may still be bought."""
    entries = {entry.name for entry in policy.groups}
    return [
        Offering(
            group=group,
            new_place=partial(_new_place, group, fleet),
            buyable=0
            if group.name in fleet.closed or group.name in fleet.paused
            else max(0, group.maximum - fleet.size_of(group)),
            failed=fleet.failed_of(group),
        )
        for group in cluster.groups
        if group.entry in entries
    ]


def ceilings(cluster: Cluster, policy: Policy, fleet: Fleet) -> Ceilings:
    """What the policy leaves to buy, after what there is and what is on its way."""
    limits = policy.limits
    entries = {entry.name: entry.max for entry in policy.groups}
    left = Ceilings(usd=limits.usd_per_hour, nodes=limits.nodes, gpus=limits.gpus, entries=entries)
    for group in cluster.groups:
        if size := fleet.size_of(group):
            left.take(group, size)
    left.quotas = {group.quota: group.quota_left for group in cluster.groups if group.quota_left is not None}
    for group in cluster.groups:
        if group.quota in left.quotas and (more := fleet.successors_of(group)):
            left.quotas[group.quota] = max(0, left.quotas[group.quota] - more * group.vcpus)
    return left


def affordable(cluster: Cluster, policy: Policy, fleet: Fleet) -> Ceilings:
    """What may be bought now: what is being ended is paid for, and a node of the cluster, until it is shut down."""
    left = ceilings(cluster, policy, fleet)
    entries, quotas = left.entries, left.quotas
    left.entries, left.quotas = {}, {}
    for group in cluster.groups:
        if ending := fleet.ending_of(group):
            left.take(group, ending)
    left.entries, left.quotas = entries, quotas
    return left


def coming(cluster: Cluster, fleet: Fleet) -> list[Place]:
    """One place for each machine that was asked for and has no node yet."""
    return [
        _new_place(group, fleet, f"{group.name}{COMING}{number + 1}")
        for group in sorted(cluster.groups, key=lambda group: group.name)
        for number in range(fleet.outstanding[group.name])
    ]


def _new_place(group: Group, fleet: Fleet, name: str) -> Place:
    return new_place(group, name, fleet.room_of(group))
