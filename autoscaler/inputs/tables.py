"""Pods, nodes and prices from files, for planning without a cluster: CSV tables, or what ``kubectl get`` writes.

Every mistake is told with file, line, column and value (:class:`BadInput`).
"""

from __future__ import annotations

import csv
import gc
import io
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from textwrap import shorten
from typing import Final

from autoscaler.inputs.asked import Asked
from autoscaler.model import labels as words
from autoscaler.model.cluster import GangRef, Node, Pod
from autoscaler.model.constraints import Requirement
from autoscaler.model.errors import BadInput
from autoscaler.model.instance_types import Price
from autoscaler.model.resources import CPU, MEMORY, PODS, Resources

MIB = 2**20
_EPOCH = datetime.fromtimestamp(0, UTC)
_WHOLE_GPU: Final = 1000
"""Thousandths of a GPU."""
_PODS_ON_A_MACHINE = 110
"""What a kubelet allows unless told otherwise."""


def read_asked(source: str) -> Asked:
    """What a CSV table (``cpu_milli, memory_mib, num_gpu`` and more) or Kubernetes objects ask for; ``-`` is stdin."""
    text, name = _text(source, what="pods")
    with without_collection():
        if _is_kubernetes(text):
            from autoscaler.inputs.kube_lists import objects_in  # noqa: PLC0415
            from autoscaler.inputs.listed_pods import asked_in  # noqa: PLC0415 - not needed for tables

            return asked_in(objects_in(text, name), name)
        rows = _rows(text, name, needed=("cpu_milli", "memory_mib"))
        pods = [_pod(row) for row in rows]
    for pod, many in Counter(pod.name for pod in pods).items():
        if many > 1:
            raise BadInput(f"{name}: column name = {pod!r} is given {many} times: every pod needs a name of its own")
    specs = {pod.key: spec for pod, row in zip(pods, rows, strict=True) if (spec := row.text("gpu_spec"))}
    return Asked(tuple(pods), gpu_specs=specs, notes=tuple(_not_kept(rows)))


_READ: Final = frozenset(
    ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_spec", "zone", "selector", "gang", "priority"]
)
_READ_OF_NODES: Final = frozenset(["sn", "name", "cpu_milli", "memory_mib", "gpu", "model", "max_pods", "zone"])
_PASSED_OVER: Final = frozenset(["qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time"])
"""Columns of the openb trace that say what became of a pod there."""


def _not_kept(rows: Sequence[_Row]) -> Iterator[str]:
    """Columns that mean something and are not kept, in words."""
    parts = sum(1 for row in rows if 0 < row.number("gpu_milli", 0) < _WHOLE_GPU)
    if parts:
        yield f"column gpu_milli: {parts} pods ask for a part of a GPU; each is planned with a whole one"
    yield from _not_read(rows, {*_READ, *_PASSED_OVER, "gpu_milli"}, what="pods")


def _not_read(rows: Sequence[_Row], known: Collection[str], *, what: str) -> Iterator[str]:
    unknown = [column for column in (rows[0].cells if rows else ()) if column not in known]
    if unknown:
        yield f"columns of the {what} file that are not read: {', '.join(unknown)}"


def read_nodes(path: Path) -> tuple[Node, ...]:
    """Nodes that are there, from a CSV table (``sn, cpu_milli, memory_mib, gpu, model``) or a Kubernetes List."""
    text, name = _text(str(path), what="nodes")
    if _is_kubernetes(text):
        nodes = tuple(_nodes(text, name))
    else:
        nodes = tuple(_node(row) for row in _rows(text, name, needed=("sn", "cpu_milli", "memory_mib", "gpu")))
    for node, many in Counter(node.name for node in nodes).items():
        if many > 1:
            raise BadInput(f"{name}: the node {node!r} is given {many} times: every node needs a name of its own")
    return nodes


def notes_on_nodes(path: Path) -> list[str]:
    """What a table of nodes says that is not planned with, in words."""
    text, name = _text(str(path), what="nodes")
    rows = [] if _is_kubernetes(text) else _rows(text, name, needed=("sn",))
    return list(_not_read(rows, _READ_OF_NODES, what="nodes"))


def read_catalog(path: Path) -> tuple[Price, ...]:
    """What can be bought, from a CSV table of instance types; the columns ``zone, capacity_type`` are optional."""
    text, name = _text(str(path), what="catalog")
    needed = ("instance_type", "allocatable_cpu_milli", "allocatable_memory_mib", "usd_per_hour")
    return tuple(_price(row) for row in _rows(text, name, needed=needed))


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a table, which knows where it stands."""

    source: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str, default: str = "") -> str:
        """The cell; the default where the column is absent or the cell is empty."""
        return (self.cells.get(column) or "").strip() or default

    def number(self, column: str, default: float | None = None) -> float:
        """A number that is not negative."""
        raw = self.text(column)
        if not raw and default is not None:
            return default
        try:
            value = float(raw)
        except ValueError:
            value = -1.0
        if not 0 <= value < 2**53:
            raise self.wrong(column, raw, "must be a number of at least 0")
        return value

    def whole(self, column: str, default: int | None = None) -> int:
        """A whole number that is not negative."""
        value = self.number(column, default)
        if value != int(value):
            raise self.wrong(column, self.text(column), "must be a whole number")
        return int(value)

    def wrong(self, column: str, value: str, wanted: str) -> BadInput:
        """Returns the error that names file, line, column and what was wanted."""
        return BadInput(f"{self.source}:{self.line}: column {column} = {value!r}: {wanted}")


def _text(source: str, *, what: str) -> tuple[str, str]:
    if source == "-":
        return sys.stdin.read(), "standard input"
    try:
        return Path(source).read_text(encoding="utf-8-sig"), source
    except OSError as error:
        raise BadInput(f"{source}: cannot read this {what} file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{source}: this {what} file is not UTF-8 text") from None


def _is_kubernetes(text: str) -> bool:
    """Whether it is JSON or YAML rather than a table: a table's first line has commas and no colon."""
    first = _content(text)
    return first.lstrip().startswith(("{", "[", "---")) or (":" in first and "," not in first.split(":")[0])


