"""The cheapest set of nodes for many pods over many kinds of node, with a proof: column generation.

Pods that ask for the same are one *shape*; a *filling* says how many pods of each shape a node of a kind holds. Which
fillings to buy, and how often, is a cutting-stock problem: a linear program with one row for each shape and one column
for each filling, most of which are never written down.

1. **Relaxation.** Forget that pods are whole: those of a shape are spread over kinds of node in any fractions. This
   small linear program gives a price of every pod (its dual values) that is nearly right, and the first lower bound.
2. **Columns.** At those prices search fillings that are worth more than their node costs (:mod:`knapsack`), add them to
   the linear program over the fillings known (the master), take new prices from it, and again. Prices are kept near
   the best known ones (a box around them, and a mean of both), or they would jump and most columns would be useless.
3. **Whole nodes.** Round the master down, solve for the pods left over, round up what is nearly whole, and so on.
4. **Improve** until the deadline: put each node's pods on the cheapest kind that holds them; tear down the nodes that
   pay least for their price, pack their pods anew, keep what is cheaper.

**The bound** holds whatever the search missed. Let ``d`` be any non-negative prices of pods and ``u(t)`` a number that
no filling of kind ``t`` exceeds in value (:func:`knapsack.ceiling_weights` proves it). Every plan that places all
``n(s)`` pods has ``sum d(s) n(s) <= sum over its nodes of u(kind)``. With ``k`` the largest ``u(t) / usd(t)`` over the
kinds of which any number can be had, that is at most ``k * cost`` plus, for kinds in short supply,
``available(t) * max(0, u(t) - k * usd(t))``. Solved for the cost this is Farley's bound.

No clock and no I/O: time is what the caller's ``clock`` says. Without a deadline that bites, the same input gives the
same plan; a deadline cuts the same sequence of work shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import highspy
import numpy as np

from autoscaler.knapsack import DIMENSIONS, Floats, Mask, Whole, ceiling_weights, fillings, highest, quiet_solver

Vector = tuple[int, int, int, int]
"""cpu (milli), memory, GPUs, pods."""

_BOX, _TRUST, _DRIFT = 0.05, 0.8, 0.1
_EFFORTS = ((2, 150, 100), (5, 300, 200))
"""(kinds looked at, width of the beam, fillings kept): in the first rounds, and in the others."""
_FIRST_ROUNDS = 16
_FEW = 4
_IMPROVE_UNTIL, _PRICE_UNTIL, _DIVE_UNTIL = 0.85, 0.9, 0.95
"""Parts of the time after which no such step is begun."""
_NEARLY = 0.5
_LOSSES = 6
_PAYING = 400
_EPSILON = 1e-6
_NEVER = 1e6
"""Dollars per hour for leaving a pod without a node, where that is the only way: more than any node costs."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Pods that are alike."""

    amounts: Vector
    count: int
    kinds: frozenset[str] | None = None
    """Names of the kinds of node that it may run on; ``None``: any that holds it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of node that can be had."""

    name: str
    amounts: Vector
    usd: float
    available: int | None = None
    """``None``: as many as one likes."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Some nodes of one kind that hold the same."""

    kind: str
    times: int
    pods: tuple[tuple[int, int], ...]
    """(number of the shape, how many of it on each node)"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The best plan found and what no plan for the pods that it places can undercut."""

    nodes: tuple[Nodes, ...]
    usd: float
    lower_bound: float
    left: tuple[int, ...]
    """Pods of each shape for which there is no node."""

    @property
    def gap(self) -> float:
        """How much dearer than the bound, as a fraction of the bound."""
        return self.usd / self.lower_bound - 1 if self.lower_bound > 0 else 0.0


def cheapest(
    shapes: Sequence[Shape],
    kinds: Sequence[Kind],
    *,
    deadline: float = 1.0,
    clock: Callable[[], float] = lambda: 0.0,
    rounds: int = 400,
) -> Answer:
    """The cheapest nodes found for all pods until ``clock`` has gone on by ``deadline``, or after ``rounds``."""
    watch = _Watch(clock=clock, start=clock(), deadline=deadline)
    market = _Market.of(shapes, kinds)
    if not market.counts.any():
        return Answer((), 0.0, 0.0, tuple(shape.count for shape in shapes))
    search = _Search(market, watch)
    search.relax()
    best = search.fill(market.counts, market.available)
    search.generate(rounds=rounds, until=0.78)
    best = min(best, search.dive(market.counts, market.available), key=market.rank)
    best = search.improve(best, rounds=rounds)
    return market.answer(best, search, shapes)


