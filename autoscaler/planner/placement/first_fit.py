"""Pods onto machines that are there: who goes where, so that few of their GPUs are stranded. No dollar is spent.

The biggest pods first, each where it adds least to the GPUs that pods which wait could not use any more, then where the
least is left over. Pods that are alike are placed in one go: only the machine that took the last one looks different to
the next. When the time for this is over, only what is left over counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from autoscaler.model.cluster import Pod
from autoscaler.planner.demand.pod_rules import FREE, Company, Neighbours, by_zone
from autoscaler.planner.supply.capacity import Amounts, Mask, Room
from autoscaler.solver.size_clusters import crowded

Floats = np.ndarray[Any, np.dtype[np.float64]]

_SPARED = 1000.0
_KINDS = 160
"""Different sizes of GPU pods that are told apart when stranded GPUs are counted."""
_TRIED = 64
"""Machines at most that are looked at closely for a pod that is alone of its size: those where least is left over."""
_SIDES = 4


class Filling:
    """Machines, how full they are, and who is on them."""

    def __init__(
        self, pods: Sequence[Pod], sorts: Sequence[int], room: Room, rules: Neighbours, *, in_time: Callable[[], bool]
    ) -> None:
        """``in_time``: whether there is time to look closely."""
        self.pods, self.sorts, self.room, self.rules, self.in_time = pods, sorts, room, rules, in_time
        self.free = room.free.copy()
        self._scale = np.maximum(room.free.max(axis=0, initial=1), 1)
        self._rest = (self.free[:, :3] / self._scale[:3]).sum(axis=1)
        self._companies: dict[int, Company] | None = None
        self._failed: dict[int, list[tuple[int, ...]]] = {}

    def place(self, numbers: Iterable[int]) -> dict[int, int]:
        """The machine of each pod that has a place on one."""
        order = self._ordered(numbers)
        stranded = Stranded(self.room.sizes, Counter(self.sorts[number] for number in order), self.free)
        at_home: dict[int, int] = {}
        for sort, run in groupby(order, key=self.sorts.__getitem__):
            if not by_zone(self.room.models[sort]):
                self._run(sort, list(run), stranded, at_home)
        return at_home

    def seat(self, at_home: Mapping[int, int]) -> None:
        """Those who have their machine already, by number; rules between pods are none of theirs."""
        for number, machine in at_home.items():
            self._take(machine, self.room.sizes[self.sorts[number]], None)

    def _ordered(self, numbers: Iterable[int]) -> list[int]:
        """Highest priority, most GPUs, largest share of a machine, those that ask for the same together."""
        chosen = np.array(list(numbers), dtype=np.int64)
        sort = np.array(self.sorts, dtype=np.int64)[chosen]
        sizes = self.room.sizes[sort]
        share = (sizes[:, :2] / self._scale[:2]).max(axis=1, initial=0.0)
        urgent = np.array([-self.pods[number].priority for number in chosen.tolist()], dtype=np.int64)
        kin = np.array(self.room.kin, dtype=np.int64)[sort]
        ranked: list[int] = chosen[np.lexsort((chosen, kin, -share, -sizes[:, 2], urgent))].tolist()
        return ranked

    def _run(self, sort: int, run: list[int], stranded: Stranded, at_home: dict[int, int]) -> None:
        """Pods of one sort, as many as find a place."""
        size, stance = self.room.sizes[sort], self.rules.stance(sort)
        candidates = self._candidates(sort, size)
        if stance != FREE and len(candidates):
            admit = [self._company(machine).admits(stance) for machine in candidates.tolist()]
            candidates = candidates[np.array(admit, dtype=bool)]
        if not len(candidates):
            return
        close = self.in_time()
        if len(run) == 1 and len(candidates) > _TRIED and close:
            candidates = np.sort(candidates[np.argpartition(self._rest[candidates], _TRIED)[:_TRIED]])
        score = self._rest[candidates].copy()
        if close:
            score += stranded.more(size, candidates) * _SPARED
        for number in run:
            best = int(np.argmin(score))
            if score[best] == np.inf:
                return
            machine = int(candidates[best])
            at_home[number] = machine
            self._take(machine, size, stranded if close else None)
            if stance != FREE:
                self._company(machine).join(stance)
            if (size > self.free[machine]).any() or (stance != FREE and not self._company(machine).admits(stance)):
                score[best] = np.inf
            else:
                more = stranded.more(size, candidates[best : best + 1])[0] * _SPARED if close else 0.0
                score[best] = self._rest[machine] + more

    def _candidates(self, sort: int, size: Amounts) -> Amounts:
        """Machines that hold such a pod and are what it selects; who asks for more than one that failed fails, too."""
        asked = tuple(size.tolist())
        failed = self._failed.setdefault(self.room.choice[sort], [])
        if any(is_within(less, asked) for less in failed):
            return np.zeros(0, dtype=np.int64)
        fits: Mask = self.room.suits(sort)[1]
        for side in range(_SIDES):
            fits = fits & (self.free[:, side] >= size[side])
        found: Amounts = np.nonzero(fits)[0]
        if not len(found):
            failed[:] = [*(more for more in failed if not is_within(asked, more)), asked]
        return found

    def _take(self, machine: int, size: Amounts, stranded: Stranded | None) -> None:
        self.free[machine] -= size
        self._rest[machine] = (self.free[machine, :3] / self._scale[:3]).sum()
        if stranded is not None:
            stranded.changed(machine)

    def _company(self, machine: int) -> Company:
        """Who is on the machine. Those who run there already count as seen by others; they mind nobody's number."""
        if self._companies is None:
            place = {node.name: number for number, node in enumerate(self.room.machines)}
            self._companies = {}
            for number, pod in enumerate(self.pods):
                if pod.node in place and not pod.is_finished:
                    there = self._companies.setdefault(place[pod.node], Company())
                    there.join(self.rules.stance(self.sorts[number]).as_bound())
        return self._companies.setdefault(machine, Company())


