"""Which pod takes which place where places were planned for the middle of a cluster: pods of about that size.

Node by node and place by place, the largest places first, the largest pod is taken that leaves for the other places
of the node what their middle asks for, and for the next one what the smallest pod for it asks for: what one takes above
the middle another takes below it. The last place gets all that is left over. What fits nowhere is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from autoscaler.solver.lp.arrays import Whole

_TRIES, _STRIDE = 12, 8
"""Pods that are looked at for a place, then every so many: with enough of one resource the other may be short."""
Place = tuple[int, int]
"""(number of the cluster, how many of it)"""


@dataclass(frozen=True, slots=True)
class Middle:
    """What the places of a cluster were planned for."""

    cpu: int
    memory: int


class _Line:
    """The pods of one cluster that are not seated yet, the smallest first: (what it weighs, cpu, memory, pod)."""

    def __init__(self, pods: list[tuple[float, int, int, int]]) -> None:
        self.pods = sorted(pods)
        self.weighs = [pod[0] for pod in self.pods]
        self.cpu = max((pod[1] for pod in pods), default=0)
        self.memory = max((pod[2] for pod in pods), default=0)
        """The most that one of them asks for."""


class SizedSlots:
    """Places of a plan for clusters of sizes, and the pods that take them."""

    def __init__(self, sizes: Whole, classes: Sequence[int]) -> None:
        """``sizes``: by class. ``classes``: of each pod."""
        self.classes = classes
        self.cpu: list[int] = sizes[:, 0].tolist()
        self.memory: list[int] = sizes[:, 1].tolist()

    def seat(
        self,
        nodes: Iterable[tuple[Sequence[int], Sequence[Place]]],
        clusters: Sequence[Sequence[int]],
        middles: Sequence[Middle],
    ) -> list[list[int]]:
        """Pods for the places of each node (its room, its places)."""
        cpu, memory, classes = self.cpu, self.memory, self.classes
        asked = [[classes[pod] for pod in cluster] for cluster in clusters]
        self._per_cpu = 1 / max(1, sum(cpu[size_class] for several in asked for size_class in several))
        self._per_byte = 1 / max(1, sum(memory[size_class] for several in asked for size_class in several))
        lines = [
            _Line(
                [
                    (self._weigh(cpu[size_class], memory[size_class]), cpu[size_class], memory[size_class], pod)
                    for pod, size_class in zip(cluster, several, strict=True)
                ]
            )
            for cluster, several in zip(clusters, asked, strict=True)
        ]
        order = sorted(range(len(clusters)), key=lambda one: -self._weigh(middles[one].cpu, middles[one].memory))
        rank = {cluster: number for number, cluster in enumerate(order)}
        return [
            self._node(room, sorted(places, key=lambda place: rank[place[0]]), lines, middles) for room, places in nodes
        ]

    def _weigh(self, cpu: float, memory: float) -> float:
        return cpu * self._per_cpu + memory * self._per_byte

    def _node(
        self,
        room: Sequence[int],
        places: Sequence[Place],
        lines: Sequence[_Line],
        middles: Sequence[Middle],
    ) -> list[int]:
        free_cpu, free_memory = room[0], room[1]
        rest_cpu = sum(middles[cluster].cpu * many for cluster, many in places)
        rest_memory = sum(middles[cluster].memory * many for cluster, many in places)
        guests = []
        slots = [cluster for cluster, many in places for _ in range(many)]
        for number, cluster in enumerate(slots, start=1):
            rest_cpu, rest_memory = rest_cpu - middles[cluster].cpu, rest_memory - middles[cluster].memory
            more_cpu, more_memory = (
                _spared(lines[slots[number]], middles[slots[number]]) if number < len(slots) else (0, 0)
            )
            found = self._taken(lines[cluster], free_cpu - rest_cpu + more_cpu, free_memory - rest_memory + more_memory)
            if found is not None:
                _, cpu, memory, pod = found
                guests.append(pod)
                free_cpu -= cpu
                free_memory -= memory
        return guests

    def _taken(self, line: _Line, cpu: int, memory: int) -> tuple[float, int, int, int] | None:
        end = bisect_right(line.weighs, self._weigh(min(cpu, line.cpu), min(memory, line.memory)) * (1 + 1e-12))
        for position in chain(range(end - 1, max(-1, end - 1 - _TRIES), -1), range(end - 1 - _TRIES, -1, -_STRIDE)):
            found = line.pods[position]
            if found[1] > cpu or found[2] > memory:
                continue
            del line.pods[position], line.weighs[position]
            return found
        return None


def _spared(line: _Line, middle: Middle) -> tuple[int, int]:
    """What the next place can do without: its smallest pod asks for so much less than the middle."""
    if not line.pods:
        return 0, 0
    _, cpu, memory, _ = line.pods[0]
    return max(0, middle.cpu - cpu), max(0, middle.memory - memory)
