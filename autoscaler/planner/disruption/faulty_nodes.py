"""What is done about nodes whose hardware is at fault: closed, on-prem ones too, and on EC2 ended once they are empty.

Running pods stay: a job that the fault breaks ends by itself, and starts again elsewhere. A machine that we own is
opened again when its conditions are well.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Cordon, Remove, Step, Uncordon
from autoscaler.model.cluster import Cluster, Group, Node
from autoscaler.model.labels import AUTOSCALER, GROUP
from autoscaler.planner.disruption.scale_down import run_on_it
from autoscaler.planner.supply.fleet import Fleet


@dataclass(frozen=True, slots=True)
class FaultyNodes:
    """What is done, and what is told."""

    steps: tuple[Step, ...]
    warnings: tuple[str, ...]
    seen_to: frozenset[str]
    """Names of nodes that no other rule opens or ends."""


def faulty_nodes(cluster: Cluster, policy: Policy, fleet: Fleet, *, resized: Collection[str]) -> FaultyNodes:
    """Close them, end the empty ones of EC2, open machines of ours that are well again.

    Nothing is done about nodes that another has closed, that are not ready, or that EC2 takes back, nor in a group that
    is paused; no node is ended at its group's minimum, nor in a group that the same plan resizes (``resized``).
    """
    steps: list[Step] = []
    warnings: list[str] = []
    seen_to: set[str] = set()
    looked_at = {node.name for node in fleet.nodes.unsettled} | fleet.faults.closed.keys() | fleet.faults.told.keys()
    for node in map(fleet.nodes.named.__getitem__, sorted(looked_at)):
        group, why = fleet.group_of.get(node.name), fleet.faults.closed.get(node.name)
        if node.name in fleet.faults.told:
            warnings.append(f"node {node.name}: {fleet.faults.told[node.name]}; it stays open, for faults.share of all")
        is_own_closed = _is_own(node, group) and node.cordoned and node.cordoned_by == AUTOSCALER
        seen_to |= {node.name} if is_own_closed or (why is not None and node.ready) else set()
        if _is_left_alone(node, group, cluster, fleet):
            continue
        if why is None:
            is_well = is_own_closed and node.name not in fleet.faults.told
            steps += [Uncordon(node.name, "its hardware is well again")] if is_well else []
            continue
        warnings.append(_told(node, why, fleet))
        if not node.cordoned:
            steps.append(Cordon(node.name, why))
        elif group is not None and _may_end(node, group, policy, fleet) and group.name not in resized:
            because = f"{node.name} ({group.instance_type}): {why}, and no pod is on it"
            steps.append(Remove(group.name, node.instance_id or "", node.name, because))
    return FaultyNodes(tuple(steps), tuple(warnings), frozenset(seen_to))


def _is_left_alone(node: Node, group: Group | None, cluster: Cluster, fleet: Fleet) -> bool:
    """It is another's, or another rule sees to it."""
    is_paused = any(pause.stops_terminating(group.entry if group else "") for pause in cluster.pauses)
    is_ending = node.deleting or node.name in fleet.leaving or node.name in fleet.ghosts or node.name in fleet.noticed
    return is_paused or is_ending or not node.ready or (node.cordoned and node.cordoned_by != AUTOSCALER)


def _is_own(node: Node, group: Group | None) -> bool:
    """A machine that we own: the autoscaler closes it for faults alone."""
    return group is None and node.instance_id is None and GROUP not in node.labels


def _may_end(node: Node, group: Group, policy: Policy, fleet: Fleet) -> bool:
    is_empty = not fleet.residents.get(node.name) and not node.do_not_disrupt
    return is_empty and policy.scale_down.enabled and fleet.spare_of(group) > 0


def _told(node: Node, why: str, fleet: Fleet) -> str:
    residents = fleet.residents.get(node.name, ())
    pods = f"; {run_on_it(residents)}" if residents else ""
    return f"node {node.name}: {why}: nothing is started on it{pods}"
