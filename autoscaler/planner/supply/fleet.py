"""What there is and what is coming: nodes and Auto Scaling groups as places to put pods.

Capacity is counted here, once: a node, an instance that has not joined, a machine that was asked for and
not launched, a node whose GPUs the kubelet does not offer yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import Backoff
from autoscaler.model.cluster import Cluster, DaemonSet, Group, Instance, Node, Notice, Pod
from autoscaler.model.constraints import Taint
from autoscaler.model.feasibility import why_not_on
from autoscaler.model.pauses import Pause
from autoscaler.model.pod_index import NO_LOAD, Load, pod_index_of
from autoscaler.model.resources import PODS, Resources
from autoscaler.planner.supply.backoffs import learnt
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.node_faults import NodeFaults, node_faults

_NO_FAULTS = NodeFaults()
ON_PREM_TIER, EC2_TIER, CORDONED_TIER, COMING_TIER = range(4)

_LISTED_WITHIN = timedelta(minutes=2)
"""After a node has joined, its instance is in EC2's list."""
_NOTICE_HOLDS = timedelta(hours=1)
"""After it was given, or after the time that it names: then the node is one like others again."""
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


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes and groups, brought together."""

    places: tuple[Place, ...]
    """Registered nodes that pods may be planned on, in order of name."""
    unusable: Mapping[str, str]
    """Node name -> why no pod is planned on it."""
    group_of: Mapping[str, Group]
    """Node name -> the group that its instance is in."""
    outstanding: Mapping[str, int]
    """Group name -> machines asked for that no node stands for yet and that may still come."""
    lost: tuple[tuple[Group, Instance], ...]
    """Instances that have not joined in the time they had."""
    refused: Mapping[str, int]
    """Group name -> machines asked for, not launched, that EC2 has refused."""
    closed: Mapping[str, Backoff]
    """Group name -> why, and until when, nothing is bought in it."""
    backoffs: Mapping[str, Backoff]
    """And with those that are over, for the next plan."""
    rooms: Mapping[str, Resources]
    """Group name -> what DaemonSets leave of a new node."""
    residents: Mapping[str, Sequence[Pod]]
    """Node name -> pods there that are not daemons and not finished."""
    joined: frozenset[str]
    """Instances that a node stands for."""
    leaving: frozenset[str]
    """Names of nodes whose instances are being ended."""
    paused: Mapping[str, Pause] = field(default_factory=dict)
    """Group name -> why nothing is bought in it."""
    hands_off: frozenset[str] = frozenset()
    """Names of groups in which no node is cordoned or terminated, by an operator's pause."""
    ghosts: frozenset[str] = frozenset()
    """Names of nodes of ours that are not ready, and whose instances no group has."""
    noticed: Mapping[str, Notice] = field(default_factory=dict)
    """Name of a node of a group that EC2 is about to take back -> what it says."""
    faults: NodeFaults = _NO_FAULTS
    """Nodes whose hardware is at fault."""

    def size_of(self, group: Group) -> int:
        """Nodes that the group has or may get, when this plan's cancellations and removals are done.

        A launch that Auto Scaling tries at this moment may succeed though its order is cancelled.
        """
        return max(group.desired - self.refused.get(group.name, 0), _live(group) + group.launching) - self._lost(group)

    def desired_of(self, group: Group) -> int:
        """The group's desired capacity when this plan's cancellations and removals are done."""
        return max(group.desired - self.refused.get(group.name, 0) - self._lost(group), group.minimum)

    def ending_of(self, group: Group) -> int:
        """Nodes that are not counted in its size and are billed still: being ended, or to be ended by this plan."""
        return sum(one.state == "terminating" and not one.is_down for one in group.instances) + self._lost(group)

    def _lost(self, group: Group) -> int:
        return sum(1 for owner, _ in self.lost if owner.name == group.name)

    def room_of(self, group: Group) -> dict[str, int]:
        """What a new node of the group has for pods."""
        return dict(self.rooms[group.name].items())


class NodeCache:
    """What was found of nodes that have joined, for the next look: most of them are as they were.

    Made once by the caller and handed in with each look; a plan is the same with it and without.
    """

    def __init__(self) -> None:
        self._found: dict[str, _Seen] = {}
        self._daemon_sets: tuple[DaemonSet, ...] = ()

    def begin(self, cluster: Cluster) -> None:
        """Another look: nodes that are gone are forgotten, and all of them when DaemonSets have changed."""
        if cluster.daemon_sets != self._daemon_sets:
            self._found.clear()
            self._daemon_sets = cluster.daemon_sets
        if len(self._found) > len(cluster.nodes):
            there = {node.name for node in cluster.nodes}
            self._found = {name: one for name, one in self._found.items() if name in there}

    def place(self, node: Node, group: Group | None, load: Load, *, make: _Make) -> Place:
        """The node's place: made anew where it, its pods or its group's promise have changed."""
        seen = self._found.get(node.name)
        if seen is None or seen.node is not node or seen.load is not load or not _promise_the_same(group, seen.group):
            place = make(node, group, load)
            if place.tier == COMING_TIER:  # time changes it
                self._found.pop(node.name, None)
            else:
                labels, free = place.labels, dict(place.free)
                self._found[node.name] = _Seen(node, group, load, labels, place.taints, free, place.tier)
            return place
        return Place(
            name=node.name,
            labels=seen.labels,
            taints=seen.taints,
            free=dict(seen.free),
            tier=seen.tier,
            node=node,
            group=group,
            standing=group is None or bool(load.residents),
            ports=load.ports,
        )


