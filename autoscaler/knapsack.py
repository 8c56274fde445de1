"""What one node of a kind is best filled with, when every shape of pod has a value: the pricing of :mod:`columns`.

Two answers. :class:`Bin` searches good fillings; what it finds always fits, but a better one may exist.
:func:`ceiling_weights` bounds the best one from above: with weights ``w >= 0`` on a node's resources such that no shape
is worth more than its weighed requests, nothing that fits is worth more than the weighed node (weak duality of the
knapsack's linear relaxation). The least such bound is found by a tiny linear program.

A set of pods *loses* ``w . sizes - value``, and a filling as well what its free room weighs. All losses add up, none is
negative, and together they are what the filling lacks to the ceiling: sets that lose more than the ceiling is above
the node's price are dropped, since no filling that pays holds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

CPU, MEMORY, GPUS, PODS = range(4)
"""The first dimensions of an amount. There may be more: each is something of which a node has a few."""
_CELLS = 64
_SMALL = 300
_PAIRS = 20_000
_WORTHLESS = 1e-9
_TOLERANCE = 1e-6
_FEW_TIMES = 6
_NODES = 200
_LOOSE = 1e-6
"""The solver is exact to a tolerance: a little more room and worth keep the bound on the safe side."""
_MIXER = 2**61 - 1


class Fillings(NamedTuple):
    """Fillings of one node, the most valuable first."""

    values: Floats
    pods: Whole
    """[filling, shape]"""


class _Sets(NamedTuple):
    """Sets of pods, in parallel arrays."""

    sizes: Floats
    values: Floats
    held: Whole


def ceiling_weights(values: Floats, sizes: Floats, room: Floats) -> Floats:
    """Weights per unit of each resource under which no shape is worth more than it takes, and the room weighs least."""
    weights: Floats = np.zeros(len(room))
    kept = values > _WORTHLESS
    if not kept.any():
        return weights
    values, scale = values[kept], np.where(room > 0, room, 1.0)
    shares = sizes[kept] / scale
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(values), len(room)
    model.col_cost_, model.col_lower_ = -values, np.zeros(len(values))
    model.col_upper_ = np.full(len(values), highspy.kHighsInf)
    model.row_lower_, model.row_upper_ = np.full(len(room), -highspy.kHighsInf), np.ones(len(room))
    used = shares > 0
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
    model.a_matrix_.index_ = np.nonzero(used)[1].astype(np.int32)
    model.a_matrix_.value_ = shares[used]
    solver = quiet_solver()
    solver.passModel(model)
    solver.run()
    weights = np.maximum(0.0, -np.array(solver.getSolution().row_dual)) / scale
    taken = sizes[kept] @ weights
    # The solver is exact to a tolerance only: stretched by the worst shape, the weights are valid whatever it said.
    if (taken <= 0).any():
        return ceiling_by_share(values, sizes[kept], room)
    return weights * float((values / taken).max())


def ceiling_by_share(values: Floats, sizes: Floats, room: Floats) -> Floats:
    """Valid weights without a solver: each resource alone pays for all that is asked of it."""
    shares = sizes / np.where(room > 0, room, 1.0)
    return np.full(len(room), float((values / shares.max(axis=1)).max())) / np.where(room > 0, room, 1.0)


def best_filling(values: Floats, sizes: Floats, limits: Whole, held: Mask, room: Floats) -> float:
    """No filling with at most ``limits`` pods of each shape is worth more: proven by branch and bound."""
    chosen = np.nonzero(held & (values > _WORTHLESS) & (limits > 0))[0]
    if not len(chosen):
        return 0.0
    scale = np.where(room > 0, room, 1.0)
    shares = sizes[chosen] / scale
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(chosen), len(room)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_ = values[chosen], np.zeros(len(chosen))
    model.col_upper_ = limits[chosen].astype(float)
    model.row_lower_ = np.full(len(room), -highspy.kHighsInf)
    model.row_upper_ = np.where(room > 0, 1.0 + _LOOSE, _LOOSE)
    used = shares > 0
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int32)
    model.a_matrix_.index_ = np.nonzero(used)[1].astype(np.int32)
    model.a_matrix_.value_ = shares[used]
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(chosen)
    solver = quiet_solver()
    solver.setOptionValue("mip_max_nodes", _NODES)
    solver.passModel(model)
    solver.run()
    bound = float(solver.getInfo().mip_dual_bound)
    return bound * (1 + _LOOSE) if 0 <= bound < np.inf else np.inf


class Bin:
    """A node of one kind, to be filled again and again at changing values."""

    def __init__(self, sizes: Floats, held: Mask, room: Floats) -> None:
        """``held``: the shapes that may run on it."""
        self.sizes, self.room = sizes, room
        devices = sizes[:, GPUS] > 0
        self.big, self.small = np.nonzero(held & devices)[0], np.nonzero(held & ~devices)[0]
        self.everyone = np.concatenate([self.big, self.small])
        self.weights: Floats | None = None
        self._shelf: _Shelf | None = None

    def ceiling(self, values: Floats) -> float:
        """No filling is worth more."""
        self.weights = ceiling_weights(values[self.everyone], self.sizes[self.everyone], self.room)
        return float(self.weights @ self.room)

    def best(self, values: Floats, limits: Whole, *, least: float, take: int, width: int = 100) -> Fillings:
        """Good fillings from nothing: small sets of device pods are joined to larger ones, the rest is filled up."""
        spare = self.ceiling(values) - least
        self._shelf = None
        if spare < 0 or self.weights is None:
            return self._none()
        wanted = (values > _WORTHLESS) & (limits > 0) & (self.sizes @ self.weights - values <= spare + _TOLERANCE)
        big, small = self.big[wanted[self.big]], self.small[wanted[self.small]]
        shelf = _Shelf(self, values, limits, small, spare=spare)
        if len(big) == 0:
            return self._chosen([shelf.fillings(values)], values, limits, take=take)
        joiner = _Joiner(self.sizes[big], values[big], limits[big], self.room, self.weights, spare=spare, width=width)
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
        if spare < 0 or self.weights is None or (limits[self.everyone] <= 0).all():
            return self._none()
        small = self.small[(values[self.small] > _WORTHLESS) & (limits[self.small] > 0)]
        if self._shelf is None or self._shelf.is_stale:
            self._shelf = _Shelf(self, values, limits, small, spare=spare)
        shelf = self._shelf
        shelf.price(values)
        if not len(self.big):
            return self._chosen([shelf.fillings(values)], values, limits, take=take)
        found: list[Whole] = []
        base = known[highest(known @ values, take)]
        for _ in range(2):
            base = self._swapped(base, values, limits, spare=spare, take=take, shelf=shelf)
            if not len(base):
                break
            found.append(base)
            base = base[highest(base @ values, take)]
        return self._chosen(found, values, limits, take=take) if found else self._none()

    def _swapped(self, base: Whole, values: Floats, limits: Whole, *, spare: float, take: int, shelf: _Shelf) -> Whole:
        """One device pod, or none, taken out, another, or none, put in: the best for each one put in, and overall."""
        many, weights = len(self.big), np.asarray(self.weights)
        sizes: Floats = np.vstack([self.sizes[self.big], np.zeros(len(self.room))])
        worth = np.append(values[self.big], 0.0)
        loss = sizes @ weights - worth
        held: Whole = base[:, self.big]
        which, out = np.nonzero(held)
        which = np.concatenate([np.arange(len(base)), which])
        out = np.concatenate([np.full(len(base), many), out])
        rest: Floats = (held.astype(float) @ sizes[:many])[which] - sizes[out]
        fits = (held @ loss[:many])[which][:, None] - loss[out][:, None] + loss[None, :] <= spare + _TOLERANCE
        for one in np.nonzero(sizes.any(axis=0))[0]:
            fits &= rest[:, one, None] + sizes[None, :, one] <= self.room[one] + _TOLERANCE
        fits[:, :many] &= held[which] - (out[:, None] == np.arange(many)) < limits[self.big]
        row, put = np.nonzero(fits)
        if not len(row):
            return np.zeros((0, len(self.sizes)), dtype=np.int64)
        inside = shelf.fit(rest[row] + sizes[put])
        total = ((held @ worth[:many])[which] - worth[out])[row] + worth[put] + shelf.values[inside]
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
        pods = pods[(pods <= limits).all(axis=1) & (pods @ self.sizes <= self.room + _TOLERANCE).all(axis=1)]
        worth = pods @ values
        # Equal fillings have equal numbers; that others have, too, costs a filling, never a plan.
        number = pods @ (np.arange(1, len(values) + 1, dtype=np.int64) ** 3 * 2_654_435_761 % _MIXER)
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


class _Shelf:
    """Sets of pods without devices, and for any room that is left the most valuable of them that fits."""

    def __init__(self, node: Bin, values: Floats, limits: Whole, shapes: Whole, *, spare: float) -> None:
        self.shapes = shapes
        sets = _grown(node, values, limits, shapes, spare=spare)
        self.sizes, self.values, self.held = sets
        self._room = node.room
        self._cpu, self._at_cpu = distinct(self.sizes[:, CPU])
        self._memory, self._at_memory = distinct(self.sizes[:, MEMORY])
        self._age = 0
        self._rank()

    @property
    def is_stale(self) -> bool:
        """Chosen for values that are long gone."""
        return self._age > 12  # noqa: PLR2004 - looks

    def price(self, values: Floats) -> None:
        """The same sets at other values."""
        self._age += 1
        self.values = self.held @ values[self.shapes]
        self._rank()

    def _rank(self) -> None:
        order = np.argsort(self.values, kind="stable")
        best = np.full((len(self._cpu), len(self._memory)), -1, dtype=np.int32)
        best[self._at_cpu[order], self._at_memory[order]] = np.arange(len(order), dtype=np.int32)
        np.maximum.accumulate(best, axis=0, out=best)
        np.maximum.accumulate(best, axis=1, out=best)
        self._order, self._best = order, best

    def fit(self, taken: Floats) -> Whole:
        """Number of the best set for what each of these leaves of the room (cpu and memory; the rest is checked)."""
        cpu = np.searchsorted(self._cpu, self._room[CPU] - taken[:, CPU] + _TOLERANCE, side="right") - 1
        memory = np.searchsorted(self._memory, self._room[MEMORY] - taken[:, MEMORY] + _TOLERANCE, side="right") - 1
        found: Whole = self._order[self._best[cpu, memory]]
        return found

    def fillings(self, values: Floats) -> Whole:
        """Alone on the node."""
        pods = np.zeros((len(self.held), len(values)), dtype=np.int64)
        pods[:, self.shapes] = self.held
        return pods


def _grown(node: Bin, values: Floats, limits: Whole, shapes: Whole, *, spare: float) -> _Sets:
    """Shape after shape, the biggest first, so many of each; of sets of about the same size the best is kept."""
    weights, scale = np.asarray(node.weights), np.where(node.room > 0, node.room, 1.0)
    sizes, worth, held = np.zeros((1, len(node.room))), np.zeros(1), np.zeros((1, len(shapes)), dtype=np.int64)
    for one in np.argsort(-(node.sizes[shapes] / scale).max(axis=1), kind="stable"):
        size = node.sizes[shapes[one]]
        asked = size > 0
        most = np.floor((node.room[asked] - sizes[:, asked]) / size[asked] + _WORTHLESS).min(axis=1)
        most = np.minimum(most, limits[shapes[one]]).astype(np.int64)
        if most.max(initial=0) <= 0:
            continue
        parent, times = _multiples(most)
        bigger = sizes[parent] + times[:, None] * size
        worthier = worth[parent] + times * values[shapes[one]]
        loss = bigger @ weights - worthier
        chosen = np.nonzero(loss <= spare + _TOLERANCE)[0]
        if len(chosen) > _SMALL:
            chosen = chosen[_best_of_cells(bigger[chosen], loss[chosen], node.room)]
            chosen = chosen[highest(-loss[chosen], _SMALL)]
        held = held[parent[chosen]]
        held[:, one] += times[chosen]
        sizes, worth = bigger[chosen], worthier[chosen]
    if sizes.any(axis=1).all():  # a node without any of them must stay possible
        sizes, worth = np.vstack([np.zeros_like(sizes[:1]), sizes]), np.append(0.0, worth)
        held = np.vstack([np.zeros_like(held[:1]), held])
    return _Sets(sizes, worth, held)


def _multiples(most: Whole) -> tuple[Whole, Whole]:
    """(number of the set, how many more pods): none, each number while they are few, else some and all that fit."""
    top = int(most.max())
    steps = (
        np.arange(top + 1) if top <= _FEW_TIMES else distinct(np.linspace(0, top, _FEW_TIMES + 2).astype(np.int64))[0]
    )
    parent, step = np.nonzero(most[:, None] >= steps[None, :])
    times = steps[step]
    if top > _FEW_TIMES:
        full = np.nonzero(most > 0)[0]
        parent, times = np.concatenate([parent, full]), np.concatenate([times, most[full]])
    return parent, times


def _best_of_cells(sizes: Floats, loss: Floats, room: Floats) -> Whole:
    """Of the sets that take about the same of a node, the one that loses least."""
    cells = (sizes[:, :GPUS] * (_CELLS / np.where(room[:GPUS] > 0, room[:GPUS], 1.0))).astype(np.int64)
    cell = (sizes[:, GPUS].astype(np.int64) * (_CELLS + 1) + cells[:, CPU]) * (_CELLS + 1) + cells[:, MEMORY]
    order = np.lexsort((loss, cell))
    first = np.ones(len(order), dtype=bool)
    first[1:] = cell[order][1:] != cell[order][:-1]
    return order[first]


class _Joiner:
    """Sets of device pods: those of up to ``n`` devices are joined of two of up to half as many."""

    def __init__(
        self, sizes: Floats, values: Floats, limits: Whole, room: Floats, weights: Floats, *, spare: float, width: int
    ) -> None:
        self.room, self.weights, self.limits, self.spare, self.width = room, weights, limits, spare, width
        self.lone = _Sets(sizes, values, np.eye(len(values), dtype=np.int64))
        self.known: dict[int, _Sets] = {}

    def last(self) -> Iterable[_Sets]:
        """Those that a whole node may hold, in parts; not thinned out, for what fills them up is not known yet."""
        return self._parts(int(self.room[GPUS]), keep=_PAIRS)

    def _upto(self, devices: int) -> _Sets:
        known = self.known.get(devices)
        if known is None:
            parts = self._parts(devices, keep=3 * self.width)
            sets = _Sets(*(np.concatenate(same) for same in zip(*parts, strict=True)))
            chosen = highest(sets.values - sets.sizes @ self.weights, self.width)
            known = self.known[devices] = _Sets(sets.sizes[chosen], sets.values[chosen], sets.held[chosen])
        return known

    def _parts(self, devices: int, *, keep: int) -> list[_Sets]:
        """The two halves joined; and each pod that asks for more than a half, joined with what it leaves."""
        none = _Sets(np.zeros((1, len(self.room))), np.zeros(1), np.zeros((1, len(self.limits)), dtype=np.int64))
        asked = self.lone.sizes[:, GPUS]
        half = devices // 2
        parts = [self._joined(self._upto(half), self._upto(devices - half), keep)] if half else [none]
        for more in distinct(asked[(asked > half) & (asked <= devices)])[0]:
            chosen = asked == more
            lone = _Sets(*(part[chosen] for part in self.lone))
            left = devices - int(more)
            parts.append(self._joined(lone, self._upto(left) if left else none, keep))
        return parts

    def _joined(self, one: _Sets, other: _Sets, keep: int) -> _Sets:
        loss = (one.sizes @ self.weights - one.values)[:, None] + (other.sizes @ self.weights - other.values)[None, :]
        fits = loss <= self.spare + _TOLERANCE
        for kind in range(len(self.room)):
            fits &= one.sizes[:, None, kind] + other.sizes[None, :, kind] <= self.room[kind] + _TOLERANCE
        if one is other:
            fits &= np.tri(len(one.values), dtype=np.bool_)
        left, right = np.nonzero(fits)
        sizes, loss = one.sizes[left] + other.sizes[right], loss[left, right]
        chosen = _best_of_cells(sizes, loss, self.room) if keep < _PAIRS else np.arange(len(loss))
        chosen = chosen[highest(-loss[chosen], keep)]
        held = one.held[left[chosen]] + other.held[right[chosen]]
        allowed = (held <= self.limits).all(axis=1)
        chosen, held = chosen[allowed], held[allowed]
        return _Sets(sizes[chosen], one.values[left[chosen]] + other.values[right[chosen]], held)


def highest(scores: Floats, many: int) -> Whole:
    """Positions of the highest scores; always the same ones for the same scores."""
    if len(scores) <= many:
        return np.arange(len(scores))
    return np.argpartition(-scores, many)[:many]


def distinct(values: Any) -> tuple[Any, Whole]:
    """The different values in order, and for each of ``values`` the number of its own; numpy's is slow to import."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    first = np.ones(len(values), dtype=bool)
    first[1:] = ranked[1:] != ranked[:-1]
    number = np.empty(len(values), dtype=np.int64)
    number[order] = np.cumsum(first) - 1
    return ranked[first], number


def quiet_solver() -> Any:
    """HiGHS on one thread, saying nothing."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 - HiGHS' own signature
    solver.setOptionValue("threads", 1)
    return solver
