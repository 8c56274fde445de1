"""Weights on the resources of each kind of node, and what they say: no filling is worth more than the weighed node.

They come from the relaxation, which is asked over the kinds that may matter only, and are stretched at other prices
until no shape is worth more than it weighs. See :mod:`autoscaler.solver.lp.column_bounds` for why they bound.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from autoscaler.solver.lp.arrays import EPSILON, PODS, Floats, Whole, by_pattern, dot
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.lp.relaxation import Relaxation
from autoscaler.solver.pricing.knapsack import Bin
from autoscaler.solver.pricing.maximal_fillings import MaximalFillings

_AGAIN, _MORE, _NEAR = 3, 30, 1e-4
_SHORT, _FREE = 200, 1e-3
"""Kinds in short supply up to which all are in the relaxation, which takes 1 s then and 46 s with 949 and 160 shapes;
and a price, dollars per hour, below which each is, as machines that are there."""
_RATIOS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)


class Bins(dict[int, Bin]):
    """A node of each kind that was looked at, made when it is first asked for."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self._problem = problem

    def __missing__(self, kind: int) -> Bin:
        """Makes the bin of a kind that was not looked at."""
        problem = self._problem
        made = self[kind] = Bin(problem.sizes, problem.holds[:, kind], problem.rooms[kind])
        return made


