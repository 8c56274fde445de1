"""The arrays that column generation counts in: what their columns mean, and two questions often asked of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

CPU, MEMORY, GPUS, PODS = range(4)
"""The first dimensions of an amount. There may be more: each is something of which a node has a few."""
EPSILON = 1e-6
"""Dollars per hour, or a part of them: less tells nothing apart."""


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


def by_pattern(columns: Mask) -> tuple[Whole, Mask]:
    """Returns for each column the number of its pattern; and the patterns, a row each, in order of appearance."""
    numbers: dict[bytes, int] = {}
    rows = np.ascontiguousarray(columns.T)
    alike = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], dtype=np.int64)
    patterns = np.array([np.frombuffer(one, dtype=bool) for one in numbers], dtype=bool)
    return alike, patterns.reshape(len(numbers), len(columns))
