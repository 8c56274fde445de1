"""Nodes that are kept free beyond what pods need, so that the next job starts at once: kept idle, or bought.

A pod that comes takes such a node like any other; then the next look buys another one, within all limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Assignment, Grow, Step
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.enumeration import counted
from autoscaler.planner.placement.available_offerings import affordable
from autoscaler.planner.placement.offerings import Ceilings
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import Fleet
from autoscaler.planner.supply.node_places import is_ready


@dataclass(frozen=True, slots=True)
class Headroom:
    """What is done to keep nodes free."""

    steps: tuple[Step, ...]
    """Those that were planned for pods; purchases with what is bought beyond."""
    kept: Mapping[str, str]
    """Name of an idle node that stays -> what for."""
    lacking: bool = False
    """Whether fewer are free, or on their way, than wanted."""


def keep_free(
    cluster: Cluster,
    policy: Policy,
    fleet: Fleet,
    steps: tuple[Step, ...],
    *,
    wanted: Collection[str],
    assignments: Mapping[str, Assignment],
    may_buy: bool,
) -> Headroom:
    """Keep idle nodes of each entry with a headroom, and buy what lacks.

    ``steps``: what is done for pods; ``wanted``: nodes that pods are planned on; ``assignments``: of each pod.
    ``may_buy``: else pods for which purchases wait would take what is bought now.
    """
    entries = [entry for entry in policy.groups if entry.headroom]
    if not entries:
        return Headroom(steps, {})
    bought = fleet.bought_by(steps, cluster.groups)
    left = affordable(cluster, policy, fleet)
    for group in cluster.groups:
        left.take(group, bought[group.name])
    kept: dict[str, str] = {}
    more: Counter[str] = Counter()
    lacking = False
    for entry in entries:
        groups = [group for group in cluster.groups if group.entry == entry.name]
        idle = [place for place in _idle(fleet, entry.name) if place.name not in wanted][: entry.headroom]
        kept |= {place.name: f"the headroom of group {entry.name}" for place in idle}
        coming = sum(_unclaimed(group, fleet, bought[group.name], assignments) for group in groups)
        lack = entry.headroom - len(idle) - coming
        if lack > 0:
            found = _buy(groups, lack, fleet, left, bought) if may_buy else Counter()
            more += found
            lacking |= found.total() < lack
    return Headroom(_with(steps, more, cluster, fleet), kept, lacking=lacking)


def _group(cluster: Cluster, step: Grow) -> Group:
    return next(group for group in cluster.groups if group.name == step.group)


def _idle(fleet: Fleet, entry: str) -> list[Place]:
    """Registered nodes of the entry without pods: those that are ready first, then the oldest."""
    found = [
        place
        for place in fleet.places
        if place.group is not None and place.group.entry == entry and not place.standing and place.node is not None
    ]
    return sorted(found, key=lambda place: (not is_ready(place), place.node and place.node.created, place.name))


def _unclaimed(group: Group, fleet: Fleet, bought: int, assignments: Mapping[str, Assignment]) -> int:
    """Machines of the group that are on their way, or bought now, and that no pod is planned on."""
    there = {place.name for place in fleet.places}
    claimed = {one.node for one in assignments.values() if one.group == group.name and one.node not in there}
    return max(0, fleet.outstanding[group.name] + bought - len(claimed))


def _buy(groups: Iterable[Group], lack: int, fleet: Fleet, left: Ceilings, bought: Counter[str]) -> Counter[str]:
    """The cheapest first, within the limits, which are counted down."""
    found: Counter[str] = Counter()
    for group in sorted(groups, key=lambda group: (group.usd_per_hour, fleet.failed_of(group), group.name)):
        if group.name in fleet.closed or group.name in fleet.paused:
            continue
        room = max(0, group.maximum - fleet.size_of(group) - bought[group.name])
        found[group.name] = left.nodes_left(group, min(room, lack - found.total()))
        left.take(group, found[group.name])
    return found


def _with(steps: tuple[Step, ...], more: Counter[str], cluster: Cluster, fleet: Fleet) -> tuple[Step, ...]:
    """The steps, with so many nodes more bought in these groups."""
    grown = {step.group for step in steps if isinstance(step, Grow)}
    changed = tuple(_larger(step, more, cluster) if isinstance(step, Grow) else step for step in steps)
    groups = {group.name: group for group in cluster.groups}
    return (
        *changed,
        *(
            Grow(
                group=name,
                was=fleet.desired_of(groups[name]),
                to=fleet.size_of(groups[name]) + by,
                usd_per_hour=round(by * groups[name].usd_per_hour, 6),
                demand=(),
                because=_because(groups[name], by),
            )
            for name, by in sorted(more.items())
            if by and name not in grown
        ),
    )


def _larger(step: Grow, more: Counter[str], cluster: Cluster) -> Grow:
    by = more[step.group]
    if not by:
        return step
    group = _group(cluster, step)
    usd = round(step.usd_per_hour + by * group.usd_per_hour, 6)
    return replace(step, to=step.to + by, usd_per_hour=usd, because=f"{step.because}; {_because(group, by)}")


def _because(group: Group, by: int) -> str:
    return f"{counted(by, 'node')} for the headroom of group {group.entry}"
