"""What waits, with all its rules: those of its namespaces and volumes, and of the gangs that it is part of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Assignment
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.labels import ZONE
from autoscaler.model.pod_index import PodIndex, pod_index_of
from autoscaler.planner.demand.gangs import Gang, foreign_gates, gangs_of, waits
from autoscaler.planner.demand.namespace_selectors import resolve, resolved, why_held
from autoscaler.planner.demand.requested_gangs import requested_gangs
from autoscaler.planner.elastic.resizing import Role, roles_of
from autoscaler.planner.handoff.reservations import kept_where_let_in, let_in
from autoscaler.planner.handoff.scheduler_grace import is_not_asked_for
from autoscaler.planner.placement.volume_constraints import Claims
from autoscaler.planner.supply.capacity_blocks import LastsLongEnough
from autoscaler.planner.supply.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Pending:
    """The pods of one look that wait, with what decides about them."""

    index: PodIndex
    fleet: Fleet
    """With what it has for their volumes."""
    pinned: Sequence[Pod]
    """Pods that can go to one node only, in order of their keys."""
    at_home: Collection[str]
    """Keys of those whose nodes are reserved for them."""
    gangs: Sequence[Gang]
    held: Mapping[str, str]
    """Name of a gang -> what keeps it from being planned at all."""
    roles: Sequence[Role]
    """Of elastic jobs."""


def pending_pods(cluster: Cluster, policy: Policy, fleet: Fleet, assignments: Mapping[str, Assignment]) -> Pending:
    """All of them, with what there is for their volumes. ``assignments``: where pods were planned last."""
    index = resolved(pod_index_of(cluster.pods), cluster.namespaces)
    at_home = let_in(index, fleet.reserved)
    index, claims = kept_where_let_in(index, at_home), Claims(cluster)
    pinned = sorted((pod for pod in index.unbound if _is_pinned(pod)), key=lambda pod: pod.key)
    blocks = LastsLongEnough.of(cluster, policy)
    pinned = [blocks.let_in(_whole(pod, cluster, claims), has_place=True) for pod in pinned]
    waiting = sorted((*gangs_of(index, cluster.gang_sizes), *requested_gangs(cluster)), key=lambda gang: gang.order)
    gangs = [_with_rules(gang, cluster, claims) for gang in waiting]
    gangs = _let_in(gangs, blocks, at_home=at_home, assignments=assignments)
    return Pending(
        index=index,
        fleet=claims.equip(fleet, [*pinned, *(pod for gang in gangs for pod in gang.waiting)]),
        pinned=pinned,
        at_home=at_home,
        gangs=gangs,
        held={gang.name: why for gang in gangs if (why := _why_held(gang, cluster, claims))},
        roles=[replace(role, task=blocks.let_in(_whole(role.task, cluster, claims))) for role in roles_of(cluster)],
    )


def _is_pinned(pod: Pod) -> bool:
    return pod.node is None and pod.phase == "Pending" and not (pod.deleting or pod.is_daemon or waits(pod))


def _whole(pod: Pod, cluster: Cluster, claims: Claims) -> Pod:
    """The pod with those of its rules that only other objects can tell."""
    return claims.resolve(resolve(pod, cluster.namespaces))


def _with_rules(gang: Gang, cluster: Cluster, claims: Claims) -> Gang:
    if not any(pod.beyond_itself for pod in gang.waiting):
        return gang
    zone = ZONE if claims.share_a_zone(gang.waiting) else None
    waiting = tuple(_whole(pod, cluster, claims) for pod in gang.waiting)
    return replace(gang, waiting=waiting, topology=gang.topology or zone)


def _let_in(
    gangs: list[Gang], blocks: LastsLongEnough, *, at_home: Collection[str], assignments: Mapping[str, Assignment]
) -> list[Gang]:
    """Returns the gangs with the Capacity Blocks that their pods may be placed in."""
    if not blocks.groups:
        return gangs
    return [
        replace(
            gang,
            waiting=tuple(
                blocks.let_in(pod, has_place=pod.key in at_home, planned_in=assignments[pod.key].group)
                if pod.key in assignments
                else blocks.let_in(pod, has_place=pod.key in at_home)
                for pod in gang.waiting
            ),
        )
        for gang in gangs
    ]


def _why_held(gang: Gang, cluster: Cluster, claims: Claims) -> str:
    """What keeps a gang from being planned at all."""
    if why := _why_left_to_others(gang):
        return why
    strange = sorted({rule for pod in gang.waiting for rule in pod.not_understood})
    if strange:
        return f"has rules that Spillway does not plan for: {'; '.join(strange)}"
    for pod in gang.waiting:
        why = claims.why_held(pod) or why_held(pod, cluster.namespaces)
        if why:
            return why if gang.is_lone or len(gang.waiting) == 1 else f"{pod.key} of its gang: {why}"
    if gang.unknown_size_source:
        return f"gang {gang.name} is held until {gang.unknown_size_source}, which says its size, is there"
    if gang.missing:
        return f"gang {gang.name} is not complete: {gang.arrived} of {gang.due} pods have been created"
    return ""


def _why_left_to_others(gang: Gang) -> str:
    gates = sorted({gate for pod in gang.waiting for gate in foreign_gates(pod)})
    if gates:
        return f"held by scheduling gate {', '.join(gates)}"
    if unasked := [pod for pod in gang.waiting if is_not_asked_for(pod)]:
        return (
            f"YuniKorn does not ask for a node for {'it' if gang.is_lone else unasked[0].key} so far: it waits for its "
            "queue's quota, or takes the place of a placeholder of its task group"
        )
    return ""
