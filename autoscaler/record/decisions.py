"""A decision as a line of JSON that says only what differs from the line before; and back, value for value.

One :class:`Scribe` writes a file and one :class:`Reader` reads it, from its first line on: that line says everything.
Pods, nodes and the like are lists of which most stay as they are: ``[4, 10]`` stands for ten items of the last list
from the fifth one on, anything else for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from typing import Any, Final, Protocol, get_args

import msgspec

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Assignment, Memory, Plan, Step, Waiting
from autoscaler.model.cluster import (
    Cluster,
    DaemonSet,
    GangSize,
    GpuHealth,
    GpuUse,
    Group,
    Node,
    Notice,
    Pod,
    ProvisioningRequest,
)
from autoscaler.model.jobs import EarlyStep, ElasticRole, LingeringJob, WaitingStep
from autoscaler.model.pauses import Pause
from autoscaler.model.resources import Resources
from autoscaler.model.volumes import NodeDrivers, Storage, Volume, VolumeClaim, VolumeClass

_KINDS: Final[Mapping[str, Any]] = {kind.__name__: kind for kind in get_args(Step)}


@dataclass(frozen=True, slots=True)
class Decision:
    """What was seen, by which policy and memory, and what was decided."""

    cluster: Cluster
    policy: Policy
    """With the schedules that were in force."""
    memory: Memory
    plan: Plan
    doubt: str = ""
    """Why the look was not acted on, where it was not: then the planner was not asked."""
    outcomes: tuple[str, ...] = ()
    """What came of each step, in order; empty where that was not written down: the process ended, or it only tells."""


class _Part(Protocol):
    """How one part of a decision is written."""

    def write(self, last: Any, now: Any) -> bytes | None:
        """Writes the value as JSON; ``None`` where it is as it was."""

    def read(self, last: Any, raw: msgspec.Raw) -> Any:
        """Returns the value that was written."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """A value that is written anew when it changes."""

    type: Any
    pack: Callable[[Any], Any] = lambda value: value
    unpack: Callable[[Any], Any] = lambda value: value

    def write(self, last: Any, now: Any) -> bytes | None:
        """Writes the value whole, unless it is the last one."""
        return None if last is now or last == now else to_json(self.pack(now))

    def read(self, last: Any, raw: msgspec.Raw) -> Any:  # noqa: ARG002 - as in _Part
        """Returns the value that was written."""
        return self.unpack(_decoder(self.type).decode(raw))


@dataclass(frozen=True, slots=True)
class _Items:
    """A list of which most stays."""

    type: Any
    name: Callable[[Any], object]
    """What an item is found again by when it was made anew."""
    pack: Callable[[Any], Any] = lambda value: value
    unpack: Callable[[Any], Any] = lambda value: value

    def write(self, last: Any, now: Any) -> bytes | None:
        """Writes which items are those of the last value, and the others whole."""
        if last is now:
            return None
        runs = list(_runs(last or (), now, self.name))
        if runs == [[0, len(last or ())]] or (not runs and last is not None and not last):
            return None
        return msgspec.json.encode([one if isinstance(one, list) else self._item(one.value) for one in runs])

    def _item(self, item: Any) -> msgspec.Raw:
        return msgspec.Raw(to_json(self.pack(item)))

    def read(self, last: Any, raw: msgspec.Raw) -> Any:
        """Puts the items together from the last value and those that were written."""
        found: list[Any] = []
        for one in msgspec.json.decode(raw, type=list[msgspec.Raw]):
            text = bytes(one)
            if text.startswith(b"["):
                begin, many = msgspec.json.decode(text)
                found += last[begin : begin + many]
            else:
                found.append(self.unpack(_decoder(self.type).decode(text)))
        return tuple(found)


@dataclass(slots=True)
class _New:
    """An item that the last list did not have."""

    value: Any


def _runs(last: Sequence[Any], now: Sequence[Any], name: Callable[[Any], object]) -> Iterator[list[int] | _New]:
    """The list ``now`` as runs of the last one and new items."""
    places: dict[object, int] | None = None
    run: list[int] = []
    for item in now:
        there = run[0] + run[1] if run else 0
        if not (there < len(last) and last[there] is item):  # most stand where they stood, as the same object
            places = {name(one): place for place, one in enumerate(last)} if places is None else places
            there = places.get(name(item), -1)
            if there >= 0 and last[there] is not item and last[there] != item:
                there = -1
        if there >= 0 and run and there == run[0] + run[1]:
            run[1] += 1
            continue
        if run:
            yield run
        run = [there, 1] if there >= 0 else []
        if there < 0:
            yield _New(item)
    if run:
        yield run


class _MeantItem(msgspec.Struct, frozen=True):
    pod: str
    assignments: Assignment


class _Volumes(msgspec.Struct):
    """:class:`Storage` without keys that the values say themselves."""

    claims: list[VolumeClaim]
    volumes: list[Volume]
    classes: list[VolumeClass]
    drivers: list[NodeDrivers]


def _packed_volumes(storage: Storage | None) -> _Volumes | None:
    if storage is None:
        return None
    return _Volumes(
        claims=list(storage.claims.values()),
        volumes=list(storage.volumes.values()),
        classes=list(storage.classes.values()),
        drivers=list(storage.drivers.values()),
    )


def _unpacked_volumes(found: _Volumes | None) -> Storage | None:
    if found is None:
        return None
    return Storage(
        claims={(one.namespace, one.name): one for one in found.claims},
        volumes={one.name: one for one in found.volumes},
        classes={one.name: one for one in found.classes},
        drivers={one.node: one for one in found.drivers},
    )


def _packed_sizes(sizes: Mapping[tuple[str, str], GangSize]) -> list[tuple[str, str, GangSize]]:
    return [(*key, size) for key, size in sizes.items()]


def _unpacked_sizes(found: list[tuple[str, str, GangSize]]) -> dict[tuple[str, str], GangSize]:
    return {(namespace, size_source): size for namespace, size_source, size in found}


def _named_step(step: Step) -> dict[str, Any]:
    return {type(step).__name__: step}


def _step_of(found: dict[str, msgspec.Raw]) -> Any:
    [(kind, raw)] = found.items()
    return _decoder(_KINDS[kind]).decode(raw)


def _name_of_step(step: Step) -> object:
    return type(step), step.because, getattr(step, "node", None), getattr(step, "group", None)


_ASSIGNMENTS: Final = _Items(
    _MeantItem, lambda item: item[0], lambda item: _MeantItem(*item), lambda item: (item.pod, item.assignments)
)
_MEMORY: Final = _Whole(Memory)

_PARTS: Final[Mapping[str, _Part]] = {
    "seen_at": _Whole(datetime),
    "pods": _Items(Pod, lambda pod: (pod.namespace, pod.name)),
    "nodes": _Items(Node, lambda node: node.name),
    "groups": _Items(Group, lambda group: group.name),
    "daemon_sets": _Whole(tuple[DaemonSet, ...]),
    "lingering": _Whole(tuple[LingeringJob, ...]),
    "workflow_steps": _Whole(tuple[WaitingStep, ...]),
    "early_steps": _Whole(tuple[EarlyStep, ...]),
    "gang_sizes": _Whole(list[tuple[str, str, GangSize]], _packed_sizes, _unpacked_sizes),
    "may_nominate": _Whole(bool),
    "storage": _Whole(_Volumes | None, _packed_volumes, _unpacked_volumes),
    "namespaces": _Whole(dict[str, dict[str, str]] | None),
    "pauses": _Whole(tuple[Pause, ...]),
    "notices": _Whole(tuple[Notice, ...]),
    "provisioning_requests": _Whole(tuple[ProvisioningRequest, ...]),
    "elastic": _Whole(tuple[ElasticRole, ...]),
    "gpu_use": _Items(GpuUse, lambda one: one.pod),
    "gpu_health": _Whole(tuple[GpuHealth, ...] | None),
    "policy": _Whole(Policy),
    "assignments": _ASSIGNMENTS,
    "memory": _MEMORY,
    "steps": _Items(dict[str, msgspec.Raw], _name_of_step, _named_step, _step_of),
    "waiting": _Items(Waiting, lambda one: one.pod),
    "assignments_next": _ASSIGNMENTS,
    "memory_next": _MEMORY,
    "usd_per_hour": _Whole(float),
    "lower_bound_usd_per_hour": _Whole(float),
    "warnings": _Whole(tuple[str, ...]),
    "wake_at": _Whole(datetime | None),
    "kept": _Whole(dict[str, str]),
    "idle_gpus": _Whole(dict[str, str]),
    "doubt": _Whole(str),
}
"""In the order in which they are written."""
_FOLLOWS: Final = {"assignments_next": "assignments", "memory_next": "memory"}
"""What a plan remembers is most often what the one before it did: it is written as what differs from that."""
_OF_CLUSTER: Final = tuple(field.name for field in fields(Cluster))
_OF_PLAN: Final = tuple(field.name for field in fields(Plan) if field.name != "memory")


def _parted(decision: Decision) -> dict[str, Any]:
    """The decision by the names of its parts."""
    plan = decision.plan
    whole = {name: getattr(decision.cluster, name) for name in _OF_CLUSTER}
    whole |= {name: getattr(plan, name) for name in _OF_PLAN}
    return whole | {
        "pods": tuple(decision.cluster.pods),
        "policy": decision.policy,
        "assignments": tuple(decision.memory.assignments.items()),
        "memory": replace(decision.memory, assignments={}),
        "assignments_next": tuple(plan.memory.assignments.items()),
        "memory_next": replace(plan.memory, assignments={}),
        "doubt": decision.doubt,
    }


def _joined(parts: Mapping[str, Any]) -> Decision:
    """The decision of these parts."""
    memory = replace(parts["memory_next"], assignments=dict(parts["assignments_next"]))
    return Decision(
        cluster=Cluster(**{name: parts[name] for name in _OF_CLUSTER}),
        policy=parts["policy"],
        memory=replace(parts["memory"], assignments=dict(parts["assignments"])),
        plan=Plan(**{name: parts[name] for name in _OF_PLAN}, memory=memory),
        doubt=parts["doubt"],
    )


class Scribe:
    """Writes the lines of one file, in order. The last decision is kept: most of the next one is the same."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def decided(self, decision: Decision) -> bytes:
        """The line of a decision."""
        now = _parted(decision)
        line: dict[str, msgspec.Raw] = {}
        for name, part in _PARTS.items():
            base = now if name in _FOLLOWS else self._last
            written = part.write(base.get(_FOLLOWS.get(name, name)), now[name])
            if written is not None or (name not in _FOLLOWS and name not in self._last):
                line[name] = msgspec.Raw(written if written is not None else b"null")
        self._last = now
        return msgspec.json.encode(line) + b"\n"

    @staticmethod
    def came_of(outcomes: Sequence[str]) -> bytes:
        """The line of what came of its steps."""
        return to_json({"outcomes": outcomes}) + b"\n"


