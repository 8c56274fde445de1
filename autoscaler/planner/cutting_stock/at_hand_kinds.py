"""Places that cost nothing more, as kinds of node: those that no pod of a problem can tell apart are one kind.

So that machines that we own, idle nodes and those on their way are filled in the same problem as nodes are bought in:
filled first and without looking ahead, they strand what the purchase has to pay for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import lt
from typing import Final

from autoscaler.model.feasibility import NODE_NAME
from autoscaler.model.labels import ZONE
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Place, Shape

_STEM = "at hand "
_ASKED: Final = 10_000
"""Times that a place is asked whether it admits a shape: some 10 ms of a core of 2024."""


@dataclass(frozen=True, slots=True)
class AtHandKinds:
    """The free places by the name of their kind, the one to fill first at the end."""

    places: Mapping[str, list[Place]]
    admitting: Mapping[Shape, frozenset[str]] = field(default_factory=dict)
    """Of shapes that rules between pods concern the kinds whose pods let one of them join."""

    @classmethod
    def of(cls, shapes: Iterable[Shape], market: Market, *, most: int) -> AtHandKinds | None:
        """``None``: there are none, or more than ``most`` kinds. ``shapes``: as :func:`put_jointly` gives them."""
        shapes = list(shapes)
        ruled = [shape for shape in shapes if not market.snapshot.stands_alone(shape)]
        names = sorted({name for shape in shapes for name, _ in shape.amounts})
        keys = sorted({key for shape in shapes for key in shape.asked_keys} - {NODE_NAME})
        is_named = any(NODE_NAME in shape.asked_keys for shape in shapes)
        least = [min(dict(shape.amounts).get(name, 0) for shape in shapes) for name in names]
        nothing = [0] * len(names)
        found: dict[object, list[Place]] = defaultdict(list)
        for place in _places(market):
            free = place.free
            if any(map(lt, map(free.get, names, nothing), least)):
                continue
            room = tuple(map(free.get, names, nothing))
            seen = tuple([place.labels.get(key) for key in keys])
            admits = tuple([market.snapshot.admits(shape, place) for shape in ruled])
            name = place.name if is_named else ""
            found[room, seen, admits, place.taints, place.tier, place.standing, name].append(place)
            if len(found) > most:
                return None
        kinds = sorted(found.values(), key=lambda places: (places[0].tier, min(place.name for place in places)))
        places = {
            f"{_STEM}{number}": sorted(several, key=lambda place: place.name, reverse=True)
            for number, several in enumerate(kinds)
        }
        admitting = {
            shape: frozenset(name for name, several in places.items() if market.snapshot.admits(shape, several[0]))
            for shape in ruled
        }
        return cls(places, admitting) if places else None

    def untaken(self) -> AtHandKinds:
        """The same with lists of its own, from which another may take."""
        return AtHandKinds({name: list(places) for name, places in self.places.items()}, self.admitting)

    def take(self, kind: str, market: Market) -> Place | None:
        """The next place of the kind, open to pods."""
        if not self.places[kind]:
            return None
        place = self.places[kind].pop()
        if not place.standing:
            market.take(place)
        return place


def put_jointly(shapes: Collection[Shape], market: Market) -> frozenset[Shape]:
    """Those of which pods may be put on such places in the same problem as nodes are bought in.

    So it is with pods that no rule between pods concerns, and with those that keep off hosts: if these are not too many
    to ask of every place which of them it admits. Pods that are counted by zone, or by what one of the pods is spread
    over, are put there in their turn: where the next one may be depends on it.
    """
    snapshot = market.snapshot
    counted = {ZONE, *(one.topology_key for shape in shapes for one in shape.spread)}
    uncounted = [shape for shape in shapes if not any(snapshot.rules.count_shape_by(shape, key) for key in counted)]
    alone = {shape for shape in uncounted if snapshot.stands_alone(shape)}
    ruled = {shape for shape in uncounted if shape not in alone and snapshot.rules.are_by_host_or_zone(shape)}
    return frozenset(alone | ruled if len(ruled) * len(snapshot.places) <= _ASKED else alone)


def _places(market: Market) -> Iterable[Place]:
    for place in market.snapshot.places:
        if place.standing or (place.group is not None and not place.price):
            yield place
