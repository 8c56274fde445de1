"""Which pod takes which of the places that the solver planned, so that the rules between pods of one node hold.

A place is for any pod of a *row*: pods that ask for the same in the same zone. Which of them takes it is free, and that
is used: a node with a spread by host may have few of those that it counts, so pods of the same spread are seated
together, first, and the others beside pods that do not count them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoscaler.planner.cutting_stock.host_rules import FREE, Company, Key, Stance

_Keys = tuple[Key, ...]
_NOBODY: _Keys = ()


@dataclass(slots=True)
class _Line:
    """Pods of one stance."""

    stance: Stance
    pods: list[int]


class _Queue:
    """The pods of one row that are not seated yet: in lines of one stance, by the spreads by host that they have."""

    def __init__(self, pods: Iterable[int], stances: Sequence[Stance], number: Sequence[int]) -> None:
        """``number``: of each pod's stance."""
        lines: dict[int, list[int]] = {}
        for pod in pods:
            lines.setdefault(number[pod], []).append(pod)
        self.lines: dict[_Keys, list[_Line]] = {}
        for one in sorted(lines, key=lambda one: (stances[one] == FREE, -len(lines[one]), lines[one][0])):
            keys = tuple(key for key, _ in stances[one].spread)
            self.lines.setdefault(keys, []).append(_Line(stances[one], lines[one][::-1]))
        self.many = {keys: sum(len(line.pods) for line in group) for keys, group in self.lines.items()}

    def next(self, company: Company, prefer: _Keys) -> int | None:
        """A pod that the company admits: of the preferred spread, else of none, else of any."""
        for keys in dict.fromkeys((prefer, _NOBODY, *self.lines)):
            if not self.many.get(keys):
                continue
            for line in self.lines[keys]:
                if line.pods and (line.stance is FREE or company.admits(line.stance)):
                    self.many[keys] -= 1
                    if line.stance is not FREE:
                        company.join(line.stance)
                    return line.pods.pop()
        return None

    def left(self) -> list[int]:
        """Pods that are not seated."""
        return [pod for group in self.lines.values() for line in group for pod in line.pods]


def seat(
    wanted: Iterable[Sequence[tuple[int, int]]],
    rows: Sequence[Sequence[int]],
    *,
    stances: Sequence[Stance],
    number: Sequence[int],
) -> tuple[list[list[int]], list[Company], list[int]]:
    """Pods for the places of each node, (row, how many); their company; and the pods that are left.

    ``rows``: pods by row. ``number``: of each pod's stance.
    """
    if len(stances) == 1:
        return _anywhere(wanted, rows)
    queues = [_Queue(row, stances, number) for row in rows]
    nodes, companies = [], []
    for places in wanted:
        company, guests = Company(), list[int]()
        prefer = _preferred([queues[row] for row, _ in places])
        for row, many in places:
            for _ in range(many):
                guest = queues[row].next(company, prefer)
                if guest is None:
                    break
                guests.append(guest)
        nodes.append(guests)
        companies.append(company)
    return nodes, companies, sorted(number for queue in queues for number in queue.left())


def _anywhere(
    wanted: Iterable[Sequence[tuple[int, int]]], rows: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[Company], list[int]]:
    """The same without rules between pods."""
    ends = [0] * len(rows)
    nodes, companies = [], []
    for places in wanted:
        guests: list[int] = []
        for row, many in places:
            guests += rows[row][ends[row] : ends[row] + many]
            ends[row] += many
        nodes.append(guests)
        companies.append(Company())
    return nodes, companies, sorted(number for row, end in zip(rows, ends, strict=True) for number in row[end:])


def _preferred(queues: Iterable[_Queue]) -> _Keys:
    """The spread that most of the pods have that may be seated here."""
    many: Counter[_Keys] = Counter()
    for queue in queues:
        if len(queue.lines) > 1:
            many.update(queue.many)
    many.pop(_NOBODY, None)
    return max(many, key=many.__getitem__, default=_NOBODY)
