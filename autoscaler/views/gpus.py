"""Which GPUs exist or are on their way, which jobs hold them, how long they have idled, and why a node stays.

:func:`read_gpus` asks the API server and the autoscaler that acts, :func:`gpus_of` and :func:`with_states` turn the
answers into one record per machine (pure), and :func:`show` prints them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import Console
from rich.table import Table

from autoscaler.kube.client import Kube
from autoscaler.kube.schema.convert import node_from
from autoscaler.kube.schema.core import Json, Meta, NodeJson, PodSpec
from autoscaler.kube.schema.resource_requests import requests_of
from autoscaler.kube.schema.values import EPOCH
from autoscaler.model import labels as words
from autoscaler.model.enumeration import counted
from autoscaler.model.errors import Unavailable
from autoscaler.model.node_states import BUSY, IDLE, JOINING, READY
from autoscaler.planner.explanation.overview import NodeLine, Overview
from autoscaler.replica.acting_replica import ask_acting

_JOB_LABELS = (words.JOB, "jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "job-name")


@dataclass(frozen=True, slots=True)
class Holder:
    """A job, or a pod without one, that holds GPUs of a machine."""

    name: str
    """``namespace/job``."""
    gpus: int


@dataclass(frozen=True, slots=True)
class GpuNode:
    """One machine with GPUs."""

    name: str
    origin: str
    """``on-prem`` or ``ec2``."""
    product: str
    total: int
    used: int
    holders: tuple[Holder, ...]
    idle_since: datetime | None
    """When the last GPU pod that is still on record ended, else when the node came; ``None`` while one is in use."""
    marks: tuple[str, ...]
    """What keeps pods away: ``not ready``, ``cordoned``, ``cordoned by Spillway``, ``leaving``."""
    state: str = ""
    """One of ``model.node_states``, by the autoscaler that acts; empty where none says."""
    why: str = ""
    """That it is in the state, and stays."""
    usd_per_hour: float | None = None
    """``None``: not known."""

    @property
    def free(self) -> int:
        """GPUs that no pod holds."""
        return self.total - self.used


class _Terminated(Json, frozen=True):
    finished_at: datetime | None = None


class _State(Json, frozen=True):
    terminated: _Terminated | None = None


class _ContainerStatus(Json, frozen=True):
    state: _State = _State()


class _Status(Json, frozen=True):
    phase: str = "Pending"
    container_statuses: tuple[_ContainerStatus, ...] = ()


class GpuPod(Json, frozen=True):
    """A pod, with when its containers ended."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: _Status = _Status()

    def gpus(self) -> int:
        """How many it asks for."""
        return requests_of(self.spec)[words.GPU]

    def is_finished(self) -> bool:
        """It holds nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    def ended(self) -> datetime:
        """When its last container did."""
        ends = [one.state.terminated.finished_at for one in self.status.container_statuses if one.state.terminated]
        return max((end for end in ends if end is not None), default=EPOCH)

    def holder(self) -> str:
        """``namespace/job``, or the pod itself."""
        return job_of(self.metadata)


def job_of(meta: Meta) -> str:
    """``namespace/job`` of a pod, or the pod itself."""
    labels, owner = meta.labels, meta.owner()
    job = next((labels[key] for key in _JOB_LABELS if key in labels), owner.name if owner else meta.name)
    return f"{meta.namespace}/{job}"


def read_gpus(kube: Kube, *, namespace: str = words.NAMESPACE) -> tuple[tuple[GpuNode, ...], str]:
    """All of them; and in words what the autoscaler does not say, empty where it says all.

    Raises ``Unavailable`` or ``kube.Refused`` where the API server does not show nodes or pods.
    """
    there = _read_gpus(kube)
    try:
        seen = acting_overview(kube, namespace=namespace)
    except Unavailable as silent:
        return there, f"{silent}; states are as the API server shows them"
    return with_states(there, seen.nodes), ""


def acting_overview(kube: Kube, *, namespace: str) -> Overview:
    """What the replica that acts saw last. Raises ``Unavailable`` where none acts or answers."""
    return msgspec.convert(ask_acting(kube, "top", namespace=namespace), Overview, strict=False)


def with_states(there: Iterable[GpuNode], lines: Iterable[NodeLine]) -> tuple[GpuNode, ...]:
    """The same with state and price, and with what is on its way and is no node yet."""
    by_name = {line.name: line for line in lines}
    found = [
        replace(node, state=line.state, why=line.why, usd_per_hour=line.usd_per_hour)
        if (line := by_name.pop(node.name, None)) is not None
        else node
        for node in there
    ]
    found += [
        GpuNode(
            name=line.name if line.many == 1 and not line.name.startswith("+") else f"{line.name} {line.group}",
            origin=words.EC2,
            product="",
            total=line.gpus.total,
            used=0,
            holders=(),
            idle_since=None,
            marks=(),
            state=line.state,
            why=line.why,
            usd_per_hour=line.usd_per_hour,
        )
        for line in by_name.values()
        if line.gpus.total and line.state == JOINING
    ]
    return tuple(found)


def _read_gpus(kube: Kube) -> tuple[GpuNode, ...]:
    node, pod = msgspec.json.Decoder(NodeJson), msgspec.json.Decoder(GpuPod)
    nodes = [node.decode(raw) for raws, _ in kube.pages("/api/v1/nodes") for raw in raws]
    pods = [pod.decode(raw) for raws, _ in kube.pages("/api/v1/pods") for raw in raws]
    return gpus_of(nodes, [one for one in pods if one.gpus()])


def gpus_of(nodes: Iterable[NodeJson], pods: Iterable[GpuPod]) -> tuple[GpuNode, ...]:
    """One record per machine with GPUs, on-prem first, then by name."""
    on: dict[str, list[GpuPod]] = {}
    for pod in pods:
        on.setdefault(pod.spec.node_name, []).append(pod)
    found = [_gpu_node(raw, on.get(raw.metadata.name, [])) for raw in nodes]
    return tuple(sorted((one for one in found if one.total), key=lambda one: (one.origin == words.EC2, one.name)))


def _gpu_node(raw: NodeJson, pods: list[GpuPod]) -> GpuNode:
    node = node_from(raw)
    held: Counter[str] = Counter()
    for pod in pods:
        if not pod.is_finished():
            held[pod.holder()] += pod.gpus()
    marks = (
        "not ready" if not node.ready else "",
        "cordoned by Spillway" if node.cordoned_by == words.AUTOSCALER else "cordoned" if node.cordoned else "",
        "leaving" if node.deleting else "",
    )
    idle_since = max([node.created, *(pod.ended() for pod in pods if pod.is_finished())]) if not held else None
    return GpuNode(
        name=node.name,
        origin=words.EC2 if node.labels.get(words.ORIGIN) == words.EC2 else words.ON_PREM,
        product=node.labels.get(words.GPU_PRODUCT, "unknown"),
        total=node.allocatable[words.GPU],
        used=held.total(),
        holders=tuple(Holder(name, gpus) for name, gpus in held.most_common()),
        idle_since=idle_since,
        marks=tuple(mark for mark in marks if mark),
    )


def as_json(nodes: Iterable[GpuNode], *, now: datetime) -> str:
    """Returns the machines as JSON."""
    records = [
        asdict(node) | {"free": node.free, "idle_seconds": _idle_seconds(node, now), "origin": node.origin}
        for node in nodes
    ]
    return msgspec.json.format(msgspec.json.encode(records), indent=2).decode()


def show(nodes: Iterable[GpuNode], *, console: Console, now: datetime | None = None) -> None:
    """Prints the machines as a table."""
    nodes, now = tuple(nodes), now or datetime.now(UTC)
    if not nodes:
        console.print("no node of this cluster offers GPUs (nvidia.com/gpu)")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("NODE", no_wrap=True)
    table.add_column("FREE", justify="right", no_wrap=True)
    table.add_column("HELD BY", min_width=16, overflow="fold")
    table.add_column("STATE", min_width=16, overflow="fold")
    table.add_column("$/H", justify="right", no_wrap=True)
    table.add_column("PRODUCT", no_wrap=True)
    for node in nodes:
        table.add_row(*_row(node, now))
    console.print(table)
    console.print(f"\n{_total(nodes, words.ON_PREM)}; {_total(nodes, words.EC2)}", highlight=False)


def _row(node: GpuNode, now: datetime) -> tuple[str, ...]:
    """Narrow enough for a terminal of 80 columns."""
    held = "\n".join(f"{one.name} ({one.gpus})" for one in node.holders) or "-"
    seconds = _idle_seconds(node, now)
    idle = (f"idle {span(timedelta(seconds=seconds))}",) if seconds is not None else ()
    free = f"{0 if node.state == JOINING else node.free}/{node.total}"
    usd = f"{node.usd_per_hour:.2f}" if node.usd_per_hour else "-"
    return node.name, free, held, _state(node, idle), usd, node.product.removeprefix("NVIDIA-")


def _state(node: GpuNode, idle: tuple[str, ...]) -> str:
    """Its state, how long it has idled, and why it is so; what other columns say is left out."""
    if not node.state:
        return ", ".join((*idle, *node.marks)) or "busy"
    shown = ", ".join(
        ((node.state,) if node.state != IDLE or not idle else ()) + (idle if node.state != JOINING else ())
    )
    return shown if node.state in (BUSY, READY) or not node.why else f"{shown}: {node.why}"


def _total(nodes: Iterable[GpuNode], origin: str) -> str:
    nodes = [node for node in nodes if node.origin == origin]
    ours = [node for node in nodes if node.state != JOINING]
    coming = sum(node.total for node in nodes if node.state == JOINING)
    name = "EC2" if origin == words.EC2 else origin
    total, used = sum(node.total for node in ours), sum(node.used for node in ours)
    held = f"{name}: {used} of {total} GPUs held on {counted(len(ours), 'machine')}"
    return f"{held}, {coming} on their way" if coming else held


def _idle_seconds(node: GpuNode, now: datetime) -> int | None:
    return max(int((now - node.idle_since).total_seconds()), 0) if node.idle_since else None


def span(time: timedelta) -> str:
    """The two largest units: ``2d 3h``, ``5m 10s``."""
    left = int(time.total_seconds())
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amount or (unit == "s" and not parts):
            parts.append(f"{amount}{unit}")
    return " ".join(parts[:2])
