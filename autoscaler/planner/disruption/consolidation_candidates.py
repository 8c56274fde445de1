"""Consolidation's candidates: nodes that may be emptied by evicting their pods, and why another node or pod stays.

Moved is what a controller makes anew and what loses nothing by it; see :func:`why_not_moved`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from autoscaler.config.policy import Consolidation as ConsolidationRules
from autoscaler.config.policy import Policy
from autoscaler.model.actions import Memory
from autoscaler.model.cluster import Cluster, Group, Node, Pod
from autoscaler.model.labels import GPU
from autoscaler.planner.disruption.drain_brake import DrainBrake
from autoscaler.planner.disruption.scale_down import keeps_minimum
from autoscaler.planner.supply.fleet import Fleet


def why_not_moved(pod: Pod) -> str:
    """Why a running pod is not evicted, in words; empty where it may be.

    Moved is what a controller makes anew and what loses nothing by it. A pod with GPUs, of a Job, or of no controller
    is moved only where it says ``cluster-autoscaler.kubernetes.io/safe-to-evict: "true"``; a gang's never, nor one that
    is marked do-not-disrupt.
    """
    return _why_never_moved(pod) or ("" if pod.safe_to_evict else _why_not_unless_allowed(pod))


def why_not_emptied(
    node: Node, cluster: Cluster, policy: Policy, fleet: Fleet, memory: Memory, *, wanted: Collection[str]
) -> str:
    """Why a node of a group, with pods on it, is not emptied to save its price: in words, the first thing in the way.

    ``wanted``: names of nodes that pods are planned on.
    """
    rules, group, pods = policy.scale_down.consolidation, fleet.group_of[node.name], fleet.residents[node.name]
    if not (policy.scale_down.enabled and rules.enabled):
        return f"scale_down.{'consolidation.' if policy.scale_down.enabled else ''}enabled is false"
    brake = DrainBrake.of(cluster, policy, fleet, memory)
    spare = fleet.spare_of(group)
    why = why_never(node, group, spare, fleet, rules) or why_not_now(node, fleet, wanted, brake)
    if why:
        return why
    stuck = [f"{pod.key}: {why}" for pod in pods if (why := why_not_moved(pod))]
    if stuck:
        return "; ".join(stuck[:3]) + (f"; and {len(stuck) - 3} more pods" if len(stuck) > 3 else "")  # noqa: PLR2004
    why, _ = why_unsettled(pods, policy.idle_after(group.entry), rules, cluster.seen_at)
    begun = [name for name, since in brake.begun.items() if since + rules.every > cluster.seen_at]
    if not why and len(begun) >= rules.nodes:
        return f"{', '.join(sorted(begun))} was begun with: {rules.nodes} in each window of {rules.every}"
    return (
        why
        or brake.why_held()
        or "its pods have room nowhere else, or moving them would not save enough, or others are in turn before it"
    )


def why_never(node: Node, group: Group, spare: int, fleet: Fleet, rules: ConsolidationRules) -> str:
    """Why it is no candidate, whatever its pods are; empty where it is. ``spare``: nodes that the group may lose."""
    if spare <= 0:
        return keeps_minimum(group)
    if group.usd_per_hour <= rules.saving_usd_per_hour:
        return f"its price is not above scale_down.consolidation.saving_usd_per_hour, {rules.saving_usd_per_hour:g} $/h"
    if node.do_not_disrupt:
        return "it is marked do-not-disrupt"
    return "terminating in its group is paused" if group.name in fleet.hands_off else ""


def why_not_now(node: Node, fleet: Fleet, wanted: Collection[str], brake: DrainBrake) -> str:
    """Why it is no candidate at this look; empty where it is."""
    if node.name in fleet.noticed:
        return str(fleet.noticed[node.name])
    if node.name in fleet.faults.closed:
        return fleet.faults.closed[node.name]
    if node.cordoned or node.deleting or not node.ready or node.name in fleet.leaving:
        return "it is closed, not ready, or on its way out"
    if node.name in wanted:
        return "more pods are to come onto it"
    if node.name in brake.resting:
        begun = f"{brake.resting[node.name]:%Y-%m-%d %H:%M:%S} UTC"
        return f"it was begun with at {begun}, and could not be emptied: it has an hour's rest"
    return ""


def why_unsettled(
    pods: Collection[Pod], idle: timedelta, rules: ConsolidationRules, now: datetime
) -> tuple[str, list[datetime]]:
    """Why its pods, which may all be moved, are left alone for now, and when to ask again; empty where they are not."""
    if any(pod.deleting or pod.started is None for pod in pods):
        return "a pod on it has not started, or is being deleted", []
    settled = max(pod.started for pod in pods if pod.started is not None) + rules.after
    if settled > now:
        return (
            f"its pods have run for less than scale_down.consolidation.after: until {settled:%Y-%m-%d %H:%M:%S} UTC",
            [settled],
        )
    ends = [pod.started + pod.duration for pod in pods if pod.started and pod.duration is not None]
    soon = [end for end in ends if timedelta(0) < end - now <= idle]
    return (f"a pod on it is expected to end by {max(soon):%Y-%m-%d %H:%M:%S} UTC", soon) if soon else ("", [])


def _why_never_moved(pod: Pod) -> str:
    if pod.do_not_disrupt:
        return "it is marked do-not-disrupt"
    if pod.gang is not None:
        return "it is of a gang"
    return "it has rules that Spillway does not plan for" if pod.not_understood else ""


def _why_not_unless_allowed(pod: Pod) -> str:
    if not pod.owner:
        return "no controller would make it anew"
    if pod.requests[GPU]:
        return "it holds a GPU"
    return "it is of a Job, and would begin again" if pod.owner.startswith("Job/") else ""
