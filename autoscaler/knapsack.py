"""What one node of a kind is best filled with, when every shape of pod has a value: the pricing of :mod:`columns`.

Two answers. :func:`fillings` searches good fillings (a beam, device pods first); what it finds always fits, but a
better one may exist. :func:`ceiling_weights` bounds the best one from above: with weights ``w >= 0`` on a node's
resources such that no shape is worth more than its weighed requests, nothing that fits is worth more than the
weighed node (weak duality of the knapsack's linear relaxation). The least such bound is found by a tiny linear program.
"""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

CPU, MEMORY, GPUS, PODS = range(4)
DIMENSIONS = 4
_CELLS = 64
_LEVELS = 80
_WORTHLESS = 1e-9


def ceiling_weights(values: Floats, sizes: Floats, room: Floats) -> Floats:
    """Weights per unit of each resource under which no shape is worth more than it takes, and the room weighs least."""
    weights: Floats = np.zeros(DIMENSIONS)
    kept = values > _WORTHLESS
    if not kept.any():
        return weights
    values, scale = values[kept], np.where(room > 0, room, 1.0)
    shares = sizes[kept] / scale
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(values), DIMENSIONS
    model.col_cost_, model.col_lower_ = -values, np.zeros(len(values))
    model.col_upper_ = np.full(len(values), highspy.kHighsInf)
    model.row_lower_, model.row_upper_ = np.full(DIMENSIONS, -highspy.kHighsInf), np.ones(DIMENSIONS)
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
    return np.full(DIMENSIONS, float((values / shares.max(axis=1)).max())) / np.where(room > 0, room, 1.0)


def fillings(
    values: Floats, sizes: Floats, room: Floats, limits: Whole, *, width: int, take: int
) -> list[tuple[float, Whole]]:
    """The best fillings found, the most valuable first: (value, pods of each shape), within ``limits`` of each."""
    items = np.nonzero((values > _WORTHLESS) & (limits > 0) & (sizes <= room).all(axis=1))[0]
    if not len(items):
        return []
    scale = np.where(room > 0, room, 1.0)
    has_device = sizes[items][:, GPUS] > 0
    order = items[np.lexsort((-(sizes[items] / scale).max(axis=1), ~has_device))]
    search = _Search(values[order], sizes[order], room, limits[order], devices=int(has_device.sum()))
    found = search.run(width=width, keep=max(2 * take, 60))
    best = np.argsort(-found[0], kind="stable")[:take]
    patterns = np.zeros((len(best), len(values)), dtype=np.int64)
    patterns[:, order] = found[1][best]
    return [(float(value), pattern) for value, pattern in zip(found[0][best], patterns, strict=True)]


class _Search:
    """A beam over partly filled nodes, ranked by value plus a bound of what the rest of the room may still hold.

    Device pods go first, one a level; of states that leave about the same room the best is kept, or the beam would fill
    with near copies. The other shapes follow from the biggest to the smallest.
    """

    def __init__(self, values: Floats, sizes: Floats, room: Floats, limits: Whole, *, devices: int) -> None:
        self.values, self.sizes, self.room, self.limits, self.devices = values, sizes, room, limits, devices
        self.after = ceiling_weights(values[devices:], sizes[devices:], room)
        self.weights = ceiling_weights(values, sizes, room) if devices else self.after
        self.cells = np.array([_CELLS, _CELLS, 0, 0]) / np.where(room > 0, room, 1.0)

    def run(self, *, width: int, keep: int) -> tuple[Floats, NDArray[np.int16]]:
        """(value of each filling found, pods of each shape)."""
        left, worth = self.room[None, :], np.zeros(1)
        held = np.zeros((1, len(self.values)), dtype=np.int16)
        states = [(left, worth, held)]
        for _ in range(int(self.room[GPUS]) if self.devices else 0):
            step = self._add_device(left, worth, held, width=width)
            if step is None:
                break
            left, worth, held = step
            states.append(step)
        left, worth, held = (np.concatenate([state[part] for state in states]) for part in range(3))
        chosen = highest(worth + left @ self.after, keep)
        return self._fill_up(left[chosen], worth[chosen], held[chosen], keep=keep)

    def _add_device(self, left: Floats, worth: Floats, held: Any, *, width: int) -> tuple[Any, Any, Any] | None:
        many = self.devices
        fits = held[:, :many] < self.limits[None, :many]
        for one in range(DIMENSIONS):
            fits &= self.sizes[:many, one][None, :] <= left[:, one][:, None]
        state, item = np.nonzero(fits)
        if not len(state):
            return None
        rest = left[state] - self.sizes[item]
        value = worth[state] + self.values[item]
        after = rest @ self.after
        hope = value + np.where(rest[:, GPUS] > 0, rest @ self.weights, np.minimum(rest @ self.weights, after))
        chosen = highest(hope, 6 * width)
        chosen = chosen[self._distinct(rest[chosen], hope[chosen])]
        chosen = chosen[highest(hope[chosen], width)]
        grown = held[state[chosen]]
        grown[np.arange(len(chosen)), item[chosen]] += 1
        return rest[chosen], value[chosen], grown

    def _distinct(self, rest: Floats, hope: Floats) -> Whole:
        cell = (rest * self.cells).astype(np.int64)
        key = (rest[:, GPUS].astype(np.int64) * (_CELLS + 1) + cell[:, CPU]) * (_CELLS + 1) + cell[:, MEMORY]
        order = np.lexsort((-hope, key))
        first = np.ones(len(order), dtype=bool)
        first[1:] = key[order][1:] != key[order][:-1]
        return order[first]

    def _fill_up(self, left: Floats, worth: Floats, held: Any, *, keep: int) -> tuple[Floats, NDArray[np.int16]]:
        sizes, values, first = self.sizes[self.devices :], self.values[self.devices :], self.devices
        if not len(values):
            return worth, held
        numbers, last = np.arange(len(values)), np.zeros(len(worth), dtype=np.int64)
        done: list[tuple[Floats, NDArray[np.int16]]] = []
        for _ in range(_LEVELS):
            fits = (numbers[None, :] >= last[:, None]) & (held[:, first:] < self.limits[None, first:])
            for one in range(DIMENSIONS):
                fits &= sizes[:, one][None, :] <= left[:, one][:, None]
            full = ~fits.any(axis=1)
            done.append((worth[full], held[full]))
            state, item = np.nonzero(fits)
            if not len(state):
                break
            rest, value = left[state] - sizes[item], worth[state] + values[item]
            chosen = highest(value + rest @ self.after, keep)
            held = held[state[chosen]]
            held[np.arange(len(chosen)), first + item[chosen]] += 1
            left, worth, last = rest[chosen], value[chosen], item[chosen]
        else:
            done.append((worth, held))
        return np.concatenate([one for one, _ in done]), np.concatenate([one for _, one in done])


def highest(scores: Floats, many: int) -> Whole:
    """Positions of the highest scores; always the same ones for the same scores."""
    if len(scores) <= many:
        return np.arange(len(scores))
    return np.argpartition(-scores, many)[:many]


def quiet_solver() -> Any:
    """HiGHS on one thread, saying nothing."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 - HiGHS' own signature
    solver.setOptionValue("threads", 1)
    return solver
