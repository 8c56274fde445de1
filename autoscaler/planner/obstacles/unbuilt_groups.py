"""Auto Scaling groups that the policy names and that are not there yet: what is known of them before `pulumi up`."""

from __future__ import annotations

from collections.abc import Mapping

from autoscaler.config.policy import GroupEntry, Policy, asg_name
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.instance_types import by_name, one_quota
from autoscaler.model.labels import REGION
from autoscaler.model.resources import Resources

_DISK = 100 * 2**30
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
    room = dict((known.allocatable if known is not None else guess.allocatable(disk=_DISK)).items())
    usd = (
        entry.usd_per_hour if entry.usd_per_hour is not None else known.usd_per_hour if known is not None else NO_PRICE
    )
    return Group(
        name=asg_name(policy.cluster, entry.name, zone),
        entry=entry.name,
        instance_type=kind,
        zone=zone,
        allocatable=Resources(room | dict(Resources.parse(entry.resources).items())),
        usd_per_hour=usd,
        capacity_type=entry.capacity_type,
        labels={**(known.labels if known is not None else {}), REGION: policy.region, **entry.labels},
        taints=tuple(taint.as_taint() for taint in entry.taints),
        maximum=entry.max,
        vcpus=known.vcpus if known is not None else guess.vcpus,
        quota=one_quota(entry.types, spot=entry.capacity_type == "spot"),
        mixed=bool(entry.instance_types),
    )
