"""A plan without a cluster: pods, prices and machines from files in; nodes to buy, where pods go, and which wait, out.

The plan is the autoscaler's own (:mod:`autoscaler.planner.plan`), for a cluster that is made of the files.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from autoscaler.config.documents import parse_span
from autoscaler.config.policy import Policy, read_policy
from autoscaler.inputs.asked import Asked
from autoscaler.inputs.file_cluster import cluster_of, note_on_huge_pages
from autoscaler.inputs.gpu_models import with_gpu_models
from autoscaler.inputs.labels_elsewhere import notes_on
from autoscaler.inputs.offers import note_on_disks
from autoscaler.inputs.tables import notes_on_nodes, read_asked, read_catalog, read_nodes, without_collection
from autoscaler.model.actions import Memory, Plan
from autoscaler.model.cluster import Cluster, Group, Node, Pod
from autoscaler.model.enumeration import counted
from autoscaler.model.errors import BadInput
from autoscaler.model.instance_types import Price
from autoscaler.model.labels import GROUP, ZONE
from autoscaler.model.needed_changes import NeededChange, merged, together
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.plan import plan

_SHOWN: Final = 3
"""Pods named of those that wait for one reason."""


@dataclass(frozen=True, slots=True)
class LeftWaiting:
    """A pod without a place."""

    pod: str
    reason: str
    changes: tuple[NeededChange, ...]

    @property
    def would_fit_if(self) -> str:
        """Says what would have to change for the pod to fit, in words."""
        return together(self.changes)


@dataclass(frozen=True, slots=True)
class BoughtNode:
    """A node to buy."""

    name: str
    instance_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """What to buy and where pods go."""

    nodes: tuple[BoughtNode, ...]
    placements: Mapping[str, str]
    waiting: tuple[LeftWaiting, ...]
    usd_per_hour: float
    lower_bound_usd_per_hour: float
    seconds: float
    """To plan, from when everything was read."""
    reading_seconds: float = 0.0
    """To read the files, before that."""
    notes: tuple[str, ...] = ()
    """What of the files is not planned for, in words."""

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as ``--json`` prints it."""
        return {
            "nodes": [
                {
                    "name": node.name,
                    "instance_type": node.instance_type,
                    "zone": node.zone or None,
                    "capacity_type": node.capacity_type,
                    "usd_per_hour": node.usd_per_hour,
                }
                for node in self.nodes
            ],
            "placements": dict(self.placements),
            "waiting": [
                {
                    "pod": one.pod,
                    "reason": one.reason,
                    "would_fit_if": one.would_fit_if,
                    "changes": [change.as_json() for change in one.changes],
                }
                for one in self.waiting
            ],
            "notes": list(self.notes),
            "usd_per_hour": self.usd_per_hour,
            "lower_bound_usd_per_hour": self.lower_bound_usd_per_hour,
            "seconds": round(self.seconds, 3),
            "reading_seconds": round(self.reading_seconds, 3),
        }


def plan_offline(
    asked: Asked,
    prices: Sequence[Price],
    nodes: Sequence[Node] = (),
    *,
    policy: Policy | None = None,
    zones: Sequence[str] = (),
    deadline: timedelta = timedelta(seconds=1),
    clock: Callable[[], float] = lambda: 0.0,
) -> OfflinePlan:
    """What the planner decides for these pods. ``zones``: to buy in, where the prices name none.

    ``deadline`` is turned into counted work: the same input gives the same plan. ``clock`` tells how long it took.
    """
    began = clock()
    with without_collection():
        cluster, acting = cluster_of(asked, prices, nodes, policy=policy, zones=zones)
        decided = plan(cluster, acting, Memory(), limits=SearchLimits.within(deadline))
        found = _told(decided, cluster)
    return replace(found, seconds=clock() - began)


def catalog_file(source: str, *, tell: Callable[[str], None]) -> Path:
    """The CSV file that ``--catalog`` names; that of ``ec2:REGION`` is asked of EC2, and ``tell`` hears its age."""
    if not source.startswith("ec2:"):
        return Path(source)
    from autoscaler.cloud.catalog import PREFIX, live_catalog  # noqa: PLC0415 - boto3 is slow to import

    return live_catalog(source.removeprefix(PREFIX), tell=tell)


def run_plan(
    *,
    pods: str,
    catalog: Path,
    nodes: Path | None,
    policy: Path | None,
    zones: tuple[str, ...] = (),
    capacity_type: str | None = None,
    deadline: str,
    wants_json: bool,
    echo: Callable[[str], None],
) -> None:
    """The command: read, plan, tell."""
    try:
        span = parse_span(deadline)
    except ValueError as error:
        raise BadInput(f"--deadline = {deadline!r}: {error}") from None
    start = time.monotonic()
    asked, prices = read_asked(pods), read_catalog(catalog)
    if capacity_type is not None:
        prices = tuple(price for price in prices if price.capacity_type == capacity_type)
    machines, rules = read_nodes(nodes) if nodes else (), read_policy(policy) if policy else None
    assumptions = (notes_on, note_on_disks, note_on_huge_pages) if rules is None else ()
    assumed = [note for notes_of in assumptions for note in notes_of(asked.pods)]
    asked = with_gpu_models(asked, prices, machines)
    notes = (*asked.notes, *(notes_on_nodes(nodes) if nodes else ()), *assumed)
    reading = time.monotonic() - start
    found = plan_offline(asked, prices, machines, policy=rules, zones=zones, deadline=span, clock=time.monotonic)
    found = replace(found, reading_seconds=reading, notes=notes)
    if wants_json:
        echo(json.dumps(found.as_json()))
    else:
        show(found, echo=echo)