def lower_bound(shapes: Sequence[Shape], kinds: Sequence[Kind]) -> float:
    """What no plan for all pods can undercut; from the relaxation alone."""
    market = _Market.of(shapes, kinds)
    if not market.counts.any():
        return 0.0
    search = _Search(market, _Watch(clock=lambda: 0.0, start=0.0, deadline=1.0))
    search.prices, search.weights = _relaxation(market)
    search._prove(search.prices)  # noqa: SLF001 - its own kind
    return max(0.0, search.bound(market.counts))


@dataclass(frozen=True, slots=True)
class _Watch:
    clock: Callable[[], float]
    start: float
    deadline: float

    def spent(self) -> float:
        """Which part of the time is over."""
        return (self.clock() - self.start) / self.deadline if self.deadline > 0 else 1.0


@dataclass(slots=True, eq=False)
class _Node:
    kind: int
    pods: Whole
    times: int = 1


_Plan = list[_Node]


@dataclass(frozen=True, slots=True, eq=False)
class _Market:
    """The problem in arrays: shapes that ask for something that some kind holds, kinds that no other makes needless."""

    sizes: Floats
    counts: Whole
    rooms: Floats
    usd: Floats
    available: Floats
    holds: Mask
    """[shape, kind]"""
    names: tuple[str, ...]
    shape_of: tuple[tuple[int, ...], ...]
    """For each row the numbers of the caller's shapes that it stands for."""

    @classmethod
    def of(cls, shapes: Sequence[Shape], kinds: Sequence[Kind]) -> _Market:
        """Join equal shapes, drop kinds that a cheaper one makes needless."""
        rows: dict[tuple[Vector, frozenset[str] | None], list[int]] = {}
        for number, shape in enumerate(shapes):
            rows.setdefault((shape.amounts, shape.kinds), []).append(number)
        keys = sorted(rows, key=lambda key: key[0])
        sizes = np.array([amounts for amounts, _ in keys], dtype=float).reshape(-1, DIMENSIONS)
        rooms = np.array([kind.amounts for kind in kinds], dtype=float).reshape(-1, DIMENSIONS)
        holds = (sizes[:, None, :] <= rooms[None, :, :]).all(axis=2)
        holds &= np.array([kind.available != 0 for kind in kinds], dtype=bool)
        for row, (_, allowed) in enumerate(keys):
            if allowed is not None:
                holds[row] &= np.array([kind.name in allowed for kind in kinds], dtype=bool)
        counts = np.array([sum(shapes[one].count for one in rows[key]) for key in keys], dtype=np.int64)
        kept_rows = np.nonzero(holds.any(axis=1) & (counts > 0))[0]
        kept = _undominated(kinds, rooms, holds[kept_rows])
        return cls(
            sizes=sizes[kept_rows],
            counts=counts[kept_rows],
            rooms=rooms[kept],
            usd=np.array([kinds[one].usd for one in kept], dtype=float),
            available=np.array([_or_endless(kinds[one].available) for one in kept], dtype=float),
            holds=holds[np.ix_(kept_rows, np.array(kept, dtype=np.int64))],
            names=tuple(kinds[one].name for one in kept),
            shape_of=tuple(tuple(rows[keys[row]]) for row in kept_rows),
        )

    def cost(self, plan: _Plan) -> float:
        """Dollars per hour."""
        return float(sum(self.usd[node.kind] * node.times for node in plan))

    def placed(self, plan: _Plan) -> Whole:
        """Pods of each shape that have a node."""
        total = np.zeros(len(self.counts), dtype=np.int64)
        for node in plan:
            total += node.pods * node.times
        return total

    def rank(self, plan: _Plan) -> tuple[int, float]:
        """Fewest pods without a node, then least dollars."""
        return int(self.counts.sum() - self.placed(plan).sum()), self.cost(plan)

    def answer(self, plan: _Plan, search: _Search, shapes: Sequence[Shape]) -> Answer:
        """In the caller's words."""
        waiting = [shape.count for shape in shapes]
        nodes: list[Nodes] = []
        for node in sorted(plan, key=lambda one: (self.names[one.kind], one.pods.tobytes())):
            nodes += [Nodes(self.names[node.kind], 1, self._take(node.pods, waiting)) for _ in range(node.times)]
        usd = round(self.cost(plan), 6)
        bound = max(0.0, min(usd, search.bound(self.placed(plan))))
        return Answer(_joined(nodes), usd, bound, tuple(waiting))

    def _take(self, pods: Whole, waiting: list[int]) -> tuple[tuple[int, int], ...]:
        held: list[tuple[int, int]] = []
        for row in np.nonzero(pods)[0]:
            wanted = int(pods[row])
            for number in self.shape_of[row]:
                some = min(wanted, waiting[number])
                if some:
                    held.append((number, some))
                    waiting[number] -= some
                    wanted -= some
        return tuple(sorted(held))


