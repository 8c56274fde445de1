"""The cutting-stock problem: shapes of pods, kinds of node and limits, in arrays for the solver and back in words.

Equal shapes become one row; kinds that a cheaper one makes needless are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoscaler.solver.column_generation import Generation
from autoscaler.solver.column_pool import ColumnPool
from autoscaler.solver.lp.arrays import Floats, Mask, Whole, by_pattern, dot
from autoscaler.solver.lp.dual_bound import Apart, proven, worths
from autoscaler.solver.lp.master import Problem
from autoscaler.solver.rounding import Lot
from autoscaler.solver.solution import Answer, Nodes, joined, taken, together

_USED = 1e-6
_BLOCK = 64
"""Kinds that are compared at a time: of 64 and 128 the quicker for a thousand kinds."""

Vector = tuple[int, ...]
"""cpu (milli), memory, GPUs, pods, and anything else that a node has only so much of: the same for all shapes."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Pods that ask for the same amounts and may run on the same kinds."""

    amounts: Vector
    count: int
    kinds: frozenset[str] | None = None
    """Names of the kinds of node that it may run on; ``None``: any that holds it."""
    part: str = ""
    """Pods of different parts never share a node, as those of different zones; kinds serve all parts."""
    members: tuple[Whole, Whole] | None = None
    """Where it stands for pods of about that size: [pod, amount] what they really ask for, and how many of each there
    are. The bound is for those."""


class Kind(NamedTuple):
    """A kind of node that can be had."""

    name: str
    amounts: Vector
    usd: float
    available: int | None = None
    """``None``: as many as one likes."""
    members: Whole | None = None
    """Where it stands for machines that have at most that: [machine, amount] what each has. The bound is for those."""


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """What nodes of several kinds may not exceed together."""

    uses: Mapping[str, float]
    """By kind what a node takes of it; of those not named nothing."""
    most: float


