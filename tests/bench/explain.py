"""How long `explain` takes to be answered at the door of an autoscaler that has decided about 1,000 nodes."""

from __future__ import annotations

import statistics
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from autoscaler.model.actions import Memory
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.plan import plan
from autoscaler.record.decisions import Decision
from autoscaler.replica.answers import answers_of
from autoscaler.replica.door import Door
from autoscaler.reporting.metrics import Metrics
from tests.bench.figure import Figure
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, nodes_of

_TIMES = 20


class _Decided:
    """A loop that has decided, as far as the door looks at it."""

    def __init__(self, nodes: int, pods: int) -> None:
        group = a_group("gpu-a100", joined=nodes, maximum=nodes)
        there = nodes_of(group)
        running = [
            a_pod(f"p{number}", node=there[number % nodes].name, phase="Running", started=NOW) for number in range(pods)
        ]
        waiting = a_gang(pods=8, gpus=8, name="big")
        look = a_cluster(nodes=there, groups=[group], pods=[*running, *waiting])
        look = replace(look, pods=pod_index_of(look.pods))
        policy = a_policy(an_entry("gpu-a100", max=nodes), limits={"nodes": nodes})
        self.last = Decision(look, policy, Memory(), plan(look, policy, Memory()))
        self.node = there[nodes // 2].name


def explain(*, nodes: int, pods: int) -> Iterator[Figure]:
    """The slowest of some answers of each kind, in milliseconds, from the request to the last byte."""
    loop = _Decided(nodes, pods)
    door = Door()
    metrics: Any = Metrics(CollectorRegistry()).app()
    door.open(
        metrics=metrics,
        why_not_alive=lambda: "",
        answers=answers_of(lambda: loop.last, record=None, known_for=lambda _pods: (None, None), devices=lambda: None),
    )
    for what in ("pod/team/big-worker-0", "job/team/big", f"node/{loop.node}", "group/gpu-a100"):
        taken = []
        for _ in range(_TIMES):
            began = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{door.port}/explain/{what}", timeout=60) as said:
                said.read()
            taken.append((time.monotonic() - began) * 1000)
        kind = what.partition("/")[0]
        yield Figure(
            f"explain {kind}, {nodes} nodes, {pods} pods, median of {_TIMES}", statistics.median(taken), "ms", 100
        )
