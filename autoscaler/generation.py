"""Finding the fillings that a cheap plan is made of: the second step of :mod:`autoscaler.columns`.

Prices that the master asks for are far off while it knows few fillings. So it may ask only within a box around the best
prices known (the *centre*), and what is looked at lies between the two. Prices are the better, the more all pods are
worth at them when no kind of node can hold more than its own price: that number is the bound that they would prove if
the search were perfect, and the centre moves only when it grows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoscaler.arrays import PODS, Floats, Mask, Whole, highest
from autoscaler.ceilings import best_filling
from autoscaler.grid import Grid
from autoscaler.knapsack import Bin, Fillings
from autoscaler.master import Master, Problem, relaxation

_BOX, _WIDER, _TRUST, _LEAST_TRUST, _MOST_TRUST = 0.03, 1.3, 0.8, 0.5, 0.95
_BOX_AT_ONCE, _TRUST_AT_ONCE, _LEAST_TRUST_AT_ONCE = 0.5, 0.6, 0.3
"""Where all kinds are looked at each time, prices are known sooner."""
_NEARLY_ALL = 0.998
_WIDEST = 1e4
_SLACK = 0.01
"""A filling is kept that lacks so much to its node's price: prices change."""
_TAKE, _LOOK = 60, 40
_KINDS, _KINDS_SOMETIMES, _SOMETIMES = 2, 4, 4
_USED = 0.002
"""Part of the money that makes a kind worth looking at first."""
_KINDS_AT_ONCE, _TAKE_EACH = 10, 16
_TABLES = 6
_FEW = 4
_UNTIL, _PROVE_UNTIL = 0.74, 0.95
"""Parts of the time after which no more fillings are sought, and no more exact ceilings."""
_FEW_PODS = 400
_SIMPLE = 6
"""Kinds in short supply at most for which a filling with pods of one shape is written down from the start."""
_HALVES = 15
_FORGET = 1.002
_EPSILON = 1e-6
_NATURAL = 0.1
"""Part of what a pod costs on nodes of its own that its price is never far below, unless there is room for nothing."""
_AGAIN, _MORE, _NEAR = 3, 30, 1e-4
_RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)


def promising(problem: Problem) -> Whole:
    """Kinds in short supply, and those that are cheapest for some mix of resources, of the kinds that hold the same."""
    scale = problem.rooms.max(axis=0)
    shares = problem.rooms / np.where(scale > 0, scale, 1.0)
    usd = np.maximum(problem.usd, _EPSILON)
    numbers: dict[bytes, int] = {}
    alike = np.array([numbers.setdefault(column.tobytes(), len(numbers)) for column in problem.holds.T])
    chosen = set(np.nonzero(~np.isinf(problem.available))[0].tolist())
    members = [np.nonzero(alike == sort)[0] for sort in range(int(alike.max()) + 1)]
    rest = shares[:, [one for one in range(shares.shape[1]) if one != PODS]] / _usual(shares)
    base, rest = rest[:, 0], rest[:, 1:]
    for cpu in (0.0, 1.0):
        for memory in _RATIOS:
            for more in _RATIOS if rest.shape[1] > 1 else (0.0,):
                score = (cpu * base + memory * rest[:, 0] + more * rest[:, 1:].sum(axis=1)) / usd
                for group in members:
                    chosen.add(int(group[np.argmax(score[group])]))
    for row in np.nonzero(~problem.holds[:, sorted(chosen)].any(axis=1))[0].tolist():
        chosen.add(int(np.argmin(np.where(problem.holds[row], usd, np.inf))))
    return np.array(sorted(chosen), dtype=np.int64)