class Reader:
    """Reads the lines of one file, in order."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def read(self, line: bytes) -> Decision | tuple[str, ...]:
        """A decision, or the outcomes of its steps. Raises ``ValueError`` where the line is neither."""
        found = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        if "outcomes" in found:
            return msgspec.json.decode(found["outcomes"], type=tuple[str, ...])
        if not self._last and found.keys() < _PARTS.keys() - _FOLLOWS.keys():
            raise ValueError("the file does not begin with a whole decision")
        now: dict[str, Any] = {}
        for name, part in _PARTS.items():
            base = now if name in _FOLLOWS else self._last
            last = base.get(_FOLLOWS.get(name, name))
            now[name] = part.read(last, found[name]) if name in found else last
        self._last = now
        return _joined(now)


def to_json(value: Any) -> bytes:
    """Values of the model as JSON."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Resources):
        return dict(value.items())
    if isinstance(value, Policy):
        return msgspec.Raw(value.model_dump_json(by_alias=True, exclude={"notifications"}).encode())
    raise NotImplementedError(f"{type(value).__name__} is not recorded")


def _value_from(kind: type[Any], plain: Any) -> Any:
    if kind is Resources:
        return Resources(plain)
    if kind is Policy:
        return Policy.model_validate(plain)
    raise NotImplementedError(f"{kind.__name__} is not recorded")


def from_json(kind: Any, raw: bytes) -> Any:
    """Values of the model from JSON. Raises ``msgspec.DecodeError``."""
    return _decoder(kind).decode(raw)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_value_from)
