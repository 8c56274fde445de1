"""Pricing many kinds of node at once, where no pod asks for devices: the other pricing of :mod:`columns`.

Amounts are counted in units of cpu and of memory, so that a node is a cell of a table that says what the best filling
of so much room is worth: the recursion of the unbounded knapsack, one pass over the table for each shape. A table a
few times as large as the biggest pod serves nodes of any size: a larger node is cut into equal parts, each filled as
well as its part can be. Of the places that each node has once a filling gives each to one pod at most: these pods are
the *lead*, and all leads are tried.

Pods are rounded up to units and nodes down, so what is found fits. The other way round the table is a proof: no filling
of a node that is a cell of it is worth more.
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from math import gcd
from typing import NamedTuple

import numpy as np

from autoscaler.solver.lp.arrays import GPUS, PODS, Floats, Mask, Whole, highest
from autoscaler.solver.lp.master import Problem

_CELLS, _LARGEST = 200_000, 800_000
_PODS_WIDE = 3.5
"""How often the biggest pod goes into the table, along each side."""
_COARSE = 0.002
"""At most this part of what is asked for may be lost to rounding: nodes filled to the brim lose far more of it."""
_GROUPS = 3
_LEADS = 2
"""Places that each node has once: at most so many, for all combinations of pods that take them are tried."""
_CUTS = 4
_NOTHING = 1e-9
_EXACT = 1 + 1e-9


class Grid:
    """Tables over cpu and memory for the kinds of a problem."""

    def __init__(self, problem: Problem, groups: list[Whole], unit: Floats) -> None:
        self.problem, self.groups = problem, groups
        self._lone = np.nonzero(~problem.sizes[:, PODS + 1 :].any(axis=1))[0]
        self._leads = _leads(problem.sizes)
        self._sizes = np.ceil(problem.sizes[:, :GPUS] / unit).astype(np.int64)
        self._least = np.floor(problem.sizes[:, :GPUS] / unit).astype(np.int64)
        self._rooms = np.floor(problem.rooms[:, :GPUS] / unit).astype(np.int64)
        self._most = self._rooms if (self._sizes == self._least).all() else self._rooms + 1
        wide = np.ceil(_PODS_WIDE * self._sizes.max(axis=0)).astype(np.int64)
        self._top = np.minimum(wide, self._rooms.max(axis=0))

    @classmethod
    def of(cls, problem: Problem) -> Grid | None:
        """``None`` where pods ask for devices, or for amounts that no unit measures well."""
        sizes, once = problem.sizes, problem.sizes[:, PODS + 1 :]
        if sizes[:, GPUS].any() or not (sizes[:, :GPUS] > 0).all() or (sizes[:, PODS] != 1).any():
            return None
        if once.shape[1] > _LEADS or (once > 1).any() or (problem.rooms[:, PODS + 1 :] != 1).any():
            return None
        groups = _alike(problem.may)
        unit = _unit(sizes[:, :GPUS], problem.counts) if len(groups) <= _GROUPS else None
        return cls(problem, groups, unit) if unit is not None else None

    def best(
        self, prices: Floats, usd: Floats, *, least: float, kinds: int, take: int
    ) -> list[tuple[int, float, Whole]]:
        """Kinds whose best filling is worth most for their price, that worth as a part of it, and good fillings.

        ``usd``: the prices by kind. Of each kind at most ``take`` fillings that are worth ``least`` of its price.
        """
        found = []
        for group in self.groups:
            look = self._look(prices, group)
            worth = look.bids.values / usd[group][:, None]
            order = np.argsort(-worth.max(axis=1), kind="stable")[:kinds]
            leads = [highest(worth[one], take) for one in order.tolist()]
            leads = [lead[worth[one, lead] >= least] for one, lead in zip(order.tolist(), leads, strict=True)]
            row = np.repeat(order, [len(lead) for lead in leads])
            pods = self._fillings(look, row, np.concatenate(leads))
            for one in order.tolist():
                kind = int(group[one])
                found.append((kind, float(worth[one].max()), _within(pods[row == one], self.problem, kind, prices)))
        return found

    def ceilings(self, prices: Floats) -> Floats:
        """Returns by kind what no filling is worth more than; infinite for those that are larger than the table."""
        found = np.full(len(self.problem.usd), np.inf)
        for group in self.groups:
            inside = group[(self._most[group] <= self._top).all(axis=1)]
            found[inside] = self._ceilings(inside, prices, self._top)
        return found

    def ceiling_of(self, kind: int, prices: Floats) -> float:
        """The same for one kind, with a table as large as it needs; infinite where that is too large."""
        top = self._most[kind]
        return float(self._ceilings(np.array([kind]), prices, top)[0]) if top.prod() <= _LARGEST else np.inf

    def _ceilings(self, kinds: Whole, prices: Floats, top: Whole) -> Floats:
        lone, leads = self._wanted(prices, kinds[0]) if len(kinds) else (self._lone[:0], self._leads)
        if not len(kinds) or not self._least[lone].any(axis=1).all():
            return np.full(len(kinds), np.inf)
        table = _table(prices[lone], self._least[lone], top)
        bids = _bids(table, self._most[kinds], leads.sizes(self._least), leads.values(prices))
        ceilings: Floats = bids.values.max(axis=1) * _EXACT
        return ceilings

    def _wanted(self, prices: Floats, kind: int) -> tuple[Whole, _Leads]:
        """Returns the shapes that may run on such kinds and are worth something."""
        may = self.problem.may[:, kind] & (prices > _NOTHING)
        return self._lone[may[self._lone]], self._leads.allowed(may)

    def _look(self, prices: Floats, group: Whole) -> _Look:
        lone, leads = self._wanted(prices, group[0])
        table = _table(prices[lone], self._sizes[lone], self._top)
        bids = _bids(table, self._rooms[group], leads.sizes(self._sizes), leads.values(prices))
        return _Look(prices, lone, leads, table, bids)

    def _fillings(self, look: _Look, row: Whole, lead: Whole) -> Whole:
        """What bids stand for: the last part of the node, which has the lead, and the others."""
        bids, lone = look.bids, look.lone
        pods = np.zeros((len(row), len(look.prices)), dtype=np.int64)
        sizes, values = self._sizes[lone], look.prices[lone]
        cut = bids.cuts[row, lead]
        last = bids.lasts[cut, row] - look.leads.sizes(self._sizes)[lead]
        pods[:, lone] = _told(look.table, last, sizes, values)
        others = bids.times[cut, row] - 1
        many = np.nonzero(others)[0]
        if len(many):
            part = _told(look.table, bids.parts[cut, row][many], sizes, values)
            pods[np.ix_(many, lone)] += others[many][:, None] * part
        filled: Whole = pods + look.leads.pods(len(look.prices))[lead]
        return filled


class _Look(NamedTuple):
    """What was found for the kinds of a group at some prices."""

    prices: Floats
    lone: Whole
    leads: _Leads
    table: Floats
    bids: _Bids


class _Leads(NamedTuple):
    """Combinations of pods that take the places of which each node has one; the first is none."""

    rows: list[tuple[int, ...]]

    def allowed(self, may: Mask) -> _Leads:
        return _Leads([one for one in self.rows if all(may[row] for row in one)])

    def sizes(self, sizes: Whole) -> Whole:
        return np.array([sizes[list(one)].sum(axis=0) for one in self.rows], dtype=np.int64).reshape(-1, GPUS)

    def values(self, prices: Floats) -> Floats:
        return np.array([prices[list(one)].sum() for one in self.rows])

    def pods(self, shapes: int) -> Whole:
        held = np.zeros((len(self.rows), shapes), dtype=np.int64)
        for number, one in enumerate(self.rows):
            held[number, list(one)] = 1
        return held


def _leads(sizes: Floats) -> _Leads:
    once = sizes[:, PODS + 1 :]
    takers = np.nonzero(once.any(axis=1))[0].tolist()
    rows: list[tuple[int, ...]] = [(), *((one,) for one in takers)]
    rows += [(one, other) for one, other in combinations(takers, 2) if (once[one] + once[other] <= 1).all()]
    return _Leads(rows)


def _alike(may: Mask) -> list[Whole]:
    """Kinds on which the same shapes may run, together."""
    groups: dict[bytes, list[int]] = {}
    for kind, column in enumerate(may.T):
        groups.setdefault(column.tobytes(), []).append(kind)
    return [np.array(group, dtype=np.int64) for group in groups.values()]


def _unit(sizes: Floats, counts: Whole) -> Floats | None:
    """The largest common measure of all amounts; a multiple of it where the table would have too many cells."""
    unit = np.array([float(reduce(gcd, column.astype(np.int64).tolist())) for column in sizes.T])
    top = sizes.max(axis=0) * _PODS_WIDE
    while (cells := np.ceil(top / unit)).prod() > _CELLS:
        unit[int(np.argmax(cells))] *= 2
    lost = (np.ceil(sizes / unit) * unit * counts[:, None]).sum(axis=0) / (sizes * counts[:, None]).sum(axis=0) - 1
    return unit if (lost <= _COARSE).all() else None


def _table(values: Floats, sizes: Whole, top: Whole) -> Floats:
    """[cpu, memory]: what the best pods for so much are worth. Rows that do not depend on each other at once."""
    best: Floats = np.zeros((int(top[0]) + 1, int(top[1]) + 1))
    for (cpu, memory), value in zip(sizes.tolist(), values.tolist(), strict=True):
        table, step, across = (best, cpu, memory) if cpu else (best.T, memory, cpu)
        for start in range(step, len(table) if across < table.shape[1] else 0, step):
            end = min(start + step, len(table))
            into = table[start:end, across:]
            np.maximum(into, table[start - step : end - step, : table.shape[1] - across] + value, out=into)
    return best


class _Bids(NamedTuple):
    """The best value found for each kind and lead, and in how many parts the node is cut for it."""

    values: Floats
    cuts: Whole
    """[kind, lead]: number of the cut"""
    times: Whole
    """[cut, kind]: into how many parts"""
    parts: Whole
    """[cut, kind, side]"""
    lasts: Whole
    """[cut, kind, side]: the last part has what the others leave over, too"""


def _bids(table: Floats, rooms: Whole, leads: Whole, worth: Floats) -> _Bids:
    top = np.array(table.shape) - 1
    fewest: Whole = np.maximum(1, (-(-rooms // np.maximum(top, 1))).max(axis=1))
    larger: Whole = (fewest > 1).astype(np.int64)
    times = fewest[None, :] + larger[None, :] * np.arange(_CUTS if larger.any() else 1)[:, None]
    parts = rooms[None] // times[:, :, None]
    lasts = np.minimum(rooms[None] - (times - 1)[:, :, None] * parts, top)
    left = lasts[:, :, None, :] - leads[None, None]
    fits = (left >= 0).all(axis=3)
    inside = np.where(fits[..., None], left, 0)
    others = (times - 1) * table[parts[..., 0], parts[..., 1]]
    values = np.where(fits, table[inside[..., 0], inside[..., 1]] + worth + others[:, :, None], -1.0)
    best = values.argmax(axis=0)
    return _Bids(np.take_along_axis(values, best[None], axis=0)[0], best, times, parts, lasts)


def _told(table: Floats, cells: Whole, sizes: Whole, values: Floats) -> Whole:
    """The pods that the values of these cells stand for: one pod of each cell at a time, until nothing is left."""
    pods = np.zeros((len(cells), len(sizes)), dtype=np.int64)
    cells, open_ = cells.copy(), np.arange(len(cells))
    while len(open_) and len(sizes):
        before = cells[open_][:, None, :] - sizes[None]
        fits: Mask = np.asarray((before >= 0).all(axis=2))
        inside = np.where(fits[..., None], before, 0)
        value = np.where(fits, table[inside[..., 0], inside[..., 1]] + values, -1.0)
        chosen = value.argmax(axis=1)
        lines = np.arange(len(open_))
        here = table[cells[open_][:, 0], cells[open_][:, 1]]
        right: Mask = np.asarray((value[lines, chosen] >= here * (1 - _NOTHING) - _NOTHING) & (here > 0))
        pods[open_[right], chosen[right]] += 1
        cells[open_[right]] = before[lines[right], chosen[right]]
        open_ = open_[right]
    return pods


def _within(pods: Whole, problem: Problem, kind: int, prices: Floats) -> Whole:
    """Returns not more pods than there are, nor than a kubelet takes: those worth least stay away."""
    pods = np.minimum(pods, problem.counts)
    most = int(problem.rooms[kind, PODS])
    for one in np.nonzero(pods.sum(axis=1) > most)[0].tolist():
        over = int(pods[one].sum()) - most
        for row in np.argsort(prices, kind="stable").tolist():
            gone = min(over, int(pods[one, row]))
            pods[one, row] -= gone
            over -= gone
    return pods
