"""What there is and what is coming: nodes and Auto Scaling groups as places to put pods.

Capacity is counted here, once: a node, an instance that has not joined, a machine that was asked for and
not launched, a node whose GPUs the kubelet does not offer yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import Backoff, Grow, Step
from autoscaler.model.cluster import Cluster, Group, Instance, Node, Notice, Pod
from autoscaler.model.node_index import NodeIndex
from autoscaler.model.pauses import Pause, stop_buying
from autoscaler.model.pod_index import NO_LOAD, pod_index_of
from autoscaler.model.resources import Resources
from autoscaler.planner.supply.backoffs import learnt
from autoscaler.planner.supply.candidate_nodes import FillOrder, Place
from autoscaler.planner.supply.capacity_blocks import notices
from autoscaler.planner.supply.ending_nodes import EndingNodes
from autoscaler.planner.supply.node_cache import Members, NodeCache
from autoscaler.planner.supply.node_faults import NodeFaults, node_faults
from autoscaler.planner.supply.node_places import as_opened, place_of, room_for_pods

NEVER = datetime.min.replace(tzinfo=UTC)
_NO_FAULTS = NodeFaults()
_NONE = frozenset[str]()

_LISTED_WITHIN = timedelta(minutes=2)
"""After a node has joined, its instance is in EC2's list."""
_CORDONED, _NOT_READY = "cordoned by someone else", "not ready"
_NOTICE_HOLDS = timedelta(hours=1)
"""After it was given, or after the time that it names: then the node is one like others again."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes and groups, brought together."""

    places: tuple[Place, ...]
    """Registered nodes that pods may be planned on, in order of name."""
    nodes: NodeIndex
    """All registered nodes."""
    unusable: Mapping[str, str]
    """Node name -> why no pod is planned on it."""
    closed_places: tuple[Place, ...]
    """Of nodes that stay though no pod is planned on them, as if they were open: cordoned by another, not ready, or at
    fault. What keeps pods off the other unusable nodes is that they go.
    """
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
    samples: dict[str, Place]
    """Group name -> a new node to ask questions of, as far as one was made at this look or before it."""
    residents: Mapping[str, Sequence[Pod]]
    """Node name -> pods there that are not daemons and not finished."""
    sizes: Mapping[str, int]
    """Group name -> as in :meth:`size_of`; groups that have none, and will have none, are left out."""
    stirring: Mapping[str, tuple[Instance, ...]]
    """Group name -> its instances that no node stands for, or that do not just serve, in order of their ids."""
    leaving: frozenset[str]
    """Names of nodes whose instances are being ended."""
    unlisted: frozenset[str]
    """Names of nodes of groups that do not have their instances yet, as far as EC2's list tells."""
    paused: Mapping[str, tuple[Pause, ...]] = field(default_factory=dict)
    """Group name -> why nothing is bought in it."""
    hands_off: frozenset[str] = frozenset()
    """Names of groups in which no node is cordoned or terminated, by an operator's pause."""
    ghosts: frozenset[str] = frozenset()
    """Names of nodes of ours that are not ready, and whose instances no group has."""
    noticed: Mapping[str, Notice] = field(default_factory=dict)
    """Name of a node of a group that EC2 is about to take back -> what it says."""
    faults: NodeFaults = _NO_FAULTS
    """Nodes whose hardware is at fault."""
    order: FillOrder = field(default_factory=FillOrder)
    """In which standing places are filled, as far as it is known from the last look."""

    @property
    def joined(self) -> frozenset[str]:
        """Instances that a node stands for."""
        return self.nodes.joined

    @property
    def reserved(self) -> tuple[Place, ...]:
        """Places of nodes that are reserved for the pods that they were bought for."""
        names = self.nodes.reserved
        return tuple(place for place in self.places if place.name in names) if names else ()

    def is_listed(self, node: Node) -> bool:
        """Whether AWS lists its instance in a group that it is to stay in."""
        return node.name not in self.unlisted and node.name not in self.leaving

    def size_of(self, group: Group) -> int:
        """Nodes that the group has or may get, when this plan's cancellations and removals are done.

        A launch that Auto Scaling tries at this moment may succeed though its order is cancelled, and what goes below
        the minimum has a successor.
        """
        return self.sizes.get(group.name, 0)

    def spare_of(self, group: Group) -> int:
        """Nodes that it has, or may get, above its minimum."""
        return self.size_of(group) - group.minimum

    def desired_of(self, group: Group) -> int:
        """The group's desired capacity when this plan's cancellations and removals are done."""
        return max(group.desired - self.refused.get(group.name, 0) - self._lost(group), group.minimum)

    def bought_by(self, steps: Iterable[Step], groups: Iterable[Group]) -> Counter[str]:
        """Group name -> nodes that the steps add to its size."""
        sizes = {group.name: self.size_of(group) for group in groups}
        return Counter({step.group: step.to - sizes[step.group] for step in steps if isinstance(step, Grow)})

    def ending_of(self, group: Group) -> int:
        """Nodes that are not counted in its size and are billed still: being ended, or to be ended by this plan."""
        stirring = self.stirring.get(group.name, ())
        return sum(one.state == "terminating" and not one.is_down for one in stirring) + self._lost(group)

    def successors_of(self, group: Group) -> int:
        """Nodes that its minimum has launched in place of those that this plan ends; these draw on a quota as well."""
        lost = self._lost(group)
        if not lost:
            return 0
        living = sum(one.state != "terminating" for one in group.instances) + group.launching
        wanted = group.desired - self.refused.get(group.name, 0)
        return self.size_of(group) - (max(living, wanted) - lost)

    def _lost(self, group: Group) -> int:
        return sum(1 for owner, _ in self.lost if owner.name == group.name) if self.lost else 0

    def failed_of(self, group: Group) -> datetime:
        """When nodes of the group were last refused or did not join, while that is remembered; else ``NEVER``."""
        known = self.backoffs.get(group.name)
        return known.failed if known is not None else NEVER

    def room_of(self, group: Group) -> dict[str, int]:
        """What a new node of the group has for pods."""
        return dict(self.rooms[group.name].items())


