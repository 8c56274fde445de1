"""What is left out, as changes that a person or a program can make."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from autoscaler.model.cluster import Group, Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.feasibility import NODE_NAME, requirement_holds, why_no_room
from autoscaler.model.labels import GPU, HOSTNAME
from autoscaler.model.needed_changes import (
    CAPACITY,
    POD_RUNS,
    PULUMI_UP,
    QUOTA_RAISED,
    READY,
    RESUME,
    TIME_COMES,
    UNCORDON,
    USD,
    WELL,
    WORK_ENDS,
    NeededChange,
    in_order,
)
from autoscaler.model.pauses import BLOCK, BUDGET, BUYING, Pause
from autoscaler.model.resources import CPU
from autoscaler.planner.obstacles.closed_nodes import is_cordoned
from autoscaler.planner.obstacles.relaxations import Relaxation, toleration_of
from autoscaler.planner.obstacles.search import Found, Search
from autoscaler.planner.obstacles.unbuilt_groups import ADDED
from autoscaler.planner.placement.interpod_rules import term_selects
from autoscaler.planner.placement.offerings import CENT, Ceilings
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place, is_device

_CENTS: Final = 100
_ROUNDING: Final = 1e-7
"""Cents: less than that is rounding."""


def changes_of(found: Found, search: Search, left: Ceilings) -> tuple[NeededChange, ...]:
    """All of them, the smallest first. ``left``: what could be bought before it. The snapshot is as it would be."""
    bought = [place.group for place in found.placed.bought if place.group is not None]
    whole = (
        *(change for one in found.relaxed for change in _of_pod(one, found, search)),
        *_of_limits(bought, search, left),
        *_of_groups(found, bought, search),
        *_of_nodes(found, search),
    )
    return in_order(whole)


def to_the_cent(usd: float) -> float:
    """Dollars rounded up to a cent: with so much it can be bought."""
    return math.ceil(usd * _CENTS - _ROUNDING) / _CENTS


# --- The pod ----------------------------------------------------------------------------------------------------------


def _of_pod(one: Relaxation, found: Found, search: Search) -> Iterator[NeededChange]:
    if one.taint is not None:
        yield NeededChange("pod", pod="tolerations", toleration=toleration_of(one.taint))
    elif one.requirement is not None:
        value = _value_there(one.requirement, found)
        yield NeededChange("pod", pod="nodeAffinity", requirement=one.requirement, to=value)
    elif one.what == "partner" and one.term is not None:
        yield from _partner(one.term, found, search)
    elif one.term is not None:
        yield NeededChange("pod", pod="podAffinity" if one.what == "near" else "podAntiAffinity", term=one.term)
    elif one.what in ("spread", "topology") and not _is_said_by_affinity(one, found):
        yield NeededChange("pod", pod="topologySpread" if one.what == "spread" else "topology", to=one.key)
    elif one.what == "split":
        yield NeededChange("pod", pod="split", to=one.parts, pods=tuple(sorted(found.split)))


def _is_said_by_affinity(one: Relaxation, found: Found) -> bool:
    """Its gang is kept together by a rule between pods, which is changed: nothing else says so."""
    dropped = {other.term.topology_key for other in found.relaxed if other.term is not None and other.what != "apart"}
    return one.what == "topology" and one.key in dropped


def _value_there(asked: Requirement, found: Found) -> str | None:
    """The value to ask for instead, where all its places have one. What a node to come is called is not known."""
    places = [place for _, place in found.placed.places]
    is_to_come = any(place.node is None for place in places)
    if asked.operator != "In" or asked.key == NODE_NAME or (asked.key == HOSTNAME and is_to_come):
        return None
    values = {place.labels.get(asked.key) for place in places}
    value = values.pop()
    is_one = not values and value is not None and not requirement_holds(asked, value)
    return value if is_one else None


def _partner(term: PodTerm, found: Found, search: Search) -> Iterator[NeededChange]:
    """Pods that it must be near to are not there: they would have to run where it has room, on a node that is there."""
    key = term.topology_key
    domains = {place.labels.get(key) for _, place in found.placed.places}
    there = {place.labels.get(key) for place in search.snapshot.places if place.node is not None}
    if any(one.what == "topology" and one.key == key for one in found.relaxed):
        there = set()  # they would keep it together, too
    if all(one.operator == "In" and one.values for one in term.selector) and None not in domains and domains <= there:
        for value in sorted(one for one in domains if one is not None):
            yield NeededChange("other", other=POD_RUNS, term=term, labels=((key, value),))
    else:
        yield NeededChange("pod", pod="podAffinity", term=term)


# --- The policy, and money ------------------------------------------------------------------------------------------


def _of_limits(bought: list[Group], search: Search, left: Ceilings) -> Iterator[NeededChange]:
    if not bought:
        return
    limits = search.policy.limits
    usd = sum(group.usd_per_hour for group in bought)
    if limits.usd_per_hour is not None and left.usd is not None and usd > left.usd + CENT:
        yield NeededChange("money", path=USD, to=to_the_cent(limits.usd_per_hour + usd - left.usd))
    nodes, gpus = len(bought), sum(group.allocatable[GPU] for group in bought)
    if limits.nodes is not None and left.nodes is not None and nodes > left.nodes:
        yield NeededChange("policy", path="limits.nodes", to=limits.nodes + nodes - left.nodes)
    if limits.gpus is not None and left.gpus is not None and gpus and gpus > left.gpus:
        yield NeededChange("policy", path="limits.gpus", to=limits.gpus + gpus - left.gpus)
    for name, count in sorted(Counter(group.entry for group in bought).items()):
        entry = search.policy.entry(name)
        if entry is not None and count > left.entries.get(name, count):
            to = entry.max + count - left.entries[name]
            yield NeededChange("policy", path=f"groups[{entry.name}].max", to=to)
    vcpus: Counter[str] = Counter()
    for group in bought:
        vcpus[group.quota] += group.vcpus
    for code, count in sorted(vcpus.items()):
        if count > left.quotas.get(code, count):
            yield NeededChange("other", other=QUOTA_RAISED, groups=(code,), to=count - left.quotas[code])


def _of_groups(found: Found, bought: list[Group], search: Search) -> Iterator[NeededChange]:
    names = {group.name: group for group in bought}
    if found.leaves_out("pulumi"):
        there = {group.name for group in search.cluster.groups}
        missing = sorted({group.entry for name, group in names.items() if name not in there and name != ADDED})
        behind = {group.entry for name, group in names.items() if _outgrows(group, search)}
        if missing or behind:
            yield NeededChange("policy", run=PULUMI_UP, groups=tuple(sorted({*missing, *behind})))
    if found.leaves_out("resume"):
        paused = {pause for group in names.values() for pause in search.pauses_of(group)}
        yield from (resumed(pause) for pause in sorted(paused, key=lambda one: one.scope))
    if found.leaves_out("capacity"):
        closed = {group.entry for name, group in names.items() if name in search.fleet.closed}
        until = max((one.until for name, one in search.fleet.closed.items() if name in names), default=None)
        note = f"asked again after {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
        yield NeededChange("other", other=CAPACITY, groups=tuple(sorted(closed)), note=note)
    if ADDED in names:
        group = names[ADDED]
        largest = {name: amount for name, amount in group.allocatable.items() if name != "pods"}
        yield NeededChange(
            "policy",
            path="groups",
            resources=tuple(sorted(largest.items())),
            labels=tuple(sorted(group.labels.items())),
        )


def _outgrows(group: Group, search: Search) -> bool:
    """Whether its MaxSize is less than it would have, with all that is bought for this gang and others."""
    more = search.market.bought[group.name] - search.market.cancelled[group.name]
    return group.name != ADDED and search.fleet.size_of(group) + more > group.maximum


def resumed(pause: Pause) -> NeededChange:
    """The end of a pause, or of a budget's period, or the time of a Capacity Block."""
    if pause.scope.startswith((BUDGET, BLOCK)):
        return NeededChange("other", other=TIME_COMES, note=pause.ends_if)
    group = f" --group {pause.group}" if pause.group else ""
    buying = " --buying" if pause.scope.startswith(BUYING) else ""
    return NeededChange("policy", run=f"{RESUME}{group}{buying}")


