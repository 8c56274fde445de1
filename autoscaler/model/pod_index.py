"""All pods of a cluster, sorted by what a decision asks about them, and kept so as single pods change.

A decision looks at the few pods that wait, and of the many that run only at sums: what they take of each node, how many
of one class are where. A :class:`Register` is kept in step, change by change; the :class:`PodIndex` taken from it never
changes, so a hundred thousand pods that did nothing since the last look cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from autoscaler.model.cluster import GangRef, Pod
from autoscaler.model.constraints import PodTerm
from autoscaler.model.resources import Resources

Key = tuple[str, str]
"""Namespace and name."""
PodClass = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace and labels: no rule between pods can tell two of a class apart."""
GangKey = tuple[str, str, str]
Counts = Mapping[str, int]
"""Node name -> pods."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Load:
    """What the bound pods take of one node."""

    used: Mapping[str, int]
    ports: frozenset[tuple[str, int]] = frozenset()
    residents: tuple[Pod, ...] = ()
    """Pods that are not daemons and not finished."""
    daemons: frozenset[str] = frozenset()
    """``namespace/Kind/name`` of the owners of those that came with the node."""
    ends: datetime | None = None
    """When the last of the residents is expected to end; ``None`` where one of them does not say, or there is none."""
    last_ungated: datetime | None = None
    """When the newest of the residents was created that the scheduler, or another, put there by itself."""


NO_LOAD: Final = Load(used=MappingProxyType({}))


@dataclass(frozen=True, slots=True, eq=False)
class PodIndex(Collection[Pod]):
    """The pods at one moment. A collection of all of them; equal to none but itself."""

    pods: tuple[Pod, ...]
    unbound: tuple[Pod, ...]
    loads: Mapping[str, Load]
    """Node name -> what is taken of it. A node that no pod is on is absent."""
    classes: Mapping[PodClass, Counts]
    """Of the bound pods that stay."""
    anti_affinity: Mapping[PodTerm, Counts]
    """Anti-affinity of the bound pods: the term, and how many pods that have it are on which node."""
    gangs: Mapping[GangKey, tuple[Pod, ...]]
    """Every pod of each gang of which one is unbound."""

    def __iter__(self) -> Iterator[Pod]:
        """Iterates over all pods."""
        return iter(self.pods)

    def __len__(self) -> int:
        """Returns the number of pods."""
        return len(self.pods)

    def __contains__(self, pod: object) -> bool:
        """Whether it is one of them."""
        return pod in self.pods

    def with_pending(self, node: str) -> PodIndex:
        """The same without that node: its residents are the only pods that are pending, as if they were made anew.

        Those that are being deleted already are pending, or gone, by other names.
        """
        here = self.loads.get(node, NO_LOAD).residents
        left = [pod for pod in here if not pod.deleting]
        terms = {term for pod in here for term in pod.apart_from}
        return PodIndex(
            pods=self.pods,
            unbound=tuple(replace(pod, node=None, phase="Pending", started=None, admitted_to="") for pod in left),
            loads={name: load for name, load in self.loads.items() if name != node},
            classes=_without(node, self.classes, {_class_of(pod) for pod in left}),
            anti_affinity=_without(node, self.anti_affinity, terms),
            gangs={},
        )


def _class_of(pod: Pod) -> PodClass:
    return pod.namespace, tuple(sorted(pod.labels.items()))


def _without(node: str, counts: Mapping[T, Counts], of: Iterable[T]) -> dict[T, Counts]:
    changed = {thing: {name: many for name, many in counts[thing].items() if name != node} for thing in of}
    return {**counts, **changed}


def pod_index_of(pods: Iterable[Pod]) -> PodIndex:
    """The same pods, sorted; at no cost where they are already."""
    if isinstance(pods, PodIndex):
        return pods
    register, several = Register(), tuple(pods)
    for pod in several:
        register.change(None, pod)
    return register.index(several)


def gang_key(ref: GangRef) -> GangKey:
    """A PodGroup and a training job of one name are two gangs."""
    return ref.namespace, ref.name, ref.size_source


class Register:
    """The same sums as a :class:`PodIndex`, that change pod by pod. Not for several threads at once."""

    def __init__(self) -> None:
        self._unbound: dict[Key, Pod] = {}
        self._on: dict[str, dict[Key, Pod]] = {}
        self._gangs: dict[GangKey, dict[Key, Pod]] = {}
        self._loads: dict[str, Load] = {}
        self._classes: _Tally[PodClass] = _Tally()
        self._anti_affinity: _Tally[PodTerm] = _Tally()
        self._stale: set[str] = set()
        """Nodes on which a pod has changed since the last index was taken."""

    def change(self, before: Pod | None, after: Pod | None) -> None:
        """A pod came, changed, or went (``None``: it is not there)."""
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)

    def requests_on(self, node: str, *, host: str) -> Resources:
        """What the pods there ask for, with those that we have pinned to its host name and that are on their way."""
        there = self._on.get(node, {}).values()
        coming = (pod for pod in self._unbound.values() if pod.admitted_to == host)
        return Resources.total(pod.requests for pod in (*there, *coming))

    def index(self, pods: tuple[Pod, ...]) -> PodIndex:
        """Returns an index of the pods that the changes have led to."""
        for node in self._stale:
            here = self._on.get(node)
            if here:
                self._loads[node] = _load(here.values())
            else:
                self._loads.pop(node, None)
        self._stale.clear()
        unbound = tuple(self._unbound.values())
        names = {gang_key(pod.gang) for pod in unbound if pod.gang is not None}
        return PodIndex(
            pods=pods,
            unbound=unbound,
            loads=dict(self._loads),
            classes=self._classes.frozen(),
            anti_affinity=self._anti_affinity.frozen(),
            gangs={name: tuple(self._gangs[name].values()) for name in names},
        )

    def _count(self, pod: Pod, by: int) -> None:
        key = (pod.namespace, pod.name)
        if pod.gang is not None:
            _shelve(self._gangs, gang_key(pod.gang), key, pod, by)
        if pod.node is None:
            if by > 0:
                self._unbound[key] = pod
            else:
                del self._unbound[key]
        elif not pod.is_finished:
            _shelve(self._on, pod.node, key, pod, by)
            self._stale.add(pod.node)
            for term in pod.apart_from:
                self._anti_affinity.count(term, pod.node, by)
            if not pod.deleting:
                self._classes.count(_class_of(pod), pod.node, by)


class _Tally(Generic[T]):
    """How many of each thing are on which node."""

    def __init__(self) -> None:
        self._counts: dict[T, dict[str, int]] = {}
        self._own: set[T] = set()
        """Things whose counts no other index holds: those of the others are copied before they change."""

    def count(self, thing: T, node: str, by: int) -> None:
        """Counts so many more of it on the node."""
        if thing not in self._own:
            self._own.add(thing)
            self._counts[thing] = dict(self._counts.get(thing, ()))
        counts = self._counts[thing]
        counts[node] = counts.get(node, 0) + by
        if not counts[node]:
            del counts[node]
        if not counts:
            del self._counts[thing]
            self._own.discard(thing)

    def frozen(self) -> Mapping[T, Counts]:
        """Returns the counts as they are now; they change no more."""
        self._own.clear()
        return dict(self._counts)


def _shelve(shelves: dict[T, dict[Key, Pod]], name: T, key: Key, pod: Pod, by: int) -> None:
    if by > 0:
        shelves.setdefault(name, {})[key] = pod
        return
    del shelves[name][key]
    if not shelves[name]:
        del shelves[name]


def _load(pods: Iterable[Pod]) -> Load:
    used: dict[str, int] = {}
    ports: set[tuple[str, int]] = set()
    residents, daemons = [], set()
    for pod in pods:
        for name, amount in pod.requests.items():
            used[name] = used.get(name, 0) + amount
        ports |= pod.host_ports
        if pod.is_daemon:
            daemons.add(f"{pod.namespace}/{pod.owner}")
        else:
            residents.append(pod)
    ends = [pod.started + pod.duration for pod in residents if pod.started and pod.duration is not None]
    return Load(
        used=used,
        ports=frozenset(ports),
        residents=tuple(residents),
        daemons=frozenset(daemons),
        ends=max(ends) if ends and len(ends) == len(residents) else None,
        last_ungated=max((pod.created for pod in residents if not pod.admitted_to), default=None),
    )
