"""What was bought for part of a gang of which EC2 has refused the rest: terminated at once, not after its idle time.

A gang of which some nodes came and no pool that is open has the others waits for a back-off to end, and longer each
time. Its nodes would stand paid for and closed to others until then. They are known by where the last plan has its
pods go, and remembered until they are gone: a node is closed first, and ended by the next plan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from autoscaler.model.actions import Assignment, Memory, Remove
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.supply.backoffs import NEVER_JOINED
from autoscaler.planner.supply.fleet import Fleet

_Gang = tuple[str, str]


def left_over(
    cluster: Cluster, fleet: Fleet, memory: Memory, assignments: Mapping[str, Assignment], wanted: Mapping[str, str]
) -> frozenset[str]:
    """Ids of instances that no gang needs any more.

    ``assignments``, ``wanted``: where this plan puts pods, and on what.
    """
    unhelped = _unhelped(cluster, fleet, memory, assignments)
    awaited = Counter(group for _, group in {(one.node, one.group) for one in assignments.values()})
    found: set[str] = set()
    for group in cluster.groups:
        known = sum(one.id in memory.leftovers for one in group.instances) if memory.leftovers else 0
        wanted_back = max(unhelped[group.name], known)
        many = min(wanted_back, fleet.spare_of(group)) if wanted_back else 0
        if many < 1:
            continue
        free = _free(group, fleet, wanted, awaited=awaited[group.name])
        found |= set(sorted(free, key=lambda one: (one not in memory.leftovers, one))[:many])
    return frozenset(found)


def terminations(cluster: Cluster, fleet: Fleet, instances: frozenset[str]) -> list[Remove]:
    """Those that have not joined; nodes are closed first, as idle ones are."""
    return [
        Remove(
            group=group.name,
            instance=one.id,
            node=None,
            because=f"{one.id} ({group.instance_type}) was bought for a gang of which EC2 refused the rest",
        )
        for group in sorted(cluster.groups, key=lambda group: group.name)
        for one in fleet.stirring.get(group.name, ())
        if one.id in instances and one.id not in fleet.joined
    ]


def _unhelped(cluster: Cluster, fleet: Fleet, memory: Memory, assignments: Mapping[str, Assignment]) -> Counter[str]:
    """Group name -> nodes that the last plan meant for gangs which have no place now, since EC2 has refused some."""
    gangs: dict[_Gang, set[Assignment]] = defaultdict(set)
    for pod in pod_index_of(cluster.pods).unbound:
        if pod.gang is not None and pod.key in memory.assignments and pod.key not in assignments:
            gangs[pod.namespace, pod.gang.name].add(memory.assignments[pod.key])
    refused = {name for name, one in fleet.closed.items() if one.code != NEVER_JOINED}
    return Counter(
        where.group
        for places in gangs.values()
        if any(where.group in refused for where in places)
        for where in places
        if where.group
    )


def _free(group: Group, fleet: Fleet, wanted: Mapping[str, str], *, awaited: int) -> list[str]:
    """Instances of the group that nothing was ever put on, and no pod is meant for."""
    stirring = fleet.stirring.get(group.name, ())
    coming = [one.id for one in stirring if one.state != "terminating" and one.id not in fleet.joined]
    nodes = [
        fleet.nodes.instances[name]
        for name in fleet.nodes.reserved
        if fleet.group_of.get(name) is group and not fleet.residents.get(name) and name not in wanted
    ]
    there = sum(fleet.group_of.get(name) is group for name in wanted)
    return nodes + coming[: max(0, len(coming) - max(0, awaited - there))]
