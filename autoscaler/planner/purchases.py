"""What a packing asks of EC2: groups to grow, for which pods and why; and what EC2 did not give, taken back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Cancel, Grow, Remove
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.enumeration import counted
from autoscaler.model.feasibility import amount_in_words
from autoscaler.model.resources import CPU, MEMORY, Resources
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.placement.gang_packing import Packing, Placed
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import ON_PREM_TIER
from autoscaler.planner.supply.fleet import Fleet


def purchases(gangs: Sequence[Gang], packing: Packing, fleet: Fleet, free: Resources) -> list[Grow]:
    """One step per group, for all the gangs that need it."""
    nodes: Counter[str] = Counter()
    groups: dict[str, Group] = {}
    demand: dict[str, list[str]] = defaultdict(list)
    because: dict[str, str] = {}
    whose: Counter[str] = Counter()
    """Group name -> gangs that it is bought for; the first of them says why."""
    for gang in gangs:
        placed = packing.placed.get(gang.name)
        if placed is None:
            continue
        for place in placed.bought:
            if place.group is not None:
                groups[place.group.name] = place.group
                nodes[place.group.name] += 1
        for name in sorted({place.group.name for place in placed.bought if place.group}):
            whose[name] += 1
            if name not in because:
                because[name] = _why_bought(gang, placed, free)
        for key, place in placed.places:
            if place.price and place.group:
                demand[place.group.name].append(key)
        free -= _taken_on_prem(gang, placed)
    return [
        Grow(
            group=name,
            was=fleet.desired_of(groups[name]),
            to=fleet.size_of(groups[name]) + by,
            usd_per_hour=round(by * groups[name].usd_per_hour, 6),
            demand=tuple(sorted(demand[name])),
            because=because[name] + (f" (and for {whose[name] - 1} more)" if whose[name] > 1 else ""),
        )
        for name, by in sorted(nodes.items())
    ]


def _why_bought(gang: Gang, placed: Placed, free: Resources) -> str:
    asked = Resources.total(pod.requests for pod in gang.waiting)
    devices = [name for name in asked if "/" in name]
    names = devices or [CPU, MEMORY]
    pods = counted(len(gang.waiting), "pod")
    whose = f"pod {gang.name}" if gang.is_lone else f"gang {gang.name} ({pods})"
    lack = ", ".join(_asked_and_free(name, asked[name], free[name]) for name in names)
    if all(asked[name] <= free[name] for name in names):
        lack += " in sum, but not where it may run, or not in one piece"
    kinds = Counter((place.group.instance_type, place.group.zone) for place in placed.bought if place.group is not None)
    bought = " and ".join(f"{count} x {kind} in {zone}" for (kind, zone), count in sorted(kinds.items()))
    return f"{whose} does not fit on-prem ({lack}): {bought} is the cheapest whole fit at {placed.usd:.2f} $/h"


def _asked_and_free(resource: str, asked: int, free: int) -> str:
    return f"{amount_in_words(resource, asked)} {resource} asked, {amount_in_words(resource, free)} free"


def _taken_on_prem(gang: Gang, placed: Placed) -> Resources:
    at_home = {key for key, place in placed.places if place.tier == ON_PREM_TIER}
    return Resources.total(pod.requests for pod in gang.waiting if pod.key in at_home)


def free_on_prem(snapshot: Snapshot) -> Resources:
    """What machines that we own have left, in sum."""
    free: dict[str, int] = {}
    for place in snapshot.places:
        if place.tier == ON_PREM_TIER:
            for name, amount in place.free.items():
                if amount > 0:
                    free[name] = free.get(name, 0) + amount
    return Resources(free)


def cancellations(cluster: Cluster, fleet: Fleet) -> list[Cancel]:
    """Machines that EC2 was asked for and has refused of late are not asked for any longer."""
    found = []
    for group in sorted(cluster.groups, key=lambda group: group.name):
        refused = fleet.refused[group.name]
        if refused:
            code = group.refusals[0].code
            because = f"EC2 refused {counted(refused, 'node')} of {group.instance_type} in {group.zone} ({code})"
            found.append(Cancel(group=group.name, was=group.desired, to=group.desired - refused, because=because))
    return found


def never_joined(fleet: Fleet, policy: Policy) -> list[Remove]:
    """Instances that had their time to join are given up."""
    patience = f"{policy.scale_up.boot_timeout.total_seconds():g} s"
    return [
        Remove(
            group=group.name,
            instance=instance.id,
            node=None,
            because=f"instance {instance.id} ({group.instance_type}) has not joined within {patience}",
            is_dead=True,
        )
        for group, instance in fleet.lost
    ]
