"""Waiting pods and gangs -> places that are there, on-prem first; then nodes to uncordon, to await, to buy.

A gang is helped whole or not at all. What is asked of EC2 is the difference to what it has been asked already, so that
doing it twice, or again after a restart, buys once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import (
    BUSY,
    HELD,
    STARTING,
    STUCK,
    Admit,
    Assignment,
    Recreate,
    Step,
    Waiting,
)
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.model.needed_changes import NeededChange
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.admission.gang_queue import GangQueue, demand_of
from autoscaler.planner.admission.wait_or_buy import Patience, Wait
from autoscaler.planner.cutting_stock.purchase_bound import purchase_bound
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.demand.gangs import Gang, foreign_gates, gangs_of, pinned_to, waits
from autoscaler.planner.demand.namespace_selectors import resolve, resolved, why_held
from autoscaler.planner.elastic.resizing import in_turn, resize, roles_of
from autoscaler.planner.handoff.gang_admission import not_yet, start
from autoscaler.planner.handoff.nominations import homes_of, is_contended, nominations, overstayed
from autoscaler.planner.handoff.reservations import kept_where_let_in, let_in, openings, reservations
from autoscaler.planner.handoff.scheduler_grace import left_alone, may_be_bought, not_tried_yet
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.placement.available_offerings import affordable, coming, offerings
from autoscaler.planner.placement.gang_packing import Packing
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.placement.volume_constraints import Claims
from autoscaler.planner.purchases import cancellations, free_on_prem, never_joined, purchases
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import Fleet
from autoscaler.planner.unschedulable import Unschedulable

_NOWHERE: Final[Mapping[str, Assignment]] = MappingProxyType({})
_LIMITS: Final = SearchLimits()


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """What is done for waiting pods."""

    steps: tuple[Step, ...]
    waiting: tuple[Waiting, ...]
    wanted: Mapping[str, str]
    """Name of a node that pods are planned on -> whom for."""
    assignments: Mapping[str, Assignment]
    """Pod key -> where it is planned."""
    looks: tuple[datetime, ...] = ()
    """When to look again at those that wait for machines that we own."""
    bound: float = 0.0
    """Dollars per hour that nodes for the same pods cost at least, whatever is bought."""


def scale_up(
    cluster: Cluster,
    policy: Policy,
    fleet: Fleet,
    *,
    assignments: Mapping[str, Assignment] = _NOWHERE,
    limits: SearchLimits = _LIMITS,
    answers: AnswerCache | None = None,
) -> ScaleUp:
    """Find a place for every gang that can be helped, and say of every other pod why it waits.

    ``assignments``: of the last plan (``Memory.assignments``). ``limits``: how much is searched. ``answers``: what the
    last look said of those that wait.
    """
    index = resolved(pod_index_of(cluster.pods), cluster.namespaces)
    at_home = let_in(index, fleet.reserved)
    index = kept_where_let_in(index, at_home)
    claims = Claims(cluster)
    pinned = [
        _whole(pod, cluster, claims)
        for pod in sorted((pod for pod in index.unbound if _is_pinned(pod)), key=lambda pod: pod.key)
    ]
    gangs = [_with_rules(gang, cluster, claims) for gang in gangs_of(index, cluster.gang_sizes)]
    newcomers = [*pinned, *(pod for gang in gangs for pod in gang.waiting)]
    fleet = claims.equip(fleet, newcomers)
    roles = tuple(replace(role, task=_whole(role.task, cluster, claims)) for role in roles_of(cluster))
    snapshot = Snapshot(
        [*fleet.places, *coming(cluster, fleet)],
        residents=index,
        newcomers=[*newcomers, *(role.task for role in roles)],
        closed=fleet.closed_places,
        order=fleet.order,
    )
    free = free_on_prem(snapshot)
    stuck, waiting, again = _settle(pinned, snapshot, _why_closed(fleet), at_home)
    homes = _homes(gangs, assignments, snapshot)
    kept = {place.name for place in homes.values()}
    market = Market(snapshot, offerings(cluster, policy, fleet), affordable(cluster, policy, fleet), kept=kept)
    snapshot.expect(market.sample(offering) for offering in market.offerings if market.buyable(offering))
    held = {gang.name: why for gang in gangs if (why := _why_held(gang, cluster, claims))}
    may_be_planned = [gang for gang in gangs if gang.name not in held]
    decide = partial(
        resize, cluster, policy.elastic, fleet, roles=roles, gangs=may_be_planned, homes=homes, market=market
    )
    resizing = decide()
    waiting += [Waiting(pod=key, because=why) for key, why in resizing.left_out.items()]
    gangs, homes = in_turn(gangs, resizing), {**resizing.homes, **homes}
    patience = Patience(cluster, policy, fleet, snapshot, unbought=resizing.unbought)
    ends = not_tried_yet(gangs, snapshot, cluster.seen_at)
    queue = GangQueue([gang for gang in gangs if gang.name not in held], market, patience, homes, limits)
    packing, waits = queue.serve()
    planned = packing.homes
    sizes = decide(planned=planned) if resizing.depends_on(planned, gangs) else resizing
    contended = cluster.may_nominate and is_contended(gangs)
    taken = _overstayed(gangs, pinned, packing, fleet, snapshot) if cluster.may_nominate else frozenset()
    unschedulable = Unschedulable(cluster, policy, fleet, market, answers)
    admits: list[Admit] = []
    refused: list[Gang] = []
    for gang in gangs:
        placed = packing.placed.get(gang.name)
        wait = _why_it_waits(gang.name, held, waits, {} if placed else resizing.unbought)
        if wait is not None:
            waiting += [Waiting(pod.key, wait.because, wait.changes, wait.cause) for pod in gang.waiting]
        elif placed is None:
            refused.append(gang)
        else:
            admit = start(gang, placed, contended=contended, taken=taken)
            admits += [admit] if admit else []
            waiting += not_yet(gang, placed, admitted=admit)
            waiting += left_alone(gang, placed, cluster.seen_at)
    waiting += unschedulable.explain((gang, demand_of(gang, snapshot)) for gang in refused)
    waiting += [Waiting(pod.key, why, unschedulable.changes_for(pod), cause=STUCK) for pod, why in stuck]
    pins = [(pod, place) for pod in pinned if (place := snapshot.place_on(pinned_to(pod) or "")) is not None]
    expected = {pod.key: place for pod, place in pins} | planned
    return ScaleUp(
        steps=(
            *sizes.steps,
            *cancellations(cluster, fleet),
            *never_joined(fleet, policy),
            *again,
            *reservations(gangs, packing.placed, admits, pins),
            *admits,
            *(nominations(gangs, packing.placed, fleet.residents) if cluster.may_nominate else ()),
            *may_be_bought(purchases(gangs, packing, fleet, free), ends),
            *openings(cluster, expected, places=fleet.reserved, patience=policy.scale_up.boot_timeout),
        ),
        waiting=tuple(sorted(waiting, key=lambda one: one.pod)),
        assignments=_assignments(packing),
        bound=purchase_bound(packing, queue.shapes, market, queue.proof),
        looks=tuple(
            sorted({*ends.values(), *resizing.looks, *(when for wait in waits.values() for when in wait.looks)})
        ),
        wanted={place.name: place.guests[0] for place in snapshot.places if place.guests and place.node is not None},
    )


def _why_it_waits(
    gang: str, held: Mapping[str, str], waits: Mapping[str, Wait], unbought: Mapping[str, str]
) -> Wait | None:
    """Why nothing is done for it now, though something could be."""
    if gang in held:
        return Wait(held[gang], cause=HELD)
    if gang in waits:
        return waits[gang]
    return Wait(unbought[gang], cause=BUSY) if gang in unbought else None


def _overstayed(
    gangs: Iterable[Gang], pinned: Sequence[Pod], packing: Packing, fleet: Fleet, snapshot: Snapshot
) -> frozenset[str]:
    waiting = [pod for gang in gangs for pod in gang.waiting]
    pins = {pod.key: place.node for pod in pinned if (place := snapshot.place_on(pinned_to(pod) or ""))}
    return overstayed([*waiting, *pinned], homes_of(packing.placed) | pins, fleet.residents)


def _assignments(packing: Packing) -> dict[str, Assignment]:
    return {
        key: Assignment(place.name, place.group.name if place.group is not None else "")
        for key, place in packing.homes.items()
    }


def _homes(gangs: Iterable[Gang], assignments: Mapping[str, Assignment], snapshot: Snapshot) -> dict[str, Place]:
    """Pod key -> the place that it was planned on before, whatever that is called now.

    A node that was still to come is the next of its group to be ready: the first gang gets the first one.
    """
    pods = [pod for gang in gangs for pod in gang.waiting if pod.key in assignments]
    if not pods:
        return {}
    wanted = dict.fromkeys(assignments[pod.key] for pod in pods)
    there = {one: snapshot.place(one.node) for one in wanted}
    found = {one: place for one, place in there.items() if place is not None and place.node is not None}
    taken = {place.name for place in found.values()}
    fresh: dict[str, list[Place]] = defaultdict(list)
    idle = [place for place in snapshot.places if place.group is not None and not place.standing]
    for place in sorted(idle, key=lambda place: (place.tier, place.node is None, place.name), reverse=True):
        if place.group is not None and place.name not in taken:
            fresh[place.group.name].append(place)
    for one in wanted:
        if one not in found and fresh[one.group]:
            found[one] = fresh[one.group].pop()
    return {pod.key: found[assignments[pod.key]] for pod in pods if assignments[pod.key] in found}


def _is_pinned(pod: Pod) -> bool:
    return pod.node is None and pod.phase == "Pending" and not (pod.deleting or pod.is_daemon or waits(pod))


def _settle(
    pinned: Iterable[Pod], snapshot: Snapshot, closed: Mapping[str, str], at_home: Collection[str]
) -> tuple[list[tuple[Pod, str]], list[Waiting], list[Recreate]]:
    """Pods that can go to one node only take their room there before anyone else is planned; those that cannot, first.

    Those ``at_home`` also where a rule speaks against it: all of a job may be spread evenly, and some of it unevenly.
    """
    stuck: list[tuple[Pod, str]] = []
    waiting: list[Waiting] = []
    again: list[Recreate] = []
    for pod in pinned:
        host = pinned_to(pod) or ""
        place = snapshot.place_on(host)
        shape = snapshot.shape(pod)
        reason = snapshot.why_not(shape, place) if place else None
        if place is not None and (reason is None or pod.key in at_home):
            snapshot.put(shape, place, pod.key)
            told = f"its node {place.name} is kept for it, and the scheduler has been told"
            if pod.key in at_home:
                waiting.append(Waiting(pod.key, told, cause=STARTING))
            elif pod.unschedulable_because:
                waiting.append(Waiting(pod.key, f"the scheduler says: {pod.unschedulable_because}", cause=STUCK))
            continue
        if place is None:
            why = f"is bound for node {host}: {closed.get(host, 'not there')}"
        else:
            why = f"is bound for node {host}, where it does not fit: {reason.kind if reason else ''}"
        in_vain = place is not None or host not in closed
        if in_vain and pod.admitted_to == host and pod.owner:
            again.append(Recreate(pod=pod.key, because=f"it {why}"))
        if pod.admitted_to == host and pod.owner:
            waiting.append(Waiting(pod.key, why, (_made_anew(pod),), cause=STUCK))
        else:
            stuck.append((pod, why))
    return stuck, waiting, again


def _made_anew(pod: Pod) -> NeededChange:
    return NeededChange(
        "other",
        run=f"kubectl delete pod --namespace {pod.namespace} {pod.name}",
        note="its Job makes it anew, and a place is sought again",
    )


def _why_closed(fleet: Fleet) -> dict[str, str]:
    """Host name of a node that nothing is planned on -> why."""
    return {fleet.nodes.named[name].labels.get(HOSTNAME, name): why for name, why in fleet.unusable.items()}


def _whole(pod: Pod, cluster: Cluster, claims: Claims) -> Pod:
    """The pod with those of its rules that only other objects can tell."""
    return claims.resolve(resolve(pod, cluster.namespaces))


def _with_rules(gang: Gang, cluster: Cluster, claims: Claims) -> Gang:
    if not any(pod.beyond_itself for pod in gang.waiting):
        return gang
    zone = ZONE if claims.share_a_zone(gang.waiting) else None
    waiting = tuple(_whole(pod, cluster, claims) for pod in gang.waiting)
    return replace(gang, waiting=waiting, topology=gang.topology or zone)


def _why_held(gang: Gang, cluster: Cluster, claims: Claims) -> str:
    """What keeps a gang from being planned at all."""
    gates = sorted({gate for pod in gang.waiting for gate in foreign_gates(pod)})
    if gates:
        return f"held by scheduling gate {', '.join(gates)}"
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
        return f"gang {gang.name} is not complete: {gang.arrived} of {gang.enough} pods have been created"
    return ""
