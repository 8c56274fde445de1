"""A plan in the caller's words: which nodes are bought, what they hold, and what no plan can undercut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from autoscaler.solver.lp.arrays import Floats, Whole
from autoscaler.solver.rounding import Lot


@dataclass(frozen=True, slots=True)
class Nodes:
    """Some nodes of one kind that hold the same."""

    kind: str
    times: int
    pods: tuple[tuple[int, int], ...]
    """(number of the shape, how many of it on each node)"""
    part: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The best plan found and what no plan for the pods that it places can undercut."""

    nodes: tuple[Nodes, ...]
    usd: float
    lower_bound: float
    left: tuple[int, ...]
    """Pods of each shape for which there is no node."""
    worths: tuple[Floats, ...] = field(default=(), compare=False)
    """By shape what each of the pods that it stands for costs by the bound: of one that stands for no other, one."""

    @property
    def gap(self) -> float:
        """How much dearer than the bound, as a fraction of the bound."""
        return self.usd / self.lower_bound - 1 if self.lower_bound > 0 else 0.0

    def or_better(self, other: Answer) -> Answer:
        """The one that leaves fewer pods, or costs less; with the higher bound of the two where both leave none."""
        better = min(self, other, key=lambda one: (sum(one.left), one.usd))
        if any(self.left) or any(other.left):
            return better
        return replace(better, lower_bound=min(better.usd, max(self.lower_bound, other.lower_bound)))


def together(plan: Sequence[Lot], names: Sequence[str]) -> list[Lot]:
    """Equal nodes as one lot, in an order that depends on nothing but the plan."""
    lots: dict[tuple[str, bytes], Lot] = {}
    for lot in plan:
        key = (names[lot.kind], lot.pods.tobytes())
        known = lots.get(key)
        lots[key] = lot if known is None else Lot(lot.kind, lot.pods, known.times + lot.times)
    return [lots[key] for key in sorted(lots)]


def taken(
    pods: Whole, held: Sequence[int], rows: Sequence[Sequence[int]], waiting: list[int]
) -> tuple[tuple[int, int], ...]:
    """Takes, of the shapes that a row stands for, so many as still wait; they wait no longer."""
    taken: list[tuple[int, int]] = []
    for row in held:
        wanted = int(pods[row])
        for number in rows[row]:
            some = min(wanted, waiting[number])
            if some:
                taken.append((number, some))
                waiting[number] -= some
                wanted -= some
    return tuple(sorted(taken))


def joined(nodes: Sequence[Nodes]) -> tuple[Nodes, ...]:
    """Neighbours that are equal as one."""
    found: list[Nodes] = []
    for node in nodes:
        last = found[-1] if found else None
        if last is not None and (last.kind, last.pods, last.part) == (node.kind, node.pods, node.part):
            found[-1] = replace(last, times=last.times + node.times)
        else:
            found.append(node)
    return tuple(found)
