"""How much of a plan changes when a hundredth of the pods comes or goes: nodes by type, and dollars."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from autoscaler.inputs.asked import Asked
from autoscaler.inputs.offline_plan import OfflinePlan, plan_offline
from autoscaler.model.instance_types import Price
from tests.bench.figure import Figure

SHARE = 0.01
DRAWS = 3
MOST_NODES, MOST_USD = 15.0, 4.0
"""Bounds in per cent; a plan within 1 s is itself 1 to 3 % above its bound."""


def changes(stem: str, asked: Asked, prices: Sequence[Price], *, zones: Sequence[str] = ()) -> Iterator[Figure]:
    """At worst, over several draws of those who come and go."""
    before, pods = _plan(asked, prices, zones), asked.pods
    nodes, usd = [], []
    for draw in range(DRAWS):
        dice = random.Random(draw)  # noqa: S311 - the same draws every time
        fewer = [pod for pod in pods if dice.random() >= SHARE]
        newcomers = dice.sample(pods, int(SHARE * len(pods)))
        more = [*pods, *(replace(pod, name=f"{pod.name}-more", uid=f"{pod.uid}-more") for pod in newcomers)]
        for others in (fewer, more):
            after = _plan(replace(asked, pods=tuple(others)), prices, zones)
            nodes.append(_changed(before, after))
            usd.append(abs(after.usd_per_hour / before.usd_per_hour - 1) * 100)
    yield Figure(
        f"{stem}, 1 % of the pods come or go: nodes by type that change, at worst", max(nodes), "%", MOST_NODES
    )
    yield Figure(f"{stem}, 1 % of the pods come or go: dollars that change, at worst", max(usd), "%", MOST_USD)


def _plan(asked: Asked, prices: Sequence[Price], zones: Sequence[str]) -> OfflinePlan:
    return plan_offline(asked, prices, zones=zones, deadline=timedelta(seconds=1), clock=time.process_time)


def _changed(before: OfflinePlan, after: OfflinePlan) -> float:
    """Nodes of any type that one has and the other has not, in per cent of the nodes before."""
    was, now = (Counter(node.instance_type for node in plan.nodes) for plan in (before, after))
    return ((was - now).total() + (now - was).total()) / max(1, was.total()) * 100
