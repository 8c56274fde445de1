"""Fillings that an earlier search found: what was good for many pods is nearly as good for most of them.

Under limits the same pods are planned for again and again, some more or some less of them each time; only the first
time is there a search.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Whole

_GOOD = 0.97
"""A filling is kept that is worth so much of what its node costs, with what makes the node scarce."""
_MANY = 600

Filling = tuple[str, tuple[tuple[Hashable, int], ...]]
"""The name of a kind; shapes, and how many of each."""


class ColumnPool:
    """Fillings by kind and shape, as the caller names them."""

    def __init__(self) -> None:
        self._fillings: dict[Filling, None] = {}

    def __bool__(self) -> bool:
        """Says whether any filling is kept."""
        return bool(self._fillings)

    def keep(
        self, names: Sequence[str], rows: Sequence[Hashable], fillings: tuple[Whole, Whole], worth: Floats
    ) -> None:
        """The best of these. ``fillings``: (kinds, pods); ``worth``: as a part of what the node costs."""
        kinds, pods = fillings
        for one in np.argsort(-worth, kind="stable")[:_MANY].tolist():
            if worth[one] < _GOOD:
                break
            held = np.nonzero(pods[one])[0].tolist()
            self._fillings[names[kinds[one]], tuple((rows[row], int(pods[one, row])) for row in held)] = None

    def told(self, names: Sequence[str], rows: Sequence[Hashable], counts: Whole) -> dict[int, Whole]:
        """Returns by kind those that hold pods that there are; less of them where there are not as many."""
        kind_of = {name: number for number, name in enumerate(names)}
        row_of = {row: number for number, row in enumerate(rows)}
        found: dict[int, list[Whole]] = {}
        for name, held in self._fillings:
            pods = np.zeros(len(rows), dtype=np.int64)
            for shape, many in held:
                if shape in row_of:
                    pods[row_of[shape]] = many
            pods = np.minimum(pods, counts)
            if name in kind_of and pods.any():
                found.setdefault(kind_of[name], []).append(pods)
        return {kind: np.array(several) for kind, several in found.items()}
