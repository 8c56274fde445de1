"""Pods without our gate take what room a plan leaves over, wherever that is: the plan is made to say so.

The scheduler tries such a pod on every node that is ready. Where a plan leaves room on one it goes there, though it was
planned on a node that is still to come, and that one may stand empty then. So before a node is bought its pods go where
room is left over, rather with devices than without, and it is not bought where all of them find some; and a pod whose
node has not joined is planned on one that has, if there is room.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.model.labels import HOSTNAME
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.handoff.reservations import is_reserved
from autoscaler.planner.placement.gang_packing import Packing, packing_of
from autoscaler.planner.placement.room_table import RoomTable
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import COMING_TIER, Place, Shape


def as_scheduled(gangs: Iterable[Gang], packing: Packing, snapshot: Snapshot) -> Packing:
    """The same pods, with those that the scheduler decides about where it will put them. The snapshot changes for good.

    Pods that a rule counts by host stay where they are planned: elsewhere they would upset others.
    """
    loose = {
        pod.key: shape
        for gang in gangs
        if gang.is_lone and packing.placed.get(gang.name) is not None
        for pod in gang.waiting
        if not (pod.gates or snapshot.rules.count_shape_by(shape := snapshot.shape(pod), HOSTNAME))
    }
    if not loose:
        return packing
    homes = packing.homes
    moving = _Moving(loose, homes, snapshot)
    needless = moving.off_what_is_bought(packing.bought)
    moving.to_what_has_joined()
    placed = {
        name: one
        and replace(
            one,
            places=tuple((key, homes[key]) for key, _ in one.places),
            bought=tuple(place for place in one.bought if id(place) not in needless),
        )
        for name, one in packing.placed.items()
    }
    return packing_of(placed)


@dataclass(slots=True)
class _Moving:
    """Pods that may be moved, and where all of them are."""

    loose: dict[str, Shape]
    homes: dict[str, Place]
    snapshot: Snapshot
    _alone: dict[int, bool] = field(default_factory=dict)
    """Number of a shape -> whether no rule between pods concerns its pods."""

    def off_what_is_bought(self, bought: Sequence[Place]) -> set[int]:
        """Ids of the places that need not be bought.

        Each in turn gives its pods to those behind it: nodes with devices, and with most pods, come last. What is there
        already was asked before anything was bought.
        """
        ranked = sorted(bought, key=self._rank)
        roomier: Collection[int] = range(len(ranked))
        while roomier:  # what those behind have given away leaves room for those before
            roomier = self._pass_on(ranked, roomier)
        return {id(place) for place in ranked if not place.guests}

    def _pass_on(self, ranked: Sequence[Place], roomier: Collection[int]) -> set[int]:
        """The places that gave pods to places behind them; no pod ever goes back.

        ``roomier``: the places that have more room than when all pods were last asked; no others are looked at, but
        for pods that rules between pods concern.
        """
        names = {name for shape in self.loose.values() for name, _ in shape.amounts}
        every, some = _Room(ranked, range(len(ranked)), names), _Room(ranked, roomier, names)
        many = Counter(shape.number for shape in self.loose.values())
        suit: dict[int, list[int]] = {}
        """Number of a shape -> the places behind that had room for it when it was first asked about."""
        gave = set[int]()
        for number, place in enumerate(ranked):
            for key in [key for key in place.guests if key in self.loose]:
                shape = self.loose[key]
                others = suit.get(shape.number)
                if others is None:
                    others = (some if self._is_alone(shape) else every).behind(number, shape)
                    if others and many[shape.number] > 1:  # of a kind of its own it is asked no more than once
                        others = [one for one in others if self.snapshot.why_not(shape, ranked[one]) is None]
                        suit[shape.number] = others
                if self._move(key, (ranked[one] for one in others[bisect_right(others, number) :])):
                    gave.add(number)
                    for room in (every, some):
                        room.change(place, self.homes[key])
        return gave

    def _is_alone(self, shape: Shape) -> bool:
        known = self._alone.get(shape.number)
        if known is None:
            known = self._alone[shape.number] = self.snapshot.stands_alone(shape)
        return known

    def to_what_has_joined(self) -> None:
        """Pods whose node was bought before and has not; those first whose node stays in use without them."""
        late = {id(home): home for home in self.homes.values() if home.node is None and not home.price}
        if not late:
            return
        joined = [
            place
            for place in self.snapshot.places
            if (not place.standing or place.tier == COMING_TIER) and _is_open(place)
        ]
        for home in sorted(late.values(), key=self._rank, reverse=True):
            for key in sorted((key for key in home.guests if key in self.loose), key=lambda key: self.loose[key].rank):
                best = self.snapshot.find(self.loose[key])
                there = best if best is not None and _is_open(best) else None
                self._move(key, [there] if there is not None else joined)

    def _move(self, key: str, others: Iterable[Place]) -> bool:
        """Moves a pod to the first place with room; says whether there was one."""
        shape, home = self.loose[key], self.homes[key]
        for place in others:
            if place is home or self.snapshot.rules.tell_apart(shape, home, place):
                continue
            if self.snapshot.why_not(shape, place) is None:
                self.snapshot.move(shape, home, place, key)
                self.homes[key] = place
                return True
        return False

    def _rank(self, place: Place) -> tuple[bool, int, float, str]:
        shapes = [self.loose.get(key) for key in place.guests]
        stays = any(shape is None or shape.devices for shape in shapes)
        return (stays, len(place.guests), -place.price, place.name)


class _Room:
    """What is free on some of these places that hold pods."""

    def __init__(self, ranked: Sequence[Place], some: Collection[int], names: Iterable[str]) -> None:
        """``some``: their numbers. ``names``: of resources."""
        held = [place.free if number in some and place.guests else {} for number, place in enumerate(ranked)]
        self._number = {id(place): number for number, place in enumerate(ranked) if held[number]}
        self._table = RoomTable(held, names)
        self._most = self._table.most_behind()

    def behind(self, number: int, shape: Shape) -> list[int]:
        """The places after this one with room for the shape."""
        most = self._most[number]
        if any(amount > most[name] for name, amount in shape.amounts):
            return []
        return self._table.with_room(shape.amounts, behind=number)

    def change(self, *places: Place) -> None:
        """Updates the room of these places; none where they hold no pod any more."""
        for place in places:
            if id(place) in self._number:
                self._table.change(self._number[id(place)], place.free if place.guests else {})


def _is_open(place: Place) -> bool:
    """Whether it has joined, and takes whatever the scheduler sends."""
    return place.node is not None and not place.node.cordoned and not is_reserved(place)
