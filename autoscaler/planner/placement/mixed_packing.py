"""Who goes to machines that are there and what is bought for the others, decided in one go by dollars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.model.cluster import Pod
from autoscaler.planner.demand.pod_rules import FREE
from autoscaler.planner.placement.consolidation import Fresh, Tidying
from autoscaler.planner.placement.first_fit import Filling
from autoscaler.planner.placement.size_rows import Crowd, Shaping, are_mixed
from autoscaler.planner.placement.slots import seat
from autoscaler.planner.supply.owned_machines import GROUPED, FreeKinds
from autoscaler.planner.supply.purchasable_kinds import Shop
from autoscaler.solver.column_pool import Known
from autoscaler.solver.solution import Answer
from autoscaler.solver.solve import cheapest


@dataclass(frozen=True, slots=True)
class Settled:
    """Everyone's place."""

    at_home: dict[int, int]
    """The machine of each pod that has a place on one."""
    nodes: list[Fresh]
    left: list[int]
    answer: Answer
    """The solver's, for the crowds; its bound is of all ways to serve them, whoever goes to machines."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is decided in one go."""

    crowds: Sequence[Crowd]
    free: FreeKinds
    """The machines, as kinds of node that cost nothing."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Pods with their shapes."""

    pods: Sequence[Pod]
    shaping: Shaping

    def asked(self, numbers: Sequence[int]) -> Asked | None:
        """``None`` where machines are large enough, and where rules between pods or many sizes leave that undone."""
        shaping = self.shaping
        if not self._spills(numbers) or shaping.zone_of or shaping.rules.exclusive:
            return None
        crowds = shaping.crowds(shaping.rows(numbers))
        if are_mixed(crowds) or any(shaping.rules.stance(crowd.sort) != FREE for crowd in crowds):
            return None
        free = FreeKinds(shaping.room, [crowd.sort for crowd in crowds])
        return Asked(crowds, free) if len(free) <= GROUPED else None

    def settled(
        self, asked: Asked, shop: Shop, *, known: Known | None, deadline: float, clock: Callable[[], float]
    ) -> Settled | None:
        """``None`` where some have no place."""
        shaping, crowds, free = self.shaping, asked.crowds, asked.free
        shapes = [shaping.shape(crowd) for crowd in crowds]
        shapes = [
            replace(shape, kinds=free.names(crowd.sort, shape.kinds or frozenset()))
            for shape, crowd in zip(shapes, crowds, strict=True)
        ]
        kinds = [*shop.kinds, *free.kinds()]
        answer = cheapest(shapes, kinds, limits=shop.limits, known=known, deadline=deadline, clock=clock)
        if any(answer.left):
            return None
        lots = [lot for lot in answer.nodes for _ in range(lot.times)]
        seats, companies, left = seat(
            (lot.pods for lot in lots),
            [crowd.pods for crowd in crowds],
            stances=shaping.rules.stances,
            number=[shaping.rules.number[sort] for sort in shaping.sorts],
        )
        at_home: dict[int, int] = {}
        nodes = []
        for lot, pods, company in zip(lots, seats, companies, strict=True):
            machine = free.taken(lot.kind)
            if machine is None:
                nodes.append(Fresh(shaping.room.offer(lot.kind, lot.part), pods, company, len(pods)))
            else:
                at_home |= dict.fromkeys(pods, machine)
        return Settled(at_home, self._drained(nodes, at_home), left, answer)

    def _spills(self, numbers: Sequence[int]) -> bool:
        """Whether there are machines, and together they are too small."""
        room = self.shaping.room
        if not room.machines:
            return False
        counts = np.bincount([self.shaping.sorts[number] for number in numbers], minlength=len(room.sizes))
        return bool((counts @ room.sizes > room.spare.sum(axis=0)).any())

    def _drained(self, nodes: list[Fresh], at_home: dict[int, int]) -> list[Fresh]:
        """Where room was left over on machines, nobody stays on a node; who moves is added to ``at_home``."""
        sorts, room, rules = self.shaping.sorts, self.shaping.room, self.shaping.rules
        filling = Filling(self.pods, sorts, room, rules, in_time=lambda: False)
        filling.seat(at_home)
        moved = filling.place(number for node in nodes for number in node.pods)
        at_home |= moved
        for node in nodes:
            if not moved.keys().isdisjoint(node.pods):
                node.pods = [number for number in node.pods if number not in moved]
        return Tidying(sorts, room, rules, self.shaping.zone_of).shrunk(nodes)
