"""Waiting pods and gangs -> places that are there, on-prem first; then nodes to uncordon, to await, to buy.

A gang is helped whole or not at all. What is asked of EC2 is the difference to what it has been asked already, so that
doing it twice, or again after a restart, buys once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import (
    BUSY,
    HELD,
    STUCK,
    Admit,
    Assignment,
    Step,
    Waiting,
)
from autoscaler.model.cluster import Cluster
from autoscaler.planner.admission.demands import demand_of
from autoscaler.planner.admission.gang_queue import GangQueue
from autoscaler.planner.admission.wait_or_buy import Patience, Wait
from autoscaler.planner.cutting_stock.purchase_bound import purchase_bound
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.demand.gangs import Gang, pinned_to
from autoscaler.planner.elastic.resizing import Resizing, in_turn, resize
from autoscaler.planner.handoff.gang_admission import not_yet, start
from autoscaler.planner.handoff.nominations import homes_of, is_contended, nominations, overstayed
from autoscaler.planner.handoff.provisioning import answers as answers_to_requests
from autoscaler.planner.handoff.provisioning import looks as ends_of_bookings
from autoscaler.planner.handoff.reservations import openings, reservations
from autoscaler.planner.handoff.scheduler_grace import are_held, left_alone, not_tried_yet
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.pending_pods import Pending, pending_pods
from autoscaler.planner.pinned_pods import Settled, settle
from autoscaler.planner.placement.available_offerings import affordable, coming, offerings
from autoscaler.planner.placement.gang_packing import Packing
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.purchases import cancellations, free_on_prem, never_joined, purchases
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import Fleet
from autoscaler.planner.unschedulable import Unschedulable
from autoscaler.planner.workflow_steps import early

_NOWHERE: Final[Mapping[str, Assignment]] = MappingProxyType({})
_LIMITS: Final = SearchLimits()


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """What is done for waiting pods."""

    steps: tuple[Step, ...]
    waiting: tuple[Waiting, ...]
    wanted: Mapping[str, str]
    """Name of a node that pods are planned on -> for which pod."""
    assignments: Mapping[str, Assignment]
    """Pod key -> where it is planned."""
    is_held: bool = False
    """Whether purchases wait until the scheduler has tried pods that have just come."""
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
    pending = pending_pods(cluster, policy, fleet, assignments)
    fleet, snapshot = pending.fleet, _snapshot(cluster, pending)
    free = free_on_prem(snapshot)
    settled = settle(pending.pinned, snapshot, fleet, at_home=pending.at_home)
    homes = _homes(pending.gangs, assignments, snapshot)
    market = _market(cluster, policy, fleet, snapshot, homes)
    served = _serve(cluster, policy, pending, market, homes=homes, limits=limits)
    gangs, packing = served.gangs, served.packing
    planned = purchases(gangs, packing, fleet, free)
    is_held = are_held(planned, served.tried_at)
    unschedulable = Unschedulable(cluster, policy, fleet, market, answers)
    answered = _answer(cluster, pending, served, unschedulable, settled, is_held=is_held)
    pins = [(pod, place) for pod in pending.pinned if (place := snapshot.place_on(pinned_to(pod) or "")) is not None]
    expected = {pod.key: place for pod, place in pins} | packing.homes
    return ScaleUp(
        steps=(
            *served.resized,
            *cancellations(cluster, fleet),
            *never_joined(fleet, policy),
            *settled.again,
            *reservations(gangs, packing.placed, answered.admits, pins),
            *answered.admits,
            *answers_to_requests(cluster, gangs, packing.placed, answered.waiting),
            *(
                nominations(gangs, packing.placed, fleet.residents, contended=served.contended)
                if cluster.may_nominate
                else ()
            ),
            *(() if is_held else planned),
            *openings(cluster, expected, places=fleet.reserved, patience=policy.scale_up.boot_timeout),
        ),
        waiting=tuple(sorted(answered.waiting, key=lambda one: one.pod)),
        assignments=_assignments(packing),
        is_held=is_held,
        bound=purchase_bound(packing, served.queue.shapes, market, served.queue.proof),
        looks=(*served.looks, *ends_of_bookings(cluster)),
        wanted={place.name: place.guests[0] for place in snapshot.places if place.guests and place.node is not None},
    )


# --- What there is ----------------------------------------------------------------------------------------------------


def _snapshot(cluster: Cluster, pending: Pending) -> Snapshot:
    waiting = (pod for gang in pending.gangs for pod in gang.waiting)
    return Snapshot(
        [*pending.fleet.places, *coming(cluster, pending.fleet)],
        residents=pending.index,
        pending=[*pending.pinned, *waiting, *(role.task for role in pending.roles)],
        closed=pending.fleet.closed_places,
        order=pending.fleet.order,
    )


def _market(cluster: Cluster, policy: Policy, fleet: Fleet, snapshot: Snapshot, homes: Mapping[str, Place]) -> Market:
    """What may be bought; pods are spread as if one of each were there."""
    kept = {place.name for place in homes.values()}
    market = Market(
        snapshot,
        offerings(cluster, policy, fleet),
        affordable(cluster, policy, fleet),
        kept=kept,
        samples=fleet.samples,
    )
    snapshot.rules.expect(
        (market.sample(offering) for offering in market.offerings if market.buyable(offering)), market.may_come
    )
    return market


# --- Places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Served:
    """Where gangs are placed, and how elastic jobs are resized for it."""

    gangs: Sequence[Gang]
    """All of them, in turn."""
    queue: GangQueue
    packing: Packing
    waits: Mapping[str, Wait]
    """Name of a gang that waits for machines that we own -> for what."""
    resizing: Resizing
    """As it was before gangs were placed."""
    resized: Sequence[Step]
    tried_at: Mapping[str, datetime]
    """Key of a pod that the scheduler may not have tried yet -> when it will have."""
    rooms_at: tuple[datetime, ...]
    """When pods of steps that have ended no longer hold the room of the next."""
    contended: bool
    """Whether room on nodes that are open has to be kept for pods before their gates are lifted."""

    @property
    def looks(self) -> tuple[datetime, ...]:
        """Returns the moments at which to look again."""
        waits = (when for wait in self.waits.values() for when in wait.looks)
        return tuple(sorted({*self.tried_at.values(), *self.rooms_at, *self.resizing.looks, *waits}))


def _serve(
    cluster: Cluster,
    policy: Policy,
    pending: Pending,
    market: Market,
    *,
    homes: Mapping[str, Place],
    limits: SearchLimits,
) -> _Served:
    fleet, snapshot = pending.fleet, market.snapshot
    may_be_planned = [gang for gang in pending.gangs if gang.name not in pending.held]
    awaited, rooms_at = early(cluster, may_be_planned)
    claiming = [gang for gang in may_be_planned if gang.name not in awaited]
    decide = partial(
        resize, cluster, policy.elastic, fleet, roles=pending.roles, gangs=claiming, homes=homes, market=market
    )
    resizing = decide()
    gangs = in_turn(pending.gangs, resizing)
    patience = Patience(cluster, policy, fleet, snapshot, unbought={**resizing.unbought, **awaited})
    tried_at = not_tried_yet(gangs, snapshot, cluster.seen_at)
    queue = GangQueue(
        [gang for gang in gangs if gang.name not in pending.held], market, patience, resizing.homes, limits
    )
    packing, waits = queue.serve()
    is_tighter = resizing.depends_on(packing.homes, gangs)
    resized = decide(planned=packing.homes).steps if is_tighter else resizing.steps
    contended = cluster.may_nominate and is_contended(gangs, pending.index, cluster.seen_at)
    return _Served(gangs, queue, packing, waits, resizing, resized, tried_at, rooms_at, contended)


# --- What is said of each ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answered:
    admits: Sequence[Admit]
    waiting: Sequence[Waiting]


def _answer(
    cluster: Cluster,
    pending: Pending,
    served: _Served,
    unschedulable: Unschedulable,
    settled: Settled,
    *,
    is_held: bool,
) -> _Answered:
    """Which gangs start, and why the other pods wait. The snapshot is as it was."""
    gangs, packing, snapshot = served.gangs, served.packing, unschedulable.market.snapshot
    taken = _overstayed(pending, served, snapshot) if cluster.may_nominate else frozenset()
    waiting = [*settled.waiting, *(Waiting(key, why) for key, why in served.resizing.left_out.items())]
    admits: list[Admit] = []
    refused: list[Gang] = []
    for gang in gangs:
        placed = packing.placed.get(gang.name)
        wait = _why_it_waits(gang.name, pending.held, served.waits, {} if placed else served.resizing.unbought)
        if wait is not None:
            waiting += [Waiting(pod.key, wait.because, wait.changes, wait.cause) for pod in gang.waiting]
        elif placed is None:
            refused.append(gang)
        else:
            admit = start(gang, placed, contended=served.contended, taken=taken)
            admits += [admit] if admit else []
            waiting += not_yet(gang, placed, admitted=admit, is_held=is_held)
            waiting += left_alone(gang, placed, cluster.seen_at)
    waiting += unschedulable.explain((gang, demand_of(gang, snapshot)) for gang in refused)
    waiting += [Waiting(pod.key, why, unschedulable.changes_for(pod), cause=STUCK) for pod, why in settled.stuck]
    return _Answered(admits, waiting)


def _why_it_waits(
    gang: str, held: Mapping[str, str], waits: Mapping[str, Wait], unbought: Mapping[str, str]
) -> Wait | None:
    """Why nothing is done for it now, though something could be."""
    if gang in held:
        return Wait(held[gang], cause=HELD)
    if gang in waits:
        return waits[gang]
    return Wait(unbought[gang], cause=BUSY) if gang in unbought else None


def _overstayed(pending: Pending, served: _Served, snapshot: Snapshot) -> frozenset[str]:
    waiting = [pod for gang in served.gangs for pod in gang.waiting]
    pins = {pod.key: place.node for pod in pending.pinned if (place := snapshot.place_on(pinned_to(pod) or ""))}
    homes = homes_of(served.packing.placed) | pins
    return overstayed([*waiting, *pending.pinned], homes, pending.fleet.residents)


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
