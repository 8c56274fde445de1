"""Pods of too many sizes for the solver: planned for by clusters of about the same size, then seated one by one.

The solver plans nodes for the middle of each cluster (:mod:`autoscaler.solver.size_clusters`). Every node then takes
real pods (:mod:`autoscaler.planner.cutting_stock.sized_slots`), and becomes the cheapest kind that holds these. Pods
that get no place are left to the caller. The bound is proven for every pod as it is, not for the middles.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from autoscaler.planner.cutting_stock.sized_slots import Middle, SizedSlots
from autoscaler.solver.lp.arrays import Whole, by_pattern
from autoscaler.solver.problem import Cutting, Kind, Limit, Shape
from autoscaler.solver.repacking import Node, Packing, improved, joined, packed
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

    @classmethod
    def each(cls, rows: Sequence[Shape]) -> SizeClusters:
        """Every row by itself."""
        return cls(rows, [np.array([row]) for row in range(len(rows))], rows)

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

    def repacked(
        self,
        nodes: Sequence[Nodes],
        answer: Answer,
        kinds: Sequence[Kind],
        limits: Sequence[Limit],
        *,
        rounds: int,
    ) -> list[Nodes]:
        """The same nodes, and some for the pods that they leave, improved (:mod:`autoscaler.solver.repacking`).

        ``kinds``: of which there may be more or fewer then; other nodes stay, and so do pods that none of these holds.
        ``limits``: that these share; none where pods are of several parts.
        """
        if not kinds:
            return list(nodes)
        pods = _Pods(self, answer, kinds, limits)
        kept, plans = list[Nodes](), defaultdict[str, list[Node]](list)
        for lot in nodes:
            for held in [pods.taken(lot) for _ in range(lot.times)]:
                if lot.kind in pods.kinds:
                    plans[lot.part].append(pods.node(lot.kind, held))
                else:
                    kept.append(replace(lot, times=1))
        for part, waiting in pods.left().items():
            plans[part], left = joined(pods.packing, plans[part], waiting)
            more = plans[part] + packed(pods.packing, left)
            plans[part] = more if pods.packing.left(more).is_there() else plans[part]
        better = {part: improved(pods.packing, plan, rounds=rounds) for part, plan in plans.items()}
        return kept + [pods.told(node, part) for part, plan in better.items() for node in plan]


class _Pods:
    """The pods of some rows one by one, those that some of these kinds hold."""

    def __init__(self, clusters: SizeClusters, answer: Answer, kinds: Sequence[Kind], limits: Sequence[Limit]) -> None:
        self.kinds = frozenset(kind.name for kind in kinds)
        cutting = Cutting.of(clusters.rows, kinds, limits)
        problem, self._rows = cutting.problem, clusters.rows
        order = np.argsort(problem.usd, kind="stable")
        self._names = [cutting.names[kind] for kind in order.tolist()]
        self._number = {name: number for number, name in enumerate(self._names)}
        row_of = np.full(len(clusters.rows), -1, dtype=np.int64)
        for row, numbers in enumerate(cutting.shape_of):
            row_of[list(numbers)] = row
        worth = np.zeros(len(clusters.rows))
        for rows, some in zip(clusters.members, answer.worths, strict=True):
            worth[rows] = some if len(some) else 0.0
        counts = np.where(row_of >= 0, [row.count for row in clusters.rows], 0)
        self._shapes = np.repeat(np.arange(len(counts)), counts)
        """Of each pod the number of its row."""
        ends = np.cumsum(counts)
        self._waiting = [list(range(end - many, end)) for end, many in zip(ends.tolist(), counts.tolist(), strict=True)]
        classes, may = by_pattern(problem.may.T)
        of_pods = row_of[self._shapes]
        self.packing = Packing(
            sizes=problem.sizes[of_pods],
            worth=worth[self._shapes],
            classes=classes[of_pods],
            may=may[:, order],
            rooms=problem.rooms[order],
            usd=problem.usd[order],
            available=problem.available[order],
            uses=problem.uses[:, order],
            most=problem.most,
        )

    def taken(self, lot: Nodes) -> Whole:
        """Pods for one node of these; they wait no longer."""
        found: list[int] = []
        for number, many in lot.pods:
            waiting = self._waiting[number]
            found += waiting[:many]
            del waiting[:many]
        return np.array(found, dtype=np.int64)

    def left(self) -> dict[str, Whole]:
        """Returns by part the pods that wait."""
        found = defaultdict[str, list[int]](list)
        for row, waiting in zip(self._rows, self._waiting, strict=True):
            if waiting:
                found[row.part] += waiting
        return {part: np.array(some, dtype=np.int64) for part, some in found.items()}

    def node(self, kind: str, pods: Whole) -> Node:
        """Returns a node of the kind, or of one that makes it needless."""
        known = self._number.get(kind)
        return Node(self.packing.cheapest(pods) if known is None else known, pods)

    def told(self, node: Node, part: str) -> Nodes:
        """Returns the node in the words of the solver."""
        held = Counter(self._shapes[node.pods].tolist())
        return Nodes(self._names[node.kind], 1, tuple(sorted(held.items())), part)


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
