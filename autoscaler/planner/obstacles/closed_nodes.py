"""Nodes that nothing is planned on and that could be opened: cordoned by another, not ready, or at fault."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from autoscaler.model.cluster import Node
from autoscaler.model.labels import AUTOSCALER
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import Fleet


@dataclass(frozen=True)
class ClosedNodes:
    """The closed nodes of one look. What else keeps pods off a node is that it goes, which is not undone."""

    fleet: Fleet

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Returns the nodes that take no pods now."""
        return tuple(self.fleet.nodes.named[place.name] for place in self.fleet.closed_places)

    @cached_property
    def names(self) -> frozenset[str]:
        """Returns the names of those nodes."""
        return frozenset(node.name for node in self.nodes)

    def is_unfit(self, node: Node) -> bool:
        """It does not answer, or its hardware is at fault."""
        return not node.ready or node.name in self.fleet.faults.closed

    def still_closed(self, snapshot: Snapshot) -> list[Place]:
        """Those that have not been opened on the snapshot."""
        return [place for place in self.fleet.closed_places if snapshot.place(place.name) is None]

    def open(self, snapshot: Snapshot, *, cordoned: Collection[str], unfit: Collection[str]) -> None:
        """Add the nodes that are open once these are not ``cordoned``, or no longer ``unfit``, by name.

        Rules between pods count what is there already.
        """
        for place in self.still_closed(snapshot) if cordoned or unfit else ():
            node = self.fleet.nodes.named[place.name]
            shut = (is_cordoned(node) and node.name not in cordoned) or (self.is_unfit(node) and node.name not in unfit)
            if not shut:
                snapshot.add(replace(place, free=dict(place.free), guests=[], index=-1, version=0, harm=None))


def is_cordoned(node: Node) -> bool:
    """Says whether another than the autoscaler has cordoned the node."""
    return node.cordoned and node.cordoned_by != AUTOSCALER
