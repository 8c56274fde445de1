"""All nodes of a cluster, sorted by what a decision asks about them, and kept so as single nodes change.

As with :mod:`~autoscaler.model.pod_index`: most nodes are ready, open and as they were at the last look, and cost the
next decision nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscaler.model.cluster import Node
from autoscaler.model.labels import RESERVED


@dataclass(frozen=True, slots=True, eq=False)
class NodeIndex:
    """The nodes at one moment. Equal to none but itself."""

    named: Mapping[str, Node]
    """By name, in order of name."""
    instances: Mapping[str, str]
    """Name of a node -> its EC2 instance; a machine that is not EC2's is absent."""
    joined: frozenset[str]
    """All these instances."""
    unsettled: tuple[Node, ...]
    """Those that are not ready, closed or being deleted, in order of name."""
    conditioned: tuple[Node, ...]
    """Those with a condition that another than the kubelet has set, in order of name."""
    reserved: frozenset[str]
    """Names of those that are reserved for the pods that they were bought for."""


class NodeRegister:
    """The same facts, kept from look to look. Not for several threads at once."""

    def __init__(self) -> None:
        self._seen: tuple[Node, ...] = ()
        self._named: dict[str, Node] = {}
        self._instances: dict[str, str] = {}
        self._unsettled: set[str] = set()
        self._conditioned: set[str] = set()
        self._reserved: set[str] = set()
        self._index: NodeIndex | None = None

    def index(self, nodes: tuple[Node, ...]) -> NodeIndex:
        """Returns an index of these nodes; the same object as before where all of them are the same objects."""
        if self._index is not None and nodes is self._seen:
            return self._index
        known = self._named
        changed = [node for node in nodes if known.get(node.name) is not node]
        is_resorted = any(node.name not in known for node in changed)
        for node in changed:
            self._note(node)
        if len(known) > len(names := {node.name for node in nodes}):
            for name in known.keys() - names:
                self._drop(name)
                changed.append(known.pop(name))
        if is_resorted:
            self._named = {name: known[name] for name in sorted(known)}
        self._seen = nodes
        if changed or self._index is None:
            self._index = self._frozen()
        return self._index

    def _note(self, node: Node) -> None:
        self._drop(node.name)
        self._named[node.name] = node
        if (instance := node.instance_id) is not None:
            self._instances[node.name] = instance
        if not node.ready or node.cordoned or node.deleting:
            self._unsettled.add(node.name)
        if node.conditions:
            self._conditioned.add(node.name)
        if any(taint.key == RESERVED for taint in node.taints):
            self._reserved.add(node.name)

    def _drop(self, name: str) -> None:
        self._instances.pop(name, None)
        for names in (self._unsettled, self._conditioned, self._reserved):
            names.discard(name)

    def _frozen(self) -> NodeIndex:
        return NodeIndex(
            named=dict(self._named),
            instances=dict(self._instances),
            joined=frozenset(self._instances.values()),
            unsettled=self._in_order(self._unsettled),
            conditioned=self._in_order(self._conditioned),
            reserved=frozenset(self._reserved),
        )

    def _in_order(self, names: Iterable[str]) -> tuple[Node, ...]:
        return tuple(self._named[name] for name in sorted(names))
