"""Nodes that nothing is planned on and that could be opened: cordoned by another, not ready, or at fault."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from autoscaler.config.policy import Policy
from autoscaler.model.cluster import Cluster, Node
from autoscaler.model.labels import AUTOSCALER, HOSTNAME
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import Fleet, survey


@dataclass(frozen=True)
class ClosedNodes:
    """Of one look. What else keeps pods off a node is that it goes, or that EC2 takes it: that is not undone."""

    cluster: Cluster
    policy: Policy
    fleet: Fleet

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All of them."""
        return tuple(
            node
            for node in self.cluster.nodes
            if self.fleet.unusable.get(node.name) in ("cordoned by someone else", "not ready")
            or node.name in self.fleet.faults.closed
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """Of the nodes."""
        return frozenset(node.name for node in self.nodes)

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """By name of the node, as if it were open."""
        if not self.nodes:
            return {}
        nodes = tuple(replace(node, cordoned=False, ready=True, conditions=()) for node in self.nodes)
        return {place.name: place for place in survey(replace(self.cluster, nodes=nodes), self.policy, {}).places}

    def is_unfit(self, node: Node) -> bool:
        """It does not answer, or its hardware is at fault."""
        return not node.ready or node.name in self.fleet.faults.closed

    def open(self, snapshot: Snapshot, *, cordoned: Collection[str], unfit: Collection[str]) -> None:
        """Add the nodes that are open once these are not ``cordoned``, or no longer ``unfit``, by name."""
        for node in self.nodes if cordoned or unfit else ():
            shut = (is_cordoned(node) and node.name not in cordoned) or (self.is_unfit(node) and node.name not in unfit)
            place = self.places.get(node.name)
            if place is None or shut or snapshot.place_on(place.labels[HOSTNAME]) is not None:
                continue
            snapshot.add(replace(place, free=dict(place.free), guests=[], index=-1, version=0, harm=None))
            for pod in self.fleet.residents.get(node.name, ()):  # rules between pods count them from now on
                snapshot.count(snapshot.shape(pod), place.labels, 1)


def is_cordoned(node: Node) -> bool:
    """By another than the autoscaler."""
    return node.cordoned and node.cordoned_by != AUTOSCALER
