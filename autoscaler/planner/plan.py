"""What to do now: a function of one look at the cluster, the policy, and what the last plan remembered.

No clock and no I/O: now is ``cluster.seen_at``. The same input gives the same plan, in whatever order it is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import (
    Cancel,
    EndJob,
    Grow,
    Memory,
    Order,
    Plan,
    Release,
    Remove,
    Step,
)
from autoscaler.model.cluster import Cluster
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.disruption.consolidation import Consolidation, consolidate
from autoscaler.planner.disruption.drain_brake import DrainBrake
from autoscaler.planner.disruption.faulty_nodes import FaultyNodes, faulty_nodes
from autoscaler.planner.disruption.idle_gpus import IdleGpus, idle_gpus
from autoscaler.planner.disruption.interruptions import Interruptions, interruptions
from autoscaler.planner.disruption.leftovers import left_over, terminations
from autoscaler.planner.disruption.node_health import Unhealthy, unhealthy
from autoscaler.planner.disruption.scale_down import ScaleDown, scale_down
from autoscaler.planner.disruption.surplus import Surplus, surplus, without
from autoscaler.planner.disruption.termination_hooks import release_hooks
from autoscaler.planner.headroom import Headroom, keep_free
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.orders import as_ordered, dated, made_again, ordered_so_far, orders_in, still_open
from autoscaler.planner.scale_up import ScaleUp, scale_up
from autoscaler.planner.supply.capacity_blocks import in_their_time, looks_at_blocks
from autoscaler.planner.supply.fleet import Fleet, survey
from autoscaler.planner.supply.node_cache import NodeCache
from autoscaler.planner.workflow_steps import steps_due

_LIMITS: Final = SearchLimits()


def plan(
    cluster: Cluster,
    policy: Policy,
    memory: Memory,
    *,
    limits: SearchLimits = _LIMITS,
    cache: NodeCache | None = None,
    answers: AnswerCache | None = None,
) -> Plan:
    """Decide: end what lingers, place and buy for what waits, terminate what is idle, release what is ended.

    ``limits``: how much is searched, in counted work. ``cache``: what the last look found of nodes that have not
    changed, and ``answers`` what it said of pods that wait; they save time and change no plan.
    """
    look = _surveyed(cluster, policy, memory, cache)
    if look.orders and look.above.warnings:  # what came meanwhile leaves no room for them: they are not made again
        look = _surveyed(cluster, policy, replace(memory, orders={}), cache)
    scaled = _scaled_up(look, limits, answers)
    disrupted = _disrupted(look, scaled, limits)
    return _planned(look, scaled, disrupted)


# --- Stages -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """What one plan is made of."""

    cluster: Cluster
    """As if the orders had been carried out."""
    policy: Policy
    memory: Memory
    orders: Mapping[str, Order]
    """Those that AWS has not answered."""
    fleet: Fleet
    above: Surplus
    """Nodes above a limit."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """What pending pods get, and what is kept free besides."""

    up: ScaleUp
    spare: Headroom

    @property
    def resized(self) -> frozenset[str]:
        """Groups whose desired capacity changes."""
        return frozenset(step.group for step in self.spare.steps if isinstance(step, Grow | Cancel))


@dataclass(frozen=True, slots=True)
class _Disrupted:
    """Nodes and pods that are to go, and why."""

    brake: DrainBrake
    sick: Unhealthy
    taken_back: Interruptions
    at_fault: FaultyNodes
    emptied: Consolidation
    unused: IdleGpus
    left: frozenset[str]
    """Instances that are left over of a gang."""
    down: ScaleDown


def _surveyed(cluster: Cluster, policy: Policy, memory: Memory, cache: NodeCache | None) -> _Look:
    orders = still_open(cluster, memory)
    as_seen = as_ordered(replace(cluster, pods=pod_index_of(cluster.pods)), orders)
    cluster = in_their_time(as_seen, policy)
    fleet = survey(cluster, policy, memory.backoffs, cache, ordered=orders)
    return _Look(cluster, policy, memory, orders, fleet, surplus(cluster, policy, fleet))


def _scaled_up(look: _Look, limits: SearchLimits, answers: AnswerCache | None) -> _Scaled:
    cluster, policy, fleet, placed = look.cluster, look.policy, without(look.fleet, look.above), look.memory.assignments
    up = scale_up(cluster, policy, fleet, assignments=placed, limits=limits, answers=answers)
    spare = keep_free(
        cluster, policy, fleet, up.steps, wanted=up.wanted, assignments=up.assignments, may_buy=not up.is_held
    )
    return _Scaled(up, spare)


def _disrupted(look: _Look, scaled: _Scaled, limits: SearchLimits) -> _Disrupted:
    """Decides on disruptions in the order in which the brake, which each of them asks, lets them."""
    cluster, policy, fleet, up = look.cluster, look.policy, look.fleet, scaled.up
    brake = DrainBrake.of(cluster, policy, fleet, look.memory)
    sick = unhealthy(cluster, policy, fleet, brake)
    resized = scaled.resized | look.orders.keys()
    taken_back = interruptions(cluster, policy, fleet, brake, resized=resized)
    at_fault = faulty_nodes(cluster, policy, fleet, resized=resized)
    begun = (*scaled.spare.steps, *sick.steps, *taken_back.steps, *at_fault.steps)
    emptied = consolidate(
        cluster,
        policy,
        without(fleet, look.above),
        brake,
        up=up,
        limits=limits,
        kept_free=scaled.spare.kept,
        begun=begun,
    )
    unused = idle_gpus(cluster, policy, fleet, look.memory)
    is_enabled = policy.scale_down.enabled
    left = left_over(cluster, fleet, look.memory, up.assignments, up.wanted) if is_enabled else frozenset()
    down = scale_down(
        cluster,
        policy,
        fleet,
        wanted={**scaled.spare.kept, **emptied.wanted, **up.wanted},
        growing=_growing((*scaled.spare.steps, *emptied.steps)),
        left_alone=sick.replaced | emptied.going | fleet.noticed.keys() | at_fault.seen_to,
        surplus=look.above.nodes,
        leftovers=left,
    )
    return _Disrupted(brake, sick, taken_back, at_fault, emptied, unused, left, down)


def _growing(steps: Iterable[Step]) -> frozenset[str]:
    """Groups that nodes are bought of."""
    return frozenset(step.group for step in steps if isinstance(step, Grow))


def _planned(look: _Look, scaled: _Scaled, disrupted: _Disrupted) -> Plan:
    """All steps in the order in which they are taken, and what the next plan is to know."""
    cluster, fleet, orders, up, down = look.cluster, look.fleet, look.orders, scaled.up, disrupted.down
    steps = tuple(_above_minima(_steps(look, scaled, disrupted), cluster, fleet, orders))
    bill = _bill(cluster, fleet, steps)
    bought = sum(step.usd_per_hour for step in steps if isinstance(step, Grow))
    steps = _in_order(steps, made_again(cluster, orders, up.assignments, paused=fleet.paused))
    pauses, blocks = (one.until for one in cluster.pauses), looks_at_blocks(cluster, look.policy)
    looks = (*_looks(disrupted), fleet.faults.wake_at, *up.looks, *pauses, *blocks)
    return Plan(
        steps=steps,
        waiting=up.waiting,
        memory=Memory(
            backoffs=dict(sorted(fleet.backoffs.items())),
            assignments=ordered_so_far(up.assignments, orders, cluster),
            draining=dict(sorted(disrupted.brake.begun.items())),
            resting=disrupted.brake.opens(step.node for step in down.uncordons),
            orders=dict(sorted({**orders, **orders_in(steps)}.items())),
            leftovers=disrupted.left,
            unused=disrupted.unused.since,
        ),
        usd_per_hour=bill,
        lower_bound_usd_per_hour=round(max(0.0, bill - bought) + min(up.bound, bought), 6),
        wake_at=_wake_at(cluster, look.policy, fleet, looks, someone_waits=bool(up.waiting) or scaled.spare.lacking),
        warnings=_warnings(look, disrupted),
        kept=down.kept,
        idle_gpus=disrupted.unused.told,
    )


def _steps(look: _Look, scaled: _Scaled, disrupted: _Disrupted) -> tuple[Step, ...]:
    grown = (*scaled.spare.steps, *disrupted.emptied.steps)
    return (
        *_ended(look.cluster),
        *steps_due(look.cluster),
        *disrupted.taken_back.steps,
        *disrupted.down.uncordons,
        *dated(grown, look.cluster, besides=look.orders),
        *disrupted.down.leaving,
        *disrupted.sick.steps,
        *disrupted.at_fault.steps,
        *disrupted.unused.steps,
        *terminations(look.cluster, look.fleet, disrupted.left),
        *release_hooks(look.cluster, look.fleet),
    )


def _above_minima(steps: Iterable[Step], cluster: Cluster, fleet: Fleet, orders: Mapping[str, Order]) -> Iterator[Step]:
    """Yields steps without terminations that AWS would refuse once the group is at its minimum.

    What is dead, or taken back by EC2, is ended all the same, and has a successor then. Nodes of ``orders`` that AWS
    has not answered are in the sizes, and may never come.
    """
    spare = {group.name: fleet.spare_of(group) for group in cluster.groups}
    for name, order in orders.items():
        spare[name] -= order.to - order.was
    for step in steps:
        if isinstance(step, Remove):
            if spare[step.group] < 1 and not (step.is_dead or step.is_taken_back):
                continue
            never_joined = step.is_dead and step.node is None  # counted in no size
            spare[step.group] -= not never_joined
        yield step


def _looks(disrupted: _Disrupted) -> tuple[datetime | None, ...]:
    """When what is disrupted is to be looked at again."""
    return (
        disrupted.down.wake_at,
        disrupted.sick.wake_at,
        disrupted.taken_back.wake_at,
        disrupted.emptied.wake_at,
        disrupted.brake.eases_at,
        disrupted.unused.wake_at,
    )


def _warnings(look: _Look, disrupted: _Disrupted) -> tuple[str, ...]:
    return (
        *look.above.warnings,
        *disrupted.sick.warnings,
        *disrupted.taken_back.warnings,
        *disrupted.at_fault.warnings,
    )


def _in_order(steps: tuple[Step, ...], again: Sequence[Grow]) -> tuple[Step, ...]:
    """Orders that are made again before new ones, and after what sets money free."""
    first = next((number for number, step in enumerate(steps) if isinstance(step, Grow)), len(steps))
    return (*steps[:first], *again, *steps[first:])


def _ended(cluster: Cluster) -> list[EndJob]:
    return [
        EndJob(namespace=job.namespace, name=job.name, because=f"{job.ended_with}, which it served, has ended")
        for job in sorted(cluster.lingering, key=lambda job: (job.namespace, job.name))
    ]


def _bill(cluster: Cluster, fleet: Fleet, steps: Iterable[Step]) -> float:
    prices = {group.name: group.usd_per_hour for group in cluster.groups}
    held = {name: sum(one.held for one in several) for name, several in fleet.stirring.items()}
    usd = sum((fleet.size_of(group) + held.get(group.name, 0)) * group.usd_per_hour for group in cluster.groups)
    for step in steps:
        if isinstance(step, Grow):
            usd += step.usd_per_hour
        elif isinstance(step, Release) or (isinstance(step, Remove) and (step.node or not step.is_dead)):
            usd -= prices[step.group]
    return round(usd, 6)


def _wake_at(
    cluster: Cluster, policy: Policy, fleet: Fleet, looks: Iterable[datetime | None], *, someone_waits: bool
) -> datetime | None:
    """When time alone changes the decision."""
    patience = policy.scale_up.boot_timeout
    times = [time for time in looks if time is not None]
    times += [
        instance.launched + patience
        for several in fleet.stirring.values()
        for instance in several
        if instance.launched and instance.id not in fleet.joined and instance.state != "terminating"
    ]
    times += [
        node.created + patience for node in fleet.nodes.unsettled if not node.ready and node.name in fleet.group_of
    ]
    times += (one.until for one in fleet.closed.values()) if someone_waits else []
    return min((time for time in times if time > cluster.seen_at), default=None)
