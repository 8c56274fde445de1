"""What a look finds of nodes and groups, kept for the next one: most of them are as they were.

What is frozen is known by its identity: the same object was asked before. A plan is the same with what is kept and
without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.model.cluster import Cluster, DaemonSet, Group, Instance, Node
from autoscaler.model.node_index import NodeIndex, NodeRegister
from autoscaler.model.pod_index import NO_LOAD, Load
from autoscaler.model.resources import Resources
from autoscaler.planner.supply.candidate_nodes import COMING_TIER, EC2_TIER, ENDING_TIER, FillOrder, Place

_BY_TIME: Final = (EC2_TIER, ENDING_TIER)
_Make = Callable[[Node, Group | None, Load], Place]
_IsEnding = Callable[[Group | None, Load], bool]


@dataclass(frozen=True, slots=True)
class Members:
    """The instances of some groups beside some nodes."""

    group_of: Mapping[str, Group]
    """Name of a node -> the group that has its instance."""
    strays: tuple[str, ...]
    """Names of nodes of EC2 whose instance no group has."""
    sizes: Counter[str]
    """Group name -> nodes of it."""
    alive: Mapping[str, int]
    """Group name -> its instances that are not being ended."""
    stirring: Mapping[str, tuple[Instance, ...]]
    """Group name -> its instances that no node stands for, or that do not just serve, in order of their ids."""

    @classmethod
    def of(cls, nodes: NodeIndex, groups: Sequence[Group]) -> Members:
        """Finds the members of all groups among the nodes."""
        by_instance = {one.id: group for group in groups for one in group.instances}
        found = {name: group for name, one in nodes.instances.items() if (group := by_instance.get(one)) is not None}
        joined = nodes.joined
        stirring = {
            group.name: tuple(
                sorted(
                    [one for one in group.instances if one.id not in joined or one.state != "in-service" or one.held],
                    key=lambda one: one.id,
                )
            )
            for group in groups
        }
        return cls(
            group_of=found,
            strays=tuple(name for name in nodes.instances if name not in found),
            sizes=Counter(group.name for group in found.values()),
            alive={
                group.name: len(group.instances) - sum(one.state == "terminating" for one in stirring[group.name])
                for group in groups
            },
            stirring={name: several for name, several in stirring.items() if several},
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A node's place, and what it was made of."""

    node: Node
    load: Load
    place: Place


class NodeCache:
    """What was found of nodes and groups, for the next look. Made once by the caller and handed in with each look.

    Not for two plans at one time: a plan works on the places that are kept. Those that it changed are made anew.
    """

    def __init__(self) -> None:
        self.order = FillOrder()
        self._register = NodeRegister()
        self._found: dict[str, _Seen] = {}
        self._daemon_sets: tuple[DaemonSet, ...] = ()
        self._members: Members | None = None
        self._members_of: tuple[NodeIndex | None, Sequence[Group]] = (None, ())
        self._rooms: dict[str, tuple[Group, Resources]] = {}
        self.samples: dict[str, Place] = {}
        """Group name -> a new node of it, kept while groups promise the same and DaemonSets leave the same of it."""

    def begin(self, cluster: Cluster) -> NodeIndex:
        """Another look: nodes that are gone are forgotten, and all of them when DaemonSets have changed."""
        nodes = self._register.index(cluster.nodes)
        if cluster.daemon_sets != self._daemon_sets:
            self._found.clear()
            self._rooms.clear()
            self.order = FillOrder()
            self._daemon_sets = cluster.daemon_sets
        if len(self._found) > len(nodes.named):
            self._found = {name: one for name, one in self._found.items() if name in nodes.named}
        return nodes

    def members(self, nodes: NodeIndex, groups: Sequence[Group]) -> Members:
        """The instances of the groups beside the nodes."""
        seen, before = self._members_of
        is_known = seen is nodes and _are_the_same(groups, before)
        if self._members is None or not is_known:
            self._members, self._members_of = Members.of(nodes, groups), (nodes, groups)
        return self._members

    def rooms(self, groups: Sequence[Group], *, make: Callable[[Group], Resources]) -> dict[str, Resources]:
        """Group name -> what DaemonSets leave of a new node."""
        known, self._rooms = self._rooms, {}
        for group in groups:
            seen = known.get(group.name)
            if seen is not None and seen[0] is group:
                self._rooms[group.name] = seen
                continue
            is_known = seen is not None and _promise_the_same(group, seen[0])
            sample = self.samples.get(group.name) if is_known else self.samples.pop(group.name, None)
            if sample is not None:
                sample.group = group
            self._rooms[group.name] = group, seen[1] if seen is not None and is_known else make(group)
        return {name: room for name, (_, room) in self._rooms.items()}

    def places(
        self,
        nodes: NodeIndex,
        group_of: Mapping[str, Group],
        loads: Mapping[str, Load],
        unusable: Collection[str],
        *,
        make: _Make,
        is_ending: _IsEnding,
    ) -> tuple[Place, ...]:
        """Returns a place for each usable node: made anew where it, its pods or its group's promise have changed.

        Time changes whether what runs on a node ``is_ending``.
        """
        found, places = self._found, []
        for name, node in nodes.named.items():
            if name in unusable:
                continue
            group, load, seen = group_of.get(name), loads.get(name, NO_LOAD), found.get(name)
            if seen is None or seen.node is not node or seen.load is not load or seen.place.version:
                places.append(self._made(node, group, load, make))
                continue
            place = seen.place
            if place.tier in _BY_TIME and (place.tier == ENDING_TIER) != is_ending(group, load):
                place = self._made(node, group, load, make)
            if place.group is not group:
                if _promise_the_same(group, place.group):
                    place.group = group
                else:
                    place = self._made(node, group, load, make)
            places.append(place)
        if self.order.is_empty:  # so that the first pod that waits, perhaps hours later, does not wait for this
            self.order.of(places)
        return tuple(places)

    def _made(self, node: Node, group: Group | None, load: Load, make: _Make) -> Place:
        place = make(node, group, load)
        if place.tier == COMING_TIER:  # time changes it
            self._found.pop(node.name, None)
        else:
            self._found[node.name] = _Seen(node, load, place)
        return place


def _are_the_same(groups: Sequence[Group], before: Sequence[Group]) -> bool:
    return len(groups) == len(before) and all(one is other for one, other in zip(groups, before, strict=True))


def _promise_the_same(one: Group | None, other: Group | None) -> bool:
    if one is other or one is None or other is None:
        return one is other
    return (one.name, one.allocatable, one.labels, one.taints, one.reservation, one.block) == (
        other.name,
        other.allocatable,
        other.labels,
        other.taints,
        other.reservation,
        other.block,
    )