def _or_endless(available: int | None) -> float:
    return float("inf") if available is None else float(available)


def _undominated(kinds: Sequence[Kind], rooms: Floats, holds: Mask) -> list[int]:
    """Kinds such that no other of which there is no end holds as much, for every shape, for no more money."""
    kept: list[int] = []
    better = np.zeros((0, DIMENSIONS))
    shown = np.zeros((0, len(holds)), dtype=bool)
    for one in sorted(range(len(kinds)), key=lambda one: (kinds[one].usd, tuple(-rooms[one]), kinds[one].name)):
        if kinds[one].available == 0 or not holds[:, one].any():
            continue
        roomier = (better >= rooms[one]).all(axis=1)
        if roomier.any() and (shown[roomier] >= holds[:, one]).all(axis=1).any():
            continue
        kept.append(one)
        if kinds[one].available is None:
            better = np.vstack([better, rooms[one]])
            shown = np.vstack([shown, holds[:, one]])
    return kept


def _joined(nodes: Sequence[Nodes]) -> tuple[Nodes, ...]:
    joined: list[Nodes] = []
    for node in nodes:
        if joined and (joined[-1].kind, joined[-1].pods) == (node.kind, node.pods):
            joined[-1] = Nodes(node.kind, joined[-1].times + 1, node.pods)
        else:
            joined.append(node)
    return tuple(joined)