@dataclass(frozen=True, slots=True, eq=False)
class Cutting:
    """Shapes that ask for something that some kind holds, kinds that no other makes needless; with their names."""

    problem: Problem
    names: tuple[str, ...]
    shape_of: tuple[tuple[int, ...], ...]
    """For each row the numbers of the caller's shapes that it stands for."""
    rows: tuple[tuple[Vector, frozenset[str] | None], ...]
    """What the pods of each row ask for."""
    parts: dict[str, Whole]
    """Pods of each row by part."""
    apart: Apart | None
    """``None``: nothing is taken together."""
    members: tuple[int, ...]
    """By the caller's shape how many sizes it stands for."""

    @classmethod
    def of(cls, shapes: Sequence[Shape], kinds: Sequence[Kind], limits: Sequence[Limit]) -> Cutting:
        """Join equal shapes, drop kinds that a cheaper one makes needless."""
        kinds = _boundless(kinds, sum(shape.count for shape in shapes))
        many = len((shapes[0] if shapes else kinds[0]).amounts) if shapes or kinds else 4
        rows: dict[tuple[Vector, frozenset[str] | None], list[int]] = {}
        for number, shape in enumerate(shapes):
            rows.setdefault((shape.amounts, shape.kinds), []).append(number)
        keys = sorted(rows, key=lambda key: key[0])
        sizes = np.array([amounts for amounts, _ in keys], dtype=float).reshape(-1, many)
        rooms = np.array([kind.amounts for kind in kinds], dtype=float).reshape(-1, many)
        may = np.tile(np.array([kind.available != 0 for kind in kinds], dtype=bool), (len(keys), 1))
        masks: dict[frozenset[str], Mask] = {}
        for row, (_, allowed) in enumerate(keys):
            if allowed is not None:
                if allowed not in masks:
                    masks[allowed] = np.array([kind.name in allowed for kind in kinds], dtype=bool)
                may[row] &= masks[allowed]
        holds = may.copy()
        for one in range(many):
            holds &= sizes[:, one, None] <= rooms[None, :, one]
        counts = np.array([sum(shapes[one].count for one in rows[key]) for key in keys], dtype=np.int64)
        parts = {part: np.zeros(len(keys), dtype=np.int64) for part in sorted({shape.part for shape in shapes})}
        for row, key in enumerate(keys):
            for one in rows[key]:
                parts[shapes[one].part][row] += shapes[one].count
        kept_rows = np.nonzero(holds.any(axis=1) & (counts > 0))[0]
        clusters = any(shape.members is not None for shape in shapes)
        clusters |= any(kind.members is not None for kind in kinds)
        # A member may fit where the shape that stands for it does not.
        uses = np.array([[one.uses.get(kind.name, 0.0) for kind in kinds] for one in limits])
        uses = uses.reshape(len(limits), len(kinds))
        kept = np.array(_undominated(kinds, rooms, uses, (may if clusters else holds)[kept_rows]), dtype=np.int64)
        problem = Problem(
            sizes=sizes[kept_rows],
            counts=counts[kept_rows],
            rooms=rooms[kept],
            usd=np.array([kinds[one].usd for one in kept], dtype=float),
            available=np.array([_or_endless(kinds[one].available) for one in kept], dtype=float),
            holds=holds[np.ix_(kept_rows, kept)],
            may=may[np.ix_(kept_rows, kept)],
            uses=uses[:, kept],
            most=np.array([one.most for one in limits], dtype=float),
        )
        return cls(
            problem=problem,
            names=tuple(kinds[one].name for one in kept),
            rows=tuple(keys[row] for row in kept_rows),
            shape_of=tuple(tuple(rows[keys[row]]) for row in kept_rows),
            parts={part: many[kept_rows] for part, many in parts.items() if many[kept_rows].any()},
            apart=_apart(shapes, [rows[keys[row]] for row in kept_rows], [kinds[one] for one in kept])
            if clusters
            else None,
            members=tuple(1 if shape.members is None else len(shape.members[1]) for shape in shapes),
        )

    def recall(self, known: ColumnPool, generation: Generation) -> None:
        """Begin with what an earlier search found."""
        for kind, pods in known.told(self.names, self.rows, self.problem.counts).items():
            generation.columns.add(kind, pods)

    def begin(self, plan: Sequence[Nodes], generation: Generation) -> None:
        """Begin with a plan for some of the pods: with its fillings, and with itself where it has a node for each."""
        row_of = {number: row for row, numbers in enumerate(self.shape_of) for number in numbers}
        kind_of = {name: number for number, name in enumerate(self.names)}
        lots: list[tuple[int, Whole]] = []
        placed = np.zeros_like(self.problem.counts)
        for node in plan:
            pods = np.zeros_like(placed)
            for number, many in node.pods:
                if number in row_of:
                    pods[row_of[number]] += many
            kind = generation.columns.holder(pods, kind_of.get(node.kind)) if pods.any() else None
            if kind is not None:
                generation.columns.add(kind, pods[None, :])
                lots += [(kind, pods)] * node.times
                placed += pods * node.times
        if (placed == self.problem.counts).all():
            generation.packed = lots

    def remember(self, known: ColumnPool, generation: Generation, *, without: frozenset[str] = frozenset()) -> None:
        """Keep what is used, and what is good at the prices that the search came to.

        ``without``: as if there were no kinds of these names.
        """
        usd = generation.columns.usd + generation.master.shortage
        used = generation.without_swaps() > _USED  # a place that is another's by a swap says nothing without its row
        worth = dot(generation.columns.fillings, generation.prices) / usd[generation.columns.kinds]
        worth[used] = np.inf
        worth[np.array([name in without for name in self.names], dtype=bool)[generation.columns.kinds]] = 0.0
        rows = [(amounts, kinds and kinds - without) for amounts, kinds in self.rows]
        known.keep(self.names, rows, (generation.columns.kinds, generation.columns.fillings), worth)

    def bound(self, generation: Generation, placed: Whole) -> float:
        """What no plan for so many pods of each row can undercut; where shapes stand for others, for all of these."""
        if self.apart is None:
            return generation.bound(placed)
        return proven(self.apart, self.problem, generation.weights, generation.charges)

    def worths(self, generation: Generation, shapes: int) -> tuple[Floats, ...]:
        """Returns by the number of a shape what each of its pods costs by the bound."""
        found = [np.empty(0)] * shapes
        if self.apart is None:
            for price, several in zip(generation.prices, self.shape_of, strict=True):
                for number in several:
                    found[number] = np.array([price])
        else:
            numbers = [one for several in self.shape_of for one in several]
            ends = np.cumsum([self.members[one] for one in numbers])[:-1]
            worth = worths(self.apart, self.problem, generation.weights)
            for number, some in zip(numbers, np.split(worth, ends), strict=True):
                found[number] = some
        return tuple(found)

    def answer(
        self, plans: Mapping[str, Sequence[Lot]], shapes: Sequence[Shape], bound: Callable[[Whole], float]
    ) -> Answer:
        """Returns the answer in the caller's words. ``bound``: what no plan for so many pods of each row undercuts."""
        waiting = [shape.count for shape in shapes]
        nodes: list[Nodes] = []
        placed = np.zeros(len(self.problem.counts), dtype=np.int64)
        usd = 0.0
        for part, plan in plans.items():
            rows = [[one for one in numbers if shapes[one].part == part] for numbers in self.shape_of]
            for lot in together(plan, self.names):
                placed += lot.pods * lot.times
                usd += float(self.problem.usd[lot.kind]) * lot.times
                nodes += self._told(lot, part, rows, waiting)
        usd = round(usd, 6)
        known = max(0.0, bound(placed))
        return Answer(joined(nodes), usd, min(usd, known), tuple(waiting))

    def _told(self, lot: Lot, part: str, rows: Sequence[Sequence[int]], waiting: list[int]) -> list[Nodes]:
        """The lot's nodes. Where a row stands for several shapes, they may hold different ones."""
        held = np.nonzero(lot.pods)[0].tolist()
        if all(len(rows[row]) == 1 for row in held):
            pods = tuple(sorted((rows[row][0], int(lot.pods[row])) for row in held))
            for number, many in pods:
                waiting[number] -= many * lot.times
            return [Nodes(self.names[lot.kind], lot.times, pods, part)]
        return [Nodes(self.names[lot.kind], 1, taken(lot.pods, held, rows, waiting), part) for _ in range(lot.times)]


