"""A Kubernetes cluster in compressed time: seconds, nodes with CPUs, pods, controllers and a scheduler as of 2017.

A stand-in: the scheduler takes pods in the order of their age, spreads them to the emptiest node, and tries one that
does not fit again after 1 s, then twice as long, up to a minute, as Kubernetes 1.6 did. Memory is never short in these
experiments and is left out. How long pods take to start and to end is not known: see ``STARTING`` and ``ENDING``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

NODES: Final = (12,) * 69 + (16,) * 2 + (24,) * 62
"""CPUs of 133 nodes, 2,348 in all, as the experiment had; the mix of sizes is not known."""
SYSTEM_CPUS: Final = 50.5
STARTING: Final = (3.0, 9.0)
"""Seconds from binding to running: nginx then was back within 12 to 27 s, 100 pods at a time."""
ENDING: Final = (1.0, 5.0)
BINDINGS_PER_SECOND: Final = 20
RETRY: Final = (1.0, 60.0)
MILLI: Final = 1000


@dataclass(slots=True, eq=False)
class Pod:
    """A pod; CPUs in thousandths."""

    owner: str
    role: str
    index: int
    cpu: int
    created: float
    wants: int | None = None
    """Node that it is pinned to."""
    gated: bool = False
    node: int | None = None
    state: str = "pending"
    at: float = 0.0
    """When its state changes next, or it is tried again."""
    backoff: float = RETRY[0]
    rank: tuple[float, float] = (0.0, 0.0)
    """In the queue: by age, and by chance among those that controllers made in the same second."""


@dataclass(slots=True)
class World:
    """Nodes and pods at one time."""

    dice: random.Random
    now: float = 0.0
    free: list[int] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Empty nodes but for the system's pods, spread evenly."""
        system = int(SYSTEM_CPUS * MILLI / len(NODES))
        self.free = [cpus * MILLI - system for cpus in NODES]

    def of(self, owner: str, role: str = "") -> list[Pod]:
        """Its pods that are not ending."""
        return [pod for pod in self.pods if pod.owner == owner and role in ("", pod.role) and pod.state != "ending"]

    def create(self, pods: Iterable[Pod]) -> None:
        """They wait to be bound."""
        for pod in pods:
            pod.rank = (pod.created, self.dice.random())
            self.pods.append(pod)

    def end(self, pods: Iterable[Pod]) -> None:
        """They end after their grace; those that wait, at once."""
        for pod in pods:
            if pod.node is None:
                self.pods.remove(pod)
            else:
                pod.state, pod.at = "ending", self.now + self.dice.uniform(*ENDING)

    def scale(self, owner: str, role: str, cpu: int, count: int) -> None:
        """As a controller does that has no say in which: of too many, those that wait go first, then the youngest."""
        there = self.of(owner, role)
        if count < len(there):
            rank = {"pending": 0, "starting": 1, "running": 2}
            there.sort(key=lambda pod: (rank[pod.state], -pod.created, -pod.index))
            self.end(there[: len(there) - count])
            return
        first = max((pod.index for pod in there), default=-1) + 1
        self.create(Pod(owner, role, first + more, cpu, self.now) for more in range(count - len(there)))

    def tick(self) -> None:
        """One second passes."""
        self.now += 1
        for pod in [one for one in self.pods if one.state in ("starting", "ending") and one.at <= self.now]:
            if pod.state == "starting":
                pod.state = "running"
            else:
                self.free[pod.node or 0] += pod.cpu
                self.pods.remove(pod)
        self._schedule()

    def ending(self) -> list[int]:
        """CPUs by node that pods which are ending still hold."""
        held = [0] * len(NODES)
        for pod in self.pods:
            if pod.state == "ending" and pod.node is not None:
                held[pod.node] += pod.cpu
        return held

    def _schedule(self) -> None:
        waiting = sorted(
            (pod for pod in self.pods if pod.state == "pending" and pod.at <= self.now), key=lambda pod: pod.rank
        )
        for pod in [one for one in waiting if one.wants is not None] + [
            one for one in waiting if one.wants is None and not one.gated
        ][:BINDINGS_PER_SECOND]:
            node = pod.wants if pod.wants is not None else self._emptiest(pod.cpu)
            if node is None or self.free[node] < pod.cpu:
                pod.at, pod.backoff = self.now + pod.backoff, min(2 * pod.backoff, RETRY[1])
                continue
            pod.node, pod.state, pod.at = node, "starting", self.now + self.dice.uniform(*STARTING)
            self.free[node] -= pod.cpu

    def _emptiest(self, cpu: int) -> int | None:
        fits = [node for node, free in enumerate(self.free) if free >= cpu]
        return max(fits, key=lambda node: (self.free[node] / NODES[node], self.dice.random())) if fits else None
