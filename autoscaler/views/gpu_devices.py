"""Each GPU of a cluster: which pod holds it, as which of its own, how much it is used, and what it costs.

A container counts its GPUs from 0, in the order of the PCI bus: the machine's device 3 may be its device 0. Only the
DCGM exporter knows which pod holds which; the autoscaler that acts asks it where the policy says so. Processes are
told by none: a cluster shows no pid, ``spillway jobs show JOB --to local`` those of this machine's jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from rich.console import Console
from rich.table import Table

from autoscaler.kube.client import Kube
from autoscaler.kube.schema.core import Json, Meta
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from autoscaler.model.gpu_devices import GpuDevice
from autoscaler.replica.acting_replica import ask_acting
from autoscaler.views.gpus import acting_overview, job_of, span


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A GPU with its holder and its price."""

    node: str
    number: int
    uuid: str
    in_container: int | None
    """Its number there; ``None`` where no pod holds it."""
    holder: str
    """``namespace/job``, or the pod itself."""
    task: str
    """Role and index in the job; else the pod's name."""
    use: float
    idle_since: datetime | None
    usd_per_hour: float | None
    """Its part of what the node costs; ``None``: not known."""


class _Pod(Json, frozen=True):
    metadata: Meta


def read_devices(kube: Kube, *, namespace: str = words.NAMESPACE) -> tuple[HeldDevice, ...]:
    """All of which exporters tell.

    Raises ``Unavailable`` where no autoscaler acts or it asks no exporter, or the API server does not show pods.
    """
    said = ask_acting(kube, "gpus", namespace=namespace)
    if said is None:
        raise Unavailable(
            "the autoscaler that acts asks no DCGM exporter, and nothing else tells which pod holds which GPU: "
            "set idle_gpus.enabled or faults.dcgm in the policy"
        )
    seen = acting_overview(kube, namespace=namespace)
    decode = msgspec.json.Decoder(_Pod).decode
    pods = [decode(raw).metadata for raws, _ in kube.pages("/api/v1/pods") for raw in raws]
    return devices_of(
        msgspec.convert(said, tuple[GpuDevice, ...], strict=False),
        {f"{one.namespace}/{one.name}": one for one in pods},
        {line.name: line.usd_per_hour / line.gpus.total for line in seen.nodes if line.gpus.total},
    )


def devices_of(
    devices: Iterable[GpuDevice], pods: Mapping[str, Meta], usd_per_gpu: Mapping[str, float]
) -> tuple[HeldDevice, ...]:
    """Lists devices by machine and number. ``pods``: by ``namespace/name``; ``usd_per_gpu``: by node."""
    devices = sorted(devices, key=lambda one: (one.node, one.number, one.pod))
    of: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for one in devices:
        of[one.node, one.pod, one.container].append(one.number)
    found = []
    for one in devices:
        meta = pods.get(one.pod)
        found.append(
            HeldDevice(
                node=one.node,
                number=one.number,
                uuid=one.uuid,
                in_container=of[one.node, one.pod, one.container].index(one.number) if one.pod else None,
                holder=job_of(meta) if meta is not None else one.pod,
                task=_task(meta) if meta is not None else "",
                use=one.use,
                idle_since=one.idle_since,
                usd_per_hour=usd_per_gpu.get(one.node),
            )
        )
    return tuple(found)


def _task(meta: Meta) -> str:
    role, index = meta.labels.get(words.ROLE, ""), meta.labels.get(words.COMPLETION_INDEX, "")
    return f"{role} {index}".strip() or meta.name


def as_json(devices: Iterable[HeldDevice]) -> str:
    """Returns the devices as JSON."""
    return msgspec.json.format(msgspec.json.encode([asdict(one) for one in devices]), indent=2).decode()


def show_devices(devices: Iterable[HeldDevice], *, console: Console, now: datetime | None = None) -> None:
    """Prints the devices as a table that is narrow enough for a terminal of 80 columns."""
    devices, now = tuple(devices), now or datetime.now(UTC)
    if not devices:
        console.print("no DCGM exporter has told of a GPU so far")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("NODE", "GPU", "IN POD", "HELD BY", "TASK", "USE", "IDLE", "$/H"):
        words_of = column in ("HELD BY", "TASK")
        right = column in ("GPU", "IN POD", "USE", "$/H")
        table.add_column(column, overflow="fold", no_wrap=not words_of, justify="right" if right else "left")
    for one in devices:
        table.add_row(
            one.node,
            str(one.number),
            "-" if one.in_container is None else str(one.in_container),
            one.holder or "-",
            one.task,
            f"{one.use:.0%}",
            span(max(now - one.idle_since, timedelta())) if one.idle_since else "-",
            f"{one.usd_per_hour:.2f}" if one.usd_per_hour else "-",
        )
    console.print(table)
