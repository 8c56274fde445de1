"""Which gangs can probably be served together: proposals that :mod:`autoscaler.planner.admission.admit` tries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import le

import numpy as np

from autoscaler.planner.placement.drafts import Drafting
from autoscaler.planner.placement.size_rows import Crowd
from autoscaler.planner.supply.owned_machines import machine_kinds
from autoscaler.solver.admission_lp import Reach, furthest
from autoscaler.solver.deadline import Watch
from autoscaler.solver.lp.arrays import Whole
from autoscaler.solver.problem import Cutting, Kind, Limit, Shape, Vector

Gang = list[int]
"""Pods by number."""
_CLOSE = 1e-9


@dataclass(slots=True)
class Proposal:
    """Of a list of gangs."""

    few: list[int] = field(default_factory=list)
    """Who can probably be served, by place in the list."""
    refused: set[int] = field(default_factory=set)
    """Who cannot, besides those before."""
    coreless: set[int] = field(default_factory=set)
    """Who is nothing without one of these."""
    looked: int = 0
    """So many of the first were looked at."""


class Likely:
    """Linear programs over what all the pods ask for."""

    def __init__(
        self, gangs: Sequence[Gang], drafting: Drafting, *, usd_per_hour: float | None, in_time: Callable[[], bool]
    ) -> None:
        """``usd_per_hour``: what nodes may cost together. ``in_time``: for anything that takes long."""
        shaping, room = drafting.shaping, drafting.room
        crowds = shaping.crowds(shaping.rows(one for gang in gangs for one in gang))
        shop, alone = drafting.shop(), (1,) * len(drafting.rules.exclusive)
        machines = machine_kinds(room, [crowd.sort for crowd in crowds], alone)
        limits = list(shop.limits)
        if usd_per_hour is not None:
            limits.append(Limit({kind.name: kind.usd for kind in shop.kinds}, usd_per_hour))
        at_home = machines.kinds()
        kinds = [kind for kind in shop.kinds if all(one.uses.get(kind.name, 0.0) <= one.most for one in limits)]
        kinds += at_home
        shapes = []
        for crowd in crowds:
            shape = shaping.shape(crowd)
            names = machines.names(crowd.sort, shape.kinds or frozenset())
            shapes.append(Shape(_held(crowd, kinds, names), shape.count, names))
        self._machines = frozenset(kind.name for kind in at_home)
        self._known = drafting.known
        cutting = Cutting.of(shapes, kinds, limits)
        self._rows = len(cutting.rows)
        self._row = np.full(len(drafting.sorts), -1, dtype=np.int64)
        """Of each pod; -1: nothing that may be bought or is there holds it."""
        for row, shapes_of_row in enumerate(cutting.shape_of):
            for number in shapes_of_row:
                self._row[crowds[number].pods] = row
        self._reach = Reach(cutting, watch=Watch(lambda: 0.0 if in_time() else 1.0, 0.0, 1.0)) if self._rows else None
        self._guess = 0

    def explore(self, gangs: Sequence[Gang], *, in_time: Callable[[], bool]) -> None:
        """Look for fillings with which as many of the first as possible are served."""
        rows = np.concatenate([self._row[gang] for gang in gangs])
        rows = rows[rows >= 0]
        if self._reach is not None:
            self._guess = self._reach.explore(lambda many: self._counts(rows[:many]), len(rows), in_time=in_time)

    def keep_back(self, part: float) -> None:
        """Of everything that is scarce: whole nodes take a little more than the linear program knows."""
        if self._reach is not None:
            self._reach.keep_back(part)

    def proposed(
        self,
        taken: Sequence[Gang],
        gangs: Sequence[Gang],
        *,
        core: Mapping[int, int],
        lost: Collection[int],
        looking: Callable[[], bool],
        in_time: Callable[[], bool],
    ) -> Proposal:
        """Of these gangs those who can probably be served besides those taken; at least one is looked at.

        ``core``: of pods that an elastic gang could do without one that it cannot. ``lost``: pods refused before.
        ``looking``: whether fillings are sought that would serve somebody else. ``in_time``: for anything.
        """
        several = [self._row[gang] for gang in gangs]
        refused = {one for one, rows in enumerate(several) if (rows < 0).any()}
        proposal = Proposal(refused=refused, looked=len(gangs))
        gone = {*lost, *(pod for one in refused for pod in gangs[one])}
        if (reach := self._reach) is None:
            return proposal
        base = self._counts(np.concatenate([self._row[gang] for gang in taken]) if taken else self._row[:0])
        left = [one for one in range(len(gangs)) if one not in proposal.refused]
        while left:
            pods, ends = np.concatenate([several[one] for one in left]), np.cumsum([len(several[one]) for one in left])
            asked = _Asked(base, pods, ends)
            start = 1 if taken or proposal.few else int(np.searchsorted(ends, self._guess, side="right"))
            many = furthest(partial(_serves, reach, asked), len(left), start=start)
            base = asked.first(many)
            proposal.few += left[:many]
            worth = np.zeros(len(left), dtype=bool)
            if many < len(left):
                own = self._counts(several[left[many]])
                prices = reach.refutation(base + own, looking=looking())
                if prices is None:
                    proposal.few.append(left[many])
                    base = base + own
                    many += 1
                else:
                    values = np.add.reduceat(prices[pods], np.concatenate([[0], ends[:-1]]))
                    worth = (values > 0) & (values >= values[many] * (1 - _CLOSE))
                    worth[many] = True
            kept = []
            for place in range(many, len(left)):
                gang = gangs[left[place]]
                if core.get(gang[0]) in gone:
                    proposal.coreless.add(left[place])
                elif worth[place]:
                    proposal.refused.add(left[place])
                    gone.update(gang)
                else:
                    kept.append(left[place])
            left = kept
            proposal.looked = left[0] if left else len(gangs)
            if not in_time():
                break
        reach.remember(base, self._known, machines=self._machines)
        return proposal

    def _counts(self, rows: Whole) -> Whole:
        return np.bincount(rows, minlength=self._rows)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Pods by row, beside those of some gangs and those of the first of others."""

    base: Whole
    pods: Whole
    """Row of each pod of the others."""
    ends: Whole
    """Where each of these gangs ends in that."""

    def first(self, many: int) -> Whole:
        """With so many of the others."""
        found: Whole = self.base + np.bincount(
            self.pods[: self.ends[many - 1] if many else 0], minlength=len(self.base)
        )
        return found


def _held(crowd: Crowd, kinds: Sequence[Kind], names: frozenset[str]) -> Vector:
    """The crowd's size, or, where none of these kinds holds it, the least that somebody asks for of everything."""
    rooms = [kind.amounts for kind in kinds if kind.name in names]
    if crowd.members is None or any(all(map(le, crowd.size, room)) for room in rooms):
        return crowd.size
    return tuple(crowd.members[0].min(axis=0).tolist())


def _serves(reach: Reach, asked: _Asked, many: int) -> bool:
    return reach.serves(asked.first(many))
