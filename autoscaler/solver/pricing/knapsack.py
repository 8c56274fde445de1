"""What one node of a kind is best filled with, when every shape of pod has a value: the pricing of :mod:`columns`.

:class:`Bin` searches good fillings; what it finds always fits, but a better one may exist. What none can be worth more
than is said by :mod:`autoscaler.solver.lp.column_bounds`, whose weights guide the search.

A set of pods *loses* ``w . sizes - value``, and a filling as well what its free room weighs. All losses add up, none is
negative, and together they are what the filling lacks to the ceiling: sets that lose more than the ceiling is above
the node's price are dropped, since no filling that pays holds them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoscaler.solver.lp.arrays import GPUS, Floats, Mask, Whole, distinct, dot, highest
from autoscaler.solver.lp.column_bounds import Scale
from autoscaler.solver.pricing.pod_sets import TOLERANCE, WORTHLESS, Joiner, Shelf

_MIXER = 2**61 - 1


class Fillings(NamedTuple):
    """Fillings of one node, the most valuable first."""

    values: Floats
    pods: Whole
    """[filling, shape]"""


class Bin:
    """A node of one kind, to be filled again and again at changing values."""

    def __init__(self, sizes: Floats, held: Mask, room: Floats) -> None:
        """``held``: the shapes that may run on it."""
        self.sizes, self.room = sizes, room
        devices = sizes[:, GPUS] > 0
        self.big, self.small = np.nonzero(held & devices)[0], np.nonzero(held & ~devices)[0]
        self.items = np.concatenate([self.big, self.small])
        self.weights: Floats | None = None
        self._scale = Scale(sizes[self.items], room)
        self._shelf: Shelf | None = None

    def ceiling(self, values: Floats) -> float:
        """No filling is worth more."""
        self.weights = self._scale.weights(values[self.items])
        return float(dot(self.weights, self.room))

    def best(self, values: Floats, limits: Whole, *, least: float, take: int, width: int = 100) -> Fillings:
        """Good fillings from nothing: small sets of device pods are joined to larger ones, the rest is filled up."""
        spare = self.ceiling(values) - least
        self._shelf = None
        if spare < 0 or self.weights is None:
            return self._none()
        wanted = (values > WORTHLESS) & (limits > 0) & (dot(self.sizes, self.weights) - values <= spare + TOLERANCE)
        big, small = self.big[wanted[self.big]], self.small[wanted[self.small]]
        shelf = self._shelf_of(small, values, limits, spare=spare)
        if len(big) == 0:
            return self._chosen([shelf.fillings(values)], values, limits, take=take)
        joiner = Joiner(self.sizes[big], values[big], limits[big], self.room, self.weights, spare=spare, width=width)
        found = []
        for sets in joiner.last():
            inside = shelf.fit(sets.sizes)
            order = highest(sets.values + shelf.values[inside], 6 * take)
            pods = np.zeros((len(order), len(self.sizes)), dtype=np.int64)
            pods[:, big] = sets.held[order]
            pods[:, shelf.shapes] = shelf.held[inside[order]]
            found.append(pods)
        self._shelf = shelf
        return self._chosen(found, values, limits, take=take)

    def around(self, known: Whole, values: Floats, limits: Whole, *, least: float, take: int) -> Fillings:
        """Better fillings near known ones: one device pod is put for another, and the rest is filled up anew."""
        spare = self.ceiling(values) - least
        if spare < 0 or self.weights is None or (limits[self.items] <= 0).all():
            return self._none()
        small = self.small[(values[self.small] > WORTHLESS) & (limits[self.small] > 0)]
        if self._shelf is None or self._shelf.is_stale:
            self._shelf = self._shelf_of(small, values, limits, spare=spare)
        shelf = self._shelf
        shelf.price(values)
        if not len(self.big):
            return self._chosen([shelf.fillings(values)], values, limits, take=take)
        found: list[Whole] = []
        base = known[highest(dot(known, values), take)]
        for _ in range(2):
            base = self._swapped(base, values, limits, spare=spare, take=take, shelf=shelf)
            if not len(base):
                break
            found.append(base)
            base = base[highest(dot(base, values), take)]
        return self._chosen(found, values, limits, take=take) if found else self._none()

    def _shelf_of(self, shapes: Whole, values: Floats, limits: Whole, *, spare: float) -> Shelf:
        weights = np.asarray(self.weights)
        return Shelf(self.sizes, values, limits, shapes, room=self.room, weights=weights, spare=spare)

    def _swapped(self, base: Whole, values: Floats, limits: Whole, *, spare: float, take: int, shelf: Shelf) -> Whole:
        """One device pod, or none, taken out, another, or none, put in: the best for each one put in, and overall."""
        many, weights = len(self.big), np.asarray(self.weights)
        sizes: Floats = np.vstack([self.sizes[self.big], np.zeros(len(self.room))])
        worth = np.append(values[self.big], 0.0)
        loss = dot(sizes, weights) - worth
        held: Whole = base[:, self.big]
        which, out = np.nonzero(held)
        which = np.concatenate([np.arange(len(base)), which])
        out = np.concatenate([np.full(len(base), many), out])
        rest: Floats = dot(held.astype(float), sizes[:many])[which] - sizes[out]
        fits = dot(held, loss[:many])[which][:, None] - loss[out][:, None] + loss[None, :] <= spare + TOLERANCE
        for one in np.nonzero(sizes.any(axis=0))[0]:
            fits &= rest[:, one, None] + sizes[None, :, one] <= self.room[one] + TOLERANCE
        fits[:, :many] &= held[which] - (out[:, None] == np.arange(many)) < limits[self.big]
        row, put = np.nonzero(fits)
        if not len(row):
            return np.zeros((0, len(self.sizes)), dtype=np.int64)
        inside = shelf.fit(rest[row] + sizes[put])
        total = (dot(held, worth[:many])[which] - worth[out])[row] + worth[put] + shelf.values[inside]
        order = np.lexsort((-total, put))
        first = np.ones(len(order), dtype=bool)
        first[1:] = put[order][1:] != put[order][:-1]
        chosen = distinct(np.concatenate([order[first], highest(total, take)]))[0]
        grown = np.zeros((len(chosen), many + 1), dtype=np.int64)
        grown[:, :many] = held[which[row[chosen]]]
        lines = np.arange(len(chosen))
        grown[lines, out[row[chosen]]] -= 1
        grown[lines, put[chosen]] += 1
        pods = np.zeros((len(chosen), len(self.sizes)), dtype=np.int64)
        pods[:, self.big] = grown[:, :many]
        pods[:, shelf.shapes] = shelf.held[inside[chosen]]
        return pods

    def _chosen(self, found: list[Whole], values: Floats, limits: Whole, *, take: int) -> Fillings:
        """The most valuable, and the best two that hold a shape, for every shape: a plan needs all of them."""
        pods = np.vstack(found)
        pods = pods[(pods <= limits).all(axis=1) & (dot(pods, self.sizes) <= self.room + TOLERANCE).all(axis=1)]
        worth = dot(pods, values)
        # Equal fillings have equal numbers; that others have, too, costs a filling, never a plan.
        number = dot(pods, np.arange(1, len(values) + 1, dtype=np.int64) ** 3 * 2_654_435_761 % _MIXER)
        order = np.lexsort((number, -worth))
        fresh = np.ones(len(order), dtype=bool)
        fresh[1:] = number[order][1:] != number[order][:-1]
        order = order[fresh]
        has = pods[order] > 0
        kept = np.any(has & (np.cumsum(has, axis=0, dtype=np.int32) <= 2), axis=1)  # noqa: PLR2004 - two, see above
        kept[:take] = True
        return Fillings(worth[order[kept]], pods[order[kept]])

    def _none(self) -> Fillings:
        return Fillings(np.zeros(0), np.zeros((0, len(self.sizes)), dtype=np.int64))
