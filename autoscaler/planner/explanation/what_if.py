"""What would be done for pods that are not there yet, and which of them could never have a place.

The first is asked beside everything that is there now; the second as if nothing else were, all machines in order and
nothing paused: what has no place even then is never going to have one as machines and policy stand. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoscaler.config.policy import Policy
from autoscaler.model.actions import IMPOSSIBLE, PATIENCE, STARTING, Memory, Plan, Waiting
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.errors import BadInput
from autoscaler.model.labels import GROUP
from autoscaler.model.volumes import Storage, Volume
from autoscaler.planner.placement.available_offerings import COMING
from autoscaler.planner.plan import plan

_PASSING = "node.kubernetes.io/"
"""Taints that Kubernetes itself sets: not ready, unreachable, under pressure, closed."""


@dataclass(frozen=True, slots=True)
class Bought:
    """Nodes of one group that would be bought."""

    group: str
    instance_type: str
    capacity_type: str
    usd_per_hour: float
    """Of each."""
    nodes: int


@dataclass(frozen=True, slots=True)
class Reason:
    """Why some of the pods would wait, and what would have to change."""

    because: str
    would_fit_if: str
    pods: int


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer."""

    on_nodes: dict[str, int]
    """Name of a node that is there -> pods that would go there."""
    on_the_way: dict[str, int]
    """Group -> pods that would go to its nodes that are on their way, or bought for other pods in any case."""
    bought: tuple[Bought, ...]
    waiting: tuple[Reason, ...]


def what_if(cluster: Cluster, policy: Policy, memory: Memory, pods: Sequence[Pod]) -> WhatIf:
    """Answers for these pods. Nodes that are bought without them, too, are not counted.

    Raises ``BadInput`` where a pod of that name is there already.
    """
    asked = _pending(cluster, pods)
    keys = {pod.key for pod in asked}
    beside = replace(cluster, pods=(*cluster.pods, *asked))
    memory = replace(memory, orders={})  # where an order is open, its group would order nothing more for now
    before, decided = plan(cluster, policy, memory), plan(beside, policy, memory)
    places = {key: home for key, home in decided.memory.assignments.items() if key in keys}
    others = {home for key, home in decided.memory.assignments.items() if key not in keys}
    nodes, groups = {node.name for node in cluster.nodes}, {group.name: group for group in cluster.groups}
    new = _purchases(decided, nodes) - _purchases(before, nodes)
    to_come = [home for home in places.values() if home.node not in nodes]
    shared = (home.group for home in to_come if home in others or COMING in home.node or not new[home.group])
    return WhatIf(
        on_nodes=dict(sorted(Counter(home.node for home in places.values() if home.node in nodes).items())),
        on_the_way=dict(sorted(Counter(shared).items())),
        bought=tuple(
            Bought(name, groups[name].instance_type, groups[name].capacity_type, groups[name].usd_per_hour, many)
            for name, many in sorted(new.items())
        ),
        waiting=_reasons(one for one in decided.waiting if one.pod in keys and one.pod not in places),
    )


def impossible(cluster: Cluster, policy: Policy, pods: Sequence[Pod]) -> tuple[Reason, ...]:
    """Returns which of these pods no machine and no group could hold even if they were alone.

    Neither with the nodes of groups that are there now, nor once those have been terminated, which leaves what limits
    and quotas allow to these pods; told is what stands in the way then.

    Raises ``BadInput`` where a pod of that name is there already.
    """
    asked = _pending(cluster, pods)
    alone = _alone(cluster, asked)
    now = {one.pod for one in _never(plan(alone, policy, Memory()), asked)}
    if not now:
        return ()
    return _reasons(one for one in _never(plan(_shrunk(alone), policy, Memory()), asked) if one.pod in now)


def _pending(cluster: Cluster, pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Returns the pods as if they were created now; raises ``BadInput`` where one is there already."""
    there = {pod.key for pod in cluster.pods}
    taken = [pod.key for pod in pods if pod.key in there]
    if taken:
        raise BadInput(f"pod {taken[0]} is there already")
    return tuple(replace(pod, created=cluster.seen_at) for pod in pods)


def _purchases(decided: Plan, there: Collection[str]) -> Counter[str]:
    """Group -> its nodes that pods are planned on and that are neither there nor on their way."""
    homes = {home for home in decided.memory.assignments.values() if home.node not in there}
    return Counter(home.group for home in homes if COMING not in home.node)


def _alone(cluster: Cluster, pods: tuple[Pod, ...]) -> Cluster:
    """The machines without other work, in order; daemons stay."""
    daemons = tuple(pod for pod in cluster.pods if pod.is_daemon)
    nodes = tuple(
        replace(
            node,
            ready=True,
            cordoned=False,
            cordoned_by="",
            cordoned_at=None,
            conditions=(),
            taints=tuple(one for one in node.taints if not one.key.startswith(_PASSING)),
        )
        for node in cluster.nodes
        if not node.deleting
    )
    groups = tuple(replace(group, refusals=()) for group in cluster.groups)
    storage = _as_bound(cluster.storage) if cluster.storage is not None else None
    nothing: dict[str, Any] = {"pauses": (), "notices": (), "provisioning_requests": ()}
    return replace(cluster, pods=(*daemons, *pods), nodes=nodes, groups=groups, storage=storage, **nothing)


def _shrunk(cluster: Cluster) -> Cluster:
    """Returns the cluster without the nodes of groups: every one that is needed is bought."""
    used: Counter[str] = Counter()
    for group in cluster.groups:
        used[group.quota] += group.vcpus * len(group.instances)
    groups = (
        replace(
            group,
            desired=0,
            launching=0,
            instances=(),
            quota_left=None if group.quota_left is None else group.quota_left + used[group.quota],
        )
        for group in cluster.groups
    )
    nodes = tuple(node for node in cluster.nodes if GROUP not in node.labels)
    return replace(cluster, groups=tuple(groups), nodes=nodes)


def _as_bound(storage: Storage) -> Storage:
    """Claims that are bound without waiting for a pod have a volume a moment later, which every node may use."""
    soon = {
        key: replace(claim, volume=f"of {claim.namespace}/{claim.name}")
        for key, claim in storage.claims.items()
        if not claim.volume and storage.binds_at_once(claim)
    }
    made = {claim.volume: Volume(claim.volume) for claim in soon.values()}
    return replace(storage, claims={**storage.claims, **soon}, volumes={**storage.volumes, **made})


def _never(decided: Plan, pods: Iterable[Pod]) -> Iterable[Waiting]:
    """Yields every reason that keeps a gang from starting; of a pod that stands alone, that nothing could hold it."""
    in_gangs = {pod.key for pod in pods if pod.gang is not None}
    for one in decided.waiting:
        if one.pod in decided.memory.assignments:
            continue
        if one.cause == IMPOSSIBLE or (one.pod in in_gangs and one.cause not in (STARTING, PATIENCE)):
            yield one


def _reasons(waiting: Iterable[Waiting]) -> tuple[Reason, ...]:
    many = Counter((one.because, one.would_fit_if) for one in waiting)
    return tuple(Reason(because, change, count) for (because, change), count in many.most_common())
