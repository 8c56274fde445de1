"""Orders that were made and of which it is not known whether AWS has carried them out: made again, not anew.

A process that is killed, or cut off from AWS, between the call and its answer leaves such an order. It is written in
the memory before it is made. Until the group shows what came of it, its nodes count as on their way, their money as
spent; and where pods still wait for them the very same order is made again: to AWS it is the same by its token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Final

from autoscaler.model.actions import Assignment, Grow, Memory, Order, Step
from autoscaler.model.cluster import FOREVER, Cluster, Group
from autoscaler.model.labels import OWNER
from autoscaler.model.pauses import spent_for
from autoscaler.planner.demand.requested_gangs import requested_gangs
from autoscaler.planner.placement.available_offerings import COMING

ORDERS_LAST: Final = timedelta(minutes=5)
"""After that AWS has carried out what it was asked for, and shows it, or never was asked.

Shorter than AWS knows any token. A call of ours is given up after half a minute."""


def still_open(cluster: Cluster, memory: Memory) -> dict[str, Order]:
    """Orders whose groups are as they were before them, by name of the group."""
    return {
        group.name: order
        for group in cluster.groups
        if (order := memory.orders.get(group.name)) is not None and _is_open(group, order, cluster)
    }


def _is_open(group: Group, order: Order, cluster: Cluster) -> bool:
    refused = any(refusal.at >= order.at for refusal in group.refusals)
    return group.desired == order.was and cluster.seen_at < order.at + ORDERS_LAST and not refused


def as_ordered(cluster: Cluster, orders: Mapping[str, Order]) -> Cluster:
    """The cluster as it is when they have been carried out."""
    if not orders:
        return cluster
    groups = [
        replace(group, desired=orders[group.name].to) if group.name in orders else group for group in cluster.groups
    ]
    return replace(cluster, groups=tuple(groups))


def made_again(
    cluster: Cluster,
    orders: Mapping[str, Order],
    assignments: Mapping[str, Assignment],
    *,
    paused: Collection[str] = (),
) -> list[Grow]:
    """Those whose nodes are still waited for. ``assignments``: pod key -> where it is planned.

    ``paused``: names of groups in which nothing is bought by now; AWS may have carried out an order there all the same.
    Pods that are planned on nodes beyond the order are another order's, which is made once this one is answered. Those
    of a namespace or an owner whose budget is spent by now do not count, nor those that nothing is ever bought for: the
    order is made again for others, if any.
    """
    if not orders:
        return []
    patient = _never_bought_for(cluster)
    spent = [one for one in cluster.pauses if one.namespace or one.owner]
    owner_of = {pod.key: pod.labels.get(OWNER, "") for pod in cluster.pods} if spent else {}
    demand: dict[str, list[str]] = defaultdict(list)
    for pod, where in assignments.items():
        if where.group not in orders or where.group in paused or not _is_coming(where) or pod in patient:
            continue
        if spent_for(spent, namespace=pod.partition("/")[0], owners={owner_of.get(pod, "")}) is None:
            demand[where.group].append(pod)
    prices = {group.name: group.usd_per_hour for group in cluster.groups}
    return [
        Grow(
            group=name,
            was=orders[name].was,
            to=orders[name].to,
            usd_per_hour=round((orders[name].to - orders[name].was) * prices[name], 6),
            demand=tuple(sorted(demand[name])),
            because=f"AWS has not said what came of this order of {orders[name].at:%Y-%m-%d %H:%M:%S} UTC",
            at=orders[name].at,
        )
        for name in sorted(demand)
    ]


def _never_bought_for(cluster: Cluster) -> frozenset[str]:
    """Keys of pods that only take room that is there, and of those that a ProvisioningRequest has its room for."""
    requested = chain.from_iterable(gang.waiting for gang in requested_gangs(cluster))
    return frozenset(pod.key for pod in chain(cluster.pods, requested) if pod.patience == FOREVER)


def _is_coming(where: Assignment) -> bool:
    """Whether it is a node that was asked for, and no further one."""
    return where.node.startswith(f"{where.group}{COMING}")


def ordered_so_far(
    assignments: Mapping[str, Assignment], orders: Collection[str], cluster: Cluster
) -> Mapping[str, Assignment]:
    """Where pods are to go, but for nodes beyond an unanswered order: these are ordered once it is answered."""
    if not orders:
        return assignments
    there = {node.name for node in cluster.nodes}
    return {
        pod: where
        for pod, where in assignments.items()
        if where.group not in orders or where.node in there or _is_coming(where)
    }


def dated(steps: Iterable[Step], cluster: Cluster, *, besides: Collection[str]) -> list[Step]:
    """The same steps, those that order decided now, but for orders in the groups ``besides``: one after the other."""
    return [
        replace(step, at=cluster.seen_at) if isinstance(step, Grow) else step
        for step in steps
        if not (isinstance(step, Grow) and step.group in besides)
    ]


def orders_in(steps: Iterable[Step]) -> dict[str, Order]:
    """What they order, by name of the group."""
    return {step.group: Order(step.was, step.to, step.at) for step in steps if isinstance(step, Grow)}
