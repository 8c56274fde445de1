"""A cluster at a glance: groups, nodes, and what waits and why, as plain values that travel as JSON. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.actions import CAUSES, Plan, Waiting
from autoscaler.model.cluster import Cluster
from autoscaler.model.needed_changes import merged, together
from autoscaler.model.node_states import STATES
from autoscaler.model.resources import CPU, MEMORY, Resources
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.explanation.node_states import Standing, standings

OURS: Final = "on-prem"
_NAMED: Final = 3
_AMOUNTS: Final = (words.GPU, CPU, MEMORY)


@dataclass(frozen=True, slots=True)
class Use:
    """What pods ask for, of what there is."""

    held: int = 0
    total: int = 0

    def __add__(self, other: Use) -> Use:
        """Returns both uses together."""
        return Use(self.held + other.held, self.total + other.total)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node, or what is to become one; several of which nothing is known but that they were asked for."""

    name: str
    group: str
    state: str
    why: str
    gpus: Use
    cpu: Use
    """Millicores."""
    memory: Use
    """Bytes."""
    pods: int
    usd_per_hour: float
    until: datetime | None = None
    many: int = 1


@dataclass(frozen=True, slots=True)
class GroupLine:
    """Nodes of one group, or those that you own."""

    name: str
    kind: str
    states: dict[str, int]
    gpus: Use
    cpu: Use
    memory: Use
    usd_per_hour: float
    closed: str = ""
    """Why nothing is bought in it for now, in short."""


@dataclass(frozen=True, slots=True)
class WaitLine:
    """Pods that wait for the same."""

    cause: str
    because: str
    would_fit_if: str
    pods: int
    names: tuple[str, ...]
    """Of the first few."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything at one moment."""

    decided: datetime
    usd_per_hour: float
    groups: tuple[GroupLine, ...]
    nodes: tuple[NodeLine, ...]
    waiting: tuple[WaitLine, ...]
    pauses: tuple[str, ...]
    warnings: tuple[str, ...]
    next_steps: tuple[str, ...]


def overview(cluster: Cluster, policy: Policy, plan: Plan) -> Overview:
    """What is shown of a look and the plan that was made of it."""
    found = standings(cluster, policy, plan)
    lines = list(_nodes(found.nodes))
    closed = {name: f"{one.code} until {one.until:%Y-%m-%d %H:%M:%S} UTC" for name, one in found.fleet.closed.items()}
    closed |= {
        name: f"paused: {'; '.join(pause.because or pause.what for pause in pauses)}"
        for name, pauses in found.fleet.paused.items()
    }
    return Overview(
        decided=cluster.seen_at,
        usd_per_hour=plan.usd_per_hour,
        groups=tuple(_groups(lines, cluster, closed)),
        nodes=tuple(lines),
        waiting=tuple(_waiting(plan.waiting)),
        pauses=tuple(map(str, cluster.pauses)),
        warnings=plan.warnings,
        next_steps=tuple(map(describe, plan.steps)),
    )


def _nodes(found: Iterable[Standing]) -> Iterator[NodeLine]:
    """A line each; those that are asked for and have no instance are one line for each group."""
    asked: Counter[str] = Counter()
    first: dict[str, Standing] = {}
    for one in found:
        if one.name:
            yield _line(one)
        else:
            asked[_name(one)] += 1
            first.setdefault(_name(one), one)
    yield from (_line(first[name], many=many) for name, many in sorted(asked.items()))


def _line(one: Standing, *, many: int = 1) -> NodeLine:
    there = one.node.allocatable if one.node is not None else one.group.allocatable if one.group else Resources()
    asks = Resources.total(pod.requests for pod in one.residents)
    gpus, cpu, memory = (Use(asks[name], there[name] * many) for name in _AMOUNTS)
    return NodeLine(
        name=one.name or f"+{many}",
        group=_name(one),
        state=one.state,
        why=one.why,
        gpus=gpus,
        cpu=cpu,
        memory=memory,
        pods=len(one.residents),
        usd_per_hour=one.usd_per_hour * many,
        until=one.until,
        many=many,
    )


def _name(one: Standing) -> str:
    return one.group.name if one.group is not None else OURS


def _groups(lines: Iterable[NodeLine], cluster: Cluster, closed: dict[str, str]) -> Iterator[GroupLine]:
    """Machines that you own first; then every group, also one without nodes."""
    of: dict[str, list[NodeLine]] = defaultdict(list)
    for line in lines:
        of[line.group].append(line)
    kinds = {group.name: _kind(group.instance_type, group.capacity_type) for group in cluster.groups}
    for name in (*([OURS] if OURS in of else []), *sorted(kinds)):
        states = Counter[str]()
        for line in of[name]:
            states[line.state] += line.many
        yield GroupLine(
            name=name,
            kind=kinds.get(name, ""),
            states={state: states[state] for state in STATES if states[state]},
            gpus=sum((line.gpus for line in of[name]), Use()),
            cpu=sum((line.cpu for line in of[name]), Use()),
            memory=sum((line.memory for line in of[name]), Use()),
            usd_per_hour=sum(line.usd_per_hour for line in of[name]),
            closed=closed.get(name, ""),
        )


def _kind(instance_type: str, capacity_type: str) -> str:
    return instance_type if capacity_type == "on-demand" else f"{instance_type} {capacity_type}"


def _waiting(waiting: Iterable[Waiting]) -> Iterator[WaitLine]:
    """Those that wait for the same together; what a person can change first."""
    alike: dict[tuple[str, str], list[Waiting]] = defaultdict(list)
    for one in waiting:
        alike[one.cause, one.because].append(one)
    order = {cause: number for number, cause in enumerate(CAUSES)}
    ranked = sorted(alike.items(), key=lambda one: (order[one[0][0]], -len(one[1]), one[0]))
    for (cause, because), those in ranked:
        change = together(merged(*{one.changes: None for one in those}))
        names = sorted(one.pod for one in those)
        yield WaitLine(cause, because, change, len(those), tuple(names[:_NAMED]))
