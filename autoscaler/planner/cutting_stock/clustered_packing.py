"""Pods of too many sizes for the solver: planned for by clusters of about the same size, then seated one by one.

The solver plans nodes for the middle of each cluster (:mod:`autoscaler.solver.size_clusters`). Every node then takes
real pods (:mod:`autoscaler.planner.cutting_stock.sized_slots`), and becomes the cheapest kind that holds these. Pods
that get no place are left to the caller. The bound is proven for every pod as it is, not for the middles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from autoscaler.planner.cutting_stock.sized_slots import Middle, SizedSlots
from autoscaler.solver.lp.arrays import Whole
from autoscaler.solver.problem import Kind, Shape
from autoscaler.solver.size_clusters import MANY, clustered, middles
from autoscaler.solver.solution import Answer, Nodes

_DEVICES: Final = 2
"""From this column on all pods of a cluster ask for the same: cpu and memory are what may differ."""


@dataclass(frozen=True, slots=True)
class SizeClusters:
    """Rows of a cutting-stock problem, those of about the same size together."""

    rows: Sequence[Shape]
    members: Sequence[Whole]
    """By cluster the numbers of its rows."""
    shapes: Sequence[Shape]
    """By cluster what the solver plans for."""

    @classmethod
    def of(cls, rows: Sequence[Shape]) -> SizeClusters | None:
        """``None`` where the solver takes them as they are."""
        if len({(row.amounts, row.kinds) for row in rows}) <= MANY:
            return None
        sizes = np.array([row.amounts for row in rows], dtype=np.int64)
        counts = np.array([row.count for row in rows], dtype=np.int64)
        classes: dict[tuple[frozenset[str] | None, str], int] = {}
        takers = np.array([classes.setdefault((row.kinds, row.part), len(classes)) for row in rows], dtype=np.int64)
        groups = clustered(sizes, counts, np.column_stack([sizes[:, _DEVICES:], takers]))
        found = [
            replace(
                rows[int(group[0])],
                amounts=tuple(middle),
                count=int(counts[group].sum()),
                members=(sizes[group], counts[group]),
            )
            for group, middle in zip(groups, middles(sizes, counts, groups).tolist(), strict=True)
        ]
        return cls(rows, groups, found)

    def seated(self, answer: Answer, kinds: Sequence[Kind]) -> list[Nodes]:
        """The answer's nodes with real pods by row, each of the cheapest kind that holds them."""
        number_of = {kind.name: number for number, kind in enumerate(kinds)}
        row_of: list[int] = []
        clusters: list[range] = []
        for rows in self.members:
            first = len(row_of)
            row_of += [row for row in rows.tolist() for _ in range(self.rows[row].count)]
            clusters.append(range(first, len(row_of)))
        lots = [(number_of[lot.kind], lot.pods, lot.part) for lot in answer.nodes for _ in range(lot.times)]
        sizes = np.array([row.amounts for row in self.rows], dtype=np.int64)
        slots = SizedSlots(sizes, row_of).seat(
            ((kinds[kind].amounts, pods) for kind, pods, _ in lots),
            clusters,
            [Middle(*shape.amounts[:_DEVICES]) for shape in self.shapes],
        )
        held = [Counter(row_of[pod] for pod in pods) for pods in slots]
        fitting = _Fitting(self.rows, kinds)
        return [
            Nodes(kinds[fitting.cheapest(kind, pods)].name, 1, tuple(sorted(pods.items())), part)
            for (kind, _, part), pods in zip(lots, held, strict=True)
            if pods
        ]


class _Fitting:
    """The cheapest kind without an end for what is on a node."""

    def __init__(self, rows: Sequence[Shape], kinds: Sequence[Kind]) -> None:
        self._sizes = np.array([row.amounts for row in rows], dtype=np.int64)
        self._rooms = np.array([kind.amounts for kind in kinds], dtype=np.int64)
        self._usd = np.array([kind.usd for kind in kinds])
        self._endless = np.array([kind.available is None for kind in kinds], dtype=bool)
        classes = {row.kinds for row in rows}
        masks = {
            names: np.array([names is None or kind.name in names for kind in kinds], dtype=bool) for names in classes
        }
        self._lets_in = [masks[row.kinds] for row in rows]

    def cheapest(self, kind: int, pods: Mapping[int, int]) -> int:
        """Another kind, if one costs less than this one and holds the pods."""
        used = sum(self._sizes[row] * many for row, many in pods.items())
        fits = self._endless & (self._usd < self._usd[kind]) & np.all(self._rooms >= used, axis=1)
        for row in pods:
            fits &= self._lets_in[row]
        return int(np.argmin(np.where(fits, self._usd, np.inf))) if fits.any() else kind
