"""A node, there or to come, as a place for pods: its room, labels, taints and the order in which it is filled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.cluster import Cluster, DaemonSet, Group, Node
from autoscaler.model.constraints import Taint
from autoscaler.model.feasibility import why_not_on
from autoscaler.model.pod_index import Load
from autoscaler.model.resources import PODS, Resources
from autoscaler.planner.supply.candidate_nodes import (
    COMING_TIER,
    CORDONED_TIER,
    EC2_TIER,
    ENDING_TIER,
    ON_PREM_TIER,
    Place,
)
from autoscaler.planner.supply.capacity_blocks import keeps_off
from autoscaler.planner.supply.ending_nodes import EndingNodes

_PASSING_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
"""Go by themselves when a node becomes ready or its cordon is lifted."""


def labels_of(group: Group, hostname: str) -> dict[str, str]:
    """The labels of a new node of the group: those that are said of it, and what its kubelet and the roles add."""
    said = {
        words.ZONE: group.zone,
        **({} if group.mixed else {words.INSTANCE_TYPE: group.instance_type}),
        words.CAPACITY_TYPE: group.capacity_type,
        words.ORIGIN: words.EC2,
        words.GROUP: group.entry,
        words.ARCH: "amd64",
        words.OS: "linux",
        **group.labels,
        words.HOSTNAME: hostname,
    }
    has_gpus = group.allocatable[words.GPU] > 0
    added = {words.OLD_ARCH: said[words.ARCH], words.OLD_OS: said[words.OS]}
    return added | ({words.GPU_PRESENT: "true"} if has_gpus else {}) | said


def is_ready(place: Place) -> bool:
    """Whether its kubelet is, and it is not cordoned: devices may still be missing."""
    return place.node is not None and place.node.ready and not place.node.cordoned


def has_joined(place: Place) -> bool:
    """Whether pods can be bound to it now, as far as the node itself goes."""
    return is_ready(place) and place.tier != COMING_TIER


def new_place(group: Group, name: str, room: dict[str, int]) -> Place:
    """A node of the group that is not there yet."""
    return Place(
        name=name,
        labels=labels_of(group, name),
        taints=(*group.taints, *keeps_off(group)),
        free=room,
        tier=COMING_TIER,
        group=group,
        standing=False,
    )


def room_for_pods(group: Group, *, cluster: Cluster) -> Resources:
    """Returns the room of a new node of the group, without what DaemonSets take of it."""
    return group.allocatable - _overhead(cluster, group)


def _overhead(cluster: Cluster, group: Group) -> Resources:
    return Resources.total(_one_pod(daemon.requests) for daemon in _daemon_sets_on(group, cluster))


def _daemon_sets_on(group: Group, cluster: Cluster) -> Iterator[DaemonSet]:
    """Those that have a pod on a new node of the group."""
    if not cluster.daemon_sets:
        return
    labels = labels_of(group, "new")
    for daemon in cluster.daemon_sets:
        why = why_not_on(affinity=daemon.affinity, tolerations=daemon.tolerations, labels=labels, taints=group.taints)
        if why is None:
            yield daemon


def _one_pod(requests: Resources) -> Resources:
    return requests if requests[PODS] else requests + Resources({PODS: 1})


def place_of(
    node: Node, group: Group | None, load: Load, *, cluster: Cluster, policy: Policy, is_ending: EndingNodes
) -> Place:
    """A node that is there, with what its pods leave; as it will be where devices are still to register."""
    allocatable, coming = _expected(node, group, cluster, policy)
    free = dict(allocatable.items())
    for name, amount in load.used.items():
        free[name] = free.get(name, 0) - amount
    if group is not None:
        _keep_room_for_daemons(free, cluster, group, load.daemons)
    return Place(
        name=node.name,
        labels={**labels_of(group, node.name), **node.labels} if coming and group else _labels(node),
        taints=_taints(node, group, passing=coming or node.cordoned),
        free=free,
        tier=_tier(node, group, coming=coming, ending=is_ending(group, load)),
        node=node,
        group=group,
        standing=group is None or bool(load.residents),
        ports=load.ports,
    )


def as_opened(node: Node) -> Node:
    """Returns the node as it will be once it is ready and no longer cordoned."""
    taints = tuple(taint for taint in node.taints if taint.key not in _PASSING_TAINTS)
    return replace(node, cordoned=False, ready=True, conditions=(), taints=taints)


def _labels(node: Node) -> Mapping[str, str]:
    return node.labels if words.HOSTNAME in node.labels else {**node.labels, words.HOSTNAME: node.name}


def _expected(node: Node, group: Group | None, cluster: Cluster, policy: Policy) -> tuple[Resources, bool]:
    """What the node offers or will, and whether that is still to come: devices register after the kubelet does."""
    if group is None:
        return node.allocatable, False
    lacking = [name for name, amount in group.allocatable.items() if amount > 0 and name not in node.allocatable]
    if node.ready and not (lacking and cluster.seen_at < node.created + policy.scale_up.boot_timeout):
        return node.allocatable, False
    names = {*node.allocatable, *group.allocatable}
    return Resources({name: node.allocatable[name] or group.allocatable[name] for name in names}), True


def _keep_room_for_daemons(free: dict[str, int], cluster: Cluster, group: Group, there: Collection[str]) -> None:
    """A node that has just joined does not carry all its DaemonSets' pods yet."""
    if len(there) >= len(cluster.daemon_sets):
        return
    for daemon in _daemon_sets_on(group, cluster):
        if f"{daemon.namespace}/DaemonSet/{daemon.name}" in there:
            continue
        for name, amount in _one_pod(daemon.requests).items():
            free[name] = free.get(name, 0) - amount


def _taints(node: Node, group: Group | None, *, passing: bool) -> tuple[Taint, ...]:
    """Those that a pod planned there must tolerate: a reservation is for the pod that the plan says."""
    gone = (_PASSING_TAINTS if passing else frozenset()) | ({words.RESERVED} if group is not None else set())
    own = tuple(taint for taint in node.taints if taint.key not in gone) if node.taints else ()
    return (*own, *keeps_off(group)) if group is not None else own


def _tier(node: Node, group: Group | None, *, coming: bool, ending: bool) -> int:
    if coming:
        return COMING_TIER
    if node.cordoned:
        return CORDONED_TIER
    if ending:
        return ENDING_TIER
    origin = node.labels.get(words.ORIGIN)
    if origin == words.ON_PREM and group is None:
        return ON_PREM_TIER
    return EC2_TIER if group is not None or origin == words.EC2 or node.instance_id is not None else ON_PREM_TIER
