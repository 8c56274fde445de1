"""Pods -> gangs: what must be placed all or none. A pod that belongs to no job is a gang of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from autoscaler.kube.schema.gang_detection import may_be_alone, must_be_told
from autoscaler.model.cluster import GangRef, GangSize, Pod
from autoscaler.model.labels import GATE, HOSTNAME, REQUESTED
from autoscaler.model.pod_index import GangKey, gang_key, pod_index_of

_UNSAID: Final[Mapping[tuple[str, str], GangSize]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Gang:
    """One job's pods that still wait for a place, and what is known of the others."""

    name: str
    """``namespace/name``."""
    waiting: tuple[Pod, ...]
    """Not bound, in the order of their keys."""
    nodes: tuple[str, ...]
    """Where its other pods are or are going."""
    arrived: int
    """How many of its pods exist, failed ones aside."""
    size: int
    enough: int
    """So many of all its pods must be placed together."""
    settled: int
    """How many of its pods have a node, or had one."""
    unknown_size_source: str
    """What must say its size and is not there yet; empty where nothing is missing."""
    topology: str | None
    priority: int
    oldest: datetime
    is_lone: bool
    stages: tuple[int, ...] = ()
    """As in :class:`~autoscaler.model.cluster.GangSize`."""

    @property
    def namespace(self) -> str:
        """Returns the namespace of its pods."""
        return self.name.partition("/")[0]

    @property
    def due(self) -> int:
        """How many of its pods must have been created before those that wait can be placed.

        None once the gang runs, but where another stage of it begins.
        """
        if not self.settled:
            return min((self.enough, *self.stages))
        return next((then for before, then in pairwise(self.stages) if before == self.settled), 0)

    @property
    def missing(self) -> int:
        """How many of these have not."""
        return max(0, self.due - self.arrived)

    @property
    def minimum(self) -> int:
        """Returns how many of the waiting pods must be placed together; the others may follow one by one."""
        return max(0, min(len(self.waiting), self.enough - self.settled))

    @property
    def order(self) -> tuple[int, datetime, str]:
        """Priority, then age, then name."""
        return (-self.priority, self.oldest, self.name)


Sizes = Mapping[tuple[str, str], GangSize]
"""``Cluster.gang_sizes``."""


def gangs_of(pods: Iterable[Pod], sizes: Sizes = _UNSAID) -> tuple[Gang, ...]:
    """The gangs that wait for something, the first to be served first."""
    index = pod_index_of(pods)
    lone: list[Pod] = []
    jobs: dict[GangKey, list[Pod]] = {}
    for pod in index.unbound:
        if not waits(pod):
            continue
        if pod.gang is None or _is_alone(pod.gang, sizes):
            lone.append(pod)
        elif (key := gang_key(pod.gang)) not in jobs:
            jobs[key] = [one for one in index.gangs[key] if not one.deleting and one.phase != "Failed"]
    found = [_alone(pod) for pod in lone]
    plain = Counter((namespace, name) for namespace, name, _ in jobs)
    for (namespace, name, size_source), members in jobs.items():
        whose = f" ({size_source})" if plain[namespace, name] > 1 else ""
        found.append(_gang(f"{namespace}/{name}{whose}", members, sizes))
    return tuple(sorted(found, key=lambda gang: gang.order))


def _is_alone(ref: GangRef, sizes: Sizes) -> bool:
    said = sizes.get((ref.namespace, ref.size_source))
    return may_be_alone(ref) if said is None else said.one_by_one


def waits(pod: Pod) -> bool:
    """Whether the pod has no node yet and nothing but a place is wanted for it."""
    return pod.node is None and pod.phase == "Pending" and not pod.deleting and not pod.is_daemon and not pinned_to(pod)


def pinned_to(pod: Pod) -> str | None:
    """The host name that every way of satisfying the pod's affinity names: it can go nowhere else. Gates aside."""
    if pod.gates or not pod.affinity:
        return None
    hosts = {
        requirement.values
        for term in pod.affinity
        for requirement in term
        if requirement.key == HOSTNAME and requirement.operator == "In"
    }
    everywhere = all(any(one.key == HOSTNAME and one.operator == "In" for one in term) for term in pod.affinity)
    if everywhere and len(hosts) == 1:
        (values,) = hosts
        return values[0] if len(values) == 1 else None
    return None


def foreign_gates(pod: Pod) -> tuple[str, ...]:
    """Scheduling gates that others hold it by."""
    return tuple(gate for gate in pod.gates if gate not in (GATE, REQUESTED))


def _alone(pod: Pod) -> Gang:
    """A pod of no job, which waits."""
    return Gang(
        name=pod.key,
        waiting=(pod,),
        nodes=(),
        arrived=1,
        size=1,
        enough=1,
        settled=0,
        unknown_size_source="",
        topology=None,
        priority=pod.priority,
        oldest=pod.created,
        is_lone=True,
    )


def _gang(name: str, members: list[Pod], sizes: Sizes = _UNSAID) -> Gang:
    waiting = sorted((pod for pod in members if waits(pod)), key=lambda pod: pod.key)
    settled = [pod for pod in members if not waits(pod)]
    refs = sorted((pod.gang for pod in members if pod.gang), key=repr)
    said = [one for ref in refs if (one := sizes.get((ref.namespace, ref.size_source))) is not None]
    size = _largest([ref.size for ref in refs], [one.size for one in said], default=len(members))
    enough = _largest([ref.minimum for ref in refs], [one.minimum for one in said], default=size)
    nodes = {pod.node or pinned_to(pod) for pod in settled}
    return Gang(
        name=name,
        waiting=tuple(waiting),
        nodes=tuple(sorted(node for node in nodes if node)),
        arrived=len(members),
        size=size,
        enough=enough,
        settled=len(settled),
        unknown_size_source=next((ref.size_source for ref in refs if must_be_told(ref)), "") if not said else "",
        topology=next((ref.topology for ref in refs if ref.topology), None),
        priority=max(pod.priority for pod in waiting),
        oldest=min(pod.created for pod in members),
        is_lone=False,
        stages=next((one.stages for one in said if one.stages), ()),
    )


def _largest(own: Iterable[int | None], said: Iterable[int | None], *, default: int) -> int:
    """What the pods say themselves; else what others say of them."""
    for numbers in (own, said):
        known = [number for number in numbers if number is not None]
        if known:
            return max(known)
    return default
