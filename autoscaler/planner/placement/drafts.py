"""Drafts of an offline plan: who goes to machines that are there, which nodes are bought for the others, who is left.

Where machines are too few, who goes to them is decided together with what is bought
(:mod:`autoscaler.planner.placement.mixed_packing`). Else free machines first
(:mod:`autoscaler.planner.placement.first_fit`), then the cheapest nodes for all others
(:mod:`autoscaler.solver.solve`), then seats on them (:mod:`autoscaler.planner.placement.slots`). Those who find no seat
beside the others are planned for once more, together. Where pods ask for too many different amounts, those of about the
same size are planned for together (:mod:`autoscaler.solver.size_clusters`); then, until the time is over, the nodes
that pay least are given up and their pods planned for anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from autoscaler.model.cluster import Pod
from autoscaler.planner.demand.pod_rules import Neighbours
from autoscaler.planner.placement.consolidation import Fresh, Tidying
from autoscaler.planner.placement.first_fit import Filling
from autoscaler.planner.placement.mixed_packing import Joint
from autoscaler.planner.placement.size_rows import Crowd, Shaping, are_mixed, few, worths
from autoscaler.planner.placement.sized_slots import Middle, SizedSeats
from autoscaler.planner.placement.slots import seat
from autoscaler.planner.supply.capacity import Room
from autoscaler.planner.supply.owned_machines import MachineGroups
from autoscaler.planner.supply.purchasable_kinds import Shop
from autoscaler.solver.column_pool import Known
from autoscaler.solver.deadline import Watch
from autoscaler.solver.problem import Limit, Shape, Vector
from autoscaler.solver.solution import Answer
from autoscaler.solver.solve import cheapest, lower_bound

_BOUNDING = 0.3
"""Part of the time that is kept back where the bound is found apart: beside machines."""
_FILLING = 0.2
"""Part of the time after which machines are filled more simply."""
_SEATING, _LEAST = 5.0, 0.15
"""What comes after the plan for crowds takes so many times as long as to make them took; but a part of the time is left
for the plan."""
_IMPROVED = 0.8
"""Part of the time after which no more nodes are given up."""
_AGAIN, _TURNS = 12, 6
_SHORT = 5
"""Rounds of pricing for plans that are only to tell who can be served under limits."""
_HOPELESS, _BESIDE_FEW = 0.05, 40
"""Part of the pods, and pods: if more are left over, no places are sought for them where it is only told who can be
served."""
_LEAST_AT_ONCE = 0.05
"""Seconds."""
_FEW = 100
"""Pods for which whole numbers of fillings are searched each time."""
_TORN = 40
_FAILED = 8
_FIRST, _JOINTLY = 0.1, 0.93
"""Parts of the time after which machines have been filled first, and who goes to them has been settled by dollars."""
_CENT = 1e-6
_ROUNDS = 4
_BESIDE = 2_000
_BOUNDED, _HURRIED = 64, 40
"""So many crowds for the bound, and for a bound in a hurry."""


@dataclass(slots=True)
class Draft:
    """Pods by number to machines that are there; the others to nodes that would be bought."""

    at_home: dict[int, int]
    nodes: list[Fresh]
    left: list[int]
    bound_for: Callable[[Sequence[int]], float | None]
    """What no plan for other pods, by number, can undercut, as far as the search for these tells."""
    covers_home: bool = False
    """Whether it is for those on machines, too."""

    @property
    def usd(self) -> float:
        """Dollars per hour."""
        return math.fsum(node.offer.kind.usd for node in self.nodes)


@dataclass(frozen=True, slots=True)
class _Time:
    """Parts of a draft's time; without a clock none passes, and there is none to be used."""

    clock: Callable[[], float] | None
    deadline: float
    start: float
    at_once: Watch | None = None
    """For a plan at once, where it may not take as long as it likes."""

    def spent(self) -> float:
        """As a part of all of it."""
        return (self.clock() - self.start) / self.deadline if self.clock else 1.0

    def until(self, part: float) -> float:
        """Seconds until that part of it is over."""
        return max(0.0, part - self.spent()) * self.deadline


