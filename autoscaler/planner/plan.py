"""What to do now: a function of one look at the cluster, the policy, and what the last plan remembered.

No clock and no I/O: now is ``cluster.seen_at``. The same input gives the same plan, in whatever order it is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Cancel, EndJob, Grow, Memory, Plan, Release, Remove, Step
from autoscaler.model.cluster import Cluster
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.disruption.consolidation import consolidate
from autoscaler.planner.disruption.drain_brake import DrainBrake
from autoscaler.planner.disruption.faulty_nodes import faulty_nodes
from autoscaler.planner.disruption.idle_gpus import idle_gpus
from autoscaler.planner.disruption.interruptions import interruptions
from autoscaler.planner.disruption.leftovers import given_back, left_over
from autoscaler.planner.disruption.node_health import unhealthy
from autoscaler.planner.disruption.scale_down import scale_down
from autoscaler.planner.disruption.surplus import surplus, without
from autoscaler.planner.disruption.termination_hooks import release_hooks
from autoscaler.planner.headroom import keep_free
from autoscaler.planner.obstacles.answer_cache import AnswerCache
from autoscaler.planner.orders import as_ordered, dated, made_again, ordered_so_far, orders_in, still_open
from autoscaler.planner.scale_up import scale_up
from autoscaler.planner.supply.capacity_blocks import in_their_time, looks_at_blocks
from autoscaler.planner.supply.fleet import Fleet, survey
from autoscaler.planner.supply.node_cache import NodeCache

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
    """Decide: end what lingers, place and buy for what waits, give back what is idle, let go what is ended.

    ``limits``: how much is searched, in counted work. ``cache``: what the last look found of nodes that have not
    changed, and ``answers`` what it said of pods that wait; they save time and change no plan.
    """
    unanswered = still_open(cluster, memory)
    as_seen = replace(cluster, pods=pod_index_of(cluster.pods))
    cluster = in_their_time(as_ordered(as_seen, unanswered), policy)
    fleet = survey(cluster, policy, memory.backoffs, cache)
    above = surplus(cluster, policy, fleet)
    if unanswered and above.warnings:  # what came meanwhile leaves no room for them: they are not made again
        less = replace(memory, orders={})
        return plan(cluster=as_seen, policy=policy, memory=less, limits=limits, cache=cache, answers=answers)
    up = scale_up(
        cluster, policy, without(fleet, above), assignments=memory.assignments, limits=limits, answers=answers
    )
    spare = keep_free(cluster, policy, without(fleet, above), up.steps, wanted=up.wanted, assignments=up.assignments)
    growing = frozenset(step.group for step in spare.steps if isinstance(step, Grow))
    brake = DrainBrake.of(cluster, policy, fleet, memory)
    sick = unhealthy(cluster, policy, fleet, brake)
    resized = {step.group for step in spare.steps if isinstance(step, Grow | Cancel)} | unanswered.keys()
    taken_back = interruptions(cluster, policy, fleet, brake, resized=resized)
    at_fault = faulty_nodes(cluster, policy, fleet, resized=resized)
    emptied = consolidate(cluster, policy, fleet, brake, up=up, limits=limits)
    unused = idle_gpus(cluster, policy, fleet, memory)
    left = left_over(cluster, fleet, memory, up.assignments, up.wanted) if policy.scale_down.enabled else frozenset()
    down = scale_down(
        cluster,
        policy,
        fleet,
        wanted={**spare.kept, **emptied.wanted, **up.wanted},
        growing=growing,
        left_alone=sick.replaced | emptied.going | fleet.noticed.keys() | at_fault.seen_to,
        surplus=above.nodes,
        leftovers=left,
    )
    steps = (
        *_ended(cluster),
        *taken_back.steps,
        *down.uncordons,
        *dated((*spare.steps, *emptied.steps), cluster, besides=unanswered),
        *down.leaving,
        *sick.steps,
        *at_fault.steps,
        *unused.steps,
    )
    steps += (*given_back(cluster, fleet, left), *release_hooks(cluster, fleet))
    bill = _bill(cluster, fleet, steps)
    bought = sum(step.usd_per_hour for step in steps if isinstance(step, Grow))
    steps = _in_order(steps, made_again(cluster, unanswered, up.assignments))
    looks = (
        down.wake_at,
        sick.wake_at,
        taken_back.wake_at,
        emptied.wake_at,
        brake.eases_at,
        unused.wake_at,
        fleet.faults.wake_at,
        *up.looks,
        *(one.until for one in cluster.pauses),
        *looks_at_blocks(cluster, policy),
    )
    return Plan(
        steps=steps,
        waiting=up.waiting,
        memory=Memory(
            backoffs=dict(sorted(fleet.backoffs.items())),
            assignments=ordered_so_far(up.assignments, unanswered, cluster),
            draining=dict(sorted(brake.begun.items())),
            resting=brake.opens(step.node for step in down.uncordons),
            orders=dict(sorted((unanswered | orders_in(steps)).items())),
            leftovers=left,
            unused=unused.since,
        ),
        usd_per_hour=bill,
        lower_bound_usd_per_hour=round(max(0.0, bill - bought) + min(up.bound, bought), 6),
        wake_at=_wake_at(cluster, policy, fleet, looks, someone_waits=bool(up.waiting) or spare.lacking),
        warnings=(*above.warnings, *sick.warnings, *taken_back.warnings, *at_fault.warnings),
        kept=down.kept,
        idle_gpus=unused.told,
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