def _names(pods: Iterable[Pod]) -> dict[str, str]:
    """Pod key -> plain name where that is unique, else with the namespace."""
    pods = list(pods)
    many = Counter(pod.name for pod in pods)
    names = [pod.name if many[pod.name] == 1 else pod.key for pod in pods]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput(f"pods: {twice[0]!r} is given more than once: every pod needs a name of its own")
    return {pod.key: name for pod, name in zip(pods, names, strict=True)}


def _told(decided: Plan, cluster: Cluster) -> OfflinePlan:
    """Turns a plan of keys and groups into one of names as the files have them."""
    names, groups = _names(cluster.pods), {group.name: group for group in cluster.groups}
    there = {node.name for node in cluster.nodes}
    assignments, numbers = decided.memory.assignments, Counter[str]()
    called: dict[str, str] = {}
    nodes: list[BoughtNode] = []
    for one in sorted({home for home in assignments.values() if home.node not in there}):
        group = groups[one.group]
        called[one.node] = _next_name(group, numbers, there)
        nodes.append(
            BoughtNode(
                called[one.node],
                group.instance_type,
                group.labels.get(ZONE, ""),
                group.capacity_type,
                group.usd_per_hour,
            )
        )
    usd = round(math.fsum(node.usd_per_hour for node in nodes), 6)
    waiting = [one for one in decided.waiting if one.pod not in assignments]
    return OfflinePlan(
        nodes=tuple(nodes),
        placements={names[key]: called.get(home.node, home.node) for key, home in assignments.items()},
        waiting=tuple(
            LeftWaiting(names[one.pod], one.because, one.changes)
            for one in sorted(waiting, key=lambda one: names[one.pod])
        ),
        usd_per_hour=usd,
        lower_bound_usd_per_hour=round(min(usd, decided.lower_bound_usd_per_hour), 6),
        seconds=0.0,
    )


def _next_name(group: Group, numbers: Counter[str], taken: set[str]) -> str:
    stem = "-".join(part for part in (group.labels.get(GROUP) or group.instance_type, group.labels.get(ZONE)) if part)
    stem = stem.replace(".", "-")
    while True:
        numbers[stem] += 1
        name = f"{stem}-{numbers[stem]}"
        if name not in taken:
            return name


def show(plan: OfflinePlan, *, echo: Callable[[str], None]) -> None:
    """A short table for people."""
    bought: dict[tuple[str, str, str, float], int] = defaultdict(int)
    for node in plan.nodes:
        bought[node.instance_type, node.zone, node.capacity_type, node.usd_per_hour] += 1
    if bought:
        echo(f"{'NODES':>6}  {'INSTANCE TYPE':<20} {'ZONE':<12} {'CAPACITY':<10} {'$/H EACH':>10} {'$/H':>12}")
    for (kind, zone, capacity, usd), many in sorted(bought.items(), key=lambda item: -item[0][3] * item[1]):
        echo(f"{many:>6}  {kind:<20} {zone or 'any':<12} {capacity:<10} {usd:>10.4f} {usd * many:>12.4f}")
    bound = plan.lower_bound_usd_per_hour
    gap = f", at most {plan.usd_per_hour / bound - 1:.2%} above the cheapest there is" if bound > 0 else ""
    nodes = counted(len(plan.nodes), "node")
    told = f"{plan.usd_per_hour:.4f} $/h for {nodes} (no plan costs less than {bound:.4f} $/h{gap})"
    idle = "nothing may be bought for the pods that wait" if plan.waiting else "nothing has to be bought"
    echo(told if bought else idle)
    took = f"{plan.seconds:.2f} s, after {plan.reading_seconds:.2f} s to read the files"
    echo(f"{counted(len(plan.placements), 'pod')} placed, {len(plan.waiting)} waiting, {took}")
    for reason, (wish, pods) in _by_reason(plan.waiting).items():
        few = f"{', '.join(pods[:_SHOWN])}{', ...' if len(pods) > _SHOWN else ''}"
        echo(f"waiting: {counted(len(pods), 'pod')} ({few}): {reason}")
        if wish:
            echo(f"         would fit if {wish}")
    for note in plan.notes:
        echo(f"note: {note}")


def _by_reason(waiting: Iterable[LeftWaiting]) -> dict[str, tuple[str, list[str]]]:
    """What would help all pods that wait for a reason, and their names."""
    found: dict[str, list[LeftWaiting]] = defaultdict(list)
    for one in waiting:
        found[one.reason].append(one)
    return {
        reason: (together(merged(*{one.changes: None for one in those})), [one.pod for one in those])
        for reason, those in found.items()
    }