class Drafting:
    """Pods, room and rules, ready to be tried in several ways."""

    def __init__(
        self, pods: Sequence[Pod], sorts: Sequence[int], room: Room, rules: Neighbours, limits: Sequence[Limit] = ()
    ) -> None:
        """``sorts``: of each pod the number of its sort."""
        self.pods, self.sorts, self.room, self.rules, self.limits = pods, sorts, room, rules, limits
        self.stances = [rules.number[sort] for sort in sorts]
        self.shaping = Shaping(sorts, room, rules)
        self.known = Known()
        """What was found for some of them."""

    def first_draft(self, numbers: Sequence[int], watch: Watch) -> Draft:
        """The first plan at hand, within that time."""
        return self._machines_first(numbers, self.shop(), _Time(None, 0.0, 0.0, watch))

    def draft(self, numbers: Sequence[int], *, deadline: float, clock: Callable[[], float]) -> Draft:
        """Machines first, then the cheapest nodes."""
        time = _Time(clock, deadline, clock())
        shop = self.shop()
        joint = Joint(self.pods, self.shaping)
        asked = joint.asked(numbers)
        if asked is None:
            return self._machines_first(numbers, shop, time)
        first = None
        if not self._surely_served(numbers, shop) and not self.known:
            first = self._machines_first(numbers, shop, _Time(clock, _FIRST * deadline, time.start), bounded=True)
        known = self.known or None
        found = joint.settled(asked, shop, known=known, deadline=time.until(_JOINTLY), clock=clock)
        if found is None:
            return first or self._machines_first(numbers, shop, time)
        bound_for = self._bound_for(asked.crowds, found.answer)
        second = Draft(found.at_home, found.nodes, found.left, bound_for, covers_home=True)
        best = min((second, first or second), key=lambda draft: (len(draft.left), draft.usd))
        return replace(best, bound_for=bound_for, covers_home=True)

    def are_surely_served(self, numbers: Sequence[int]) -> bool:
        """Whether something that can be bought without end holds each of them."""
        return self._surely_served(numbers, self.shop())

    def shop(self) -> Shop:
        """What may be bought."""
        return Shop(self.room.kinds((1,) * len(self.rules.exclusive)), self.limits)

    def _surely_served(self, numbers: Sequence[int], shop: Shop) -> bool:
        endless = all(kind.available is None or kind.available >= len(numbers) for kind in shop.kinds)
        endless = endless and not shop.limits
        return endless and bool(self.room.held()[0][[self.sorts[number] for number in numbers]].all())

    def _machines_first(self, numbers: Sequence[int], shop: Shop, time: _Time, *, bounded: bool = False) -> Draft:
        """``bounded``: the bound is found otherwise."""
        at_home = self._at_home(numbers, time, part=_FILLING / (_FIRST if bounded else 1))
        left = [number for number in numbers if number not in at_home] if at_home else list(numbers)
        began = time.spent()
        crowds = self.shaping.crowds(self.shaping.rows(left))
        kept_back = _BOUNDING if at_home and not bounded else 0.0
        part = 1 - kept_back
        if are_mixed(crowds):
            part = max(time.spent() + _LEAST, part - _SEATING * (time.spent() - began))
        answer = self._asked(crowds, shop, time, part=part)
        nodes, left = self._seated(answer, crowds)
        if time.clock is not None or len(left) <= max(_BESIDE_FEW, _HOPELESS * len(numbers)):
            nodes, left = self._squeezed(nodes, left, shop, rounds=0 if are_mixed(crowds) else _ROUNDS)
        if are_mixed(crowds):
            worth = dict(zip((pod for crowd in crowds for pod in crowd.pods), worths(crowds, answer), strict=True))
            nodes = self._improved(nodes, shop, worth.__getitem__, time, part=_IMPROVED - kept_back)
        if time.clock is not None:
            nodes = Tidying(self.sorts, self.room, self.rules, self.shaping.zone_of).joined(nodes)
        return Draft(at_home, nodes, left, self._bound_for(crowds, answer))

    def _bound_for(self, crowds: Sequence[Crowd], answer: Answer) -> Callable[[Sequence[int]], float | None]:
        """The answer's bound for pods by number; those that ask for what no crowd does count for nothing."""
        crowd_of = {key: place for place, crowd in enumerate(crowds) for key in self.shaping.rows(crowd.pods)}

        def bound(numbers: Sequence[int]) -> float | None:
            counts = [0] * len(crowds)
            for key, pods in self.shaping.rows(numbers).items():
                if key in crowd_of:
                    counts[crowd_of[key]] += len(pods)
            return answer.bound_for(counts)

        return bound

    def bound(self, draft: Draft, chosen: Sequence[int], *, hurried: bool = False) -> float:
        """Of all ways to serve the same pods; where machines are there, of all ways to choose who goes on them.

        ``hurried``: where pods are of many sizes, a weaker bound in less time.
        """
        whole = draft.covers_home or not draft.at_home
        if whole and (not self.shaping.zone_of or self.room.merges):
            known = draft.bound_for(chosen)
            if known is not None:
                return known
        alone = (1,) * len(self.rules.exclusive)
        several = Counter(self.sorts[number] for number in chosen)
        machines = MachineGroups(self.room, several, alone)
        rows: Counter[tuple[Vector, frozenset[str]]] = Counter()
        for sort, many in several.items():
            rows[self.shaping.size(sort), machines.names(sort, self.room.names(sort, None))] += many
        return lower_bound(
            few(rows, many=_HURRIED if hurried else _BOUNDED), self.room.kinds(alone) + machines.kinds(), self.limits
        )

    def _at_home(self, numbers: Sequence[int], time: _Time, *, part: float) -> dict[int, int]:
        if not self.room.machines:
            return {}
        in_time = (lambda: time.spent() < part) if time.clock else (lambda: True)
        return Filling(self.pods, self.sorts, self.room, self.rules, in_time=in_time).place(numbers)

    def _asked(self, crowds: Sequence[Crowd], shop: Shop, time: _Time, *, part: float) -> Answer:
        """The solver's answer, with so much of the time as is left until that part of it is over."""
        shapes = [self.shaping.shape(crowd, bounded=True) for crowd in crowds]
        if time.clock is None:
            return self._at_once(shapes, shop, time.at_once)
        left = max(0.05, time.until(part))
        known = self.known or None
        return cheapest(shapes, shop.kinds, limits=shop.limits, known=known, deadline=left, clock=time.clock)

    def _at_once(self, shapes: Sequence[Shape], shop: Shop, watch: Watch | None) -> Answer:
        """A short search where nodes are in short supply; of many pods what it found is known the next time."""
        scarce = bool(shop.limits) or any(kind.available is not None for kind in shop.kinds)
        known = self.known if scarce else None
        few = scarce and sum(shape.count for shape in shapes) <= _FEW
        rounds = _SHORT if few or (scarce and not known) else 0
        left, clock = (watch.left(), watch.clock) if watch else (math.inf, lambda: 0.0)
        return cheapest(
            shapes,
            shop.kinds,
            limits=shop.limits,
            known=known,
            rounds=rounds,
            turns=few,
            deadline=max(_LEAST_AT_ONCE, left),
            clock=clock,
        )

    def _seated(self, answer: Answer, crowds: Sequence[Crowd]) -> tuple[list[Fresh], list[int]]:
        lots = [(self.room.offer(lot.kind, lot.part), lot.pods) for lot in answer.nodes for _ in range(lot.times)]
        rows = [crowd.pods for crowd in crowds]
        if are_mixed(crowds):
            by_size = SizedSeats(
                self.room.sizes, self.sorts, [self.rules.stance(sort) for sort in range(len(self.room.models))]
            )
            places = ((offer.kind.amounts, pods) for offer, pods in lots)
            seats, companies, left = by_size.seat(places, rows, [Middle(*crowd.size[:2]) for crowd in crowds])
        else:
            wanted = (pods for _, pods in lots)
            seats, companies, left = seat(wanted, rows, stances=self.rules.stances, number=self.stances)
        nodes = [
            Fresh(offer, pods, company, sum(many for _, many in places))
            for (offer, places), pods, company in zip(lots, seats, companies, strict=True)
        ]
        return nodes, left

    def _squeezed(
        self, nodes: list[Fresh], left: list[int], shop: Shop, *, rounds: int
    ) -> tuple[list[Fresh], list[int]]:
        """Seat those who did not get on: where there is room beside others, else on more nodes. And who stays left."""
        tidying = Tidying(self.sorts, self.room, self.rules, self.shaping.zone_of)
        for _ in range(_AGAIN if left else 0):
            left = tidying.beside(nodes, left, most=_BESIDE)
            if not left:
                break
            more, left = self._planned(left, self._remaining(shop, nodes), rounds=rounds)
            if not any(node.pods for node in more):
                break
            nodes += more
        return tidying.shrunk(nodes), left

    def _planned(
        self,
        numbers: Sequence[int],
        shop: Shop,
        *,
        rounds: int,
        within: float = math.inf,
        clock: Callable[[], float] | None = None,
    ) -> tuple[list[Fresh], list[int]]:
        """Nodes for these pods alone, and who found no seat on them; ``within`` so many seconds of the clock."""
        crowds = self.shaping.crowds(self.shaping.rows(numbers))
        shapes = [self.shaping.shape(crowd) for crowd in crowds]
        answer = cheapest(
            shapes, shop.kinds, limits=shop.limits, rounds=rounds, deadline=within, clock=clock or (lambda: 0.0)
        )
        return self._seated(answer, crowds)

    def _improved(
        self, nodes: list[Fresh], shop: Shop, worth: Callable[[int], float], time: _Time, *, part: float
    ) -> list[Fresh]:
        """Give up nodes that are worth least for their price, plan for their pods anew, keep what is cheaper.

        Until that part of the time is over.
        """
        tidying = Tidying(self.sorts, self.room, self.rules, self.shaping.zone_of)
        nodes = tidying.shrunk(nodes, every=True)
        shop = shop.only({self.room.name(node.offer) for node in nodes})
        losses = [_loss(node, worth) for node in nodes]
        step, longest, failed = time.spent(), 0.0, 0
        while time.spent() + longest < part and failed < _FAILED:
            order = sorted(range(len(nodes)), key=lambda one: (nodes[one].given_up, -losses[one], one))
            torn = _first(order, nodes)
            old = [nodes[one] for one in torn]
            kept = [node for one, node in enumerate(nodes) if one not in torn]
            pods = sorted(number for node in old for number in node.pods)
            new, left = self._planned(
                pods, self._remaining(shop, kept), rounds=_TURNS, within=time.until(part), clock=time.clock
            )
            new, left = self._squeezed([node for node in new if node.pods], left, self._remaining(shop, kept), rounds=0)
            new = tidying.shrunk(new, every=True)
            failed += 1
            if not left and _usd(new) < _usd(old) - _CENT:
                nodes, old, failed = kept + new, new, 0
                losses = [_loss(node, worth) for node in nodes]
            for node in old:
                node.given_up += 1
            longest, step = max(longest, time.spent() - step), time.spent()
        return nodes

    def _remaining(self, shop: Shop, nodes: Iterable[Fresh]) -> Shop:
        return shop.without(Counter(self.room.name(node.offer) for node in nodes))


def _loss(node: Fresh, worth: Callable[[int], float]) -> float:
    """Dollars per hour that a node costs above what is on it is worth."""
    return node.offer.kind.usd - sum(map(worth, node.pods))


def _first(order: Iterable[int], nodes: Sequence[Fresh]) -> set[int]:
    """So many of them that their pods are planned for one by one."""
    torn, pods = set[int](), 0
    for one in order:
        pods += len(nodes[one].pods)
        if torn and pods > _TORN:
            break
        torn.add(one)
    return torn


def _usd(nodes: Iterable[Fresh]) -> float:
    return math.fsum(node.offer.kind.usd for node in nodes)
