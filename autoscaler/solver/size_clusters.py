"""Where pods ask for too many different amounts, those that ask for about the same are taken together.

The solver plans for the middle of each cluster: what one pod takes above it another takes below it. Which pod then
takes which place is found by :mod:`autoscaler.planner.cutting_stock.sized_slots`; the bound is proven for every pod as
it is (:mod:`autoscaler.solver.lp.dual_bound`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

Amounts = np.ndarray[Any, np.dtype[np.int64]]

MANY = 160
"""Shapes that the solver takes in its stride."""
_GPUS = 2
_ABOVE = 0.25
"""Of the way from the average to the largest: at the average, every other node would be too small."""
_STEPS = 64
"""Where no pod asks for devices, middles are rounded to a part of the largest: kinds can be priced together then."""
_DISTORTED = 0.05
"""At most this part of what is asked for may be changed by that: beside a few very large pods most are below a step."""


def clustered(sizes: Amounts, counts: Amounts, like: Amounts, *, many: int = MANY) -> list[Amounts]:
    """Rows of about the same size together, at most about ``many`` clusters; only rows that are alike in ``like``.

    The cluster that wastes most is split where that helps most, again and again.
    """
    scale = np.maximum(1.0, (sizes * counts[:, None]).sum(axis=0))
    shares = sizes / scale
    order = np.lexsort((np.arange(len(like)), *like.T))
    ranked = like[order]
    groups = np.split(order, np.nonzero((ranked[1:] != ranked[:-1]).any(axis=1))[0] + 1)
    heap = [_entry(group, shares, counts) for group in groups]
    heapq.heapify(heap)
    while len(heap) < many and heap[0][0] < 0:
        _, _, rows = heapq.heappop(heap)
        for part in _split(rows, shares, counts):
            heapq.heappush(heap, _entry(part, shares, counts))
    return sorted((np.sort(rows) for *_, rows in heap), key=lambda rows: int(rows[0]))


def middles(sizes: Amounts, counts: Amounts, clusters: Sequence[Amounts]) -> Amounts:
    """What to plan for, for a pod of each cluster: a little more than they ask for on the average."""
    found = [-(-_asked(sizes[cluster], counts[cluster]) // counts[cluster].sum()) for cluster in clusters]
    middle: Amounts = np.array(found, dtype=np.int64).reshape(-1, sizes.shape[1])
    largest = np.array([sizes[cluster].max(axis=0) for cluster in clusters], dtype=np.int64).reshape(middle.shape)
    middle += ((largest - middle) * _ABOVE).astype(np.int64)
    if not sizes[:, _GPUS].any():
        asked = middle[:, :_GPUS]
        step = np.maximum(1, sizes[:, :_GPUS].max(axis=0) // _STEPS)
        near = np.where(asked > 0, np.maximum(1, (asked + step // 2) // step) * step, 0)
        many = np.array([counts[cluster].sum() for cluster in clusters])
        if (_asked(abs(near - asked), many) <= _DISTORTED * _asked(asked, many)).all():
            middle[:, :_GPUS] = near
    return middle


def _entry(rows: Amounts, shares: Any, counts: Amounts) -> tuple[float, int, Amounts]:
    """The most wasteful comes first; the row's number settles ties."""
    return -float(_waste(shares[rows], counts[rows]).sum()), int(rows[0]), rows


def _waste(shares: Any, counts: Amounts) -> Any:
    """Returns by resource what would be planned for and not asked for, if all asked for the most that one asks for."""
    return shares.max(axis=0) * counts.sum() - _asked(shares, counts)


def _asked(amounts: Any, counts: Amounts) -> Any:
    """Returns by resource what so many pods of each row ask for together."""
    return (amounts * counts[:, None]).sum(axis=0)


def _split(rows: Amounts, shares: Any, counts: Amounts) -> tuple[Amounts, Amounts]:
    """Along the resource that is wasted most, where the least is wasted on both sides."""
    side = int(np.argmax(_waste(shares[rows], counts[rows])))
    rows = rows[np.argsort(shares[rows, side], kind="stable")]
    values, many = shares[rows, side], np.cumsum(counts[rows])
    saved = many[:-1] * (values[-1] - values[:-1])
    cut = int(np.argmax(np.where(values[1:] > values[:-1], saved, -1.0))) + 1
    return rows[:cut], rows[cut:]