def survey(
    cluster: Cluster,
    policy: Policy,
    backoffs: Mapping[str, Backoff],
    cache: NodeCache | None = None,
    *,
    ordered: Collection[str] = (),
) -> Fleet:
    """Bring nodes and groups together. ``cache``: what the last look found, which this one adds to.

    ``ordered``: names of groups with an order that AWS has not answered. Nothing that they lack has been refused so
    far: what was, was refused before that order.
    """
    cache = cache or NodeCache()
    nodes = cache.begin(cluster)
    groups = sorted(cluster.groups, key=lambda group: group.name)
    members = cache.members(nodes, groups)
    group_of, standing = _with_strays(members, nodes, groups, cluster.seen_at)
    hands_off = _hands_off(cluster, groups)
    lost = tuple(_never_joined(cluster, policy, nodes, members, groups, hands_off=hands_off))
    leaving = _leaving(nodes, members)
    noticed = {name: one for name, one in _noticed(cluster, nodes) if name in group_of and name not in leaving}
    faults, ghosts = node_faults(cluster, nodes, policy), _ghosts(nodes, group_of)
    backoffs = learnt(cluster, policy, {group.name for group, _ in lost}, backoffs)
    refused = {group.name: _refused(group, cluster, policy, members.alive, ordered) for group in groups}
    unusable = _unusable(cluster, policy, nodes, group_of, leaving=leaving, ghosts=ghosts)
    unusable |= {name: str(notice) for name, notice in noticed.items()} | dict(faults.closed)
    stay = sorted(name for name, why in unusable.items() if why in (_CORDONED, _NOT_READY) or name in faults.closed)
    joined = standing - Counter(group_of[name].name for name in leaving if name in group_of)
    gone, is_ending = Counter(group.name for group, _ in lost), EndingNodes(cluster.seen_at, policy)
    make = partial(place_of, cluster=cluster, policy=policy, is_ending=is_ending)
    loads = pod_index_of(cluster.pods).loads
    return Fleet(
        places=cache.places(nodes, group_of, loads, unusable, make=make, is_ending=is_ending),
        nodes=nodes,
        unusable=unusable,
        closed_places=tuple(
            make(as_opened(nodes.named[name]), group_of.get(name), loads.get(name, NO_LOAD)) for name in stay
        ),
        group_of=group_of,
        outstanding=_outstanding(groups, refused, members.alive, joined=joined, gone=gone),
        lost=lost,
        refused=refused,
        closed={name: one for name, one in backoffs.items() if one.until > cluster.seen_at},
        backoffs=backoffs,
        rooms=cache.rooms(groups, make=partial(room_for_pods, cluster=cluster)),
        samples=cache.samples,
        residents={name: load.residents for name, load in loads.items()},
        sizes=_sizes(groups, refused, members.alive, gone=gone),
        stirring=members.stirring,
        leaving=leaving,
        unlisted=frozenset(members.strays),
        paused={group.name: found for group in groups if (found := stop_buying(cluster.pauses, group.entry))},
        hands_off=hands_off,
        ghosts=ghosts,
        noticed=noticed,
        faults=faults,
        order=cache.order,
    )


def _sizes(
    groups: Iterable[Group], refused: Mapping[str, int], alive: Mapping[str, int], *, gone: Mapping[str, int]
) -> dict[str, int]:
    """Returns the sizes of groups that have, or may get, nodes. ``gone``: as in ``_outstanding``."""
    found = {}
    for group in groups:
        live, wanted = alive[group.name] + group.launching, group.desired - refused[group.name]
        if live or wanted or group.minimum:
            found[group.name] = max(max(live, wanted) - gone[group.name], group.minimum)
    return found