@dataclass(slots=True, eq=False)
class _Search:
    """Column generation and rounding, with what they have learnt so far."""

    market: _Market
    watch: _Watch
    columns: list[tuple[int, Whole]] = field(default_factory=list)
    prices: Floats = field(default_factory=lambda: np.zeros(0))
    """The best known value of one pod of each shape."""
    proofs: list[tuple[Floats, Floats]] = field(default_factory=list)
    """(prices, no filling of each kind is worth more)"""
    weights: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    master: _Master | None = None
    seen: set[tuple[int, bytes]] = field(default_factory=set)

    def relax(self) -> None:
        """Prices and a bound from the fractional problem; one simple filling for each shape."""
        market = self.market
        self.prices, self.weights = _relaxation(market)
        self._prove(self.prices)
        self.master = _Master(market)
        for row in range(len(market.counts)):
            self._add(*self._uniform(row))
        self._price(self.prices, market.counts, many=len(market.usd), floor=0.97)

    def bound(self, counts: Whole) -> float:
        """What no plan for so many pods of each shape can undercut."""
        return max((self._farley(prices, ceilings, counts) for prices, ceilings in self.proofs), default=0.0)

    def _farley(self, prices: Floats, ceilings: Floats, counts: Whole) -> float:
        market = self.market
        endless = np.isinf(market.available)
        priced = endless & (market.usd > 0)
        stretch = float((ceilings[priced] / market.usd[priced]).max()) if priced.any() else 1.0
        stretch = stretch if stretch > 0 else 1.0
        short = market.available[~endless] * np.maximum(0.0, ceilings[~endless] - stretch * market.usd[~endless])
        if (endless & (market.usd <= 0) & (ceilings > 0)).any():
            return 0.0
        return (float(prices @ counts) - float(short.sum())) / stretch * (1 - 1e-9)

    def _prove(self, prices: Floats) -> None:
        """Keep what these prices prove: each kind's weights, stretched until no shape is worth more than it weighs."""
        taken = self.market.sizes @ self.weights.T
        worth = np.where(self.market.holds & (prices[:, None] > 0), prices[:, None], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch = np.where(worth > 0, worth / taken, 0.0).max(axis=0)
        for kind in np.nonzero(~np.isfinite(stretch))[0]:
            self._weigh(int(kind), prices)
            stretch[kind] = 1.0
        self.proofs.append((prices.copy(), stretch * (self.weights * self.market.rooms).sum(axis=1)))

    def _weigh(self, kind: int, prices: Floats) -> float:
        """The kind's weights at these prices; its fillings are worth no more than what is returned."""
        held = self.market.holds[:, kind]
        room = self.market.rooms[kind]
        self.weights[kind] = ceiling_weights(prices[held], self.market.sizes[held], room)
        return float(self.weights[kind] @ room)

    def _uniform(self, row: int) -> tuple[int, Whole]:
        """Pods of one shape only, where they are cheapest."""
        market, size = self.market, self.market.sizes[row]
        asked = size > 0
        fits = np.floor(market.rooms[:, asked] / size[asked]).min(axis=1)
        fits = np.where(market.holds[row], np.minimum(fits, market.counts[row]), 0)
        kind = int(np.argmin(np.where(fits > 0, (market.usd + _EPSILON) / np.maximum(fits, 1), np.inf)))
        pods = np.zeros(len(market.counts), dtype=np.int64)
        pods[row] = int(fits[kind])
        return kind, pods

    def _add(self, kind: int, pods: Whole) -> bool:
        key = (kind, pods.tobytes())
        if key in self.seen or self.master is None:
            return False
        self.seen.add(key)
        self.columns.append((kind, pods))
        self.master.add(float(self.market.usd[kind]), kind, pods)
        return True

    def _price(
        self,
        prices: Floats,
        limits: Whole,
        *,
        many: int,
        floor: float = 0.985,
        width: int = 150,
        take: int = 100,
    ) -> int:
        """Add fillings that these prices make worth their node; of the most promising kinds only."""
        market = self.market
        taken = market.sizes @ self.weights.T
        worth = np.where(market.holds & (limits > 0)[:, None], prices[:, None], 0.0)
        stretch = np.where(worth > 0, worth / np.maximum(taken, 1e-12), 0.0).max(axis=0)
        usd = np.maximum(self._charged(), _EPSILON)
        hope = stretch * (self.weights * market.rooms).sum(axis=1) / usd
        likely = [int(kind) for kind in np.argsort(-hope, kind="stable")[: 3 * many] if hope[kind] >= floor]
        sharp = sorted(((self._weigh(kind, prices) / usd[kind], -kind) for kind in likely), reverse=True)[:many]
        added = 0
        for ratio, negative in sharp:
            kind = -negative
            if ratio < min(1.0, floor + 0.01):
                continue
            held = market.holds[:, kind]
            found = fillings(
                np.where(held, prices, 0.0), market.sizes, market.rooms[kind], limits, width=width, take=take
            )
            added += sum(self._add(kind, pods) for value, pods in found if value > usd[kind] * floor)
        return added

    def _charged(self) -> Floats:
        """Price of a node of each kind, with what the shortage of the kind adds."""
        return self.market.usd + (self.master.shortage if self.master is not None else 0.0)

    def generate(self, *, rounds: int, until: float) -> None:
        """Columns, until nothing is found or the time for it is over; the box around the prices opens by and by."""
        if self.master is None:
            return
        box, trust, centre, dull = _BOX, _TRUST, self.prices, 0
        self.master.box(centre, box)
        for turn in range(rounds):
            if self.watch.spent() > until:
                break
            duals = self.master.solve()
            centre = (1 - _DRIFT) * centre + _DRIFT * duals
            prices = trust * centre + (1 - trust) * duals
            many, width, take = _EFFORTS[turn >= _FIRST_ROUNDS]
            added = self._price(prices, self.market.counts, many=many, width=width, take=take)
            dull = 0 if added > _FEW else dull + 1
            if dull > 1:
                if not added and trust <= 0 and box >= 1:
                    break
                box, trust, dull = box * 1.5, max(0.0, trust - 0.3), 0
            self.master.box(centre, box)
        self.master.unbox()
        self.prices = self.master.solve()

    def fill(self, counts: Whole, available: Floats) -> _Plan:
        """First answer: again and again the known filling that places most value for its price."""
        counts, available, plan = counts.copy(), available.copy(), []
        values = np.maximum(self.prices, _EPSILON)
        kinds, patterns = self._paying(values)
        usd = np.maximum(self.market.usd[kinds], _EPSILON)
        while counts.any():
            scores = np.where(available[kinds] >= 1, np.minimum(patterns, counts) @ values / usd, 0.0)
            best = int(np.argmax(scores))
            if scores[best] <= 0:
                break
            plan.append(_taken(int(kinds[best]), patterns[best].astype(np.int64), counts, available))
        return plan

    def _paying(self, values: Floats) -> tuple[Whole, Floats]:
        """The fillings worth most for their price, and the simple ones, which come first."""
        kinds = np.array([kind for kind, _ in self.columns])
        patterns = np.array([pods for _, pods in self.columns], dtype=float)
        worth = patterns @ values / np.maximum(self.market.usd[kinds], _EPSILON)
        worth[: len(self.market.counts)] = np.inf
        chosen = np.sort(highest(worth, _PAYING + len(self.market.counts)))
        return kinds[chosen], patterns[chosen]

    def dive(self, counts: Whole, available: Floats) -> _Plan:
        """Round the master down, then again for what is left; round up where nothing is whole any more."""
        if self.master is None:
            return []
        counts, available, plan = counts.copy(), available.copy(), []
        step = 0
        while counts.any() and self.watch.spent() < _DIVE_UNTIL:
            self.master.demand(counts, available)
            duals = self.master.solve()
            values = self.master.values()
            whole = np.floor(values + _EPSILON).astype(int)
            before = int(counts.sum())
            for column in np.nonzero(whole)[0]:
                kind, pods = self.columns[column]
                full = int(min(whole[column], (counts[pods > 0] // pods[pods > 0]).min()))
                shares = [full] * (full > 0) + [1] * int(whole[column] > full)
                plan += [_taken(kind, pods, counts, available, times=times) for times in shares]
            if int(counts.sum()) == before:
                self._round_up(values, duals, counts, available, plan)
            if int(counts.sum()) == before:
                break
            step += 1
            if counts.any() and step % 4 == 1 and self.watch.spent() < _PRICE_UNTIL:
                self._price(duals, counts, many=3, width=100, take=20)
        self.master.demand(self.market.counts, self.market.available)
        return self.shrink(plan + self.fill(counts, available))

    def _round_up(self, values: Floats, duals: Floats, counts: Whole, available: Floats, plan: _Plan) -> None:
        order = np.argsort(-values, kind="stable")
        many = max(1, int((values > _EPSILON).sum()) // 5)
        for position, column in enumerate(order[:many]):
            kind, pods = self.columns[column]
            if values[column] <= _EPSILON or available[kind] < 1:
                continue
            worth = float(np.minimum(pods, counts) @ duals)
            if position == 0 or (values[column] > _NEARLY and worth > 0.98 * self.market.usd[kind]):
                plan.append(_taken(kind, pods, counts, available, times=1))

    def shrink(self, plan: _Plan) -> _Plan:
        """Each node's pods on the cheapest kind that holds them; empty nodes are not bought."""
        market = self.market
        available = market.available.copy()
        for node in plan:
            available[node.kind] -= node.times
        shrunk = []
        for node in plan:
            if not node.pods.any():
                available[node.kind] += node.times
                continue
            used = node.pods @ market.sizes
            holds = market.holds[node.pods > 0].all(axis=0) & (market.rooms >= used).all(axis=1)
            cheaper = holds & (market.usd < market.usd[node.kind]) & (available >= node.times)
            kind = int(np.argmin(np.where(cheaper, market.usd, np.inf))) if cheaper.any() else node.kind
            available[node.kind] += node.times
            available[kind] -= node.times
            shrunk.append(_Node(kind, node.pods, node.times))
        return shrunk

    def improve(self, plan: _Plan, *, rounds: int) -> _Plan:
        """Tear down the nodes that are worth least for their price, pack their pods anew, keep what is cheaper."""
        plan = [_Node(node.kind, node.pods) for node in self.shrink(plan) for _ in range(node.times)]
        losses, floor = 0, self.bound(self.market.placed(plan))
        for turn in range(rounds):
            if self.watch.spent() > _IMPROVE_UNTIL or losses > _LOSSES or self.market.cost(plan) <= floor + _EPSILON:
                break
            loss = [self.market.usd[node.kind] - float(node.pods @ self.prices) for node in plan]
            order = sorted(range(len(plan)), key=lambda one: (-loss[one], one))
            many = min(len(plan), 40 + 20 * (turn % 4))
            torn = set(order[:many]) | {(one * 7919 + turn * 104729) % len(plan) for one in range(many // 2)}
            kept = [node for number, node in enumerate(plan) if number not in torn]
            old = [plan[number] for number in sorted(torn)]
            new = self.dive(self.market.placed(old), self._free(kept))
            losses += 1
            if self.market.placed(new).sum() == self.market.placed(old).sum() and (
                self.market.cost(new) < self.market.cost(old) - _EPSILON
            ):
                plan, losses = kept + [_Node(node.kind, node.pods) for node in new for _ in range(node.times)], 0
        return plan

    def _free(self, plan: _Plan) -> Floats:
        available = self.market.available.copy()
        for node in plan:
            available[node.kind] -= node.times
        return available


def _taken(kind: int, pods: Whole, counts: Whole, available: Floats, *, times: int | None = None) -> _Node:
    """Take a filling, as often as all of it is wanted; changes what is wanted and available."""
    held = np.minimum(pods, counts)
    asked = held > 0
    if times is None:
        times = max(1, int(min((counts[asked] // held[asked]).min(), available[kind])))
    counts -= held * times
    available[kind] -= times
    return _Node(kind, held, times)


class _Master:
    """The linear program over the fillings known: every pod has a node, no kind is used more than it is available."""

    def __init__(self, market: _Market) -> None:
        self.rows = len(market.counts)
        self.market = market
        self.scarce = {
            int(kind): self.rows + row for row, kind in enumerate(np.nonzero(~np.isinf(market.available))[0])
        }
        self.shortage = np.zeros(len(market.usd))
        self.solver = quiet_solver()
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = 3 * self.rows, self.rows + len(self.scarce)
        model.col_cost_ = np.concatenate([np.zeros(2 * self.rows), np.full(self.rows, _NEVER)])
        model.col_lower_ = np.zeros(3 * self.rows)
        model.col_upper_ = np.concatenate([np.zeros(2 * self.rows), np.full(self.rows, highspy.kHighsInf)])
        model.row_lower_ = np.concatenate([market.counts, np.full(len(self.scarce), -highspy.kHighsInf)])
        model.row_upper_ = np.concatenate([np.full(self.rows, highspy.kHighsInf), market.available[list(self.scarce)]])
        model.a_matrix_.start_ = np.arange(3 * self.rows + 1, dtype=np.int32)
        model.a_matrix_.index_ = np.tile(np.arange(self.rows, dtype=np.int32), 3)
        model.a_matrix_.value_ = np.repeat([1.0, -1.0, 1.0], self.rows)
        self.solver.passModel(model)

    def add(self, usd: float, kind: int, pods: Whole) -> None:
        """One more filling."""
        rows = np.nonzero(pods)[0].astype(np.int32)
        amounts = pods[rows].astype(float)
        if kind in self.scarce:
            rows, amounts = np.append(rows, np.int32(self.scarce[kind])), np.append(amounts, 1.0)
        self.solver.addCol(usd, 0.0, highspy.kHighsInf, len(rows), rows, amounts)

    def box(self, centre: Floats, width: float) -> None:
        """Keep prices near ``centre``: pods may be had a little dearer elsewhere, and given away a little cheaper."""
        wide, slack = (1 + width), 1e-4 + 1e-3 * float(centre.max(initial=0.0))
        upper = np.full(2 * self.rows, highspy.kHighsInf)
        self._artificial(np.concatenate([centre * wide + slack, -np.maximum(0, centre * (1 - width) - slack)]), upper)

    def unbox(self) -> None:
        """Prices are free."""
        self._artificial(np.zeros(2 * self.rows), np.zeros(2 * self.rows))

    def _artificial(self, usd: Floats, upper: Floats) -> None:
        columns = np.arange(2 * self.rows, dtype=np.int32)
        self.solver.changeColsCost(len(columns), columns, usd)
        self.solver.changeColsBounds(len(columns), columns, np.zeros(len(columns)), upper)

    def demand(self, counts: Whole, available: Floats) -> None:
        """Other numbers of pods and nodes."""
        for row in range(self.rows):
            self.solver.changeRowBounds(row, float(counts[row]), highspy.kHighsInf)
        for kind, row in self.scarce.items():
            self.solver.changeRowBounds(row, -highspy.kHighsInf, float(available[kind]))

    def solve(self) -> Floats:
        """The price of one pod of each shape."""
        self.solver.run()
        duals = np.array(self.solver.getSolution().row_dual)
        for kind, row in self.scarce.items():
            self.shortage[kind] = max(0.0, -duals[row])
        prices: Floats = np.maximum(0.0, duals[: self.rows])
        return prices

    def values(self) -> Floats:
        """How often each filling is used."""
        values: Floats = np.array(self.solver.getSolution().col_value)[3 * self.rows :]
        return values


def _relaxation(market: _Market) -> tuple[Floats, Floats]:
    """Dual values of the fractional problem: the price of a pod of each shape, the weights of each kind's resources."""
    rows, kinds = market.holds.shape
    pairs = np.argwhere(market.holds)
    scale = np.where(market.rooms > 0, market.rooms, 1.0)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = kinds + rows + len(pairs), rows + DIMENSIONS * kinds
    model.col_cost_ = np.concatenate([market.usd, np.full(rows, _NEVER), np.zeros(len(pairs))])
    model.col_lower_ = np.zeros(model.num_col_)
    model.col_upper_ = np.concatenate(
        [np.minimum(market.available, highspy.kHighsInf), np.full(rows + len(pairs), highspy.kHighsInf)]
    )
    model.row_lower_ = np.concatenate([market.counts, np.full(DIMENSIONS * kinds, -highspy.kHighsInf)])
    model.row_upper_ = np.concatenate([np.full(rows, highspy.kHighsInf), np.zeros(DIMENSIONS * kinds)])
    _matrix(model, market, pairs, scale)
    solver = quiet_solver()
    solver.passModel(model)
    solver.run()
    duals = np.array(solver.getSolution().row_dual)
    weights = np.maximum(0.0, -duals[rows:].reshape(kinds, DIMENSIONS)) / scale
    return np.maximum(0.0, duals[:rows]), weights


def _matrix(model: Any, market: _Market, pairs: Whole, scale: Floats) -> None:
    """Columns: nodes of each kind; pods without a node; pods of a shape on a kind."""
    rows, kinds = market.holds.shape
    offset = rows + DIMENSIONS * np.arange(kinds)[:, None] + np.arange(DIMENSIONS)[None, :]
    has = market.rooms > 0
    shares = market.sizes[pairs[:, 0]] / scale[pairs[:, 1]]
    indices = np.concatenate([pairs[:, :1], offset[pairs[:, 1]]], axis=1)
    amounts = np.concatenate([np.ones((len(pairs), 1)), shares], axis=1)
    used = amounts > 0
    lengths = np.concatenate([has.sum(axis=1), np.ones(rows, dtype=np.int64), used.sum(axis=1)])
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    model.a_matrix_.index_ = np.concatenate([offset[has], np.arange(rows), indices[used]]).astype(np.int32)
    model.a_matrix_.value_ = np.concatenate([np.full(int(has.sum()), -1.0), np.ones(rows), amounts[used]])