def _usual(shares: Floats) -> Floats:
    """Of each resource but the number of pods: what the node in the middle has, of those that have any."""
    return np.array(
        [
            np.sort(column[column > 0])[(column > 0).sum() // 2] if (column > 0).any() else 1.0
            for number, column in enumerate(shares.T)
            if number != PODS
        ]
    )


@dataclass(frozen=True, slots=True)
class Watch:
    """How much of the time is over."""

    clock: Callable[[], float]
    start: float
    deadline: float

    def spent(self) -> float:
        """As a part of all of it."""
        return (self.clock() - self.start) / self.deadline if self.deadline > 0 else 1.0

    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - (self.clock() - self.start))

    def share(self, many: int) -> Watch:
        """The same, with a deadline that leaves as much time to each of the ``many - 1`` who come after."""
        return Watch(self.clock, self.start, self.deadline - self.left() * (many - 1) / many)


class Generation:
    """The fillings found, the prices that they lead to, and what these prove."""

    def __init__(self, problem: Problem, watch: Watch) -> None:
        self.problem, self.watch = problem, watch
        self.usd = np.maximum(problem.usd, _EPSILON)
        self.smaller = problem.smaller()
        self.master = Master(problem, self.smaller)
        self.prices: Floats = np.zeros(len(problem.counts))
        """The best known value of one pod of each shape."""
        self._stock = np.zeros((256, len(problem.counts)), dtype=np.int64)
        self._kinds = np.zeros(256, dtype=np.int64)
        self._many = self.simple = 0
        self._seen: set[tuple[int, bytes]] = set()
        self._bins: dict[int, Bin] = {}
        self._grid = Grid.of(problem)
        self._alone = np.full(len(problem.counts), np.inf)
        """What a pod of each shape costs at most: on the best node that holds nothing else."""
        self._proofs: list[tuple[Floats, Floats]] = []
        self._steady: Floats = self.prices
        """The prices that prove the most, as far as the search can tell."""
        self._weights: Floats = np.zeros((0, 0))
        self._stretched: Floats = np.ones(len(problem.usd))
        self._reach = np.ones(len(problem.usd))
        """Of each kind: what its best filling was worth, as a part of the ceiling, when it was looked at last."""

    @property
    def weights(self) -> Floats:
        """By kind and resource: no shape was worth more than it weighs at the prices of the relaxation.

        Of kinds whose shapes are all worth nothing only the direction means something.
        """
        return self._weights * np.where(self._stretched > 0, self._stretched, _EPSILON)[:, None]

    @property
    def many(self) -> int:
        """How many fillings are known; the first ``simple`` of them hold pods of one shape, and leave nobody out."""
        return self._many

    @property
    def fillings(self) -> Whole:
        """Pods by filling and shape."""
        return self._stock[: self._many]

    @property
    def kinds(self) -> Whole:
        """The kind of each filling."""
        return self._kinds[: self._many]

    def relax(self) -> None:
        """Prices and a bound from the fractional problem; one simple filling for each shape."""
        problem = self.problem
        self.prices, self._weights, money = self._relaxed()
        self._proofs.append((self.prices.copy(), self._ceilings(self.prices)))
        self._reach = np.where(money > _USED * money.sum(), 1.0, 0.99)
        for row in range(len(problem.counts)):
            among, left = problem.holds[row].copy(), float(problem.counts[row])
            for _ in range(_SIMPLE):
                if left <= 0 or not among.any():
                    break
                kind, pods = self.uniform(row, among)
                self._add(kind, pods[None, :])
                left -= float(pods[row]) * problem.available[kind]
                among[kind] = False
            among = problem.holds[row] & np.isinf(problem.available)
            if among.any():  # those in short supply may all go to others
                kind, pods = self.uniform(row, among)
                self._add(kind, pods[None, :])
        self.simple = self._many

    def _relaxed(self) -> tuple[Floats, Floats, Floats]:
        """The relaxation over the kinds that may matter; those are added that turn out to, at the prices found.

        Any prices prove a bound with weights that are valid for every kind: a kind left out takes the weights of one
        that was not, or, where these let its fillings be worth more than its node, its own.
        """
        problem = self.problem
        chosen = promising(problem)
        for _ in range(_AGAIN):
            part = Problem(
                sizes=problem.sizes,
                counts=problem.counts,
                rooms=problem.rooms[chosen],
                usd=problem.usd[chosen],
                available=problem.available[chosen],
                holds=problem.holds[:, chosen],
                may=problem.may[:, chosen],
            )
            prices, weights, money = relaxation(part)
            looked_at = chosen
            everyone, _ = self._lent(prices, weights)
            everyone[chosen] = weights
            self._weights = everyone
            worth = self._ceilings(prices) / self.usd
            worth[chosen] = 0.0
            wrong = np.nonzero(worth > 1 + _NEAR)[0]
            wrong = wrong[np.argsort(-worth[wrong], kind="stable")]
            for kind in wrong.tolist():
                node = self._bin(kind)
                worth[kind] = node.ceiling(prices) / self.usd[kind]
                everyone[kind] = node.weights
            wrong = wrong[worth[wrong] > 1 + _NEAR]
            if not len(wrong):
                break
            chosen = np.sort(np.concatenate([chosen, wrong[:_MORE]]))
        spent = np.zeros(len(problem.usd))
        spent[looked_at] = money
        self._bins.clear()
        return prices, everyone, spent

    def _lent(self, prices: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """For each kind those of these weights that bound what its fillings are worth best; and that bound."""
        problem = self.problem
        lent = weights[weights.any(axis=1)]
        best, least = np.zeros_like(problem.rooms), np.full(len(problem.usd), np.inf)
        valued = prices > 0
        for one in lent:
            taken = problem.sizes[valued] @ one
            with np.errstate(divide="ignore"):
                ratio = prices[valued] / taken
            stretch = np.where(problem.holds[valued], ratio[:, None], 0.0).max(axis=0, initial=0.0)
            ceiling = np.where(np.isfinite(stretch), stretch, 0.0) * (problem.rooms @ one)
            ceiling[~np.isfinite(stretch)] = np.inf
            better = ceiling < least
            least[better], best[better] = ceiling[better], one
        return best, least

    def run(self, *, rounds: int) -> None:
        """Fillings, until none is found that would help or the time for it is over."""
        if not rounds:
            self._look(self.prices, kinds=_KINDS)
            self.prices = self.master.solve()
            return
        best, _, _ = self._look(self.prices, kinds=5 * _KINDS_SOMETIMES)
        centre = self.prices / max(best, 1 - _SLACK)
        height = float(centre @ self.problem.counts)
        alone = self._grid is None
        box, trust, least_trust = (
            (_BOX, _TRUST, _LEAST_TRUST) if alone else (_BOX_AT_ONCE, _TRUST_AT_ONCE, _LEAST_TRUST_AT_ONCE)
        )
        below, above = np.full(len(centre), box), np.full(len(centre), box)
        for turn in range(rounds):
            if self.watch.spent() > _UNTIL:
                break
            self.master.keep_near(centre, below, above, least=_NATURAL * self._alone)
            asked = self.master.solve()
            low, high = self.master.pressed()
            low &= below < 1
            if not alone and not high.any() and height > _NEARLY_ALL * float(asked @ self.problem.counts):
                break
            below, above = (
                np.where(low, np.minimum(below * _WIDER, 1), below),
                np.where(high, np.minimum(above * _WIDER, _WIDEST), above),
            )
            prices = trust * centre + (1 - trust) * asked
            best, added, all_seen = self._look(prices, kinds=_KINDS if turn % _SOMETIMES else _KINDS_SOMETIMES)
            worth = float(prices @ self.problem.counts) / best if all_seen and best > 0 else 0.0
            if worth > height:
                height, centre, trust = worth, prices / best, max(min(least_trust, trust), trust - 0.1)
            elif added >= _FEW:
                trust = max(trust, min(_MOST_TRUST, trust + (1 - trust) * 0.1))
            if added < _FEW:
                if not added and trust <= 0 and not low.any() and not high.any():
                    self._reach[:] = 1.0
                    if not self._look(prices, kinds=len(self.usd))[1]:
                        break
                trust = max(0.0, trust - 0.3) if added else 0.0
                below, above = np.minimum(below * 1.5, 1), np.minimum(above * 1.5, _WIDEST)
        self._steady = centre
        self.master.let_go()
        self.prices = self.master.solve()

    def look_again(self, prices: Floats, limits: Whole, *, kinds: int) -> int:
        """Fillings for the pods that are left, at most ``limits`` of each; gives how many are new."""
        if self._grid is not None:
            return self._look_at_all(self._grid, np.where(limits > 0, prices, 0.0))[1]
        added = 0
        hope = self._hopes(prices, limits)
        for kind in np.argsort(-hope, kind="stable")[:kinds].tolist():
            if hope[kind] <= 0:
                break
            found = self._bin(kind).best(prices, limits, least=0.9 * self._charged(kind), take=20, width=60)
            added += self._add(kind, found.pods)
        return added

    def prove(self) -> None:
        """A bound from the prices found, where ceilings for whole pods are known; others would not raise it."""
        if self._grid is None:
            return
        prices = np.where(self._steady > _EPSILON, self._steady, 0.0)
        ceilings = self._grid.ceilings(prices)
        most = max(1.0, float((ceilings / self.usd)[np.isfinite(ceilings)].max(initial=0.0)))
        ceilings = np.minimum(ceilings, self._lowered(ceilings, prices, most))
        for _ in range(_TABLES):
            kind = int(np.argmax(ceilings / self.usd))
            own = self._grid.ceiling_of(kind, prices) if ceilings[kind] > most * self.usd[kind] else np.inf
            if own >= ceilings[kind]:
                break
            ceilings[kind] = own
        self._proofs.append((prices, ceilings))

    def prove_exactly(self) -> None:
        """For few pods another bound: what a node is worth at best when it holds no more pods than there are.

        The best filling of a node is found by branch and bound for each kind whose ceiling by weights is above its
        price; what the solver has proven counts, so a limit on its steps costs a little of the bound and no more.
        """
        problem, prices = self.problem, np.where(self.prices > _EPSILON, self.prices, 0.0)
        if problem.counts.sum() > _FEW_PODS or not prices.any():
            return
        ceilings = np.minimum(self._ceilings(prices), np.where(problem.holds, prices[:, None], 0.0).T @ problem.counts)
        best = 1.0
        for kind in np.argsort(-ceilings / self.usd, kind="stable").tolist():
            if self.watch.spent() > _PROVE_UNTIL or ceilings[kind] <= best * self.usd[kind]:
                break
            own = best_filling(prices, problem.sizes, problem.counts, problem.holds[:, kind], problem.rooms[kind])
            ceilings[kind] = min(ceilings[kind], own)
            best = max(best, float(ceilings[kind] / self.usd[kind])) if np.isinf(problem.available[kind]) else best
        self._proofs.append((prices, ceilings))

    def _lowered(self, ceilings: Floats, prices: Floats, most: float) -> Floats:
        """Ceilings by weights: one kind's after the other, until none that is larger than a table matters."""
        lent = np.zeros((0, self.problem.rooms.shape[1]))
        found = ceilings
        for _ in range(_AGAIN * _MORE):
            kind = int(np.argmax(found / self.usd))
            if np.isfinite(found[kind]) and (found[kind] <= most * self.usd[kind] or kind in self._bins):
                break
            node = self._bin(kind)
            node.ceiling(prices)
            lent = np.vstack([lent, np.asarray(node.weights)])
            found = np.minimum(found, self._lent(prices, lent)[1])
        return found

    def bound(self, counts: Whole) -> float:
        """What no plan for so many pods of each shape can undercut."""
        return max((self._farley(prices, ceilings, counts) for prices, ceilings in self._proofs), default=0.0)

    def _farley(self, prices: Floats, ceilings: Floats, counts: Whole) -> float:
        problem = self.problem
        endless = np.isinf(problem.available)
        priced = endless & (problem.usd > 0)
        stretch = float((ceilings[priced] / problem.usd[priced]).max()) if priced.any() else 1.0
        stretch = stretch if stretch > 0 else 1.0
        if (endless & (problem.usd <= 0) & (ceilings > 0)).any():
            return 0.0
        scarce = ~endless & (problem.usd > 0)
        tried = [stretch, 1.0, *(ceilings[scarce] / problem.usd[scarce]).tolist()]
        return max(self._stretched_by(one, prices, ceilings, counts) for one in tried if one >= stretch)

    def _stretched_by(self, stretch: float, prices: Floats, ceilings: Floats, counts: Whole) -> float:
        """Farley's bound, at a number that no endless kind's ceiling exceeds as a part of its price."""
        problem, scarce = self.problem, ~np.isinf(self.problem.available)
        short = problem.available[scarce] * np.maximum(0.0, ceilings[scarce] - stretch * problem.usd[scarce])
        return (float(prices @ counts) - float(short.sum())) / stretch * (1 - 1e-9)

    def _ceilings(self, prices: Floats) -> Floats:
        """No filling of a kind is worth more: its weights, stretched until no shape is worth more than it weighs."""
        problem = self.problem
        stretch = self._stretch(prices, problem.counts)
        for kind in np.nonzero(~np.isfinite(stretch))[0].tolist():
            node = self._bin(kind)
            node.ceiling(prices)
            self._weights[kind] = node.weights
            stretch[kind] = 1.0
        self._stretched = stretch
        ceilings: Floats = stretch * (self._weights * problem.rooms).sum(axis=1)
        return ceilings

    def _stretch(self, prices: Floats, limits: Whole) -> Floats:
        problem = self.problem
        taken = problem.sizes @ self._weights.T
        worth = np.where(problem.holds & (limits > 0)[:, None], prices[:, None], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch: Floats = np.where(worth > 0, worth / taken, 0.0).max(axis=0)
        return stretch

    def _hopes(self, prices: Floats, limits: Whole) -> Floats:
        """Of each kind: what a filling may be worth, as a part of its node's price, as far as can be told cheaply."""
        stretch = np.nan_to_num(self._stretch(prices, limits), posinf=1e9)
        usd = self.usd + self.master.shortage
        hopes: Floats = stretch * (self._weights * self.problem.rooms).sum(axis=1) / usd * self._reach
        return hopes

    def _charged(self, kind: int) -> float:
        """Price of a node, with what the shortage of its kind adds."""
        return float(self.usd[kind] + self.master.shortage[kind])

    def _look(self, prices: Floats, *, kinds: int) -> tuple[float, int, bool]:
        """Look at the most promising kinds. Gives the best worth found as a part of a price, how many are new, all."""
        if self._grid is not None:
            return self._look_at_all(self._grid, prices)
        hope = self._hopes(prices, self.problem.counts)
        best, added, all_seen = 0.0, 0, False
        for _ in range(kinds):
            kind = int(np.argmax(hope))
            if hope[kind] < max(0.999, best * 0.995):
                all_seen = True
                break
            usd = self._charged(kind)
            found = self._found(kind, prices, least=usd * (1 - _SLACK))
            worth = float(found.values[0]) / usd if len(found.values) else 0.0
            added += self._add(kind, found.pods[found.values > usd * (1 - _SLACK)])
            best = max(best, worth)
            self._reach[kind] = min(1.0, self._reach[kind] * worth / hope[kind])
            hope[kind] = 0.0
        self._reach = np.minimum(1.0, self._reach * _FORGET)
        return best, added, all_seen

    def _look_at_all(self, grid: Grid, prices: Floats) -> tuple[float, int, bool]:
        """The same for kinds that are priced together."""
        charged = self.usd + self.master.shortage
        found = grid.best(prices, charged, least=1 - _SLACK, kinds=_KINDS_AT_ONCE, take=_TAKE_EACH)
        added = sum(self._add(kind, pods) for kind, _, pods in found if len(pods))
        return max((worth for _, worth, _ in found), default=0.0), added, True

    def _found(self, kind: int, prices: Floats, *, least: float) -> Fillings:
        fresh = kind not in self._bins
        node = self._bin(kind)
        if fresh:
            return node.best(prices, self.problem.counts, least=least, take=_TAKE)
        found = node.around(self._known(kind, prices), prices, self.problem.counts, least=least, take=_LOOK)
        if self._is_new(kind, found):
            return found
        return node.best(prices, self.problem.counts, least=least, take=_TAKE)

    def _is_new(self, kind: int, found: Fillings) -> bool:
        return len(found.values) > 0 and (kind, found.pods[0].tobytes()) not in self._seen

    def _known(self, kind: int, prices: Floats) -> Whole:
        """Fillings of the kind; and for a node with many devices, those of two smaller nodes together."""
        own: Whole = self.fillings[self.kinds == kind]
        devices = self.problem.rooms[:, 2]
        if devices[kind] <= 1:
            return own
        halves = np.nonzero((devices[self.kinds] <= devices[kind] / 2) & (devices[self.kinds] > 0))[0]
        worth = self.fillings[halves] @ prices / self.usd[self.kinds[halves]]
        half = self.fillings[halves[highest(worth, _HALVES)]]
        left, right = np.nonzero(np.tri(len(half), dtype=bool))
        both = np.vstack([half[left] + half[right], half])
        fits = (both @ self.problem.sizes <= self.problem.rooms[kind]).all(axis=1)
        fits &= (both <= self.problem.counts).all(axis=1)
        fits &= ~both[:, ~self.problem.holds[:, kind]].any(axis=1)
        return np.vstack([own, both[fits]])

    def _bin(self, kind: int) -> Bin:
        known = self._bins.get(kind)
        if known is None:
            problem = self.problem
            known = self._bins[kind] = Bin(problem.sizes, problem.holds[:, kind], problem.rooms[kind])
        return known

    def uniform(self, row: int, among: Mask) -> tuple[int, Whole]:
        """Pods of one shape only, where they are cheapest among these kinds."""
        problem, size = self.problem, self.problem.sizes[row]
        asked = size > 0
        fits = np.floor(problem.rooms[:, asked] / size[asked]).min(axis=1) if asked.any() else np.ones(len(self.usd))
        fits = np.where(among, np.minimum(fits, problem.counts[row]), 0)
        kind = int(np.argmin(np.where(fits > 0, self.usd / np.maximum(fits, 1), np.inf)))
        pods = np.zeros(len(problem.counts), dtype=np.int64)
        pods[row] = int(fits[kind])
        self._alone[row] = min(self._alone[row], self.usd[kind] / max(1.0, fits[kind]))
        return kind, pods

    def _add(self, kind: int, pods: Whole) -> int:
        fresh = []
        for one in range(len(pods)):
            key = (kind, pods[one].tobytes())
            if key not in self._seen:
                self._seen.add(key)
                fresh.append(one)
        if not fresh:
            return 0
        end = self._many + len(fresh)
        while end > len(self._stock):
            self._stock = np.vstack([self._stock, np.zeros_like(self._stock)])
            self._kinds = np.concatenate([self._kinds, np.zeros_like(self._kinds)])
        self._stock[self._many : end], self._kinds[self._many : end] = pods[fresh], kind
        self._many = end
        self.master.add(float(self.problem.usd[kind]), kind, pods[fresh])
        return len(fresh)