def is_within(less: tuple[int, ...], more: tuple[int, ...]) -> bool:
    """Whether the first asks for no more of anything."""
    return less[0] <= more[0] and less[1] <= more[1] and less[2] <= more[2] and less[3] <= more[3]


class Stranded:
    """Of each machine's free GPUs how many a pod could not use, on the average over those that wait for GPUs.

    Placing each pod where this grows least is the fragmentation gradient descent of Weng et al., "Beware of
    Fragmentation", USENIX ATC 2023, with whole GPUs.
    """

    def __init__(self, sizes: Amounts, many: Counter[int], free: Amounts) -> None:
        """``many``: how many pods of each sort wait. ``free``: kept up by the caller, who tells of each change."""
        self.free = free
        kinds: Counter[tuple[int, ...]] = Counter()
        for sort, count in many.items():
            if sizes[sort, 2] > 0:
                kinds[tuple(sizes[sort, :3].tolist())] += count
        self._kinds, counts = _gathered(kinds)
        self._shares = counts / max(1.0, float(counts.sum()))
        self._now = self._of(free)

    def more(self, size: Amounts, machines: Amounts) -> Floats:
        """How much is added where such a pod is placed, for each of these machines."""
        return self._of(self.free[machines] - size) - self._now[machines]

    def changed(self, machine: int) -> None:
        """A pod was placed there."""
        self._now[machine] = self._of(self.free[machine : machine + 1])[0]

    def _of(self, free: Amounts) -> Floats:
        found = np.zeros(len(free))
        some = np.nonzero(free[:, 2] > 0)[0]
        if not len(some) or not len(self._kinds):
            return found
        fits = np.ones((len(some), len(self._kinds)), dtype=bool)
        for side in range(3):
            fits &= free[some, side, None] >= self._kinds[None, :, side]
        found[some] = free[some, 2] * (~fits @ self._shares)
        return found


def _gathered(kinds: Counter[tuple[int, ...]]) -> tuple[Amounts, Floats]:
    """Sizes and how many pods have them; where they are too many, the middle of those of about the same size."""
    sizes = np.array(list(kinds), dtype=np.int64).reshape(-1, 3)
    counts = np.array(list(kinds.values()), dtype=np.int64)
    if len(sizes) > _KINDS:
        groups = crowded(sizes, counts, sizes[:, 2:], many=_KINDS)
        sizes = np.array([np.average(sizes[group], axis=0, weights=counts[group]) for group in groups]).astype(np.int64)
        counts = np.array([counts[group].sum() for group in groups])
    return sizes, counts.astype(float)
