"""What Prometheus may ask: each metric is declared once, and the table of the documentation is made of that."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from autoscaler.model import labels as words
from autoscaler.model.actions import CAUSES, Grow, Plan
from autoscaler.model.cluster import Cluster, Group, Instance, Node, Pod
from autoscaler.model.node_states import STATES
from autoscaler.model.pod_index import NO_LOAD, pod_index_of
from autoscaler.planner.explanation.node_states import Standing, standings
from autoscaler.record.decisions import Decision

PAGE: Final = Path(__file__).parents[1] / "monitoring" / "README.md"
BEGIN: Final = "<!-- begin of what `autoscaler.reporting.metrics` declares -->\n"
END: Final = "<!-- end of it -->\n"
OURS: Final = "-"
"""Label ``group`` of machines that we own."""

_BOOT_SECONDS: Final = (5, 15, 30, 60, 90, 120, 180, 300, 600, 900)
_REMEMBERED: Final = 10_000
_STAGES: Final = ("launched", "joined", "devices", "bound", "started")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it is exported."""

    name: str
    kind: str
    labels: tuple[str, ...]
    says: str


_OF_LAST_LOOK: Final = (
    Metric("spillway_nodes", "gauge", ("group", "state"), "Nodes, and what is to become one, by state."),
    Metric("spillway_gpus", "gauge", ("group", "state"), "GPUs of the nodes in a state."),
    Metric(
        "spillway_gpus_held",
        "gauge",
        ("group", "owner"),
        "GPUs that pods on nodes ask for; their owner is their namespace.",
    ),
    Metric("spillway_group_usd_per_hour", "gauge", ("group",), "Price of a group's nodes and instances."),
)


