"""A plan without a cluster: pods, prices and machines from files in; nodes to buy, who goes where, and who waits, out.

Free machines are filled first, at no price, so that few of their GPUs are stranded. For what is left the cheapest nodes
are found by :mod:`autoscaler.solver.solve`. A gang has a node for every pod or for none: under limits, gangs are taken
by priority, then in the order of the file, each if all taken so far can still be served with it.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from autoscaler.config.documents import parse_span
from autoscaler.config.policy import Policy, read_policy
from autoscaler.inputs.gpu_models import with_gpu_models
from autoscaler.inputs.tables import notes_on_nodes, read_asked, read_catalog, read_nodes, without_collection
from autoscaler.model.cluster import DaemonSet, Node, Pod
from autoscaler.model.errors import BadInput
from autoscaler.planner.admission.admit import Admission, LeftWaiting
from autoscaler.planner.demand.pod_classes import sorts_of
from autoscaler.planner.demand.pod_rules import Neighbours
from autoscaler.planner.placement.drafts import Draft, Drafting
from autoscaler.planner.supply.capacity import Room
from autoscaler.planner.supply.offers import Offer, Price, beside_daemons, limits_of, nodes_beside_daemons, offers_of
from autoscaler.solver.deadline import Watch

_TELLING = 1.2
"""Seats are given out and written down after the planning; that takes so many times as long as making ready took."""
_FILLING_UP = 6
"""The same for finding room for those whom the plan left out, and the bound for all."""
_LATE = 0.7
"""Part of the time after which the bound is found in a hurry."""
_WORTH_IT = 0.1
"""Less than that part of the time is too little to plan once more for those who are known to be served."""
_SHOWN: Final = 3
"""Pods named of those that wait for one reason."""


@dataclass(frozen=True, slots=True)
class BoughtNode:
    """A node to buy."""

    name: str
    instance_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """What to buy and who goes where."""

    nodes: tuple[BoughtNode, ...]
    placements: Mapping[str, str]
    waiting: tuple[LeftWaiting, ...]
    usd_per_hour: float
    lower_bound_usd_per_hour: float
    seconds: float
    """To plan, from when everything was read."""
    reading_seconds: float = 0.0
    """To read the files, before that."""
    notes: tuple[str, ...] = ()
    """What of the files is not planned for, in words."""

    def as_json(self) -> dict[str, Any]:
        """As it is printed."""
        return {
            "nodes": [
                {
                    "name": node.name,
                    "instance_type": node.instance_type,
                    "zone": node.zone or None,
                    "capacity_type": node.capacity_type,
                    "usd_per_hour": node.usd_per_hour,
                }
                for node in self.nodes
            ],
            "placements": dict(self.placements),
            "waiting": [
                {"pod": one.pod, "reason": one.reason, "would_fit_if": one.would_fit_if} for one in self.waiting
            ],
            "notes": list(self.notes),
            "usd_per_hour": self.usd_per_hour,
            "lower_bound_usd_per_hour": self.lower_bound_usd_per_hour,
            "seconds": round(self.seconds, 3),
            "reading_seconds": round(self.reading_seconds, 3),
        }


def plan_offline(
    pods: Sequence[Pod],
    prices: Sequence[Price],
    nodes: Sequence[Node] = (),
    *,
    policy: Policy | None = None,
    zones: Sequence[str] = (),
    daemon_sets: Sequence[DaemonSet] = (),
    deadline: timedelta = timedelta(seconds=1),
    clock: Callable[[], float] = lambda: 0.0,
) -> OfflinePlan:
    """The cheapest plan found within the deadline. ``zones``: to buy in, where the prices name none."""
    with without_collection():
        machines = nodes_beside_daemons(nodes, daemon_sets, pods)
        return _planned(
            pods,
            prices,
            machines,
            policy=policy,
            zones=zones,
            daemon_sets=daemon_sets,
            deadline=deadline,
            clock=clock,
        )


def _planned(
    pods: Sequence[Pod],
    prices: Sequence[Price],
    nodes: Sequence[Node],
    *,
    policy: Policy | None,
    zones: Sequence[str],
    daemon_sets: Sequence[DaemonSet],
    deadline: timedelta,
    clock: Callable[[], float],
) -> OfflinePlan:
    start = clock()
    seconds = deadline.total_seconds()
    names = _names(pods)
    sorts, models = sorts_of(pods)
    offers = beside_daemons(offers_of(models, prices, policy, zones), daemon_sets)
    room = Room(offers, nodes, pods, models)
    rules = Neighbours(models, _counted(sorts, len(models)))
    drafting = Drafting(pods, sorts, room, rules, limits_of(room.offers, policy))
    admission = Admission(pods, names, drafting, policy)
    gangs = admission.gangs()
    ready = clock() - start
    telling = min(_TELLING * ready, seconds / 4)
    filling_up = 0.0 if admission.are_surely_served(gangs) else min(_FILLING_UP * ready, seconds / 10)
    watch = Watch(clock, start, seconds - telling - filling_up)
    taken = admission.admit(gangs, watch)
    draft, left = admission.served, watch.left()
    if draft is None or (left > _WORTH_IT * seconds and not admission.in_full):
        better = drafting.draft([one for gang in taken for one in gang], deadline=max(0.05, left), clock=clock)
        draft = better if draft is None or _is_better(better, draft, admission) else draft
    draft = admission.completed(draft, gangs, taken, in_time=lambda: clock() - start < seconds - telling)
    chosen = [number for gang in taken for number in gang]
    plan = _told(
        draft,
        names=names,
        drafting=drafting,
        taken={node.name for node in nodes},
        waiting=admission.waiting,
        bound=drafting.bound(draft, chosen, hurried=clock() - start > _LATE * seconds),
    )
    return replace(plan, seconds=clock() - start)


def _is_better(one: Draft, other: Draft, admission: Admission) -> bool:
    return not admission.broken(one) and one.usd <= other.usd


def run_plan(
    *,
    pods: str,
    catalog: Path,
    nodes: Path | None,
    policy: Path | None,
    zones: tuple[str, ...] = (),
    capacity_type: str | None = None,
    deadline: str,
    wants_json: bool,
    echo: Callable[[str], None],
) -> None:
    """The command: read, plan, tell."""
    try:
        span = parse_span(deadline)
    except ValueError as error:
        raise BadInput(f"--deadline = {deadline!r}: {error}") from None
    start = time.monotonic()
    asked, prices = read_asked(pods), read_catalog(catalog)
    if capacity_type is not None:
        prices = tuple(price for price in prices if price.capacity_type == capacity_type)
    machines, rules = read_nodes(nodes) if nodes else (), read_policy(policy) if policy else None
    asked = with_gpu_models(asked, prices, machines)
    notes = (*asked.notes, *(notes_on_nodes(nodes) if nodes else ()))
    reading = time.monotonic() - start
    plan = plan_offline(
        asked.pods,
        prices,
        machines,
        policy=rules,
        zones=zones,
        daemon_sets=asked.daemon_sets,
        deadline=span,
        clock=time.monotonic,
    )
    plan = replace(plan, reading_seconds=reading, notes=notes)
    if wants_json:
        echo(json.dumps(plan.as_json()))
    else:
        show(plan, echo=echo)


def _counted(sorts: Sequence[int], many: int) -> list[int]:
    counts = Counter(sorts)
    return [counts[sort] for sort in range(many)]


def _names(pods: Sequence[Pod]) -> list[str]:
    """Plain names where they are unique, else with the namespace."""
    many = Counter(pod.name for pod in pods)
    names = [pod.name if many[pod.name] == 1 else pod.key for pod in pods]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput(f"pods: {twice[0]!r} is given more than once: every pod needs a name of its own")
    return names


def _told(
    draft: Draft,
    *,
    names: Sequence[str],
    drafting: Drafting,
    taken: set[str],
    waiting: Sequence[LeftWaiting],
    bound: float,
) -> OfflinePlan:
    """In names."""
    room = drafting.room
    placements = {number: room.machines[machine].name for number, machine in draft.at_home.items()}
    nodes: list[BoughtNode] = []
    numbers: Counter[str] = Counter()
    for bought in draft.nodes:
        offer = bought.offer
        name = _next_name(offer, numbers, taken)
        price = offer.price
        nodes.append(BoughtNode(name, price.instance_type, offer.zone, price.capacity_type, offer.kind.usd))
        for number in bought.pods:
            placements[number] = name
    usd = round(math.fsum(node.usd_per_hour for node in nodes), 6)
    return OfflinePlan(
        nodes=tuple(nodes),
        placements={names[number]: placements[number] for number in sorted(placements)},
        waiting=tuple(sorted(waiting, key=lambda one: one.pod)),
        usd_per_hour=usd,
        lower_bound_usd_per_hour=round(min(usd, bound), 6),
        seconds=0.0,
    )


def _next_name(offer: Offer, numbers: Counter[str], taken: set[str]) -> str:
    stem = "-".join(part for part in (offer.entry or offer.price.instance_type, offer.zone) if part).replace(".", "-")
    while True:
        numbers[stem] += 1
        name = f"{stem}-{numbers[stem]}"
        if name not in taken:
            return name


def show(plan: OfflinePlan, *, echo: Callable[[str], None]) -> None:
    """A short table for people."""
    counted: dict[tuple[str, str, str, float], int] = defaultdict(int)
    for node in plan.nodes:
        counted[node.instance_type, node.zone, node.capacity_type, node.usd_per_hour] += 1
    if counted:
        echo(f"{'NODES':>6}  {'INSTANCE TYPE':<20} {'ZONE':<12} {'CAPACITY':<10} {'$/H EACH':>10} {'$/H':>12}")
    for (kind, zone, capacity, usd), many in sorted(counted.items(), key=lambda item: -item[0][3] * item[1]):
        echo(f"{many:>6}  {kind:<20} {zone or 'any':<12} {capacity:<10} {usd:>10.4f} {usd * many:>12.4f}")
    bound = plan.lower_bound_usd_per_hour
    gap = f", at most {plan.usd_per_hour / bound - 1:.2%} above the cheapest there is" if bound > 0 else ""
    nodes = _many(len(plan.nodes), "node")
    bought = f"{plan.usd_per_hour:.4f} $/h for {nodes} (no plan costs less than {bound:.4f} $/h{gap})"
    idle = "nothing may be bought for those who wait" if plan.waiting else "nothing has to be bought"
    echo(bought if counted else idle)
    took = f"{plan.seconds:.2f} s, after {plan.reading_seconds:.2f} s to read the files"
    echo(f"{_many(len(plan.placements), 'pod')} placed, {len(plan.waiting)} waiting, {took}")
    for (reason, wish), pods in _by_reason(plan.waiting).items():
        few = f"{', '.join(pods[:_SHOWN])}{', ...' if len(pods) > _SHOWN else ''}"
        echo(f"waiting: {_many(len(pods), 'pod')} ({few}): {reason}")
        echo(f"         would fit if {wish}")
    for note in plan.notes:
        echo(f"note: {note}")


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _by_reason(waiting: Iterable[LeftWaiting]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in waiting:
        found[one.reason, one.would_fit_if].append(one.pod)
    return found