class Weights:
    """The weights found, by kind."""

    def __init__(self, problem: Problem, usd: Floats, bins: Bins) -> None:
        """``usd``: of each kind, above zero."""
        self._problem, self._usd, self._bins = problem, usd, bins
        self.enumerated = MaximalFillings.none(problem)
        """Of kinds that need no weights: what their fillings are worth is known."""
        self.charges: Floats = np.zeros(len(problem.most))
        """Of the relaxation: dollars by which more of each limit would lower the cost."""
        self._by_kind: Floats = np.zeros((0, 0))
        self._seen: Floats = self._by_kind
        self._stretched: Floats = np.ones(len(problem.usd))
        self._alike, self._holds = by_pattern(problem.holds)

    @property
    def by_kind(self) -> Floats:
        """Returns weights by kind and resource: no shape is worth more than it weighs, at the prices last asked about.

        Of kinds whose shapes are all worth nothing only the direction means something.
        """
        return self._by_kind * np.where(self._stretched > 0, self._stretched, EPSILON)[:, None]

    def relax(self) -> tuple[Floats, Floats]:
        """Prices of pods, and the money spent on each kind, from the relaxation.

        It is over the kinds that may matter; those are added that turn out to, at the prices found. Any prices prove a
        bound with weights that are valid for every kind: a kind left out takes the weights of one that was not, or,
        where these let its fillings be worth more than its node, its own.
        """
        problem, relaxation = self._problem, Relaxation(self._problem)
        chosen = np.zeros(0, dtype=np.int64)
        more = _promising(problem, self._alike)
        more = more[~self.enumerated.is_enumerated[more]]
        for _ in range(_AGAIN):
            relaxation.add(more)
            chosen = np.concatenate([chosen, more])
            prices, weights, money, self.charges = relaxation.solve()
            usd = self._usd + dot(self.charges, problem.uses)
            of_all, _ = self._lent(prices, weights)
            of_all[chosen] = weights
            self._by_kind = of_all
            worth = self.ceilings(prices) / usd
            worth[chosen] = worth[self.enumerated.is_enumerated] = 0.0
            wrong = np.nonzero(worth > 1 + _NEAR)[0]
            wrong = wrong[np.argsort(-worth[wrong], kind="stable")]
            for kind in wrong.tolist():
                node = self._bins[kind]
                worth[kind] = node.ceiling(prices) / usd[kind]
                of_all[kind] = node.weights
            wrong = wrong[worth[wrong] > 1 + _NEAR]
            if not len(wrong):
                break
            more = wrong[:_MORE]
        spent = np.zeros(len(problem.usd))
        spent[chosen] = money
        self._bins.clear()
        return prices, spent

    def ceilings(self, prices: Floats) -> Floats:
        """No filling of a kind is worth more: its weights, stretched until no shape is worth more than it weighs."""
        problem = self._problem
        stretch = self._stretch(self._by_kind, prices, problem.counts)
        for kind in np.nonzero(~np.isfinite(stretch))[0].tolist():
            node = self._bins[kind]
            node.ceiling(prices)
            self._by_kind[kind] = node.weights
            stretch[kind] = 1.0
        self._stretched = stretch
        ceilings: Floats = stretch * (self._by_kind * problem.rooms).sum(axis=1)
        self.enumerated.value(prices, ceilings)
        return ceilings

    def guesses(self, prices: Floats, limits: Whole) -> Floats:
        """Returns for each kind what a filling with at most so many pods may be worth, as far as can be told cheaply.

        By its weights of the relaxation, or those of the last time when it was looked at. Where a pod that is worth
        something weighs nothing by either, as on machines that are there and were thought to be large enough, new ones
        are found.
        """
        if not len(self._seen):
            self._seen = self._by_kind.copy()
        guesses = np.minimum(self._guessed(self._by_kind, prices, limits), self._guessed(self._seen, prices, limits))
        for kind in np.nonzero(~np.isfinite(guesses))[0].tolist():
            guesses[kind] = self._bins[kind].ceiling(prices)
            self.seen(kind)
        return guesses

    def seen(self, kind: int) -> None:
        """The kind has been looked at: its node has weights for prices like these."""
        self._seen[kind] = self._bins[kind].weights

    def _guessed(self, weights: Floats, prices: Floats, limits: Whole) -> Floats:
        stretch = self._stretch(weights, prices, limits)
        weighs = (weights * self._problem.rooms).sum(axis=1)
        return np.where(np.isfinite(stretch), np.where(np.isfinite(stretch), stretch, 0.0) * weighs, np.inf)

    def lowered(self, ceilings: Floats, prices: Floats, most: float) -> Floats:
        """Ceilings by weights: one kind's after the other, until none that is larger than a table matters."""
        lent = np.zeros((0, self._problem.rooms.shape[1]))
        found = ceilings
        for _ in range(_AGAIN * _MORE):
            kind = int(np.argmax(found / self._usd))
            if np.isfinite(found[kind]) and (found[kind] <= most * self._usd[kind] or kind in self._bins):
                break
            node = self._bins[kind]
            node.ceiling(prices)
            lent = np.vstack([lent, np.asarray(node.weights)])
            found = np.minimum(found, self._lent(prices, lent)[1])
        return found

    def _lent(self, prices: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Returns for each kind those of these weights that bound what its fillings are worth best; and that bound."""
        problem = self._problem
        lent = weights[weights.any(axis=1)]
        best, least = np.zeros_like(problem.rooms), np.full(len(problem.usd), np.inf)
        if not len(lent):
            return best, least
        valued = prices > 0
        with np.errstate(divide="ignore"):
            ratios = prices[valued, None] / dot(problem.sizes[valued], lent.T)
        stretch = np.array([ratios[held[valued]].max(axis=0, initial=0.0) for held in self._holds])[self._alike]
        """[kind, weights]"""
        finite = np.isfinite(stretch)
        ceilings = np.where(finite, np.where(finite, stretch, 0.0) * dot(problem.rooms, lent.T), np.inf)
        one = np.argmin(ceilings, axis=1)
        least = ceilings[np.arange(len(one)), one]
        bounded = np.isfinite(least)
        best[bounded] = lent[one[bounded]]
        return best, least

    def _stretch(self, weights: Floats, prices: Floats, limits: Whole) -> Floats:
        problem = self._problem
        taken = dot(problem.sizes, weights.T)
        worth = np.where(problem.holds & (limits > 0)[:, None], prices[:, None], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch: Floats = np.where(worth > 0, worth / taken, 0.0).max(axis=0)
        return stretch


def _promising(problem: Problem, alike: Whole) -> Whole:
    """Kinds in short supply, and those that are cheapest for some mix of resources, of the kinds that hold the same.

    Of very many in short supply those of each mix that come first, until there are enough of them for all pods.
    """
    scale = problem.rooms.max(axis=0)
    shares = problem.rooms / np.where(scale > 0, scale, 1.0)
    usd = np.maximum(problem.usd, EPSILON)
    short = ~np.isinf(problem.available)
    is_always = short & ((problem.usd <= _FREE) | (short.sum() <= _SHORT))
    chosen = set(np.nonzero(is_always)[0].tolist())
    members = [np.nonzero(alike == sort)[0] for sort in range(int(alike.max()) + 1)]
    rest = shares[:, [one for one in range(shares.shape[1]) if one != PODS]] / _usual(shares)
    base, rest = rest[:, 0], rest[:, 1:]
    mixes = np.array(list(product((0.0, 1.0), _RATIOS, _RATIOS if rest.shape[1] > 1 else (0.0,))))[:, :, None]
    scores = (mixes[:, 0] * base + mixes[:, 1] * rest[:, 0] + mixes[:, 2] * rest[:, 1:].sum(axis=1)) / usd
    asked = dot(problem.counts, problem.sizes)
    for group in members:
        chosen.update(group[np.argmax(scores[:, group], axis=1)].tolist())
        if short.sum() > _SHORT:
            chosen.update(*(_enough(problem, group[np.argsort(-one[group], kind="stable")], asked) for one in scores))
    for row in np.nonzero(~problem.holds[:, sorted(chosen)].any(axis=1))[0].tolist():
        chosen.add(int(np.argmin(np.where(problem.holds[row], usd, np.inf))))
    return np.array(sorted(chosen), dtype=np.int64)


def _enough(problem: Problem, ranked: Whole, asked: Floats) -> list[int]:
    """The first of these kinds, until there are enough of them for what is asked."""
    rooms = np.minimum(problem.available[ranked], problem.counts.sum())[:, None] * problem.rooms[ranked]
    is_enough = (np.cumsum(rooms, axis=0) >= asked).all(axis=1)
    many = int(np.argmax(is_enough)) + 1 if is_enough.any() else len(ranked)
    found: list[int] = ranked[: min(many, _MORE)].tolist()
    return found


def _usual(shares: Floats) -> Floats:
    """Returns for each resource but the number of pods what the node in the middle has, of those that have any."""
    return np.array(
        [
            np.sort(column[column > 0])[(column > 0).sum() // 2] if (column > 0).any() else 1.0
            for number, column in enumerate(shares.T)
            if number != PODS
        ]
    )