class Metrics:
    """All of them, in one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or REGISTRY
        self.table: list[Metric] = []
        self.decisions = self._counter(
            "spillway_decisions",
            "Looks by what was decided: steps, nothing, or nothing since it was doubted.",
            "outcome",
        )
        self.steps = self._counter("spillway_steps", "Steps by kind and outcome.", "step", "outcome")
        self.waiting = self._gauge(
            "spillway_pods_waiting", "Pods without a place on a node that is there, by cause.", "cause"
        )
        self.hopeless = self._gauge("spillway_pods_hopeless", "Pods that nothing the policy allows could hold.")
        self.usd = self._gauge("spillway_ec2_usd_per_hour", "Price of all EC2 nodes wanted now.")
        self.desired = self._gauge("spillway_group_desired_nodes", "Desired nodes of a group.", "group")
        self.refusals = self._counter("spillway_refusals", "Launches that EC2 refused, by its code.", "group", "code")
        self.acting = self._gauge("spillway_acting", "1 where this autoscaler holds the lease.")
        self.warnings = self._gauge("spillway_warnings", "What an operator should look at now: see the log.")
        self.outages = self._counter("spillway_outages", "Times that a party went out of reach.", "party")
        self.paused = self._gauge("spillway_paused", "1 while an operator has paused it.", "scope")
        self.edits = self._counter("spillway_policy_edits", "Edits of the policy by outcome.", "outcome")
        self.refused = self._gauge("spillway_policy_refused", "1 while the last edit of the policy is refused.")
        self.unbuilt = self._gauge("spillway_policy_pending", "What of the policy waits for `pulumi up`.")
        self.recorded = self._gauge(
            "spillway_record_written_timestamp_seconds", "When the decision was made that was recorded last; 0: none."
        )
        self.took = self._histogram("spillway_plan_seconds", "Time to decide.")
        self.pending = self._histogram(
            "spillway_pending_to_request_seconds",
            "From the creation of the oldest pod that a purchase is for to the request to EC2.",
            buckets=(0.1, 0.3, 1, 3, 10, 30, 60, 300),
        )
        self.boots = self._histogram(
            "spillway_boot_seconds",
            "Of a new instance: from the order to the launch (launched); from the launch to the node (joined), to all "
            "that its group promises on it (devices), to the first pod on it (bound), to that pod's start (started).",
            "group",
            "stage",
            buckets=_BOOT_SECONDS,
        )
        self.table += _OF_LAST_LOOK
        for cause in CAUSES:
            self.waiting.labels(cause)
        self.defects = self._counter("spillway_defects", "Looks that planning broke on: see the log for the traceback.")
        self._refusals_known: dict[str, datetime] = {}
        self._boots = _Boots(self.boots)

    def app(self) -> Any:
        """The WSGI application that answers with them."""
        return make_wsgi_app(self.registry)

    def watch(self, last: Callable[[], Decision | None]) -> None:
        """Answer also with what the last decision found of each node, worked out when that is asked for."""
        self.registry.register(_LastLook(last))

    def decided(self, plan: Plan, cluster: Cluster, *, took: float, doubted: bool) -> None:
        """A plan was made in so many seconds."""
        self.took.observe(took)
        self.decisions.labels("doubted" if doubted else "steps" if plan.steps else "nothing").inc()
        self.usd.set(plan.usd_per_hour)
        waiting = Tally(one.cause for one in plan.waiting)
        for cause in CAUSES:
            self.waiting.labels(cause).set(waiting[cause])
        self.hopeless.set(sum(one.hopeless for one in plan.waiting))
        for group in cluster.groups:
            self.desired.labels(group.name).set(group.desired)
            self._count_refusals(group, cluster.seen_at)
        self._boots.look(cluster)

    def stand_by(self) -> None:
        """Another one decides: what we found last is no news any more."""
        for cause in CAUSES:
            self.waiting.labels(cause).set(0)
        for gauge in (self.hopeless, self.usd, self.warnings):
            gauge.set(0)
        self.desired.clear()

    def ordered(self, step: Grow, *, oldest: datetime | None) -> None:
        """Nodes were ordered; ``oldest``: when the first pod that they are for was created."""
        now = datetime.now(UTC)
        self._boots.ordered(step.group, now)
        if oldest is not None:
            self.pending.observe((now - oldest).total_seconds())

    def _count_refusals(self, group: Group, now: datetime) -> None:
        """Those since the last look; at the first look, those of before are none of ours."""
        known = self._refusals_known.setdefault(group.name, now)
        for one in group.refusals:
            if one.at > known:
                self.refusals.labels(group.name, one.code).inc()
        self._refusals_known[group.name] = max((known, *(one.at for one in group.refusals)))

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        self.table.append(Metric(f"{name}_total", "counter", labels, says))
        return Counter(name, says, labels, registry=self.registry)

    def _gauge(self, name: str, says: str, *labels: str) -> Gauge:
        self.table.append(Metric(name, "gauge", labels, says))
        return Gauge(name, says, labels, registry=self.registry)

    def _histogram(
        self, name: str, says: str, *labels: str, buckets: tuple[float, ...] = Histogram.DEFAULT_BUCKETS
    ) -> Histogram:
        self.table.append(Metric(name, "histogram", labels, says))
        return Histogram(name, says, labels, buckets=buckets, registry=self.registry)


_LONG_AGO: Final = datetime.fromtimestamp(0, UTC)


class _Boots:
    """How long new instances take: each is counted once at each stage. An instance of before our time is not."""

    def __init__(self, seconds: Histogram) -> None:
        self._seconds = seconds
        self._ordered: dict[str, datetime] = {}
        self._since: datetime | None = None
        self._done: dict[str, int] = {}
        """Instance id -> stages that are counted."""

    def ordered(self, group: str, at: datetime) -> None:
        """Nodes of the group were ordered."""
        self._ordered[group] = at

    def look(self, cluster: Cluster) -> None:
        """Count what has come a stage further."""
        self._since = self._since or cluster.seen_at
        booting = [
            (group, one)
            for group in cluster.groups
            for one in group.instances
            if one.launched is not None and one.launched >= self._since and self._done.get(one.id) != len(_STAGES)
        ]
        if booting:
            nodes = {node.instance_id: node for node in cluster.nodes if node.provider_id}
            hosts = {node.name for _, one in booting if (node := nodes.get(one.id)) is not None}
            loads = pod_index_of(cluster.pods).loads
            pods = {name: loads.get(name, NO_LOAD).residents for name in hosts}
            for group, one in booting:
                node = nodes.get(one.id)
                reached = (None,) * 4 if node is None else _reached(node, group, pods[node.name], cluster.seen_at)
                self._count(group, one, reached)
        if len(self._done) > _REMEMBERED:
            there = {one.id for group in cluster.groups for one in group.instances}
            self._done = {name: stages for name, stages in self._done.items() if name in there}

    def _count(self, group: Group, one: Instance, reached: Sequence[datetime | None]) -> None:
        launched = one.launched or _LONG_AGO
        stages = ((self._ordered.get(group.name), launched), *((launched, at) for at in reached))
        done = self._done.get(one.id, 0)
        for stage, (begin, end) in list(zip(_STAGES, stages, strict=True))[done:]:
            if end is None:
                break
            done += 1
            if begin is not None:
                self._seconds.labels(group.name, stage).observe(max(0.0, (end - begin).total_seconds()))
        self._done[one.id] = done


def _reached(
    node: Node, group: Group, pods: Sequence[Pod], now: datetime
) -> tuple[datetime, datetime | None, datetime | None, datetime | None]:
    """When it joined, had its devices, its first pod, and that had started; each ``None`` while it has not."""
    promised = {name for name, amount in group.allocatable.items() if amount > 0}
    started = min((pod.started for pod in pods if pod.started is not None), default=None)
    return node.created, now if promised <= {*node.allocatable} else None, now if pods else None, started


class _LastLook(Collector):
    """Nodes by state, as the last decision found them."""

    def __init__(self, last: Callable[[], Decision | None]) -> None:
        self._last = last

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Their names, for which nothing is worked out."""
        return (GaugeMetricFamily(one.name, one.says, labels=one.labels) for one in _OF_LAST_LOOK)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yields the gauges of the last look when Prometheus asks."""
        last = self._last()
        found = standings(last.cluster, last.policy, last.plan).nodes if last is not None else ()
        sums: dict[str, Tally[tuple[str, ...]]] = {one.name: Tally() for one in _OF_LAST_LOOK}
        groups = {one.group.name if one.group is not None else OURS for one in found}
        for group in groups:
            for state in STATES:
                sums["spillway_nodes"][group, state] = sums["spillway_gpus"][group, state] = 0
        for one in found:
            group = one.group.name if one.group is not None else OURS
            sums["spillway_nodes"][group, one.state] += 1
            sums["spillway_gpus"][group, one.state] += gpus_of(one)
            for pod in one.residents:
                if pod.requests[words.GPU]:
                    sums["spillway_gpus_held"][group, pod.namespace] += pod.requests[words.GPU]
            sums["spillway_group_usd_per_hour"][(group,)] += one.usd_per_hour  # type: ignore[assignment]
        for family in self.describe():
            for labels, value in sorted(sums[family.name].items()):
                family.add_metric(labels, value)
            yield family


def gpus_of(one: Standing) -> int:
    """GPUs of a node; of one that is none yet, what its group promises."""
    if one.node is not None:
        return one.node.allocatable[words.GPU]
    return one.group.allocatable[words.GPU] if one.group is not None else 0


def as_markdown() -> str:
    """The table of the documentation."""
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.says} |"
        for one in Metrics(CollectorRegistry()).table
    ]
    causes = [f"| {name} | {says} |" for name, says in CAUSES.items()]
    return "\n".join(
        (
            "| metric | kind | labels | what it says |\n|---|---|---|---|",
            *rows,
            "\n| cause | a pod waits because |\n|---|---|",
            *causes,
            "",
        )
    )


def with_table(page: str) -> str:
    """The page with the tables between its two marks made anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{as_markdown()}{END}{tail}"
