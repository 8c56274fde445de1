"""Consolidation: EC2 nodes are drained whose pods have room elsewhere, or on a cheaper node, the dearest first.

The planner is asked again with the pods of one node free. What may not be moved keeps its node: see
:func:`why_not_moved`. A replacement is bought first, and the pods are evicted when it is there, through the API server,
which keeps PodDisruptionBudgets and the pods' grace. An emptied node is idle, and goes as any idle node does. So does
one that is idle already: what is saved by moving pods onto it is the difference of the two prices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from autoscaler.config.policy import Consolidation as ConsolidationRules
from autoscaler.config.policy import Policy
from autoscaler.model.actions import Cancel, Cordon, Evict, Grow, Remove, Step
from autoscaler.model.cluster import Cluster, Group, Node, Pod
from autoscaler.model.labels import AUTOSCALER
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.disruption.consolidation_candidates import (
    why_never,
    why_not_moved,
    why_not_now,
    why_unsettled,
)
from autoscaler.planner.disruption.drain_brake import DrainBrake
from autoscaler.planner.scale_up import ScaleUp, scale_up
from autoscaler.planner.supply.candidate_nodes import COMING_TIER, FillOrder, Place
from autoscaler.planner.supply.fleet import Fleet

_TURN: Final = (5**0.5 - 1) / 2
"""The golden ratio's fraction: whatever lies between two looks, its multiples spread evenly over all nodes."""


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What is done to empty nodes."""

    steps: tuple[Step, ...] = ()
    going: frozenset[str] = frozenset()
    """Names of nodes that stay closed although pods are on them."""
    wanted: Mapping[str, str] = field(default_factory=dict)
    """Name of a node that pods are to be moved to -> one of them."""
    wake_at: datetime | None = None
    """When pods have run for long enough to be moved."""


def consolidate(
    cluster: Cluster,
    policy: Policy,
    fleet: Fleet,
    brake: DrainBrake,
    *,
    up: ScaleUp,
    limits: SearchLimits,
    kept_free: Collection[str] = (),
    begun: Collection[Step] = (),
) -> Consolidation:
    """Go on emptying what is being emptied; begin with another where its budget and the brake allow one.

    ``fleet`` and ``up``: what this look found and what it does for pending pods, whose places are taken. No node is
    begun with while nodes are bought or on their way for others. ``kept_free``: idle nodes of the headroom; another one
    is kept in place of each that pods are moved to. ``begun``: what else the plan does. Nothing is bought in a group
    that loses a node by it: an order starts from the desired capacity that was seen.
    """
    return _Consolidating(cluster, policy, fleet, brake, up, limits, kept_free, begun).decide()


@dataclass(slots=True)
class _Consolidating:
    """One look's decision."""

    cluster: Cluster
    policy: Policy
    fleet: Fleet
    brake: DrainBrake
    up: ScaleUp
    limits: SearchLimits
    kept_free: Collection[str]
    begun: Collection[Step]
    steps: list[Step] = field(default_factory=list)
    going: set[str] = field(default_factory=set)
    wanted: dict[str, str] = field(default_factory=dict)
    due: list[datetime] = field(default_factory=list)

    @property
    def rules(self) -> ConsolidationRules:
        """Returns the policy's rules for consolidation."""
        return self.policy.scale_down.consolidation

    def decide(self) -> Consolidation:
        """See :func:`consolidate`."""
        if not (self.policy.scale_down.enabled and self.rules.enabled):
            return Consolidation()
        for node, since in self._begun():
            self.brake.begun.setdefault(node.name, since)
            self._go_on(node)
        if len(self.going) < self.rules.nodes and self._within_budget():
            self._begin()
        return Consolidation(
            steps=tuple(self.steps),
            going=frozenset(self.going),
            wanted=self.wanted,
            wake_at=min((when for when in self.due if when > self.cluster.seen_at), default=None),
        )

    def _begun(self) -> Iterator[tuple[Node, datetime]]:
        """Nodes that we have closed and that pods are still on, for as long as emptying them may take."""
        for node in self.fleet.nodes.unsettled:
            is_ours = node.cordoned and node.cordoned_by == AUTOSCALER
            since = self.brake.begun.get(node.name) or node.cordoned_at
            is_ours = is_ours and node.name not in self.fleet.noticed and node.name not in self.fleet.faults.closed
            if not is_ours or since is None or not self.fleet.residents.get(node.name):
                continue
            end = since + self.rules.timeout
            self.due.append(end)
            if self.cluster.seen_at < end:
                yield node, since

    def _within_budget(self) -> bool:
        """Whether another node may be begun with."""
        ends = [since + self.rules.every for since in self.brake.begun.values()]
        ends = [end for end in ends if end > self.cluster.seen_at]
        self.due += ends
        return len(ends) < self.rules.nodes and not self.brake.why_held()

    def _go_on(self, node: Node) -> None:
        """Where the pods have room still, and no other pod needs the node."""
        pods = self._staying(node)
        group = self.fleet.group_of.get(node.name)
        if group is None or group.name in self.fleet.hands_off:
            return
        if node.name not in self.up.wanted and not any(map(why_not_moved, pods)) and self._move(node, group):
            self.going.add(node.name)

    def _staying(self, node: Node) -> list[Pod]:
        return [pod for pod in self.fleet.residents[node.name] if not pod.deleting]

    def _begin(self) -> None:
        """Begin with one node more, the dearer of those that are asked about."""
        if any(isinstance(step, Grow) for step in self.begun):
            return
        for node, group in self._asked_now():
            if self._move(node, group):
                self.going.add(node.name)
                self.brake.lets(node.name)
                break
            if not any(self.fleet.outstanding.values()) and self._replace(node, group):
                break

    def _asked_now(self) -> list[tuple[Node, Group]]:
        """The dearest candidate, and of the others one in turn: each costs as much as placing its pods.

        So nodes that stay candidates, as their pods have room nowhere, keep no cheaper one from being asked about.
        """
        ranked = sorted(self._candidates(), key=lambda one: (-one[1].usd_per_hour, one[0].name))
        turn = 1 + int((len(ranked) - 1) * (self.cluster.seen_at.timestamp() * _TURN % 1))
        return [*ranked[:1], *ranked[turn : turn + 1]]

    def _candidates(self) -> Iterator[tuple[Node, Group]]:
        nodes = self.fleet.nodes.named
        spare = {group.name: self.fleet.spare_of(group) for group in self.cluster.groups}
        for name, pods in self.fleet.residents.items():
            node, group = nodes.get(name), self.fleet.group_of.get(name)
            if node is None or group is None or not pods:
                continue
            is_left = why_never(node, group, spare[group.name], self.fleet, self.rules)
            is_left = is_left or why_not_now(node, self.fleet, self.up.wanted, self.brake)
            if not is_left and self._is_settled(pods, group):
                yield node, group

    def _is_settled(self, pods: Collection[Pod], group: Group) -> bool:
        """All may be moved and have run for long enough, and none of them ends by itself soon."""
        if any(map(why_not_moved, pods)):
            return False
        why, due = why_unsettled(pods, self.policy.idle_after(group.entry), self.rules, self.cluster.seen_at)
        self.due += due
        return not why

    def _move(self, node: Node, group: Group) -> bool:
        """Close the node and evict its pods, where the nodes that are there have room for all of them."""
        pods = self._staying(node)
        found = self._tried(node, self._homes(node, group, coming=False))
        if len(found.assignments) < len(pods):
            return False
        saves = self._saved(node, group, found)
        if saves <= self.rules.saving_usd_per_hour:
            return False
        self._want(found)
        if not node.cordoned:
            where = ", ".join(sorted({home.node for home in found.assignments.values()})[:3])
            worth = self._worth(group, saves)
            self.steps.append(Cordon(node.name, f"its pods ({len(pods)}) have room on {where}: {worth}"))
        if pods:
            keys = tuple(sorted(pod.key for pod in pods))
            self.steps.append(Evict(node=node.name, pods=keys, because=f"{node.name} is emptied to save its price"))
        return True

    def _replace(self, node: Node, group: Group) -> bool:
        """Buy what the pods of the node need, or wait for it, where that is cheaper by the least saving.

        The order names no pods: they run, and what is ordered for a pod is not bought once it does.
        """
        losing = {step.group for step in self.begun if isinstance(step, Cancel | Remove)}
        groups = tuple(replace(one, maximum=0) if one.name in losing else one for one in self.cluster.groups)
        found = self._tried(node, self._homes(node, group, coming=True), groups)
        orders = [step for step in found.steps if isinstance(step, Grow)]
        is_same = any(step.group == group.name for step in orders)
        is_whole = len(found.assignments) == len(self._staying(node))
        if not is_whole or is_same:
            return False
        saves = self._saved(node, group, found)
        if saves <= self.rules.saving_usd_per_hour:
            return False
        self._want(found)
        because = f"the pods of {node.name} ({group.instance_type}) need no more than that: saves {saves:.2f} $/h"
        self.steps += [replace(step, demand=(), because=because) for step in orders]
        return True

    def _saved(self, node: Node, group: Group, found: ScaleUp) -> float:
        """Dollars per hour that emptying the node saves: its price, less what is bought and kept for its pods."""
        bought = sum(step.usd_per_hour for step in found.steps if isinstance(step, Grow))
        homes = {home.node for home in found.assignments.values()} | self._astray(node)
        return group.usd_per_hour - bought - sum(usd for name, usd in self._idle().items() if name in homes)

    def _astray(self, node: Node) -> set[str]:
        """Nodes of the headroom, the dearest that take any of its pods, where these may go in place of where planned.

        kube-scheduler puts an evicted pod where most is free.
        """
        free = defaultdict[float, list[Place]](list)
        for place in self.fleet.places:
            if place.name in self.kept_free and place.group is not None and place.tier != COMING_TIER:
                free[place.group.usd_per_hour].append(place)
        for usd in sorted(free, reverse=True):
            if found := self._tried(node, free[usd]).assignments:
                return {home.node for home in found.values()}
        return set()

    def _worth(self, group: Group, saves: float) -> str:
        """What emptying a node of the group is for: where the headroom of its entry lacks one, it is kept for that."""
        entry = self.policy.entry(group.entry)
        free = sum(self.fleet.group_of[name].entry == group.entry for name in self.kept_free)
        lacks = entry is not None and free < entry.headroom
        return f"it is kept for the headroom of group {group.entry}" if lacks else f"saves {saves:.2f} $/h"

    def _idle(self) -> dict[str, float]:
        """Nodes that no pod is on or planned on -> dollars per hour that it costs to keep them for pods of another."""
        return {
            place.name: place.group.usd_per_hour
            for place in self.fleet.places
            if not place.standing and place.group is not None
            if place.name in self.kept_free or self._may_go(place.group, place.node)
        }

    def _may_go(self, group: Group, node: Node | None) -> bool:
        is_kept = (node is not None and node.do_not_disrupt) or group.name in self.fleet.hands_off
        return not is_kept and self.fleet.spare_of(group) > 0

    def _want(self, found: ScaleUp) -> None:
        self.wanted.update((home.node, pod) for pod, home in sorted(found.assignments.items(), reverse=True))

    def _homes(self, node: Node, group: Group, *, coming: bool) -> list[Place]:
        """Where its pods may go, of idle nodes those that are cheaper by enough; ``coming``: also what comes."""
        most = group.usd_per_hour - self.rules.saving_usd_per_hour
        besides = {node.name, *(name for name, usd in self._idle().items() if usd >= most)}
        return [
            place for place in self.fleet.places if place.name not in besides and (coming or place.tier != COMING_TIER)
        ]

    def _tried(self, node: Node, places: Iterable[Place], groups: tuple[Group, ...] = ()) -> ScaleUp:
        """What would be done for the node's pods if they were pending and it were not there, in these places alone."""
        others = tuple(one for one in self.cluster.nodes if one is not node)
        free = tuple(replace(place, free=dict(place.free), guests=[], harm=None, standing=True) for place in places)
        pods = pod_index_of(self.cluster.pods).with_pending(node.name)
        nothing_else: dict[str, Any] = {"may_nominate": False, "elastic": (), "provisioning_requests": ()}
        alone = replace(self.cluster, nodes=others, pods=pods, groups=groups, **nothing_else)
        fleet = replace(self.fleet, places=free, order=FillOrder())
        return scale_up(alone, self.policy, fleet, limits=self.limits)
