"""ProvisioningRequests in a world: how they are made, what they may be told, and the pods that come for their room."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from autoscaler.kube.watched_kinds import POD_TEMPLATES, REQUESTS, Kind
from autoscaler.model.actions import Grow, SetCondition
from autoscaler.model.cluster import Pod, ProvisioningRequest
from autoscaler.model.resources import Resources
from tests.builders import a_pod

KEPT = timedelta(minutes=10)


@dataclass
class Requests:
    """Those that there are: each goes when its pods have come, or once it is told that its room is kept no more."""

    chance: random.Random
    asks: float = 0.0
    """How often there is a new one."""
    served: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Key -> request as the API server has it."""
    templates: dict[str, Pod] = field(default_factory=dict)
    """Key -> the request's PodTemplate, of the same name."""
    came: Counter[str] = field(default_factory=Counter)
    """Key -> how many of its pods have come."""
    made: int = 0

    @property
    def there(self) -> dict[str, ProvisioningRequest]:
        """Key -> request, of those that ask for room or have it."""
        found = {key: self.request(key) for key in self.served}
        return {
            key: replace(one, pod_sets=(replace(one.pod_sets[0], pod=self.templates[key]),))
            for key, one in found.items()
            if one is not None
        }

    def objects(self) -> Iterator[tuple[Kind, dict[tuple[str, str], tuple[int, Any]]]]:
        """Requests, and the templates that they name, with their versions: as a watch tells them."""
        names = {key: ("team", one["metadata"]["name"]) for key, one in self.served.items()}
        versions = {key: int(one["metadata"]["resourceVersion"]) for key, one in self.served.items()}
        yield REQUESTS, {name: (versions[key], self.request(key)) for key, name in names.items()}
        yield POD_TEMPLATES, {name: (1, self.templates[key]) for key, name in names.items()}

    def request(self, key: str) -> ProvisioningRequest | None:
        """What the autoscaler reads; ``None``: its room is kept no more."""
        _, value = REQUESTS.decode(msgspec.Raw(json.dumps(self.served[key]).encode()))
        assert value is None or isinstance(value, ProvisioningRequest)
        return value

    def pass_time(self, now: datetime) -> Iterator[Pod]:
        """A new request now and then; gives pods that come for room that is there."""
        if self.asks and self.chance.random() < self.asks:
            self._ask(now)
        there = self.there
        for key in sorted(self.served.keys() - there.keys()):
            del self.served[key]
        for key, one in sorted(there.items()):
            [pods] = one.pod_sets
            if self.came[key] == pods.count:
                del self.served[key]
            elif one.provisioned is not None and self.chance.random() < 0.7:
                yield from self._come(key, now, self.chance.randint(1, pods.count - self.came[key]))

    def asked(self) -> Iterator[str]:
        """Keys of the pods that room is asked for, as a plan names them: no pod has such a name."""
        for key, one in self.there.items():
            yield from (f"{key}/{number}" for number in range(sum(pods.count for pods in one.pod_sets)))

    def _ask(self, now: datetime) -> None:
        self.made += 1
        name = f"ask-{self.made}"
        key = f"team/{name}"
        self.templates[key] = a_pod(name, gpus=self.chance.choice((0, 1, 4, 8)), cpu=self.chance.choice((1, 4)))
        pods = {"podTemplateRef": {"name": name}, "count": self.chance.randint(1, 4)}
        kind = "best-effort-atomic-scale-up" if self.chance.random() < 0.7 else "check-capacity"
        self.served[key] = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-{self.made}",
                "resourceVersion": "1",
                "creationTimestamp": now.isoformat(),
            },
            "spec": {"provisioningClassName": f"{kind}.autoscaling.x-k8s.io", "podSets": [pods]},
        }

    def _come(self, key: str, now: datetime, many: int) -> Iterator[Pod]:
        request = self.served[key]["metadata"]["name"]
        for _ in range(many):
            name = f"{request}-{self.came[key]}"
            self.came[key] += 1
            yield replace(self.templates[key], name=name, uid=f"uid-{name}", created=now, consumes=request)

    def may_buy(self, step: Grow) -> None:
        """Raise ``AssertionError`` where nothing else is bought for: some ask for no node, some have their room."""
        there = self.there
        others = {key for key, one in there.items() if not one.may_buy or one.provisioned is not None}
        is_for_some = not step.demand or any(pod.rpartition("/")[0] not in others for pod in step.demand)
        assert is_for_some, f"{step} for none that may buy"

    def may_tell(self, step: SetCondition, now: datetime, free: Iterable[Mapping[str, int]]) -> None:
        """Raise ``AssertionError`` where it is not so. ``free``: of each node that takes pods."""
        one = self.there[f"{step.namespace}/{step.name}"]
        if step.condition == "BookingExpired":
            assert one.provisioned is not None, f"{step} before it was provisioned"
            assert now >= one.provisioned + KEPT, f"{step} is too early"
            return
        assert one.provisioned is None, f"{step} again"
        if step.status:
            [pods] = one.pod_sets
            assert pods.pod is not None
            fit = sum(_how_many(pods.pod.requests, room) for room in free)
            assert fit >= pods.count, f"{step}, and {fit} of {pods.count} pods have room"
        assert step.status or not one.refused, f"{step} again"

    def is_as_told(self, step: SetCondition, now: datetime) -> bool:
        """Whether the autoscaler reads of the request what the step has just said, at whole seconds."""
        one = self.request(f"{step.namespace}/{step.name}")
        if step.condition == "BookingExpired":
            return one is None
        since = now.replace(microsecond=0) if step.status else None
        return one is not None and (one.provisioned, one.refused) == (since, not step.status)


def _how_many(asked: Resources, free: Mapping[str, int]) -> int:
    return max(0, min(free.get(name, 0) // amount for name, amount in asked.items()))