def _content(text: str) -> str:
    """The first line that is neither blank nor a comment; empty where there is none."""
    return next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")


def _nodes(text: str, source: str) -> list[Node]:
    """Reads nodes from a file that may hold the pods, too: ``kubectl get nodes,pods -A -o json``."""
    from autoscaler.inputs.kube_lists import objects_in  # noqa: PLC0415 - not needed for tables
    from autoscaler.kube.schema.convert import node_from  # noqa: PLC0415
    from autoscaler.kube.schema.core import NodeJson  # noqa: PLC0415

    objects = list(objects_in(text, source))
    nodes = [one for one in objects if one.is_object and (one.kind or "Node") == "Node"]
    wrong = next((one for one in objects if not (nodes and one.is_object)), None)
    if wrong is not None:
        raise BadInput(f"{source}: holds {wrong.told()}: objects of kind Node (or a List of them) are read here")
    return [one.made(NodeJson, node_from) for one in nodes]


@contextmanager
def without_collection() -> Iterator[None]:
    """Pauses garbage collection: nothing here makes cycles, and it would walk through all pods repeatedly."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _rows(text: str, source: str, *, needed: tuple[str, ...]) -> list[_Row]:
    if not _content(text):
        raise BadInput(f"{source}: is empty{', but for comments' if text.strip() else ''}")
    reader = csv.DictReader(io.StringIO(text))
    columns = [column.strip() for column in reader.fieldnames or ()]
    reader.fieldnames = columns
    for column in needed:
        if column not in columns:
            there = shorten(", ".join(columns), 120) or "none"
            wanted = f"the columns needed are {', '.join(needed)}"
            raise BadInput(f"{source}:1: column {column} is missing: {wanted}; the first line has {there}")
    rows = []
    for cells in reader:
        row = _Row(source, reader.line_num, cells)
        if None in cells:
            raise BadInput(f"{source}:{row.line}: has more cells than the {len(columns)} columns of the first line")
        rows.append(row)
    return rows


def _pod(row: _Row) -> Pod:
    number = row.line - 1
    asks = {
        CPU: row.whole("cpu_milli"),
        MEMORY: int(row.number("memory_mib") * MIB),
        words.GPU: row.whole("num_gpu", 0),
        PODS: 1,
    }
    zone, gang = row.text("zone"), row.text("gang")
    term = [*([Requirement(words.ZONE, "In", (zone,))] if zone else []), *_selector(row)]
    return Pod(
        namespace="",
        name=row.text("name", f"pod-{number}"),
        uid=str(number),
        requests=Resources(asks),
        created=_EPOCH,
        affinity=(tuple(term),) if term else (),
        priority=_signed(row, "priority"),
        gang=GangRef("", gang) if gang else None,
    )


def _selector(row: _Row) -> list[Requirement]:
    """``key=value`` pairs, several parted by a semicolon or a space."""
    found = []
    for pair in row.text("selector").replace(";", " ").split():
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise row.wrong("selector", row.text("selector"), "must be key=value, several parted by ;")
        found.append(Requirement(key, "In", (value,)))
    return found


def _signed(row: _Row, column: str) -> int:
    raw = row.text(column, "0")
    try:
        return int(raw)
    except ValueError:
        raise row.wrong(column, raw, "must be a whole number") from None


def _node(row: _Row) -> Node:
    gpus, model = row.whole("gpu", 0), row.text("model")
    room = {
        CPU: row.whole("cpu_milli"),
        MEMORY: int(row.number("memory_mib") * MIB),
        words.GPU: gpus,
        PODS: row.whole("max_pods", _PODS_ON_A_MACHINE),
    }
    name = row.text("sn") or row.text("name")
    labels = {words.HOSTNAME: name, words.ARCH: "amd64", words.OS: "linux", words.ORIGIN: words.ON_PREM}
    if model:
        labels[words.GPU_PRODUCT] = model
    if row.text("zone"):
        labels[words.ZONE] = row.text("zone")
    return Node(name=name, allocatable=Resources(room), created=_EPOCH, labels=labels)


def _price(row: _Row) -> Price:
    room = {
        CPU: row.whole("allocatable_cpu_milli"),
        MEMORY: int(row.number("allocatable_memory_mib") * MIB),
        words.GPU: row.whole("gpu_count", 0),
        PODS: row.whole("max_pods", _PODS_ON_A_MACHINE),
    }
    if efas := row.whole("efa", 0):
        room[words.EFA] = efas
    capacity_type = row.text("capacity_type", "on-demand")
    if capacity_type not in ("on-demand", "spot"):
        raise row.wrong("capacity_type", capacity_type, "must be on-demand or spot")
    return Price(
        instance_type=row.text("instance_type"),
        arch=row.text("arch", "amd64"),
        room=Resources(room),
        usd=row.number("usd_per_hour"),
        zone=row.text("zone"),
        capacity_type=capacity_type,
        gpu_model=row.text("gpu_model"),
        gpu_memory_mib=row.whole("gpu_memory_mib", 0),
        vcpus=row.whole("vcpu", 0),
        memory_mib=row.whole("memory_mib", 0),
    )