def _apart(shapes: Sequence[Shape], rows: Sequence[Sequence[int]], kinds: Sequence[Kind]) -> Apart:
    """The members of every row, and of every kind that has some."""
    sizes, counts, row_of = [], [], []
    for row, numbers in enumerate(rows):
        for shape in (shapes[one] for one in numbers):
            members = shape.members or (np.array([shape.amounts]), np.array([shape.count]))
            sizes.append(members[0].astype(float))
            counts.append(members[1])
            row_of.append(np.full(len(members[1]), row, dtype=np.int64))
    return Apart(
        sizes=np.concatenate(sizes),
        counts=np.concatenate(counts),
        row_of=np.concatenate(row_of),
        rooms={one: kind.members.astype(float) for one, kind in enumerate(kinds) if kind.members is not None},
    )


def _boundless(kinds: Sequence[Kind], pods: int) -> Sequence[Kind]:
    """No plan has more nodes than pods: of a kind of which there are as many, there is no end."""
    endless = [kind.usd > 0 and kind.available is not None and kind.available >= pods for kind in kinds]
    return [kind._replace(available=None) if so else kind for kind, so in zip(kinds, endless, strict=True)]


def _or_endless(available: int | None) -> float:
    return float("inf") if available is None else float(available)


def _undominated(kinds: Sequence[Kind], rooms: Floats, uses: Floats, holds: Mask) -> list[int]:
    """Kinds such that no other of which there is no end holds as much, for every shape, for no more money.

    Of equal ones the first.
    """
    useful = np.array([kind.available != 0 for kind in kinds], dtype=bool) & holds.any(axis=0)
    room_of = (-rooms).tolist()
    order = sorted(np.nonzero(useful)[0].tolist(), key=lambda one: (kinds[one].usd, room_of[one], one))
    alike, patterns = by_pattern(holds)
    lets_in = np.array([(patterns >= one).all(axis=1) for one in patterns], dtype=bool)
    """[pattern, other]: kinds of the other hold whatever those of the first do."""
    turn = np.zeros(len(kinds), dtype=np.int64)
    turn[order] = np.arange(len(order))
    kept: list[int] = []
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        others = [one for one in (*kept, *block) if kinds[one].available is None]
        better = turn[others][None, :] < turn[block][:, None]
        """[kind, other]: comes before it, has no less of anything, takes no more of what is shared, holds all it does.

        What is better than one that is better is better itself: those that are left out need not be known.
        """
        for column in rooms.T:
            better &= column[None, others] >= column[block, None]
        for row in uses:
            better &= row[None, others] <= row[block, None]
        if not lets_in.all():
            better &= lets_in[alike[block][:, None], alike[others][None, :]]
        kept += [block[place] for place in np.nonzero(~np.any(better, axis=1))[0].tolist()]
    return kept
