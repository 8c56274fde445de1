"""Nodes that are bought anyway: more pods beside those on them, and cheaper kinds where these are large enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.planner.demand.pod_rules import Company, Neighbours
from autoscaler.planner.supply.capacity import Amounts, Mask, Room
from autoscaler.planner.supply.offers import Offer

_CENT = 1e-6
_ABOUT_TWICE = 1.9
"""A larger node keeps a little more for itself."""
_GPUS = 2
_BLOCK = 512
"""Nodes at a time: the tables are as wide as there are offers."""


@dataclass(slots=True)
class Fresh:
    """A node that would be bought, and the pods on it by number."""

    offer: Offer
    pods: list[int]
    company: Company
    planned: int
    """Places that it was bought for."""
    given_up: int = 0
    """How often it was tried to do without it."""


@dataclass(frozen=True, slots=True)
class Tidying:
    """Pods, room and rules."""

    sorts: Sequence[int]
    room: Room
    rules: Neighbours
    zone_of: Mapping[int, str]

    def beside(self, nodes: Sequence[Fresh], left: Sequence[int], *, most: int) -> list[int]:
        """Pods, the largest first, where there is room beside others and least is left over; who finds none.

        Where more than ``most`` are left, nobody is tried: they need nodes of their own.
        """
        if len(left) > most or not nodes:
            return list(left)
        free = np.ascontiguousarray(self._free(nodes).T)
        scale = np.maximum(1, self.room.rooms.max(axis=0, initial=1))
        rest = free[0] / scale[0] + free[1] / scale[1]
        still = []
        share = (self.room.sizes[[self.sorts[one] for one in left]] / scale).max(axis=1)
        for number in [left[one] for one in np.lexsort((np.array(left), -share)).tolist()]:
            size = self.room.sizes[self.sorts[number]]
            fits = free[0] >= size[0]
            for side in range(1, len(free)):
                fits &= free[side] >= size[side]
            wait = np.where(fits, rest, np.inf)
            while (one := int(np.argmin(wait))) >= 0 and wait[one] < np.inf:
                if self._admits(nodes[one], number):
                    nodes[one].pods.append(number)
                    nodes[one].company.join(self.rules.stance(self.sorts[number]))
                    free[:, one] -= size
                    rest[one] = (free[:2, one] / scale[:2]).sum()
                    break
                wait[one] = np.inf
            else:
                still.append(number)
        return still

    def shrunk(self, nodes: Sequence[Fresh], *, every: bool = False) -> list[Fresh]:
        """Nodes that hold less than was planned, or all: the cheapest kind that is large enough; none for nobody."""
        bought = Counter(_bought_as(node.offer) for node in nodes if node.pods)
        kept = [node for node in nodes if node.pods]
        loose = [node for node in kept if every or len(node.pods) < node.planned]
        market = _Cheaper(self.room, bought)
        for (zone, sorts), group in self._alike(loose).items():
            market.move(group, self._used(group), zone=zone, sorts=sorts)
        return kept

    def joined(self, nodes: Sequence[Fresh]) -> list[Fresh]:
        """One node for two of a kind, where a kind that is as large as both costs no more, and holds what is on both.

        Which of two such kinds the solver takes is chance and would change with every pod: of plans that cost the same
        this is always the one with few nodes.
        """
        found = list[Fresh]()
        groups: dict[tuple[str, str], list[Fresh]] = {}
        for node in nodes:
            groups.setdefault((node.offer.kind.name, node.offer.zone), []).append(node)
        for key in sorted(groups, key=lambda key: (groups[key][0].offer.kind.usd, key)):
            offer = self._twice(groups[key][0].offer)
            if offer is None:
                found += groups[key]
                continue
            apart, pairs = self._paired(groups[key], offer)
            found += apart
            groups.get((offer.kind.name, offer.zone), found).extend(pairs)
        return found

    def _paired(self, nodes: Sequence[Fresh], offer: Offer) -> tuple[list[Fresh], list[Fresh]]:
        """The fullest with the emptiest that it fits beside on such an offer. Who stays apart, and the pairs."""
        free = [node for node in nodes if node.company == Company() and self._suits(offer, node.pods)]
        apart = [node for node in nodes if node.company != Company() or not self._suits(offer, node.pods)]
        used = self._used(free)
        room = np.array(offer.kind.amounts, dtype=np.int64)
        order = np.argsort((used[:, :_GPUS] / room[:_GPUS]).max(axis=1, initial=0.0), kind="stable").tolist()
        pairs = []
        while len(order) > 1:
            full = order.pop()
            if (used[full] + used[order[0]] <= room).all():
                pods = free[full].pods + free[order.pop(0)].pods
                pairs.append(Fresh(offer, pods, Company(), len(pods)))
            else:
                apart.append(free[full])
        return apart + [free[one] for one in order], pairs

    def _twice(self, offer: Offer) -> Offer | None:
        """The cheapest kind that is about as large as two of these, with as many GPUs, and costs no more than two."""
        if offer.kind.available is not None:
            return None
        amounts = np.array(offer.kind.amounts)
        large = (self.room.rooms[:, :_GPUS] >= _ABOUT_TWICE * amounts[:_GPUS]).all(axis=1)
        large &= self.room.rooms[:, _GPUS] == 2 * amounts[_GPUS]
        fitting = [self.room.offers[one] for one in np.nonzero(large)[0].tolist()]
        cheap = [
            one
            for one in fitting
            if one.zone == offer.zone and one.kind.available is None and one.kind.usd <= 2 * offer.kind.usd + _CENT
        ]
        return min(cheap, key=lambda one: (one.kind.usd, one.kind.name), default=None)

    def _suits(self, offer: Offer, pods: Sequence[int]) -> bool:
        number = self.room.number_of[offer.kind.name, offer.zone]
        return all(self.room.suits(sort)[0][number] for sort in {self.sorts[pod] for pod in pods})

    def _admits(self, node: Fresh, number: int) -> bool:
        sort, zone = self.sorts[number], self.zone_of.get(number)
        return (
            zone in (None, node.offer.zone)
            and self.room.name(node.offer) in self.room.names(sort, zone)
            and node.company.admits(self.rules.stance(sort))
        )

    def _free(self, nodes: Sequence[Fresh]) -> Amounts:
        rooms: Amounts = np.array([node.offer.kind.amounts for node in nodes], dtype=np.int64).reshape(-1, 4)
        return rooms - self._used(nodes)

    def _used(self, nodes: Sequence[Fresh]) -> Amounts:
        """What is taken of each node."""
        sorts = np.array([self.sorts[one] for node in nodes for one in node.pods], dtype=np.int64)
        lengths = np.array([len(node.pods) for node in nodes], dtype=np.int64)
        used: Amounts = np.zeros((len(nodes), 4), dtype=np.int64)
        np.add.at(used, np.repeat(np.arange(len(nodes)), lengths), self.room.sizes[sorts])
        return used

    def _alike(self, nodes: Sequence[Fresh]) -> dict[tuple[str, frozenset[int]], list[Fresh]]:
        """By zone, and by what their pods select: one sort for each selection."""
        model: dict[int, int] = {}
        groups: dict[tuple[str, frozenset[int]], list[Fresh]] = {}
        sorts, choice = self.sorts, self.room.choice
        for node in nodes:
            chosen = frozenset([model.setdefault(choice[sorts[number]], sorts[number]) for number in node.pods])
            groups.setdefault((node.offer.zone, chosen), []).append(node)
        return groups


class _Cheaper:
    """Offers by price, and how many of each are bought."""

    def __init__(self, room: Room, bought: Counter[str]) -> None:
        self.room, self.bought = room, bought
        usd = np.array([offer.kind.usd for offer in room.offers], dtype=float)
        self.order = np.argsort(usd, kind="stable")
        self.usd = usd[self.order]

    def move(self, nodes: Sequence[Fresh], used: Amounts, *, zone: str, sorts: frozenset[int]) -> None:
        """Nodes of one zone whose pods select the same: each to the cheapest offer that holds what is on it."""
        suits: Mask = np.array([self.room.offers[one].zone == zone for one in self.order.tolist()], dtype=bool)
        for sort in sorts:
            suits &= self.room.suits(sort)[0][self.order]
        chosen = np.nonzero(suits)[0]
        rooms, usd = self.room.rooms[self.order[chosen]], self.usd[chosen]
        own = np.array([node.offer.kind.usd for node in nodes])
        for start in range(0, len(nodes), _BLOCK):
            block = used[start : start + _BLOCK]
            holds: Mask = np.ones((len(block), len(chosen)), dtype=bool)
            for side in range(block.shape[1]):
                holds &= rooms[None, :, side] >= block[:, side, None]
            holds &= usd[None, :] < own[start : start + _BLOCK, None]
            for one in np.nonzero(holds.any(axis=1))[0].tolist():
                self._to_first(nodes[start + one], chosen[holds[one]])

    def _to_first(self, node: Fresh, cheaper: Amounts) -> None:
        """That is still to be had."""
        for one in cheaper.tolist():
            offer = self.room.offers[int(self.order[one])]
            available = offer.kind.available
            if available is None or self.bought[_bought_as(offer)] < available:
                self.bought[_bought_as(node.offer)] -= 1
                self.bought[_bought_as(offer)] += 1
                node.offer = offer
                return


def _bought_as(offer: Offer) -> str:
    """Zones of an entry share its maximum."""
    return offer.entry or offer.kind.name