_Make = Callable[[Node, Group | None, Load], Place]


def _promise_the_same(one: Group | None, other: Group | None) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return (one.name, one.allocatable, one.labels, one.taints) == (
        other.name,
        other.allocatable,
        other.labels,
        other.taints,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A node with what was found of it."""

    node: Node
    group: Group | None
    load: Load
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: Mapping[str, int]
    tier: int


def survey(cluster: Cluster, policy: Policy, backoffs: Mapping[str, Backoff], cache: NodeCache | None = None) -> Fleet:
    """Bring nodes and groups together. ``cache``: what the last look found, which this one adds to."""
    if cache is not None:
        cache.begin(cluster)
    nodes = sorted(cluster.nodes, key=lambda node: node.name)
    groups = sorted(cluster.groups, key=lambda group: group.name)
    ids = {node.name: instance for node in nodes if node.provider_id and (instance := node.instance_id)}
    group_of = _groups_by_node(nodes, groups, ids, cluster.seen_at)
    ghosts = frozenset(
        node.name
        for node in nodes
        if node.name in ids and node.name not in group_of and words.GROUP in node.labels and not node.ready
    )
    rooms = {group.name: group.allocatable - _overhead(cluster, group) for group in groups}
    joined = frozenset(ids.values())
    hands_off = frozenset(
        group.name for group in groups if any(one.stops_terminating(group.entry) for one in cluster.pauses)
    )
    lost = tuple(
        (group, instance)
        for group in groups
        for instance in sorted(group.instances, key=lambda one: one.id)
        if instance.id not in joined and instance.state != "terminating" and _is_overdue(instance, cluster, policy)
        if group.name not in hands_off
    )
    ending = {one.id for group in groups for one in group.instances if one.state == "terminating"}
    leaving = frozenset(node.name for node in nodes if ids.get(node.name) in ending)
    noticed = {name: one for name, one in _noticed(cluster, ids) if name in group_of and name not in leaving}
    faults = node_faults(cluster, policy)
    known = learnt(cluster, policy, {group.name for group, _ in lost}, backoffs)
    refused = {group.name: _refused(group, cluster, policy) for group in groups}
    loads = pod_index_of(cluster.pods).loads

    def make(node: Node, group: Group | None, load: Load) -> Place:
        return _place(node, group, load, cluster, policy)

    place = make if cache is None else partial(cache.place, make=make)
    unusable = {
        node.name: why for node in nodes if (why := _why_unusable(node, group_of.get(node.name), cluster, policy))
    }
    unusable |= dict.fromkeys(leaving, "its instance is being ended") | dict.fromkeys(ghosts, "its instance is gone")
    unusable |= {name: str(notice) for name, notice in noticed.items()} | dict(faults.closed)
    members: dict[str, int] = defaultdict(int)
    for name, group in group_of.items():
        members[group.name] += name not in leaving
    outstanding = {
        group.name: max(
            0,
            max(group.desired - refused[group.name], _live(group))
            - members[group.name]
            - sum(1 for owner, _ in lost if owner.name == group.name),
        )
        for group in groups
    }
    return Fleet(
        places=tuple(
            place(node, group_of.get(node.name), loads.get(node.name, NO_LOAD))
            for node in nodes
            if node.name not in unusable
        ),
        unusable=unusable,
        group_of=group_of,
        outstanding=outstanding,
        lost=lost,
        refused=refused,
        closed={name: one for name, one in known.items() if one.until > cluster.seen_at},
        backoffs=known,
        rooms=rooms,
        residents={name: load.residents for name, load in loads.items()},
        joined=joined,
        leaving=leaving,
        paused={
            group.name: pause
            for group in groups
            for pause in reversed(cluster.pauses)
            if pause.stops_buying(group.entry)
        },
        hands_off=hands_off,
        ghosts=ghosts,
        noticed=noticed,
        faults=faults,
    )


def labels_of(group: Group, hostname: str) -> dict[str, str]:
    """The labels of a new node of the group."""
    return {
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


def is_ready(place: Place) -> bool:
    """Whether its kubelet is, and nobody has closed it: devices may still be missing."""
    return place.node is not None and place.node.ready and not place.node.cordoned


def has_joined(place: Place) -> bool:
    """Whether pods can be bound to it now, as far as the node itself goes."""
    return is_ready(place) and place.tier != COMING_TIER


def new_place(group: Group, name: str, room: dict[str, int]) -> Place:
    """A node of the group that is not there yet."""
    return Place(
        name=name,
        labels=labels_of(group, name),
        taints=group.taints,
        free=room,
        tier=COMING_TIER,
        group=group,
        standing=False,
    )


def _groups_by_node(
    nodes: Iterable[Node], groups: Iterable[Group], ids: Mapping[str, str], now: datetime
) -> dict[str, Group]:
    """By instance id; by labels where EC2's list may be older than the node.

    Of an older node whose instance no group has, the instance is gone or was detached: it is no member of a group.
    """
    by_instance = {instance.id: group for group in groups for instance in group.instances}
    by_labels = {(group.entry, group.zone): group for group in groups}
    found = {}
    for node in nodes:
        if node.name not in ids:
            continue
        group = by_instance.get(ids[node.name])
        if group is None and now < node.created + _LISTED_WITHIN:
            group = by_labels.get((node.labels.get(words.GROUP, ""), node.labels.get(words.ZONE, "")))
        if group is not None:
            found[node.name] = group
    return found


def _noticed(cluster: Cluster, ids: Mapping[str, str]) -> Iterator[tuple[str, Notice]]:
    """Name of a node -> what EC2 says of its instance, as far as that still holds."""
    notices = {one.instance: one for one in cluster.notices}
    for name, instance in ids.items():
        notice = notices.get(instance)
        if notice is not None and cluster.seen_at < (notice.ends or notice.told) + _NOTICE_HOLDS:
            yield name, notice


def _overhead(cluster: Cluster, group: Group) -> Resources:
    labels = labels_of(group, "new")
    return Resources.total(
        _one_pod(daemon.requests)
        for daemon in cluster.daemon_sets
        if why_not_on(affinity=daemon.affinity, tolerations=daemon.tolerations, labels=labels, taints=group.taints)
        is None
    )


def _one_pod(requests: Resources) -> Resources:
    return requests if requests[PODS] else requests + Resources({PODS: 1})


def _is_overdue(instance: Instance, cluster: Cluster, policy: Policy) -> bool:
    return instance.launched is not None and cluster.seen_at >= instance.launched + policy.scale_up.boot_timeout


def _live(group: Group) -> int:
    return sum(1 for instance in group.instances if instance.state != "terminating")


def _refused(group: Group, cluster: Cluster, policy: Policy) -> int:
    """Asked for, not launched, and EC2 has said no of late."""
    if not any(cluster.seen_at < one.at + policy.scale_up.refusal_backoff for one in group.refusals):
        return 0
    return max(0, group.desired - max(_live(group), group.minimum))


def _place(node: Node, group: Group | None, load: Load, cluster: Cluster, policy: Policy) -> Place:
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
        tier=_tier(node, group, coming=coming),
        node=node,
        group=group,
        standing=group is None or bool(load.residents),
        ports=load.ports,
    )


def _labels(node: Node) -> Mapping[str, str]:
    return node.labels if words.HOSTNAME in node.labels else {**node.labels, words.HOSTNAME: node.name}


def _why_unusable(node: Node, group: Group | None, cluster: Cluster, policy: Policy) -> str:
    if node.deleting:
        return "being deleted"
    if node.cordoned and node.cordoned_by != words.AUTOSCALER:
        return "cordoned by someone else"
    if not node.ready and (group is None or cluster.seen_at >= node.created + policy.scale_up.boot_timeout):
        return "not ready"
    return ""


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
    labels = labels_of(group, "new")
    for daemon in cluster.daemon_sets:
        if f"{daemon.namespace}/DaemonSet/{daemon.name}" in there:
            continue
        if why_not_on(affinity=daemon.affinity, tolerations=daemon.tolerations, labels=labels, taints=group.taints):
            continue
        for name, amount in _one_pod(daemon.requests).items():
            free[name] = free.get(name, 0) - amount


def _taints(node: Node, group: Group | None, *, passing: bool) -> tuple[Taint, ...]:
    """Those that a pod planned there must tolerate: a reservation is for whom the plan says."""
    gone = (_PASSING_TAINTS if passing else frozenset()) | ({words.RESERVED} if group is not None else set())
    return tuple(taint for taint in node.taints if taint.key not in gone) if node.taints else ()


def _tier(node: Node, group: Group | None, *, coming: bool) -> int:
    if coming:
        return COMING_TIER
    if node.cordoned:
        return CORDONED_TIER
    origin = node.labels.get(words.ORIGIN)
    if origin == words.ON_PREM and group is None:
        return ON_PREM_TIER
    return EC2_TIER if group is not None or origin == words.EC2 or node.instance_id is not None else ON_PREM_TIER
