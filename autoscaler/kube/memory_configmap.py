"""What a plan remembers, written down in the cluster before it is carried out: the replica that acts next reads it.

What was bought is in the groups' desired capacity, but not for which pods. A planner that has forgotten gives a node
that is on its way to the gang that is first in line, and buys another one for the job that it was bought for. So where
pods are to go is kept in one ConfigMap beside the Lease, and read by the replica that gets the Lease.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from autoscaler.kube.client import Expired, Kube, Refused
from autoscaler.kube.schema.core import Json
from autoscaler.model import labels as words
from autoscaler.model.actions import Assignment, Backoff, Memory, Order, Unused
from autoscaler.model.errors import Unavailable

_KEY: Final = "memory.json"
_NOT_FOUND: Final = 404

Tell = Callable[[str, str], None]


class _Text(Json, frozen=True):
    """The memory as it is written."""

    backoffs: dict[str, Backoff] = msgspec.field(default_factory=dict)
    assignments: dict[str, dict[str, list[str]]] = msgspec.field(default_factory=dict)
    """Auto Scaling group (empty: a machine that we own) -> node, or what the plan calls it -> pods."""
    draining: dict[str, datetime] = msgspec.field(default_factory=dict)
    resting: dict[str, datetime] = msgspec.field(default_factory=dict)
    orders: dict[str, Order] = msgspec.field(default_factory=dict)
    leftovers: list[str] = msgspec.field(default_factory=list)
    unused: dict[str, Unused] = msgspec.field(default_factory=dict)


class _ConfigMap(Json, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class MemoryConfigMap:
    """The ConfigMap of one autoscaler. It holds some 20,000 waiting pods: what is larger the API server refuses."""

    def __init__(
        self, kube: Kube, *, namespace: str, tell: Tell = lambda _party, _why: None, read_only: bool = False
    ) -> None:
        """``tell`` is told in words why the memory is of no use now, and with no words when it is again."""
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._party = f"the memory (ConfigMap {namespace}/{words.MEMORY})"
        self._tell = tell
        self._read_only = read_only
        self._written: Memory | None = None

    def read(self) -> Memory:
        """What was written last; nothing where nothing was, or nothing that can be read. Raises ``Unavailable``."""
        self._written, why = None, ""
        try:
            self._written = self._read()
        except Unavailable as error:
            self._tell(self._party, str(error))
            raise
        except Refused as refused:
            why = "" if refused.status == _NOT_FOUND else str(refused)
        except (Expired, msgspec.DecodeError) as error:
            why = f"{_KEY} cannot be read and is written anew ({error})"
        self._tell(self._party, why)
        return self._written or Memory()

    def write(self, memory: Memory) -> None:
        """Write it down where it says something new. What cannot be written is told: jobs do not wait for that."""
        if self._read_only or memory == self._written:
            return
        why = ""
        try:
            self._write(memory)
            self._written = memory
        except (Unavailable, Refused, Expired) as error:
            why = str(error)
        self._tell(self._party, why)

    def _read(self) -> Memory:
        found = msgspec.json.decode(self._kube.get(f"{self._path}/{words.MEMORY}"), type=_ConfigMap)
        return as_memory(found.data.get(_KEY, "{}"))

    def _write(self, memory: Memory) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": words.MEMORY}}
        body |= {"data": {_KEY: as_text(memory)}}
        try:
            self._kube.send("PUT", f"{self._path}/{words.MEMORY}", body)
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
            self._kube.send("POST", self._path, body)


def as_text(memory: Memory) -> str:
    """Writes the memory as JSON, in an order that says nothing."""
    text = _Text(
        backoffs=dict(memory.backoffs),
        assignments=_by_node(memory.assignments),
        draining=dict(memory.draining),
        resting=dict(memory.resting),
        orders=dict(memory.orders),
        leftovers=sorted(memory.leftovers),
        unused=dict(memory.unused),
    )
    return msgspec.json.encode(text, order="sorted").decode()


def as_memory(text: str) -> Memory:
    """The memory that was written so. Raises ``msgspec.DecodeError``."""
    found = msgspec.json.decode(text, type=_Text)
    assignments = {
        pod: Assignment(node, group)
        for group, nodes in found.assignments.items()
        for node, pods in nodes.items()
        for pod in pods
    }
    return Memory(
        backoffs=found.backoffs,
        assignments=assignments,
        draining=found.draining,
        resting=found.resting,
        orders=found.orders,
        leftovers=frozenset(found.leftovers),
        unused=found.unused,
    )


def _by_node(assignments: Mapping[str, Assignment]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for pod, (node, group) in sorted(assignments.items()):
        found[group][node].append(pod)
    return found
