"""The live plan of any pods file: a `Cluster` with one empty group for each type of a catalogue, planned for once.

    python -m tests.bench live --pods PODS.csv --catalog CATALOG.csv [--first N] --json

prints one JSON object: pods, types, usd_per_hour, lower_bound_usd_per_hour, nodes, unplaced, cpu_seconds. What the
files say and the plan does not honour is told on standard error. Time is CPU time of this process, of the call alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from autoscaler.config.policy import Limits, Policy
from autoscaler.inputs.asked import Asked
from autoscaler.inputs.file_cluster import cluster_of
from autoscaler.inputs.gpu_models import with_gpu_models
from autoscaler.inputs.tables import read_asked, read_catalog
from autoscaler.model import labels as words
from autoscaler.model.actions import Grow, Memory, Plan
from autoscaler.model.cluster import Cluster, Instance, Node, Pod
from autoscaler.model.errors import BadInput
from autoscaler.model.pod_index import Register
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.node_cache import NodeCache
from autoscaler.planner.supply.node_places import labels_of
from tests.bench.figure import Figure

SIZES: Final = ((500, 0.15), (2_000, 0.4), (8_152, 1.5))
"""(the first so many pods of openb, CPU seconds that one look may take)"""
ABOVE: Final = 2.0
"""Per cent above the bound."""
LIMITED: Final = ({"nodes": 200}, {"gpus": 600}, {"usd_per_hour": 900.0})
"""For the first 2,000 pods of openb, which want some 1,550 $/h."""
WITHIN: Final = 2.0
"""CPU seconds of a look under one of these."""
ABOVE_LIMITED: Final = 5.0
"""Per cent above the bound then."""
LOOK: Final = 0.1
"""CPU seconds of a look at what little has changed."""
_PART, _LOOKS = 0.01, 5
_NOW: Final = datetime(2026, 11, 1, tzinfo=UTC)
_ZONE: Final = "us-east-1a"
_ANY_TYPE: Final = "any.type"
"""A policy wants its types spelled as EC2 spells them; the group has the catalogue's own word."""


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What one call of the live planning function made of a file."""

    pods: int
    types: int
    usd_per_hour: float
    lower_bound_usd_per_hour: float
    nodes: int
    unplaced: int
    cpu_seconds: float

    @property
    def percent_above(self) -> float:
        """The bound."""
        bound = self.lower_bound_usd_per_hour
        return (self.usd_per_hour / bound - 1) * 100 if bound > 0 else 0.0


def main(arguments: Sequence[str]) -> int:
    """Plan for the files that are named and print the outcome; 2 where a file is bad."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench live", description=__doc__)
    parser.add_argument("--pods", type=Path, required=True, help="name, cpu_milli, memory_mib, num_gpu, gpu_spec, gang")
    parser.add_argument("--catalog", type=Path, required=True, help="instance types, with what pods may use of each")
    parser.add_argument("--first", type=_at_least_one, default=0, metavar="N", help="only so many pods of the file")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    asked = parser.parse_args(arguments)
    try:
        found = asdict(live_plan(asked.pods, asked.catalog, first=asked.first))
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(found) if asked.json else "\n".join(f"{name}: {value}" for name, value in found.items()))
    return 0


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        message = f"{text} is not a number of pods: at least 1 is needed"
        raise argparse.ArgumentTypeError(message)
    return value


def timed(cluster: Cluster, policy: Policy) -> tuple[Plan, float]:
    """A plan and its CPU seconds, with what was there before out of the collector's way, as the loop has it."""
    gc.collect()
    gc.freeze()
    began = time.process_time()
    decided = plan(cluster, policy, Memory())
    took = time.process_time() - began
    gc.unfreeze()
    return decided, took


def live_plan(pods: Path, catalog: Path, *, first: int = 0) -> LivePlan:
    """Read the files, make the cluster, plan once. ``first``: so many pods of the file; 0: all of them."""
    asked, prices = read_asked(str(pods)), read_catalog(catalog)
    if not asked.pods:
        raise BadInput(f"{pods}: holds no pod: a line for each pod is needed below the names of the columns")
    if not prices:
        raise BadInput(f"{catalog}: holds no instance type: a line for each is needed below the names of the columns")
    for note in asked.notes:
        print(f"{pods}: {note}", file=sys.stderr)
    chosen = asked.pods[: first or None]
    specs = {pod.key: asked.gpu_specs[pod.key] for pod in chosen if pod.key in asked.gpu_specs}
    some = with_gpu_models(Asked(chosen, gpu_specs=specs), prices, ())
    for note in some.notes:
        print(f"{pods}: {note}", file=sys.stderr)
    cluster, policy = cluster_of(some, prices)
    decided, took = timed(cluster, policy)
    return LivePlan(
        pods=len(some.pods),
        types=len({group.instance_type for group in cluster.groups}),
        usd_per_hour=decided.usd_per_hour,
        lower_bound_usd_per_hour=decided.lower_bound_usd_per_hour,
        nodes=sum(step.by for step in decided.steps if isinstance(step, Grow)),
        unplaced=len(some.pods) - len(decided.memory.assignments),
        cpu_seconds=round(took, 3),
    )


