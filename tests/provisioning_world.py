"""ProvisioningRequests in a world: how they are made, what they may be told, and the pods that come for their room."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from autoscaler.model.actions import Grow, SetCondition
from autoscaler.model.cluster import Pod, PodSet, ProvisioningRequest
from autoscaler.model.resources import Resources
from tests.builders import a_pod

KEPT = timedelta(minutes=10)


@dataclass
class Requests:
    """Those that there are: each goes when its pods have come, or once it is told that its room is kept no more."""

    chance: random.Random
    asks: float = 0.0
    """How often there is a new one."""
    there: dict[str, ProvisioningRequest] = field(default_factory=dict)
    """Key -> request."""
    came: Counter[str] = field(default_factory=Counter)
    """Key -> how many of its pods have come."""
    made: int = 0

    def pass_time(self, now: datetime) -> Iterator[Pod]:
        """A new request now and then; gives pods that come for room that is there."""
        if self.asks and self.chance.random() < self.asks:
            self._ask(now)
        for key, one in sorted(self.there.items()):
            [pods] = one.pod_sets
            if self.came[key] == pods.count:
                del self.there[key]
            elif one.provisioned is not None and self.chance.random() < 0.7:
                yield from self._come(key, now, self.chance.randint(1, pods.count - self.came[key]))

    def asked(self) -> Iterator[str]:
        """Keys of the pods that room is asked for, as a plan names them: no pod has such a name."""
        for key, one in self.there.items():
            yield from (f"{key}/{number}" for number in range(sum(pods.count for pods in one.pod_sets)))

    def _ask(self, now: datetime) -> None:
        self.made += 1
        template = a_pod("template", gpus=self.chance.choice((0, 1, 4, 8)), cpu=self.chance.choice((1, 4)))
        self.there[f"team/ask-{self.made}"] = ProvisioningRequest(
            namespace="team",
            name=f"ask-{self.made}",
            uid=f"uid-{self.made}",
            created=now,
            pod_sets=(PodSet(template, self.chance.randint(1, 4)),),
            may_buy=self.chance.random() < 0.7,
        )

    def _come(self, key: str, now: datetime, many: int) -> Iterator[Pod]:
        [pods] = self.there[key].pod_sets
        assert pods.pod is not None
        for _ in range(many):
            name = f"{self.there[key].name}-{self.came[key]}"
            self.came[key] += 1
            yield replace(pods.pod, name=name, uid=f"uid-{name}", created=now, consumes=self.there[key].name)

    def may_buy(self, step: Grow) -> None:
        """Raise ``AssertionError`` where nothing else is bought for: some ask for no node, some have their room."""
        buys = {key for key, one in self.there.items() if one.may_buy and one.provisioned is None}
        others = self.there.keys() - buys
        is_for_some = not step.demand or any(pod.rpartition("/")[0] not in others for pod in step.demand)
        assert is_for_some, f"{step} for none that may buy"

    def answer(self, step: SetCondition, now: datetime, free: Iterable[Mapping[str, int]]) -> None:
        """Take the step, or raise ``AssertionError`` where it is not so. ``free``: of each node that takes pods."""
        key = f"{step.namespace}/{step.name}"
        one = self.there[key]
        if step.condition == "BookingExpired":
            assert one.provisioned is not None, f"{step} before it was provisioned"
            assert now >= one.provisioned + KEPT, f"{step} is too early"
            del self.there[key]
            return
        assert one.provisioned is None, f"{step} again"
        if step.status:
            [pods] = one.pod_sets
            assert pods.pod is not None
            fit = sum(_how_many(pods.pod.requests, room) for room in free)
            assert fit >= pods.count, f"{step}, and {fit} of {pods.count} pods have room"
        assert step.status or not one.refused, f"{step} again"
        self.there[key] = replace(one, provisioned=now if step.status else None, refused=not step.status)


def _how_many(asked: Resources, free: Mapping[str, int]) -> int:
    return max(0, min(free.get(name, 0) // amount for name, amount in asked.items()))