# --- What else has to happen ----------------------------------------------------------------------------------------


def _of_nodes(found: Found, search: Search) -> Iterator[NeededChange]:
    names = {place.name for _, place in found.placed.places if place.name in search.fleet.unusable}
    closed = [search.fleet.nodes.named[name] for name in sorted(names)]
    at_fault = [node.name for node in closed if node.name in search.fleet.faults.closed]
    if at_fault:
        yield NeededChange("other", other=WELL, nodes=tuple(at_fault))
    cordoned = [node.name for node in closed if is_cordoned(node)]
    if cordoned:
        yield NeededChange("other", run=f"{UNCORDON} {' '.join(cordoned)}", nodes=tuple(cordoned))
    unready = [node.name for node in closed if not node.ready]
    if unready:
        yield NeededChange("other", other=READY, nodes=tuple(unready))
    yield from _ended(found, search)


def _ended(found: Found, search: Search) -> Iterator[NeededChange]:
    """Yields, of the pods taken away, those without whose end it has no place, the largest of each node."""
    there: dict[str, list[str]] = defaultdict(list)
    for place, pod in sorted(found.ended, key=_smallest_first):
        if _is_needed(pod, place, found, search.snapshot):
            there[place.name].append(pod.key)
    if there:
        pods = tuple(sorted(key for keys in there.values() for key in keys))
        yield NeededChange("other", other=WORK_ENDS, nodes=tuple(sorted(there)), pods=pods)


def _is_needed(ended: Pod, place: Place, found: Found, snapshot: Snapshot) -> bool:
    """Whether the gang has its places only without that pod; if it can stay, it is put back."""
    bare = replace(ended, affinity=(), ties=(), near_to=(), apart_from=(), spread=(), claims=())
    shape = snapshot.shape(bare)
    there = [(found.shapes[key], other) for key, other in found.placed.places]
    if any(
        term_selects(term, one) and place.labels.get(term.topology_key) == other.labels.get(term.topology_key)
        for term in ended.apart_from
        for one, other in there
    ):
        return True
    if any(
        term_selects(term, shape) and place.labels.get(term.topology_key) == other.labels.get(term.topology_key)
        for one, other in there
        for term in one.apart_from
    ):
        return True
    if why_no_room(shape.amounts, place.free) is not None or shape.host_ports & place.ports:
        return place.name in {other.name for _, other in there}
    snapshot.restore_pod(shape, place)
    return False


def _smallest_first(one: tuple[Place, Pod]) -> tuple[str, int, int, str]:
    place, pod = one
    devices = sum(amount for name, amount in pod.requests.items() if is_device(name))
    return place.name, devices, pod.requests[CPU], pod.key
