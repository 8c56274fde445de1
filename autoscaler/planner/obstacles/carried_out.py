"""Needed changes, carried out on the snapshot of a plan and on what may be bought: to try whether they help.

What is done to the snapshot is undone with it. The pods of a gang change for it alone, as what an added entry offers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.cluster import Cluster, Group, Pod
from autoscaler.model.constraints import Requirement
from autoscaler.model.needed_changes import (
    CAPACITY,
    POD_RUNS,
    PULUMI_UP,
    QUOTA_RAISED,
    READY,
    UNCORDON,
    USD,
    WELL,
    WORK_ENDS,
    NeededChange,
)
from autoscaler.model.resources import PODS, Resources
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.obstacles.changes import resumed
from autoscaler.planner.obstacles.relaxations import part_of
from autoscaler.planner.obstacles.search import Search
from autoscaler.planner.obstacles.unbuilt_groups import added, unbuilt_groups
from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.offerings import Ceilings, Offering
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.node_places import new_place

_PODS: Final = 110
"""That a node of an added entry takes."""


def carried_out(changes: Collection[NeededChange], search: Search) -> Search:
    """What there is to ask once they are made. The snapshot is as it would be then."""
    policy = _edited(changes, search.policy)
    is_built = any(one.run == PULUMI_UP for one in changes)
    cluster = replace(
        search.cluster,
        groups=tuple(_built(search.cluster, policy)) if is_built else search.cluster.groups,
        pauses=tuple(pause for pause in search.cluster.pauses if resumed(pause) not in changes),
    )
    entries = {group.name: group.entry for group in cluster.groups}
    open_again = {name for one in changes if one.other == CAPACITY for name in one.groups}
    closed = {name: one for name, one in search.fleet.closed.items() if entries.get(name) not in open_again}
    after = replace(
        search,
        cluster=cluster,
        policy=policy,
        fleet=replace(search.fleet, closed=closed),
        taken=[],
        ended={key for one in changes if one.other == WORK_ENDS for key in one.pods},
        _unbuilt=None,
    )
    after.closed = search.closed
    after.market = search.market.relaxed(_grown(after), search.market.ceilings, thorough=True)
    after.market = after.market.relaxed(after.offerings(), _raised(changes, search), thorough=True)
    after.closed.open(
        after.snapshot,
        cordoned=[name for one in changes if one.run.startswith(UNCORDON) for name in one.nodes],
        unfit=[name for one in changes if one.other in (READY, WELL) for name in one.nodes],
    )
    _happen(changes, after)
    return after


def _edited(changes: Iterable[NeededChange], policy: Policy) -> Policy:
    """Its limits and maxima are no less than they say."""
    to = {one.path: one.to for one in changes if isinstance(one.to, int | float)}
    limits = {
        key: max(value, to[f"limits.{key}"])
        for key, value in policy.limits.model_dump(exclude_none=True).items()
        if f"limits.{key}" in to
    }
    groups = tuple(
        entry.model_copy(update={"max": max(entry.max, int(to[f"groups[{entry.name}].max"]))})
        if f"groups[{entry.name}].max" in to
        else entry
        for entry in policy.groups
    )
    return policy.model_copy(update={"limits": policy.limits.model_copy(update=limits), "groups": groups})


def _raised(changes: Iterable[NeededChange], search: Search) -> Ceilings:
    """What may be bought then, as of now."""
    left, limits = search.market.ceilings.copy(), search.policy.limits
    to = {one.path: one.to for one in changes if isinstance(one.to, int | float)}
    if left.usd is not None and limits.usd_per_hour is not None:
        left.usd += max(0.0, to.get(USD, 0.0) - limits.usd_per_hour)
    if left.nodes is not None and limits.nodes is not None:
        left.nodes += max(0, int(to.get("limits.nodes", 0)) - limits.nodes)
    if left.gpus is not None and limits.gpus is not None:
        left.gpus += max(0, int(to.get("limits.gpus", 0)) - limits.gpus)
    for entry in search.policy.groups:
        if entry.name in left.entries:
            left.entries[entry.name] += max(0, int(to.get(f"groups[{entry.name}].max", 0)) - entry.max)
    for one in changes:
        if one.other == QUOTA_RAISED and isinstance(one.to, int):
            for code in one.groups:
                left.quotas[code] = left.quotas.get(code, 0) + one.to
    return left


def _built(cluster: Cluster, policy: Policy) -> Iterator[Group]:
    """Each with the size that the policy says."""
    for group in cluster.groups:
        entry = policy.entry(group.entry)
        yield group if entry is None else replace(group, maximum=entry.max)
    yield from unbuilt_groups(cluster, policy)


def _grown(after: Search) -> Iterator[Offering]:
    """Each group as it is then."""
    named = {entry.name for entry in after.policy.groups}
    for group in after.cluster.groups:
        if group.entry in named:
            room = after.fleet.rooms.get(group.name, group.allocatable)
            yield Offering(group, _maker(group, dict(room.items())), buyable=0)


def _maker(group: Group, room: Mapping[str, int]) -> Callable[[str], Place]:
    return lambda name: new_place(group, name, dict(room))


def _happen(changes: Iterable[NeededChange], after: Search) -> None:
    """What ends takes nothing any longer; what runs is counted by the rules of others."""
    snapshot = after.snapshot
    for place in (*snapshot.places, *after.closed.still_closed(snapshot)):
        for pod in after.fleet.residents.get(place.name, ()):
            if pod.key in after.ended:
                snapshot.remove_pod(snapshot.shape(pod), place)
    for one in changes:
        if one.other == POD_RUNS and one.term is not None:
            labels = {asked.key: asked.values[0] if asked.values else "" for asked in one.term.selector}
            partner = Pod(min(one.term.namespaces), "partner", "", Resources({}), after.cluster.seen_at, labels=labels)
            snapshot.count(snapshot.shape(partner), dict(one.labels), 1)


# --- What is changed for one gang -------------------------------------------------------------------------------------


def as_changed(
    gang: Gang, demand: Demand, changes: Collection[NeededChange], after: Search
) -> tuple[list[Pod], Demand]:
    """Its pods, and what it asks for then."""
    pods = [part for pod in gang.waiting for part in _parts(_changed(pod, changes), changes)]
    kept = not any(
        one.pod == "topology"
        or (one.pod == "podAffinity" and one.term is not None and one.term.topology_key == demand.topology)
        for one in changes
    )
    asked = tuple((pod.key, after.snapshot.shape(pod)) for pod in pods)
    topology, anchor = (demand.topology, demand.anchor) if kept else (None, None)
    return pods, replace(demand, pods=asked, minimum=None, assignments={}, topology=topology, anchor=anchor)


def entries_added(changes: Iterable[NeededChange], after: Search) -> list[Offering]:
    """What is added to the policy for it."""
    return [
        replace(added(dict(one.resources) | {PODS: _PODS}, dict(one.labels), after.policy), buyable=_PODS)
        for one in changes
        if one.path == "groups"
    ]


def _changed(pod: Pod, changes: Iterable[NeededChange]) -> Pod:
    for one in changes:
        if one.pod == "tolerations" and one.toleration is not None:
            pod = replace(pod, tolerations=(*pod.tolerations, one.toleration))
        elif one.pod == "nodeAffinity":
            terms = tuple(tuple(new for asked in term for new in _asked(asked, one)) for term in pod.affinity)
            pod = replace(pod, affinity=terms if all(terms) else ())
        elif one.pod == "podAffinity":
            pod = replace(pod, near_to=tuple(term for term in pod.near_to if term != one.term))
        elif one.pod == "podAntiAffinity":
            pod = replace(pod, apart_from=tuple(term for term in pod.apart_from if term != one.term))
        elif one.pod == "topologySpread":
            pod = replace(pod, spread=tuple(rule for rule in pod.spread if rule.topology_key != one.to))
    return pod


def _asked(asked: Requirement, one: NeededChange) -> Iterator[Requirement]:
    if asked != one.requirement:
        yield asked
    elif one.to is not None:
        yield replace(asked, values=(str(one.to),))


def _parts(pod: Pod, changes: Iterable[NeededChange]) -> Sequence[Pod]:
    split = next((one for one in changes if one.pod == "split" and pod.key in one.pods), None)
    if split is None or not isinstance(split.to, int):
        return [pod]
    part = part_of(pod, split.to)
    return [replace(part, name=f"{pod.name}#{number}", uid=f"{pod.uid}#{number}") for number in range(split.to)]
