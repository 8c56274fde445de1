"""Nodes that were bought, or are at hand, are opened and filled with the pods that wait for them."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.model.labels import ZONE
from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds
from autoscaler.planner.cutting_stock.cutting_plan import Purchase, Want
from autoscaler.planner.cutting_stock.host_rules import FREE, Company, HostRules
from autoscaler.planner.cutting_stock.slots import seat
from autoscaler.planner.cutting_stock.waiting_pods import WaitingPods
from autoscaler.planner.cutting_stock.zone_assignment import Zones
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Place, Shape

_Filled = tuple[str, dict[Want, list[str]], Company | None]
"""Kind of a node, its pods, and what rules by host say of them together, if any do."""


@dataclass(slots=True)
class NodeFilling:
    """Puts pods that wait on nodes; what it is given changes with them."""

    market: Market
    waiting: WaitingPods
    """Pods for which nodes are wanted."""
    places: dict[str, Place]
    """Pod key -> where it goes."""
    zones: Zones
    jointly: frozenset[Shape]
    """Pods of these shapes were put on places that cost nothing more in the same problem as nodes are bought in."""
    full: set[int]
    """Numbers of the shapes for which no standing place has room."""
    _companies: dict[str, tuple[Place, Company]] = field(default_factory=dict)
    """By name nodes that were bought for pods of which rules by host concern some, with these pods."""

    def opened(
        self, purchases: Sequence[Purchase], there: AtHandKinds | None, rules: HostRules, rows: Mapping[Want, int]
    ) -> bool:
        """Whether these nodes could be had, with room for all that they are to hold. What holds nothing is left.

        ``there``: kinds of nodes at hand. ``rows``: row of the problem by want; looked at where there are rules.
        """
        for kind, seated, company in self._seated(purchases, rules, rows):
            at_hand = there if there is not None and kind in there.places else None
            guests = seated if at_hand is not None or there is None else self._not_at_hand(seated)
            if not guests:
                continue
            place = self._opened_node(kind, _asked(guests), at_hand)
            if place is None:
                return False
            if company is not None and at_hand is None:
                self._companies[place.name] = place, company
            for want, keys in guests.items():
                if at_hand is not None:
                    self.put_in_turn(want, keys, functools.partial(self._if_admitted, place=place))
                    continue
                self.zones.leave(want, len(keys))
                self._put(want, keys, place)
        return True

    def put_beside_others(self, rules: HostRules) -> None:
        """Pods that are left go on nodes that were bought for others, where there is room."""
        for want, many in self.waiting.counts.items():
            self.zones.leave(want, many)
            within = (ZONE, want.zone) if want.zone else None
            find = functools.partial(self._beside_others, rules=rules, within=within)
            self.zones.keep(want, many - self.put_in_turn(want, self.waiting.all(want), find))

    def put_in_turn(self, want: Want, keys: Sequence[str], find: Callable[[Shape], Place | None]) -> int:
        """How many of these pods have a place now: one after another, until none is found."""
        for number, key in enumerate(keys):
            place = find(want.shape)
            if place is None:
                return number
            self._put(want, [key], place)
        return len(keys)

    def _put(self, want: Want, keys: Sequence[str], place: Place) -> None:
        for key in keys:
            self.market.snapshot.put(want.shape, place, key)
            self.places[key] = place
        self.waiting.remove(want, keys)

    def _beside_others(self, shape: Shape, *, rules: HostRules, within: tuple[str, str] | None) -> Place | None:
        stance = rules.stance(shape)
        if stance is FREE:
            return self.market.snapshot.find(shape, within)
        for place, company in self._companies.values():
            has_room = all(place.free.get(name, 0) >= amount for name, amount in shape.amounts)
            if not has_room or (within is not None and place.labels.get(within[0]) != within[1]):
                continue
            if company.admits(stance) and self.market.snapshot.suits(shape, place):
                company.join(stance)
                return place
        return None

    def _if_admitted(self, shape: Shape, *, place: Place) -> Place | None:
        """The place, if the pods that are there by now let one of the shape join them."""
        snapshot = self.market.snapshot
        return place if snapshot.stands_alone(shape) or snapshot.admits(shape, place) else None

    def _not_at_hand(self, guests: Mapping[Want, list[str]]) -> dict[Want, list[str]]:
        """Pods for a node to be bought but for those that find room on one that costs nothing more: they go there."""
        left = dict(guests)
        for want, keys in guests.items():
            if want.shape in self.jointly:
                left[want] = keys[self.put_in_turn(want, keys, self._free_of_charge) :]
        return {want: keys for want, keys in left.items() if keys}

    def _free_of_charge(self, shape: Shape) -> Place | None:
        place = self.market.snapshot.find(shape) if shape.number not in self.full else None
        if place is None or place.price:
            self.full.add(shape.number)
            return None
        return place

    def _seated(self, purchases: Sequence[Purchase], rules: HostRules, rows: Mapping[Want, int]) -> Iterator[_Filled]:
        """Yields for each node its kind and pods: those in front, or where there are rules those that get on."""
        if len(rules.stances) > 1:
            yield from self._seated_by_rules(purchases, rules, rows)
            return
        for bought in purchases:
            for _ in range(bought.times):
                found = ((want, self.waiting.first(want, many)) for want, many in bought.pods)
                yield bought.kind, {want: keys for want, keys in found if keys}, None

    def _seated_by_rules(
        self, purchases: Sequence[Purchase], rules: HostRules, row_of: Mapping[Want, int]
    ) -> Iterator[_Filled]:
        pods = self.waiting.pods
        rows: list[list[int]] = [[] for _ in range(max(row_of.values()) + 1)]
        for number, (want, _) in enumerate(pods):
            rows[row_of[want]].append(number)
        lots = [bought for bought in purchases for _ in range(bought.times)]
        wanted = [[(row_of[want], many) for want, many in bought.pods if want in row_of] for bought in lots]
        stances = [rules.number(want.shape) for want, _ in pods]
        nodes, companies, _ = seat(wanted, rows, stances=rules.stances, number=stances)
        for bought, numbers, company in zip(lots, nodes, companies, strict=True):
            guests: dict[Want, list[str]] = defaultdict(list)
            for want, key in map(pods.__getitem__, numbers):
                guests[want].append(key)
            yield bought.kind, guests, company

    def _opened_node(self, kind: str, asked: Mapping[str, int], at_hand: AtHandKinds | None) -> Place | None:
        """A node of it that has so much room; ``at_hand``: one of these."""

        def fits(place: Place) -> bool:
            return all(amount <= place.free.get(name, 0) for name, amount in asked.items())

        if at_hand is not None:
            place = at_hand.take(kind, self.market)
            return place if place is not None and fits(place) else None
        return self.market.open(self.market.offering(kind), fits, at_hand=False)


def _asked(guests: Mapping[Want, Sequence[str]]) -> dict[str, int]:
    """Sums up what the pods ask for, by resource."""
    total: dict[str, int] = {}
    for want, keys in guests.items():
        for name, amount in want.shape.amounts:
            total[name] = total.get(name, 0) + amount * len(keys)
    return total
