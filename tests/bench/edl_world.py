"""A Kubernetes cluster in compressed time: seconds, nodes with CPUs, pods, controllers and a scheduler as of 2017.

A stand-in: the scheduler takes pods in the order of their age, and tries one that does not fit again after 1 s, then
twice as long, up to a minute, as Kubernetes 1.6 did. Of nodes with room it takes that with the highest score by
three of its priorities, each a whole number up to 10 (least requested, balanced, spreading of what one ReplicaSet owns;
by the others these nodes are alike), and of equals one after the other. The nodes' sizes and their memory are guesses.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

NODES: Final = (12,) * 69 + (16,) * 2 + (24,) * 62
"""CPUs of 133 nodes, 2,348 in all, as the experiment had; the mix of sizes is not known."""
GIB_PER_CPU: Final = 4.0
"""Memory of a node, a guess: never short, but it counts for what is balanced. Of 2.7, 4, 5.3, 8, 11 and 20 it is that
with which jobs of a fixed size fill this cluster most as they did the original: 348 trainers (345 to 349); 334 to 343
with the others. What EDL then does on it is not fitted: a Jain index of 0.37 to 0.41 with any of them.
"""
GIB: Final = {"trainer": 8.0, "ps": 5.0, "nginx": 3.0, "master": 0.3}
"""Memory of a pod, by its role."""
SYSTEM_CPUS: Final = 50.5
STARTING: Final = (3.0, 9.0)
"""Seconds from binding to running: nginx then was back within 12 to 27 s, 100 pods at a time."""
ENDING: Final = (1.0, 5.0)
GRACE: Final = (30.0, 32.0)
"""Seconds in which the original's trainers end: their first process, a shell script, heeds no SIGTERM, and no file
of the original sets another grace than Kubernetes' 30 s. In its logs nginx has room 38 to 42 s after it is scaled."""
BINDINGS_PER_SECOND: Final = 20
CREATIONS_AT_ONCE: Final = 30
CREATIONS_PER_SECOND: Final = 20
"""Pods of a Deployment that are made after those: kube-controller-manager's ``--kube-api-burst``, ``--kube-api-qps``.
With Jobs' pods so too EDL's case 1 has 267 trainers in place of 258; the original had 253.
https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/
"""
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
    trainers_end: tuple[float, float] = ENDING
    free: list[int] = field(default_factory=list)
    gib: list[float] = field(default_factory=list)
    """Memory by node that pods have asked for."""
    pods: list[Pod] = field(default_factory=list)
    lacking: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Owner and role of pods that a controller is making -> CPUs of each, and how many there are to be."""
    order: list[int] = field(default_factory=list)
    """Nodes by name, of which the order tells nothing about their sizes."""
    turn: int = 0
    """Of the scheduler, among nodes alike."""

    def __post_init__(self) -> None:
        """Empty nodes but for the system's pods, spread evenly."""
        system = int(SYSTEM_CPUS * MILLI / len(NODES))
        self.free = [cpus * MILLI - system for cpus in NODES]
        self.gib = [0.0] * len(NODES)
        self.order = self.dice.sample(range(len(NODES)), len(NODES))

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
                ending = self.trainers_end if pod.role == "trainer" else ENDING
                pod.state, pod.at = "ending", self.now + self.dice.uniform(*ending)

    def scale(self, owner: str, role: str, cpu: int, count: int) -> None:
        """As a controller does that has no say in which: of too many, those that wait go first, then the youngest."""
        there = self.of(owner, role)
        self.lacking.pop((owner, role), None)
        if count < len(there):
            rank = {"pending": 0, "starting": 1, "running": 2}
            there.sort(key=lambda pod: (rank[pod.state], -pod.created, -pod.index))
            self.end(there[: len(there) - count])
            return
        self.lacking[owner, role] = cpu, count
        self._create(owner, role, CREATIONS_AT_ONCE if role == "nginx" else count)

    def _create(self, owner: str, role: str, most: int) -> None:
        """What a controller still has to make, so many at most."""
        (cpu, count), there = self.lacking[owner, role], self.of(owner, role)
        first, new = max((pod.index for pod in there), default=-1) + 1, min(count - len(there), most)
        self.create(Pod(owner, role, first + more, cpu, self.now) for more in range(new))
        if len(there) + new >= count:
            del self.lacking[owner, role]

    def tick(self) -> None:
        """One second passes."""
        self.now += 1
        for owner, role in [*self.lacking]:
            self._create(owner, role, CREATIONS_PER_SECOND)
        for pod in [one for one in self.pods if one.state in ("starting", "ending") and one.at <= self.now]:
            if pod.state == "starting":
                pod.state = "running"
            else:
                self._take(pod, -1)
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
            node = pod.wants if pod.wants is not None else self._best(pod)
            if node is None or self.free[node] < pod.cpu:
                pod.at, pod.backoff = self.now + pod.backoff, min(2 * pod.backoff, RETRY[1])
                continue
            pod.node, pod.state, pod.at = node, "starting", self.now + self.dice.uniform(*STARTING)
            self._take(pod, 1)

    def _take(self, pod: Pod, times: int) -> None:
        assert pod.node is not None
        self.free[pod.node] -= times * pod.cpu
        self.gib[pod.node] += times * GIB[pod.role]

    def _best(self, pod: Pod) -> int | None:
        """The node with the highest score, of equals the next in turn."""
        fits = [node for node in self.order if self.free[node] >= pod.cpu]
        if not fits:
            return None
        spread = [0] * len(NODES)
        if pod.role != "trainer":  # those are of a Job, which is not spread
            for one in self.of(pod.owner, pod.role):
                if one.node is not None:
                    spread[one.node] += 1
        most = max(spread)
        scores = [self._score(pod, node, spread[node], most) for node in fits]
        highest = max(scores)
        best = [node for node, score in zip(fits, scores, strict=True) if score == highest]
        self.turn += 1
        return best[self.turn % len(best)]

    def _score(self, pod: Pod, node: int, beside: int, most: int) -> int:
        cpus, gib = NODES[node] * MILLI, NODES[node] * GIB_PER_CPU
        left, memory = self.free[node] - pod.cpu, gib - self.gib[node] - GIB[pod.role]
        least_requested = (10 * left // cpus + int(10 * memory / gib)) // 2
        balanced = 10 - int(abs(left / cpus - memory / gib) * 10)
        return least_requested + balanced + (10 * (most - beside) // most if most else 10)
