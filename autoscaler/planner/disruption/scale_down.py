"""Idle EC2 nodes -> cordon, wait, remove. Never a node that runs a job, never another's cordon, never on-prem.

The idle time counts from the mark that the cordon leaves on the node, so a restart goes on where the last run stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Cordon, Remove, Step, Uncordon
from autoscaler.model.cluster import Cluster, Group, Node, Pod
from autoscaler.model.labels import AUTOSCALER
from autoscaler.planner.supply.fleet import Fleet


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """What is done about nodes, wanted and unwanted."""

    uncordons: tuple[Uncordon, ...]
    leaving: tuple[Step, ...]
    wake_at: datetime | None
    """When the next node has stood idle for long enough."""
    kept: Mapping[str, str]
    """Name of a node without pods, or closed by us, that stays -> why, in words."""


def scale_down(
    cluster: Cluster,
    policy: Policy,
    fleet: Fleet,
    *,
    wanted: Mapping[str, str],
    growing: frozenset[str],
    left_alone: frozenset[str] = frozenset(),
    surplus: frozenset[str] = frozenset(),
    leftovers: frozenset[str] = frozenset(),
) -> ScaleDown:
    """Lift our cordons where nodes are used; cordon idle nodes; remove those idle for long enough.

    ``left_alone``: names of nodes that ``node_health`` or ``consolidation`` sees to. ``surplus``: names of idle nodes
    above a limit, which do not wait out their idle time; nor do ``leftovers``, ids of instances that were bought for
    part of a gang.
    """
    uncordons: list[Uncordon] = []
    leaving: list[Step] = []
    due: list[datetime] = []
    kept: dict[str, str] = {}
    may_go: dict[str, int] = {}
    """Group name -> how many of its nodes may go still."""
    for node in _own_nodes(fleet):
        if node.name in left_alone:
            continue
        group = fleet.group_of.get(node.name)
        is_ours = node.cordoned and node.cordoned_by == AUTOSCALER
        why_kept = _why_kept(node, fleet, wanted)
        if group is None or why_kept:
            kept[node.name] = why_kept or "no Auto Scaling group has its instance"
            uncordons += [Uncordon(node=node.name, because=why_kept)] if is_ours and why_kept else []
            continue
        why_left = _why_left(node, group, policy, fleet)
        if why_left:
            kept[node.name] = why_left
            continue
        if may_go.setdefault(group.name, fleet.spare_of(group)) < 1:
            kept[node.name] = keeps_minimum(group)
            uncordons += [Uncordon(node=node.name, because=keeps_minimum(group))] if is_ours else []
            continue
        may_go[group.name] -= 1
        at_once = _why_at_once(node, surplus=surplus, leftovers=leftovers)
        patience = timedelta(0) if at_once else policy.idle_after(group.entry)
        end = node.cordoned_at + patience if is_ours and node.cordoned_at else None
        if end is None:
            leaving.append(Cordon(node=node.name, because=_why_idle(node, group, policy, at_once=at_once)))
        elif end > cluster.seen_at:
            due.append(end)
            kept[node.name] = (
                f"it has stood idle since {node.cordoned_at:%Y-%m-%d %H:%M:%S} UTC, "
                f"and goes at {end:%Y-%m-%d %H:%M:%S} UTC"
            )
        elif group.name in growing:
            kept[node.name] = "nodes are ordered in its group at this moment"
        else:
            leaving.append(_remove(node, group, policy, at_once=at_once))
    return ScaleDown(tuple(uncordons), tuple(leaving), min(due, default=None), kept)


def keeps_minimum(group: Group) -> str:
    """Why a node stays of a group that has no more than it is to have at all times."""
    return f"{group.name} has no more nodes than its minimum, {group.minimum}"


def _own_nodes(fleet: Fleet) -> list[Node]:
    """Nodes that something may be done about: the longest idle first, then the youngest.

    Ours by their group or by the cordon; of those that are open only the ones that nothing runs on.
    """

    def order(node: Node) -> tuple[float, float, str]:
        since = node.cordoned_at.timestamp() if node.cordoned_at else float("inf")
        return (since, -node.created.timestamp(), node.name)

    idle = {name for name in fleet.group_of if not fleet.residents.get(name)}
    looked_at = idle | {node.name for node in fleet.nodes.unsettled if node.cordoned}
    return sorted(
        (
            node
            for node in map(fleet.nodes.named.__getitem__, looked_at)
            if not node.deleting
            and node.name not in fleet.leaving
            and (node.cordoned or not node.do_not_disrupt)
            and (node.name in fleet.group_of or node.cordoned_by == AUTOSCALER)
        ),
        key=order,
    )


def _why_kept(node: Node, fleet: Fleet, wanted: Mapping[str, str]) -> str:
    residents = fleet.residents.get(node.name)
    if residents:
        return run_on_it(residents)
    if node.name in wanted:
        return f"wanted for {wanted[node.name]}"
    return "it is marked do-not-disrupt" if node.do_not_disrupt else ""


def run_on_it(residents: Sequence[Pod]) -> str:
    """Says in words what runs on it, the same in whatever order pods are listed."""
    return f"{residents[0].key} runs on it" if len(residents) == 1 else f"{len(residents)} pods run on it"


def _why_left(node: Node, group: Group, policy: Policy, fleet: Fleet) -> str:
    """Why it is not ours to end, whatever it does; empty where it is."""
    if not policy.scale_down.enabled:
        return "scale_down.enabled is false"
    if group.name in fleet.hands_off:
        return f"terminating in group {group.entry} is paused"
    if node.cordoned and node.cordoned_by != AUTOSCALER:
        return f"it was cordoned by {node.cordoned_by or 'another'}, and is left to that"
    return "" if fleet.is_listed(node) else f"AWS does not list its instance in {group.name}"


def _why_at_once(node: Node, *, surplus: frozenset[str], leftovers: frozenset[str]) -> str:
    """Why it does not wait out its idle time; empty where it does."""
    if node.name in surplus:
        return "is above a limit of the policy, which was lowered below what runs"
    return "was bought for a gang of which EC2 refused the rest" if node.instance_id in leftovers else ""


def _why_idle(node: Node, group: Group, policy: Policy, *, at_once: str) -> str:
    idle = f"{node.name} ({group.instance_type}) runs no job"
    if at_once:
        return f"{idle}, and {at_once}: it goes at once"
    patience = f"{policy.idle_after(group.entry).total_seconds():g} s"
    return f"{idle} and none waits for it; it goes after {patience} idle"


def _remove(node: Node, group: Group, policy: Policy, *, at_once: str) -> Remove:
    why = at_once or f"idle for {policy.idle_after(group.entry).total_seconds():g} s"
    return Remove(
        group=group.name,
        instance=node.instance_id or "",
        node=node.name,
        because=f"{node.name} ({group.instance_type}) {why}: saves {group.usd_per_hour:.2f} $/h",
    )
