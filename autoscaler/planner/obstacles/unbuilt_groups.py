"""Auto Scaling groups that are not there yet: those that the policy names, before `pulumi up`, and one to be added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy, asg_name
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.feasibility import NODE_NAME
from autoscaler.model.instance_types import by_name, one_quota
from autoscaler.model.labels import REGION
from autoscaler.model.resources import Resources
from autoscaler.planner.placement.offerings import Offering
from autoscaler.planner.supply.candidate_nodes import Shape
from autoscaler.planner.supply.node_places import new_place

ADDED: Final = "added"
"""Entry of a group that the policy does not name and that would have to be added."""
NO_PRICE = 1e-8
"""Dollars per hour where no price is known: more than nothing, for it is bought, and no cent of any limit."""


def unbuilt_groups(cluster: Cluster, policy: Policy) -> list[Group]:
    """One for each zone of an entry in which none stands.

    A node of it is taken to be like one of another group of the same types. Where there is none, only EC2 knows all of
    it: what the type's name says is taken for it.
    """
    there = {(group.entry, group.zone) for group in cluster.groups}
    names = {(name, zone) for entry in policy.groups for name in entry.formerly for zone in entry.zones}
    missing = [
        (entry, zone)
        for entry in policy.groups
        for zone in entry.zones
        if (entry.name, zone) not in there and not any((name, zone) in there & names for name in entry.formerly)
    ]
    if not missing:
        return []
    alike = {group.instance_type: group for group in cluster.groups}
    return [_group(policy, entry, zone, alike) for entry, zone in missing]


def _group(policy: Policy, entry: GroupEntry, zone: str, alike: Mapping[str, Group]) -> Group:
    kind = " or ".join(entry.types)
    known = alike.get(kind)
    guess = by_name(entry.types[0])
    offered = known.allocatable if known is not None else guess.allocatable(disk=entry.disk_bytes)
    usd = (
        entry.usd_per_hour if entry.usd_per_hour is not None else known.usd_per_hour if known is not None else NO_PRICE
    )
    return Group(
        name=asg_name(policy.cluster, entry.name, zone),
        entry=entry.name,
        instance_type=kind,
        zone=zone,
        allocatable=Resources({**offered, **Resources.parse(entry.resources)}),
        usd_per_hour=usd,
        capacity_type=entry.capacity_type,
        labels={**(known.labels if known is not None else {}), REGION: policy.region, **entry.labels},
        taints=tuple(taint.as_taint() for taint in entry.taints),
        maximum=entry.max,
        vcpus=known.vcpus if known is not None else guess.vcpus,
        quota=entry.capacity_reservation or one_quota(entry.types, spot=entry.capacity_type == "spot"),
        reservation=entry.capacity_reservation or "",
        mixed=bool(entry.instance_types),
    )


def offering_of(group: Group) -> Offering:
    """Returns the offering of a group that is not there yet."""
    return Offering(group, lambda name: new_place(group, name, dict(group.allocatable.items())), buyable=0)


def added_for(shapes: Sequence[Shape], policy: Policy) -> Offering:
    """Nodes that hold any one pod of the shapes, with the labels that these select or their volumes are tied to."""
    room: dict[str, int] = {}
    for name, amount in (one for shape in shapes for one in shape.amounts):
        room[name] = max(room.get(name, 0), amount)
    terms = (first for shape in shapes for first in (*shape.affinity[:1], *(tie[0] for tie in shape.ties if tie)))
    asked = [one for term in terms for one in term if one.key != NODE_NAME]
    labels = {one.key: one.values[0] for one in asked if one.operator == "In" and one.values}
    labels |= {one.key: "true" for one in asked if one.operator == "Exists" and one.key not in labels}
    return added(room, labels, policy)


def added(room: Mapping[str, int], labels: Mapping[str, str], policy: Policy) -> Offering:
    """Nodes of an entry that the policy does not name yet."""
    zones = [zone for entry in policy.groups for zone in entry.zones]
    group = Group(
        name=ADDED,
        entry=ADDED,
        instance_type="any",
        zone=zones[0] if zones else f"{policy.region}a",
        allocatable=Resources(room),
        usd_per_hour=NO_PRICE,
        labels=labels,
    )
    return offering_of(group)
