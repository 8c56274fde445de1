"""Capacity Blocks for ML: bought for a time, paid for beforehand, and taken back by EC2 before that time is over.

Nothing is launched into one before it starts, nor so late that a node would not be there before it has to be emptied.
Pods are placed in it that end before that, or whose owner says that they may be cut off. Its nodes stay reserved
(``planner/handoff/reservations.py``), so that the scheduler puts no other there. They are emptied as nodes are for
which EC2 has scheduled maintenance, from when EC2's own warning comes: ten minutes before it begins to terminate.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-monitor.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.cluster import CapacityBlock, Cluster, Group, Notice, Pod
from autoscaler.model.constraints import Taint, Toleration
from autoscaler.model.labels import CAPACITY_BLOCK
from autoscaler.model.pauses import BLOCK, Pause

_WARNED: Final = timedelta(minutes=10)
"""Before EC2 begins to terminate: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-monitor.html"""
_CLOCKS: Final = timedelta(seconds=5)
"""After a block's start: by EC2's clock it may not have begun yet, and a refusal closes its group for minutes."""
_ANYWHERE: Final = Toleration(CAPACITY_BLOCK, "Exists")
"""Of a pod that may be cut off, or that has its place."""


def in_their_time(cluster: Cluster, policy: Policy) -> Cluster:
    """Returns the cluster with buying paused in groups of Capacity Blocks that have not begun, or end too soon."""
    pauses = {}
    for group in cluster.groups:
        if group.capacity_type == "capacity-block":
            why, until = _why_not_now(group, cluster.seen_at, policy)
            if why:
                pauses[group.entry] = Pause(f"{BLOCK}.{group.entry}", because=why, until=until)
    return replace(cluster, pauses=(*cluster.pauses, *pauses.values())) if pauses else cluster


def _why_not_now(group: Group, now: datetime, policy: Policy) -> tuple[str, datetime | None]:
    name, block = f"Capacity Block {group.reservation}", group.block
    if block is None:
        return f"it is not known when {name} begins and ends", None
    if now < block.starts + _CLOCKS:
        return f"{name} begins at {block.starts:%Y-%m-%d %H:%M:%S} UTC", block.starts + _CLOCKS
    if now >= _last_purchase(block, policy):
        taken = f"EC2 takes back what is in {name} at {block.taken_back:%Y-%m-%d %H:%M:%S} UTC"
        return f"{taken}: a node would not be of use before", None
    return "", None


def _last_purchase(block: CapacityBlock, policy: Policy) -> datetime:
    return block.taken_back - _WARNED - policy.scale_up.boot_timeout


def notices(cluster: Cluster) -> Iterator[Notice]:
    """Yields notices for instances in blocks that end soon."""
    for group in cluster.groups:
        if group.block is not None and cluster.seen_at >= group.block.taken_back - _WARNED:
            told = group.block.taken_back - _WARNED
            yield from (Notice(one.id, "capacity-block", told, group.block.taken_back) for one in group.instances)


def looks_at_blocks(cluster: Cluster, policy: Policy) -> Iterator[datetime]:
    """When a block begins, is bought in for the last time, and is emptied."""
    for group in cluster.groups:
        if group.block is not None:
            begins = group.block.starts + _CLOCKS
            yield from (begins, _last_purchase(group.block, policy), group.block.taken_back - _WARNED)


def keeps_off(group: Group) -> tuple[Taint, ...]:
    """What a pod must tolerate, in the planner's eyes, to be placed in the group's block."""
    return (Taint(CAPACITY_BLOCK, group.reservation),) if group.block is not None else ()


@dataclass(frozen=True, slots=True)
class LastsLongEnough:
    """Which pods may be placed in which blocks, at one moment."""

    now: datetime
    groups: tuple[Group, ...]
    boot: timedelta

    @classmethod
    def of(cls, cluster: Cluster, policy: Policy) -> LastsLongEnough:
        """Makes the question for pods that wait now."""
        groups = tuple(group for group in cluster.groups if group.block is not None)
        return cls(cluster.seen_at, groups, policy.scale_up.boot_timeout)

    def let_in(self, pod: Pod, *, has_place: bool = False, planned_in: str = "") -> Pod:
        """The pod, with what it may be placed in: blocks in which it ends before they are emptied.

        One that ``has_place`` keeps it. The time that a node needs to join is left for it where it is planned first,
        and may be used up in the group that it was ``planned_in``.
        """
        if not self.groups:
            return pod
        if has_place or pod.safe_to_evict:
            return replace(pod, tolerations=(*pod.tolerations, _ANYWHERE))
        suit = [group for group in self.groups if self._ends_in_time(pod, group, boots=group.name != planned_in)]
        tolerated = tuple(Toleration(CAPACITY_BLOCK, "Equal", group.reservation) for group in suit)
        return replace(pod, tolerations=(*pod.tolerations, *dict.fromkeys(tolerated))) if suit else pod

    def _ends_in_time(self, pod: Pod, group: Group, *, boots: bool) -> bool:
        if pod.duration is None or group.block is None:
            return False
        begins = max(self.now, group.block.starts) + (self.boot if boots else timedelta(0))
        return begins + pod.duration <= group.block.taken_back - _WARNED
