"""Nodes that EC2 is about to take back: closed and emptied ahead of time, and ended before a successor is launched.

A spot interruption leaves two minutes, scheduled maintenance days; a rebalance recommendation says that an interruption
is likely. https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Cordon, Evict, Remove, Step
from autoscaler.model.cluster import Cluster, Group, Node, Notice, Pod
from autoscaler.model.labels import AUTOSCALER
from autoscaler.planner.disruption.consolidation_candidates import why_not_moved
from autoscaler.planner.disruption.drain_brake import DrainBrake
from autoscaler.planner.supply.fleet import Fleet

_EVICT_ALL: Final = timedelta(minutes=10)
"""So long before EC2 acts also pods go that would lose work: they would lose it anyway, without their grace."""
_END: Final = timedelta(seconds=5)
"""So long before EC2 acts the instance is ended with what is on it: its group launches no successor then."""


@dataclass(frozen=True, slots=True)
class Interruptions:
    """What is done about nodes that EC2 is about to take back."""

    steps: tuple[Step, ...]
    wake_at: datetime | None
    """When time alone asks for more."""
    warnings: tuple[str, ...]


def interruptions(
    cluster: Cluster, policy: Policy, fleet: Fleet, brake: DrainBrake, *, resized: Collection[str]
) -> Interruptions:
    """Close them, evict their pods, and terminate them in their groups once they are empty, or just before EC2 does.

    Evicted at once are pods that may be moved (:func:`why_not_moved`); others when the end is certain and near. Of
    nodes that EC2 only warns of, no more are emptied than the brake lets. A group whose size the same plan changes, or
    an order without an answer may (``resized``), loses none by it: these start from the size that was seen. Nothing is
    done in a group whose terminating is paused, nor on nodes that another has closed; without ``scale_down.enabled``
    EC2 ends them itself.
    """
    steps: list[Step] = []
    warnings: list[str] = []
    due: list[datetime] = []
    for name, notice in sorted(fleet.noticed.items(), key=itemgetter(0)):
        node, group = fleet.nodes.named[name], fleet.group_of[name]
        why_left = why_left_alone(node, group, fleet)
        if why_left:
            warnings.append(f"node {node.name}: {notice}; its pods stay, for {why_left}")
            continue
        may_end = policy.scale_down.enabled and group.name not in resized
        about = list(_about(node, group, notice, cluster.seen_at, fleet, may_end=may_end))
        if not notice.is_certain and any(isinstance(step, Evict) for step in about) and not brake.lets(name):
            warnings.append(f"node {node.name}: {notice}; it is closed, and its pods stay for now: {brake.why_held()}")
            about = [step for step in about if not isinstance(step, Evict)]
        steps += about
        due += [notice.ends - _EVICT_ALL, notice.ends - _END] if notice.ends is not None else []
    return Interruptions(
        tuple(steps), min((one for one in due if one > cluster.seen_at), default=None), tuple(warnings)
    )


def why_left_alone(node: Node, group: Group, fleet: Fleet) -> str:
    """Why nothing is done with a node that EC2 takes back, or may; empty where something is."""
    if group.name in fleet.hands_off:
        return f"terminating in group {group.entry} is paused"
    if node.cordoned and node.cordoned_by != AUTOSCALER:
        return f"it was cordoned by {node.cordoned_by or 'another'}"
    return ""


def _about(
    node: Node, group: Group, notice: Notice, now: datetime, fleet: Fleet, *, may_end: bool
) -> Iterator[Cordon | Evict | Remove]:
    if not node.cordoned:
        yield Cordon(node.name, str(notice))
    residents = fleet.residents.get(node.name, ())
    is_over = notice.ends is not None and now >= notice.ends - _END
    if residents and not is_over:
        pods = tuple(sorted(pod.key for pod in residents if not pod.deleting and _goes(pod, notice, now)))
        if pods:
            yield Evict(node.name, pods, str(notice))
    elif node.cordoned and may_end and (notice.is_certain or fleet.spare_of(group) > 0):
        state = f"{len(residents)} pods have not ended" if residents else "no pod is on it any more"
        because = f"{node.name}: {notice}, and {state}"
        yield Remove(group.name, node.instance_id or "", node.name, because, is_taken_back=notice.is_certain)


def _goes(pod: Pod, notice: Notice, now: datetime) -> bool:
    """Whether the pod is evicted now."""
    is_near = notice.is_certain and (notice.ends is None or now >= notice.ends - _EVICT_ALL)
    return is_near or not why_not_moved(pod)
