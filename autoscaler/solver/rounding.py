"""From fractions of nodes to whole ones: the third step of :mod:`autoscaler.solver.solve`.

A filling's place for a pod may be taken by a smaller pod (the master's swaps count on it), and what is left free by
any pod that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.solver.column_generation import Generation
from autoscaler.solver.deadline import UNITS, Watch
from autoscaler.solver.lp.arrays import Floats, Mask, Whole, dot, highest
from autoscaler.solver.lp.capacity import Stock

_DIVE_UNTIL, _LOOK_UNTIL, _IMPROVE_UNTIL = 0.97, 0.93, 0.97
"""Parts of the time after which no such step is begun."""
_DIVE_UNTIL_SHORT = 0.94
"""Where something is scarce: what is left then takes longer to place."""
_HARDLY_ANY = 0.05
"""Part of the pods."""
_EXACT_UNTIL = 0.9
_FEW_PODS, _FEW_FILLINGS = 200, 1500
"""Where all whole numbers of the fillings known are searched, with a limit on the steps rather than on the time."""
_AS_LONG = 0.7
"""A turn of improving takes about such a part of what the plan took."""
_NEARLY = 0.5
_LOSSES = 8
_PAYING = 400
_KEPT_BACK = (0.01, 0.03, 0.08)
"""Parts of what is scarce."""
_EXCHANGED = 40
"""Pods at most that nodes are exchanged for."""
_EPSILON = 1e-6


@dataclass(slots=True, eq=False)
class Lot:
    """Some nodes of one kind that hold the same."""

    kind: int
    pods: Whole
    times: int = 1


Lots = list[Lot]


class Rounding:
    """Whole plans from a generation's fillings."""

    def __init__(self, generation: Generation, watch: Watch, *, counts: Whole, stock: Stock) -> None:
        """Rounds for so many pods of each shape, with the nodes that are to be had."""
        self.generation, self.watch = generation, watch
        self.counts, self.stock = counts, stock
        self.problem, self.master = generation.problem, generation.master
        self.columns, self.search = generation.columns, generation.search
        order = np.argsort(-generation.prices, kind="stable")
        smaller = generation.columns.smaller
        self.stand_ins = [order[smaller[row][order]] for row in range(len(order))]
        """Of each shape the smaller ones, the most valuable first."""
        self._broken_off = False
        """Whether the last dive left more than a few of the pods to greed."""

    def best(self, *, rounds: int) -> Lots:
        """All pods in whole nodes, improved until the time is over; no pod is left that an unused node holds."""
        return self.completed(self._found(rounds) if rounds else self._at_once())

    def completed(self, plan: Lots) -> Lots:
        """Adds nodes for those that are left, as far as any are to be had: what was shrunk may have freed some."""
        while (left := self.counts - self._placed(plan)).any():
            more = self._filled(left, _without(self.stock, plan))
            if not more:
                return self._exchanged(plan, left)
            plan = self._shrunk(plan + more, self.stock)
        return plan

    def _exchanged(self, plan: Lots, left: Whole) -> Lots:
        """Where no more nodes are to be had: what is left gets on, if a node is exchanged for a larger one."""
        problem, plan = self.problem, list(plan)
        stock = _without(self.stock, plan)
        for row in np.repeat(np.arange(len(left)), left).tolist() if left.sum() <= _EXCHANGED else ():
            kinds = np.array([lot.kind for lot in plan], dtype=np.int64)
            pods = np.array([lot.pods for lot in plan], dtype=np.int64).reshape(len(plan), len(left))
            pods[:, row] += 1
            fits = problem.holders(pods) & self._instead(kinds, stock)
            dearer = np.where(fits, problem.usd[None] - problem.usd[kinds, None], np.inf)
            one, kind = divmod(int(np.argmin(dearer)), dearer.shape[1]) if dearer.size else (0, 0)
            if not dearer.size or dearer[one, kind] == np.inf:
                continue
            lot = plan[one]
            plan[one] = Lot(lot.kind, lot.pods, lot.times - 1)
            plan.append(Lot(kind, pods[one]))
            stock.take(lot.kind, -1)
            stock.take(kind, 1)
            plan = [one for one in plan if one.times]
        return plan

    def _instead(self, kinds: Whole, stock: Stock) -> Mask:
        """[lot, kind]: whether one node of a lot may be given back for one of that kind."""
        rows: dict[int, Mask] = {}
        for kind in set(kinds.tolist()):
            stock.take(kind, -1)
            rows[kind] = stock.left >= 1
            stock.take(kind, 1)
        return np.array([rows[kind] for kind in kinds.tolist()], dtype=bool).reshape(len(kinds), len(stock.own))

    def _at_once(self) -> Lots:
        """Returns a plan without a search. Greed wastes what is in short supply: there the master decides."""
        if self.master.is_short:
            return self._dive(self.counts, self.stock)
        return self._shrunk(self._filled(self.counts, self.stock), self.stock)

    def _found(self, rounds: int) -> Lots:
        began = self.watch.spent()
        plan = self._served()
        step = _AS_LONG * (self.watch.spent() - began)
        if self._broken_off:
            plan = min(plan, self._shrunk(self._filled(self.counts, self.stock), self.stock), key=self._rank)
        packed = self._packed()
        if packed:
            plan = min(plan, packed, key=self._rank)
        plan = self._improved(plan, rounds=rounds, step=step)
        if self.counts.sum() <= _FEW_PODS and self.columns.many <= _FEW_FILLINGS and self.watch.spent() < _EXACT_UNTIL:
            plan = min(plan, self._shrunk(self._exact(), self.stock), key=self._rank)
        return plan

    def _packed(self) -> Lots:
        """The plan that the search for fillings began with, if there was one."""
        if (self.counts != self.problem.counts).any():
            return []
        return [Lot(kind, pods) for kind, pods in self.generation.packed]

    def _served(self) -> Lots:
        """All pods, where limits allow it: else again with some of what is scarce kept back for those that are left."""
        plan = self.completed(self._dive(self.counts, self.stock))
        for part in _KEPT_BACK if self.master.is_short else ():
            if self._rank(plan)[0] == 0 or self.watch.spent() > _LOOK_UNTIL:
                break
            plan = min(plan, self.completed(self._dive(self.counts, self.stock.less(part))), key=self._rank)
        return plan

    def _rank(self, plan: Lots) -> tuple[int, float]:
        """Fewest pods without a node, then least dollars."""
        return int(self.counts.sum() - self._placed(plan).sum()), self._cost(plan)

    def _cost(self, plan: Sequence[Lot]) -> float:
        return float(sum(self.problem.usd[lot.kind] * lot.times for lot in plan))

    def _placed(self, plan: Sequence[Lot]) -> Whole:
        total = np.zeros(len(self.counts), dtype=np.int64)
        for lot in plan:
            total += lot.pods * lot.times
        return total

    def _exact(self) -> Lots:
        """The cheapest whole numbers of the fillings known, by branch and bound; for few pods only."""

        def goes_on() -> bool:
            self.search.count(UNITS.whole)
            return self.watch.spent() < _DIVE_UNTIL

        values = self.master.whole(in_time=goes_on)
        counts, stock, plan = self.counts.copy(), self.stock.copy(), Lots()
        for column in np.nonzero(values)[0].tolist():
            kind, pods = int(self.columns.kinds[column]), self.columns.fillings[column]
            self._take(Lot(kind, pods, int(values[column])), counts, stock, plan)
        self._top_up(plan, counts)
        return plan + self._filled(counts, stock)

    def _dive(self, counts: Whole, stock: Stock) -> Lots:
        """Round the master down, then again for what is left; round up where nothing is whole any more."""
        given, counts, stock, plan = stock, counts.copy(), stock.copy(), Lots()
        total, step = int(counts.sum()), 0
        until = _DIVE_UNTIL_SHORT if self.master.is_short else _DIVE_UNTIL
        while counts.any() and self.watch.spent() < until:
            self.master.demand(counts, stock)
            duals, values = self._solved()
            if self.master.is_short and self.master.lacks() and self.watch.spent() < _LOOK_UNTIL:
                # What is left of that which is scarce needs fillings of its own.
                self.search.look_within(duals, counts, kinds=len(self.problem.usd))
                duals, values = self._solved()
            whole = np.floor(values + _EPSILON).astype(int)
            before = int(counts.sum())
            columns = np.nonzero(whole)[0].tolist()
            for column in columns:
                pods = self.columns.fillings[column]
                asked = pods > 0
                exact = min(int(whole[column]), int((counts[asked] // pods[asked]).min()))
                self._take(Lot(int(self.columns.kinds[column]), pods, exact), counts, stock, plan)
            for column in columns if int(counts.sum()) == before else ():
                filling = Lot(int(self.columns.kinds[column]), self.columns.fillings[column], int(whole[column]))
                self._take(filling, counts, stock, plan)
            if int(counts.sum()) == before:
                self._round_up(values, duals, counts, stock, plan)
            if int(counts.sum()) == before:
                break
            step += 1
            if counts.any() and step % 3 == 1 and self.watch.spent() < _LOOK_UNTIL:
                self.search.look_again(duals, counts, kinds=3)
        self.master.demand(self.counts, self.stock)
        self._top_up(plan, counts)
        self._broken_off = int(counts.sum()) > _HARDLY_ANY * total
        return self._shrunk(plan + self._filled(counts, stock), given)

    def _solved(self) -> tuple[Floats, Floats]:
        """Prices, and how often each filling is used by pods of its own shapes."""
        self.search.count(UNITS.master)
        return self.master.solve(), self.generation.without_swaps()

    def _take(self, filling: Lot, counts: Whole, stock: Stock, plan: Lots) -> None:
        """Buy a filling so many times; smaller pods take the places for which none of the right shape are left."""
        kind, pods = filling.kind, filling.pods
        times = int(min(filling.times, stock.left_of(kind)))
        while times > 0:
            held = self._held(pods, counts)
            asked = held > 0
            if not asked.any():
                return
            many = min(times, int((counts[asked] // held[asked]).min()))
            counts -= held * many
            stock.take(kind, many)
            plan.append(Lot(kind, held, many))
            times -= many

    def _held(self, pods: Whole, counts: Whole) -> Whole:
        held = np.minimum(pods, counts)
        for row in np.nonzero(pods > held)[0].tolist():
            lacking = int(pods[row] - held[row])
            stand_ins = self.stand_ins[row]
            for other in stand_ins[counts[stand_ins] > held[stand_ins]].tolist():
                some = min(lacking, int(counts[other] - held[other]))
                held[other] += some
                lacking -= some
                if not lacking:
                    break
        return held

    def _round_up(self, values: Floats, duals: Floats, counts: Whole, stock: Stock, plan: Lots) -> None:
        order = np.argsort(-values, kind="stable")
        many = max(1, int((values > _EPSILON).sum()) // 5)
        for position, column in enumerate(order[:many].tolist()):
            kind, pods = int(self.columns.kinds[column]), self.columns.fillings[column]
            if values[column] <= _EPSILON or stock.left_of(kind) < 1:
                continue
            worth = float(dot(self._held(pods, counts), duals))
            if position == 0 or (
                values[column] > _NEARLY and worth > 0.98 * (self.problem.usd[kind] + self.master.shortage[kind])
            ):
                self._take(Lot(kind, pods), counts, stock, plan)

    def _top_up(self, plan: Lots, counts: Whole) -> None:
        """Put the few pods that are left into free room of nodes that are bought anyway."""
        for lot in plan if counts.any() else ():
            if lot.times > 1:
                continue
            free = self.problem.rooms[lot.kind] - dot(lot.pods, self.problem.sizes)
            fits = (counts > 0) & self.problem.holds[:, lot.kind] & (self.problem.sizes <= free).all(axis=1)
            while fits.any():
                row = int(np.argmax(np.where(fits, self.generation.prices, -1.0)))
                lot.pods[row] += 1
                counts[row] -= 1
                free = free - self.problem.sizes[row]
                fits &= (counts > 0) & (self.problem.sizes <= free).all(axis=1)

    def _filled(self, counts: Whole, stock: Stock) -> Lots:
        """Buys repeatedly the known filling that places most value for its price; no pod is left that a node holds."""
        counts, stock, plan = counts.copy(), stock.copy(), Lots()
        values = np.maximum(self.generation.prices, _EPSILON)
        chosen = self._paying(values)
        kinds, patterns = self.columns.kinds[chosen], self.columns.fillings[chosen]
        usd = self.columns.usd[kinds] + self.generation.shortage[kinds]
        while counts.any():
            held = np.minimum(patterns, counts)
            scores = np.where(stock.left[kinds] >= 1, dot(held, values) / usd, 0.0)
            best = int(np.argmax(scores))
            if scores[best] <= 0:
                break
            asked = held[best] > 0
            times = int(min((counts[asked] // held[best][asked]).min(), stock.left[kinds[best]]))
            self._take(Lot(int(kinds[best]), held[best], times), counts, stock, plan)
        for row in np.nonzero(counts)[0].tolist():
            while counts[row] and (among := self.problem.holds[row] & (stock.left >= 1)).any():
                kind, pods = self.columns.uniform(row, among)
                self._take(Lot(kind, pods), counts, stock, plan)
        return plan

    def _paying(self, values: Floats) -> Whole:
        """The fillings worth most for their price, and those that the search began with, which come first."""
        columns = self.columns
        worth = dot(columns.fillings, values) / columns.usd[columns.kinds]
        worth[: columns.initial] = np.inf
        return np.sort(highest(worth, _PAYING + columns.initial))

    def _shrunk(self, plan: Lots, stock: Stock) -> Lots:
        """Each node's pods on the cheapest kind in stock that holds them; empty nodes are not bought."""
        usd, stock = self.problem.usd, _without(stock, plan)
        for lot in plan:
            if not lot.pods.any():
                stock.take(lot.kind, -lot.times)
        lots = [lot for lot in plan if lot.pods.any()]
        pods = np.array([lot.pods for lot in lots], dtype=np.int64).reshape(len(lots), len(self.counts))
        shrunk = []
        for lot, holders in zip(lots, self.problem.holders(pods), strict=True):
            stock.take(lot.kind, -lot.times)
            cheaper = np.nonzero(holders & (usd < usd[lot.kind]))[0]
            in_turn = cheaper[np.argsort(usd[cheaper], kind="stable")].tolist()
            kind = next((one for one in in_turn if stock.left_of(one) >= lot.times), lot.kind)
            stock.take(kind, lot.times)
            shrunk.append(Lot(kind, lot.pods, lot.times))
        return shrunk

    def _improved(self, plan: Lots, *, rounds: int, step: float) -> Lots:
        """Tear down the nodes that are worth least for their price, pack their pods anew, keep what is cheaper.

        ``step``: what a turn may take of the time, as far as can be told before the first one.
        """
        usd, prices = self.problem.usd + self.generation.shortage, self.generation.prices
        plan = [Lot(lot.kind, lot.pods, 1) for lot in plan for _ in range(lot.times)]
        losses, floor = 0, self.generation.bound(self._placed(plan))
        longest, spent = step, self.watch.spent()
        for turn in range(rounds):
            if spent + longest > _IMPROVE_UNTIL or losses > _LOSSES or self._cost(plan) <= floor + _EPSILON:
                break
            loss = [usd[lot.kind] - float(dot(lot.pods, prices)) for lot in plan]
            order = sorted(range(len(plan)), key=lambda one: (-loss[one], one))
            many = min(len(plan), 40 + 20 * (turn % 4))
            torn = set(order[:many]) | {(one * 7919 + turn * 104729) % len(plan) for one in range(many // 2)}
            kept = [lot for number, lot in enumerate(plan) if number not in torn]
            old = [plan[number] for number in sorted(torn)]
            new = self._dive(self._placed(old), _without(self.stock, kept))
            losses += 1
            if self._placed(new).sum() == self._placed(old).sum() and self._cost(new) < self._cost(old) - _EPSILON:
                plan, losses = kept + [Lot(lot.kind, lot.pods, 1) for lot in new for _ in range(lot.times)], 0
            longest, spent = max(longest, self.watch.spent() - spent), self.watch.spent()
        return plan


def _without(stock: Stock, plan: Lots) -> Stock:
    left = stock.copy()
    for lot in plan:
        left.take(lot.kind, lot.times)
    return left
