"""Where pods ask for too many different amounts, those that ask for about the same are taken together.

The solver plans each crowd as if all its pods asked for the most that one of them asks for, so that whatever is planned
fits; the bound is proven for the least that one of them asks for.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

Amounts = np.ndarray[Any, np.dtype[np.int64]]

MANY = 160
"""Shapes that the solver takes in its stride."""


def crowded(sizes: Amounts, counts: Amounts, like: Sequence[Hashable], *, many: int = MANY) -> list[list[int]]:
    """Rows of about the same size together, at most about ``many`` crowds; only rows that are ``like`` each other.

    The crowd that wastes most is split where that helps most, again and again.
    """
    scale = np.maximum(1.0, (sizes * counts[:, None]).sum(axis=0))
    shares = sizes / scale
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for row, key in enumerate(like):
        groups[key].append(row)
    heap = [_entry(np.array(group), shares, counts) for group in groups.values()]
    heapq.heapify(heap)
    while len(heap) < many and heap[0][0] < 0:
        _, _, rows = heapq.heappop(heap)
        for part in _split(rows, shares, counts):
            heapq.heappush(heap, _entry(part, shares, counts))
    return sorted(sorted(rows.tolist()) for *_, rows in heap)


def _entry(rows: Amounts, shares: Any, counts: Amounts) -> tuple[float, int, Amounts]:
    """The most wasteful comes first; the row's number settles ties."""
    return -float(_waste(shares[rows], counts[rows]).sum()), int(rows[0]), rows


def _waste(shares: Any, counts: Amounts) -> Any:
    """By resource: what is planned for and not asked for."""
    return ((shares.max(axis=0) - shares) * counts[:, None]).sum(axis=0)


def _split(rows: Amounts, shares: Any, counts: Amounts) -> tuple[Amounts, Amounts]:
    """Along the resource that is wasted most, where the least is wasted on both sides."""
    side = int(np.argmax(_waste(shares[rows], counts[rows])))
    rows = rows[np.argsort(shares[rows, side], kind="stable")]
    values, many = shares[rows, side], np.cumsum(counts[rows])
    saved = many[:-1] * (values[-1] - values[:-1])
    cut = int(np.argmax(np.where(values[1:] > values[:-1], saved, -1.0))) + 1
    return rows[:cut], rows[cut:]
