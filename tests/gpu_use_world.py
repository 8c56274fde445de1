"""How much pods of a world use their GPUs, and which of them may be evicted because they do not."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from autoscaler.config.policy import IdleGpus
from autoscaler.model.actions import FreeGpus
from autoscaler.model.cluster import GpuUse, Pod
from autoscaler.model.labels import GPU


@dataclass
class Uses:
    """What a DCGM exporter would measure: a pod ceases to use its GPUs, and begins again, now and then."""

    chance: random.Random
    changes: float = 0.0
    """How often it does."""
    is_silent: bool = False
    """Nothing is measured."""
    idle: set[str] = field(default_factory=set)
    """Uids of pods, as :attr:`since` and :attr:`told` have them."""
    since: dict[str, datetime] = field(default_factory=dict)
    """When it was seen first that a pod did not use its GPUs, which it was not seen to use after that."""
    told: dict[str, datetime] = field(default_factory=dict)
    """When its owner was told of that first."""

    def pass_time(self, pods: Iterable[Pod]) -> None:
        """Some pods change; the exporter is away now and then."""
        if not self.changes:
            return
        for pod in sorted(filter(_holds, pods), key=lambda pod: pod.uid):
            if self.chance.random() < (0.1 if pod.uid in self.idle else self.changes):
                self.idle ^= {pod.uid}
        self.is_silent = self.chance.random() < 0.1

    def measured(self, pods: Iterable[Pod], now: datetime) -> list[GpuUse]:
        """Of every pod that holds GPUs, where this world has idle ones."""
        found = []
        for pod in filter(_holds, pods) if self.changes and not self.is_silent else ():
            if pod.uid in self.idle:
                self.since.setdefault(pod.uid, now)
            else:
                self.since.pop(pod.uid, None)
                self.told.pop(pod.uid, None)
            found.append(GpuUse(pod.key, pod.node or "", 0.0 if pod.uid in self.idle else 0.9))
        return found

    def tell(self, keys: Collection[str], pods: Mapping[str, Pod], now: datetime) -> None:
        """What a plan says."""
        for key in keys:
            assert pods[key].uid in self.since, f"{key} is in idle_gpus, and uses its GPUs"
            self.told.setdefault(pods[key].uid, now)

    def may_free(self, step: FreeGpus, pods: Mapping[str, Pod], rules: IdleGpus, now: datetime) -> None:
        """Raise ``AssertionError`` where one of them uses its GPUs, was not told long ago, or may not be evicted."""
        assert rules.enabled, step
        assert rules.freed_after is not None, step
        freed = [pods[key] for key in step.pods if key in pods]
        gangs = {pod.gang for pod in freed}
        together = [pod for pod in pods.values() if pod.node and (pod in freed or (pod.gang and pod.gang in gangs))]
        assert len(freed) == len(together), f"{step}, and others of the gang stay"
        for pod in freed:
            assert not pod.do_not_disrupt, f"{step}: {pod.key} is marked do-not-disrupt"
            assert rules.gangs or not pod.gang, f"{step}: {pod.key} is of a gang"
            if pod.requests[GPU]:
                told, since = self.told.get(pod.uid), self.since.get(pod.uid)
                assert told is not None, f"{step}: {pod.key} was in no plan's idle_gpus"
                assert since is not None, f"{step}: {pod.key} uses its GPUs"
                assert since + rules.told_after <= told, f"{step}: {pod.key} was in idle_gpus before told_after"
                assert told + rules.freed_after <= now, f"{step}: {pod.key} was in idle_gpus for less than freed_after"


def _holds(pod: Pod) -> bool:
    return pod.node is not None and pod.phase == "Running" and pod.requests[GPU] > 0
