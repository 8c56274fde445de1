"""Places that cost nothing more, as kinds of node: those that no pod of a problem can tell apart are one kind.

So that machines that we own, idle nodes and those on their way are filled in the same problem as nodes are bought in:
filled first and without looking ahead, they strand what the purchase has to pay for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import lt

from autoscaler.model.feasibility import NODE_NAME
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Place, Shape

_STEM = "at hand "


@dataclass(frozen=True, slots=True)
class AtHandKinds:
    """By name of the kind its places, the one to fill first at the end."""

    places: Mapping[str, list[Place]]

    @classmethod
    def of(cls, shapes: Iterable[Shape], market: Market, *, most: int) -> AtHandKinds | None:
        """``None``: there are none, or more than ``most`` kinds."""
        shapes = list(shapes)
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
            found[room, seen, place.taints, place.tier, place.standing, place.name if is_named else ""].append(place)
            if len(found) > most:
                return None
        kinds = sorted(found.values(), key=lambda places: (places[0].tier, min(place.name for place in places)))
        places = {
            f"{_STEM}{number}": sorted(several, key=lambda place: place.name, reverse=True)
            for number, several in enumerate(kinds)
        }
        return cls(places) if places else None

    def untaken(self) -> AtHandKinds:
        """The same with lists of its own, from which another may take."""
        return AtHandKinds({name: list(places) for name, places in self.places.items()})

    def take(self, kind: str, market: Market) -> Place | None:
        """The next place of the kind, open to pods."""
        if not self.places[kind]:
            return None
        place = self.places[kind].pop()
        if not place.standing:
            market.take(place)
        return place


def _places(market: Market) -> Iterable[Place]:
    for place in market.snapshot.places:
        if place.standing or (place.group is not None and not place.price):
            yield place