def _unusable(
    cluster: Cluster,
    policy: Policy,
    nodes: NodeIndex,
    group_of: Mapping[str, Group],
    *,
    leaving: Collection[str],
    ghosts: Collection[str],
) -> dict[str, str]:
    """Node name -> what about the node or its instance keeps pods off it."""
    found = {node.name: _why_unusable(node, group_of.get(node.name), cluster, policy) for node in nodes.unsettled}
    found = {name: why for name, why in found.items() if why}
    return found | dict.fromkeys(leaving, "its instance is being ended") | dict.fromkeys(ghosts, "its instance is gone")


def _outstanding(
    groups: Iterable[Group],
    refused: Mapping[str, int],
    alive: Mapping[str, int],
    *,
    joined: Mapping[str, int],
    gone: Mapping[str, int],
) -> dict[str, int]:
    """Group name -> machines that are to come.

    ``joined``: nodes by group; ``gone``: those that had their time to join, of which what a minimum keeps is launched
    anew.
    """
    found = {}
    for group in groups:
        size = max(group.desired - refused[group.name], alive[group.name])
        stay = max(size - gone[group.name], min(size, group.minimum))
        found[group.name] = max(0, stay - joined[group.name])
    return found


def _with_strays(
    members: Members, nodes: NodeIndex, groups: Iterable[Group], now: datetime
) -> tuple[Mapping[str, Group], Counter[str]]:
    """Name of a node -> its group, also by labels where EC2's list may be older than the node; and nodes by group.

    Of an older node whose instance no group has, the instance is gone or was detached: it is no member of a group.
    """
    young = [name for name in members.strays if now < nodes.named[name].created + _LISTED_WITHIN]
    if not young:
        return members.group_of, members.sizes
    by_labels = {(group.entry, group.zone): group for group in groups}
    found = {}
    for name in young:
        labels = nodes.named[name].labels
        group = by_labels.get((labels.get(words.GROUP, ""), labels.get(words.ZONE, "")))
        if group is not None:
            found[name] = group
    return {**members.group_of, **found}, members.sizes + Counter(group.name for group in found.values())


def _ghosts(nodes: NodeIndex, group_of: Mapping[str, Group]) -> frozenset[str]:
    """Names of nodes of ours that are not ready, and whose instances no group has."""
    ours = (node for node in nodes.unsettled if words.GROUP in node.labels and node.name in nodes.instances)
    return frozenset(node.name for node in ours if not node.ready and node.name not in group_of)


def _hands_off(cluster: Cluster, groups: Iterable[Group]) -> frozenset[str]:
    """Names of groups in which nothing is ended."""
    return frozenset(
        group.name for group in groups if any(one.stops_terminating(group.entry) for one in cluster.pauses)
    )


def _never_joined(
    cluster: Cluster,
    policy: Policy,
    nodes: NodeIndex,
    members: Members,
    groups: Iterable[Group],
    *,
    hands_off: Collection[str],
) -> Iterator[tuple[Group, Instance]]:
    """Instances that no node stands for in the time they had, but for groups in which nothing is ended."""
    for group in groups:
        for instance in members.stirring.get(group.name, ()) if group.name not in hands_off else ():
            is_coming = instance.id not in nodes.joined and instance.state != "terminating"
            if is_coming and _is_overdue(instance, cluster, policy):
                yield group, instance


def _leaving(nodes: NodeIndex, members: Members) -> frozenset[str]:
    """Names of nodes whose instances are being ended."""
    ending = {one.id for several in members.stirring.values() for one in several if one.state == "terminating"}
    return frozenset(name for name, instance in nodes.instances.items() if instance in ending) if ending else _NONE


def _noticed(cluster: Cluster, nodes: NodeIndex) -> Iterator[tuple[str, Notice]]:
    """Name of a node -> what EC2 says of its instance, as far as that still holds."""
    told = {one.instance: one for one in cluster.notices if cluster.seen_at < (one.ends or one.told) + _NOTICE_HOLDS}
    told |= {one.instance: one for one in notices(cluster)}
    for name, instance in nodes.instances.items() if told else ():
        if instance in told:
            yield name, told[instance]


def _is_overdue(instance: Instance, cluster: Cluster, policy: Policy) -> bool:
    return instance.launched is not None and cluster.seen_at >= instance.launched + policy.scale_up.boot_timeout


def _refused(group: Group, cluster: Cluster, policy: Policy, alive: Mapping[str, int], ordered: Collection[str]) -> int:
    """Asked for, not launched, and EC2 has said no of late."""
    if not group.refusals or group.name in ordered:
        return 0
    if not any(cluster.seen_at < one.at + policy.scale_up.refusal_backoff for one in group.refusals):
        return 0
    return max(0, group.desired - max(alive[group.name], group.minimum))


def _why_unusable(node: Node, group: Group | None, cluster: Cluster, policy: Policy) -> str:
    if node.deleting:
        return "being deleted"
    if node.cordoned and node.cordoned_by != words.AUTOSCALER:
        return _CORDONED
    if not node.ready and (group is None or cluster.seen_at >= node.created + policy.scale_up.boot_timeout):
        return _NOT_READY
    return ""
