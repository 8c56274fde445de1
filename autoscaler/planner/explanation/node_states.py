"""The state that each node is in, by one look and the plan that was made of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model import node_states as states
from autoscaler.model.actions import Cordon, Plan
from autoscaler.model.cluster import Cluster, Group, Instance, Node, Pod
from autoscaler.planner.disruption.consolidation_candidates import why_not_moved
from autoscaler.planner.disruption.scale_down import keeps_minimum
from autoscaler.planner.supply.candidate_nodes import COMING_TIER
from autoscaler.planner.supply.capacity_blocks import in_their_time
from autoscaler.planner.supply.fleet import Fleet, survey


@dataclass(frozen=True, slots=True)
class Standing:
    """A node, or what is to become one."""

    name: str
    """Of the node; of the instance where it has none yet; empty where there is no instance either."""
    state: str
    """One of ``STATES``."""
    why: str
    """In words, without the name."""
    node: Node | None = None
    group: Group | None = None
    """``None``: a machine that we own, or an instance that no group has."""
    residents: tuple[Pod, ...] = ()
    """Pods that are not daemons and not finished."""
    until: datetime | None = None
    """When the state ends at the latest, where time ends it."""

    @property
    def usd_per_hour(self) -> float:
        """Returns what the node costs per hour."""
        return self.group.usd_per_hour if self.group is not None else 0.0


@dataclass(frozen=True, slots=True)
class Standings:
    """All of them, and what they were found by."""

    fleet: Fleet
    nodes: tuple[Standing, ...]
    """On-prem machines first, then by group and name."""


def standings(cluster: Cluster, policy: Policy, plan: Plan) -> Standings:
    """The state of each node, of each instance that is none yet, and of what was asked for."""
    cluster = in_their_time(cluster, policy)
    fleet = survey(cluster, policy, plan.memory.backoffs)
    look = _Look(cluster, policy, plan, fleet)
    found = [*map(look.of_node, cluster.nodes), *look.coming()]
    found.sort(key=lambda one: (one.group is not None, one.group.name if one.group else "", one.name == "", one.name))
    return Standings(fleet, tuple(found))


class _Look:
    """What the states are read from."""

    def __init__(self, cluster: Cluster, policy: Policy, plan: Plan, fleet: Fleet) -> None:
        self._now, self._policy, self._plan, self._fleet, self._cluster = cluster.seen_at, policy, plan, fleet, cluster
        self._coming = {place.name for place in fleet.places if place.tier == COMING_TIER}
        self._closed_next = {step.node for step in plan.steps if isinstance(step, Cordon)}

    def of_node(self, node: Node) -> Standing:
        """Returns the node's state."""
        group, residents = self._fleet.group_of.get(node.name), tuple(self._fleet.residents.get(node.name, ()))
        state, why, until = (
            self._ends(node, residents) or self._unfit(node, group) or self._used(node, group, residents)
        )
        return Standing(node.name, state, why, node, group, residents, until)

    def _ends(self, node: Node, residents: tuple[Pod, ...]) -> tuple[str, str, datetime | None] | None:
        """Where its instance ends, or has no group."""
        ours = node.cordoned_by == words.AUTOSCALER
        if node.name in self._fleet.ghosts or node.deleting:
            return states.GONE, "its Node is being deleted" if node.deleting else "no group has its instance", None
        notice = self._fleet.noticed.get(node.name)
        if notice is not None:
            return states.INTERRUPTED, str(notice), notice.ends
        if node.name in self._fleet.leaving:
            if ours and not residents:
                return states.GONE, "its instance is being terminated", None
            return states.INTERRUPTED, "AWS ends its instance", None
        if node.instance_id and words.GROUP in node.labels and node.name not in self._fleet.group_of:
            return states.DETACHED, "no Auto Scaling group has its instance", None
        return None

    def _unfit(self, node: Node, group: Group | None) -> tuple[str, str, datetime | None] | None:
        """Where nothing can be started on it, whatever it holds."""
        boots_until = node.created + self._policy.scale_up.boot_timeout
        if not node.ready and group is not None and self._now < boots_until:
            return states.JOINING, "its kubelet is not ready", boots_until
        if not node.ready:
            since = node.unready_since or node.created
            end = since + self._policy.scale_down.unready_after if group is not None else None
            return states.DEAD, f"not ready since {since:%Y-%m-%d %H:%M:%S} UTC", end
        if node.cordoned and node.cordoned_by != words.AUTOSCALER:
            return states.REPAIRING, f"closed by {node.cordoned_by or 'another than the autoscaler'}", None
        if node.name in self._fleet.faults.closed:
            return states.REPAIRING, self._fleet.faults.closed[node.name], None
        if node.name in self._coming:
            return states.JOINING, "devices that its group promises are not there yet", boots_until
        return None

    def _used(self, node: Node, group: Group | None, residents: tuple[Pod, ...]) -> tuple[str, str, datetime | None]:
        """Returns the state that the pods on the node, or their absence, give it."""
        kept = self._plan.kept.get(node.name, "")
        if residents:
            return self._with_pods(node, group, residents)
        if node.cordoned or node.name in self._closed_next:
            since = node.cordoned_at or self._now
            goes = group is not None and group.name not in self._fleet.hands_off and self._policy.scale_down.enabled
            end = since + self._policy.idle_after(group.entry) if goes and group is not None else None
            return states.IDLE, kept or "no pod is on it, and none is to come", end
        if any(taint.key == words.RESERVED for taint in node.taints):
            boots_until = node.created + self._policy.scale_up.boot_timeout
            return states.RESERVED, kept or "kept for the pods that it was bought for", boots_until
        if group is not None and kept == keeps_minimum(group):
            return states.MINIMUM, kept, None
        return states.READY, kept or "no pod is on it", None

    def _with_pods(
        self, node: Node, group: Group | None, residents: tuple[Pod, ...]
    ) -> tuple[str, str, datetime | None]:
        many = f"{residents[0].key} is on it" if len(residents) == 1 else f"{len(residents)} pods are on it"
        if node.cordoned:
            since = self._plan.memory.draining.get(node.name) or node.cordoned_at or self._now
            return states.DRAINING, many, since + self._policy.scale_down.consolidation.timeout
        if group is not None and not any(map(why_not_moved, residents)):
            return states.UNDER_USED, f"{many}, which may be moved", None
        return states.BUSY, many, None

    def coming(self) -> Iterator[Standing]:
        """Yields instances that are on their way or never joined: they have no node."""
        patience = self._policy.scale_up.boot_timeout
        lost = {instance.id for _, instance in self._fleet.lost}
        for group in self._cluster.groups:
            without = [one for one in group.instances if one.id not in self._fleet.joined]
            for one in without:
                yield _instance(
                    one, group, is_lost=one.id in lost, until=one.launched + patience if one.launched else None
                )
            live = sum(one.state != "terminating" and one.id not in lost for one in without)
            for _ in range(self._fleet.outstanding[group.name] - live):
                yield Standing("", states.JOINING, "asked for: AWS has launched no instance yet", group=group)


def _instance(one: Instance, group: Group, *, is_lost: bool, until: datetime | None) -> Standing:
    if one.state == "terminating":
        return Standing(one.id, states.GONE, "the instance is being terminated", group=group)
    if is_lost:
        return Standing(one.id, states.DEAD, "the instance has not joined in time", group=group)
    return Standing(one.id, states.JOINING, "launched, and not a node yet", group=group, until=until)
