"""Which gangs behind our gate start now, and what is said of pods that have a place and do not go there yet."""

from __future__ import annotations

from collections.abc import Collection

from autoscaler.model.actions import BUSY, STARTING, Admit, Waiting
from autoscaler.model.enumeration import few
from autoscaler.model.labels import GATE, RESERVED
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.handoff.reservations import is_reserved
from autoscaler.planner.placement.gang_packing import Placed
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.node_places import has_joined


def start(gang: Gang, placed: Placed, *, contended: bool, taken: Collection[str] = frozenset()) -> Admit | None:
    """Every pod has a node that is ready, or as many as must be together: their gates may be lifted.

    Where others may take their room (``contended``), it must be kept for them first, and for no other pod on nodes
    whose room is ``taken`` for others so far: a pinned pod cannot go elsewhere.
    """
    gated = {pod.key: pod.nominated for pod in gang.waiting if GATE in pod.gates}
    ready = {
        key: place
        for key, place in placed.places
        if has_joined(place)
        and not (contended and not is_reserved(place) and gated.get(key, place.name) != place.name)
        and not (key in gated and place.name in taken)
    }
    if len(ready) < max(1, gang.minimum) or not gated.keys() & ready.keys():
        return None
    placements = tuple((key, place.name) for key, place in sorted(ready.items()) if key in gated)
    nodes = sorted({name for _, name in placements})
    return Admit(
        gang=gang.name, placements=placements, because=f"{_whose(gang, placements)} a place on {few(nodes, 4)}"
    )


def _whose(gang: Gang, placements: Collection[object]) -> str:
    if gang.is_lone:
        return f"pod {gang.name} has"
    if len(placements) == 1:
        return f"the waiting pod of gang {gang.name} has"
    return f"all of {len(placements)} waiting pods of gang {gang.name} have"


def not_yet(gang: Gang, placed: Placed, *, admitted: Admit | None, is_held: bool) -> list[Waiting]:
    """Lists the placed pods that do not go to their place now, and why; ``is_held``: nothing is bought now."""
    going = {key for key, _ in admitted.placements} if admitted else set()
    places = dict(placed.places)
    ready = sum(1 for place in places.values() if has_joined(place))
    found = []
    for pod in gang.waiting:
        place = places.get(pod.key)
        if place is None:
            because = f"gang {gang.name} runs with fewer pods; nothing is free for this one"
        elif not has_joined(place):
            because = _on_its_way(place, is_held=is_held)
        elif GATE in pod.gates and pod.key not in going:
            because = (
                f"waits for its gang {gang.name}: {ready} of {len(places)} pods have a node that is ready"
                if ready < len(places)
                else f"gang {gang.name} has nodes that are ready, and starts once room there is kept for it"
            )
        elif not pod.gates and is_reserved(place):
            because = (
                f"waits for its gang {gang.name}: {ready} of at least {gang.minimum} pods have a node that is ready"
                if ready < gang.minimum
                else f"its node {place.name} is reserved for it: it is given a toleration of {RESERVED} now"
            )
        elif GATE not in pod.gates and pod.unschedulable_because:
            because = (
                f"fits on {place.name} as far as Spillway sees, but the scheduler says: {pod.unschedulable_because}"
            )
        else:
            continue
        found.append(Waiting(pod=pod.key, because=because, cause=STARTING if place is not None else BUSY))
    return found


def _on_its_way(place: Place, *, is_held: bool) -> str:
    group = place.group
    if place.price and group:
        when = " once the scheduler has tried the pods that have just come" if is_held else ""
        return f"a new {group.instance_type} in {group.zone} is asked of EC2 for it{when} (group {group.entry})"
    if place.node is None and group:
        return f"its node is on its way: {group.instance_type} in {group.zone} (group {group.entry})"
    if place.node is not None and place.node.cordoned:
        return f"its node {place.name} is about to be uncordoned"
    return f"its node {place.name} has joined and is not ready yet"
