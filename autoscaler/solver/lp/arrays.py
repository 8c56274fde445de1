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
_SUMMED = {(1, 1): "i,i->", (1, 2): "i,ij->j", (2, 1): "ij,j->i", (2, 2): "ij,jk->ik"}
"""By numbers of dimensions."""


def dot(left: Any, right: Any) -> Any:
    """``left @ right`` of vectors or matrices, to the last digit the same on every machine.

    ``@`` sums in an order, with or without fused steps, that OpenBLAS chooses by the kind of CPU and the number of
    threads: the same look gave one plan on one machine and another one on the next.
    """
    return np.einsum(_SUMMED[np.ndim(left), np.ndim(right)], left, right)


def inverse(matrix: Floats) -> Floats:
    """Of a square matrix that has one, by Gauss-Jordan elimination with partial pivoting: not LAPACK, as above."""
    size = len(matrix)
    work = np.concatenate([matrix, np.eye(size)], axis=1)
    for step in range(size):
        pivot = step + int(np.argmax(np.abs(work[step:, step])))
        if pivot != step:
            work[[step, pivot]] = work[[pivot, step]]
        row = work[step] / work[step, step]
        work -= work[:, step, None] * row
        work[step] = row
    return work[:, size:]


def highest(scores: Floats, many: int) -> Whole:
    """Positions of the highest scores, highest first, and of equal ones the first.

    The same ones on every machine: ``argpartition`` takes others among equal ones by the kind of CPU.
    """
    if len(scores) <= many:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - many)[len(scores) - many]
    found = np.flatnonzero(scores >= least)
    return found[np.argsort(-scores[found], kind="stable")[:many]]


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