def settled(cluster: Cluster, decided: Plan) -> Cluster:
    """When all that was bought has joined and every pod runs where it was planned."""
    groups = {group.name: group for group in cluster.groups}
    nodes, members = [], defaultdict[str, list[Instance]](list)
    for name, group in sorted({(one.node, one.group) for one in decided.memory.assignments.values()}):
        bought = groups[group]
        number = sum(map(len, members.values()))
        instance = Instance(f"i-{number:017x}", bought.zone, launched=_NOW)
        members[group].append(instance)
        labels = {**labels_of(bought, name), words.HOSTNAME: name}
        provider = f"aws:///{bought.zone}/{instance.id}"
        nodes.append(Node(name, bought.allocatable, _NOW, labels, bought.taints, provider_id=provider))
    assignments = decided.memory.assignments
    pods = [
        replace(pod, node=assignments[pod.key].node, phase="Running", started=_NOW) if pod.key in assignments else pod
        for pod in cluster.pods
    ]
    grown = [
        replace(group, desired=len(members[group.name]), instances=tuple(members[group.name]))
        for group in cluster.groups
    ]
    return replace(cluster, pods=tuple(pods), nodes=tuple(nodes), groups=tuple(grown))


def changed(cluster: Cluster, *, part: float, turn: int) -> Cluster:
    """So great a part of the running pods has ended, and as many of their like have come."""
    dice = random.Random(turn)  # noqa: S311 - the same pods every time
    running = [pod for pod in cluster.pods if pod.node is not None]
    gone = {pod.key for pod in dice.sample(running, max(1, int(part * len(running))))}
    like = dice.choices(running, k=len(gone))
    new = [
        replace(pod, name=f"new-{turn}-{number}", uid=f"new-{turn}-{number}", node=None, phase="Pending", started=None)
        for number, pod in enumerate(like)
    ]
    return replace(cluster, pods=(*(pod for pod in cluster.pods if pod.key not in gone), *new))


def come_and_go(pods: Path, catalog: Path, *, first: int) -> Iterator[float]:
    """CPU seconds of each of a few looks in which 1 % of the pods have ended and as many have come.

    As the loop does, with what the store keeps of pods and the last look has found of nodes, and with what was there at
    the first look out of the collector's way.
    """
    cluster, policy = cluster_of(Asked(read_asked(str(pods)).pods[:first]), read_catalog(catalog))
    cluster = settled(cluster, plan(cluster, policy, Memory()))
    register, cache, there = Register(), NodeCache(), dict[str, Pod]()
    for turn in range(-1, _LOOKS):
        look = changed(cluster, part=_PART, turn=turn) if turn >= 0 else cluster
        now = {pod.key: pod for pod in look.pods}
        for key in there.keys() | now.keys():
            if there.get(key) is not now.get(key):
                register.change(there.get(key), now.get(key))
        there = now
        look = replace(look, pods=register.index(tuple(look.pods)))
        began = time.process_time()
        plan(look, policy, Memory(), cache=cache)
        if turn >= 0:
            yield time.process_time() - began
        else:
            gc.collect()
            gc.freeze()
    gc.unfreeze()


def live(data: Path | None) -> Iterator[Figure]:
    """Openb at three sizes; nothing where the tables are not at hand."""
    if data is None:
        return
    pods, catalog = data / "openb_pod_list_default.csv", data / "ec2_us_east_1_2026_07_20.csv"
    for first, seconds in SIZES:
        found = live_plan(pods, catalog, first=first)
        stem = f"openb, {first} pods, {found.types} groups, live"
        yield Figure(f"{stem}: CPU time of the plan", found.cpu_seconds, "s", seconds)
        yield Figure(f"{stem}: cost", found.usd_per_hour, "$/h")
        yield Figure(f"{stem}: above the bound", found.percent_above, "%", ABOVE)
        yield Figure(f"{stem}: pods without a place", found.unplaced, "")
        if first == SIZES[1][0]:
            yield from limited(pods, catalog, first=first)
        looks = list(come_and_go(pods, catalog, first=first))
        yield Figure(f"{stem}: 1 % come and go, CPU time of a look, the longest", max(looks), "s", LOOK)


def limited(pods: Path, catalog: Path, *, first: int) -> Iterator[Figure]:
    """The same under limits that leave room for some only."""
    cluster, policy = cluster_of(Asked(read_asked(str(pods)).pods[:first]), read_catalog(catalog))
    for limits in LIMITED:
        acting = policy.model_copy(update={"limits": Limits(**limits)})
        decided, took = timed(cluster, acting)
        gap = decided.usd_per_hour / decided.lower_bound_usd_per_hour - 1
        stem = f"openb, {first} pods, at most {next(iter(limits.values())):g} {next(iter(limits))}, live"
        yield Figure(f"{stem}: CPU time of the plan", took, "s", WITHIN)
        yield Figure(f"{stem}: pods served", len(decided.memory.assignments), f"of {first}")
        yield Figure(f"{stem}: above the bound", gap * 100, "%", ABOVE_LIMITED)
