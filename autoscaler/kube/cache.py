"""What is known of the cluster now: the objects by kind, and a bell for threads that wait for a change.

What decides waits for :meth:`Store.wait`, then takes :meth:`Store.cluster`, one frozen look at everything.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from autoscaler.kube import ends_of_jobs
from autoscaler.kube.schema.convert import node_from, pod_from
from autoscaler.kube.schema.core import JobJson, NodeJson, PodJson
from autoscaler.kube.schema.gang_kinds import GangSizes
from autoscaler.kube.schema.jobs import job_from
from autoscaler.kube.watched_kinds import (
    DAEMON_SETS,
    JOBS,
    KINDS,
    LATE,
    NAMESPACES,
    NODES,
    PAUSES,
    POD_TEMPLATES,
    PODS,
    REQUESTS,
    SIZED,
    STORAGE,
    Kind,
)
from autoscaler.model.cluster import (
    Cluster,
    GangSize,
    GpuHealth,
    GpuUse,
    Group,
    Namespaces,
    Node,
    Notice,
    Pod,
    PodSet,
    ProvisioningRequest,
)
from autoscaler.model.errors import Unavailable
from autoscaler.model.jobs import ElasticRole
from autoscaler.model.labels import HOSTNAME
from autoscaler.model.pauses import Pause, in_force
from autoscaler.model.pod_index import PodIndex, Register
from autoscaler.model.resources import Resources
from autoscaler.model.volumes import Storage

_SIZED_NAMES: Final = frozenset(places[0].name for resources in SIZED.values() for places in resources)

Key = tuple[str, str]
"""Namespace (empty for what has none) and name."""


class Store:
    """The objects by kind. Safe to use from several threads; every change that matters wakes what waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._changes = 0
        self._arrivals = 0
        self._objects: dict[str, dict[Key, tuple[int, Any]]] = {}
        self._expected = {kind.name for kind in KINDS}
        self._sizes: dict[tuple[str, str], GangSize] | None = None
        self._elastic: tuple[ElasticRole, ...] | None = None
        self._register = Register()
        self._completed = ends_of_jobs.CompletedTasks()
        self._index: PodIndex | None = None
        self._nodes: tuple[Node, ...] | None = None
        self._may_nominate = True
        self._gpu_use: tuple[GpuUse, ...] = ()
        self._gpu_health: tuple[GpuHealth, ...] | None = None
        self._storage: Storage | None = None
        self._asked_about: set[Kind] = set()
        self.on_question: Callable[[Kind], None] = lambda _kind: None
        """Called once for each kind of :data:`LATE` when a pod first asks about it."""
        self._groups: dict[str, Group] | None = None
        self._groups_written: dict[str, float] = {}
        self._groups_forgotten = -math.inf
        self._notices: tuple[Notice, ...] = ()
        self._told_by_nodes: tuple[Notice, ...] | None = None

    # --- Asked by what decides ---

    def wait(self, since: int, *, seconds: float | None) -> int:
        """Waits until something changed after ``since``, or the time is over; returns the count of changes so far."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes > since, timeout=seconds)
            return self._changes

    def settle(self, *, quiet: float, at_most: float) -> int:
        """Waits until no new pod has come for ``quiet`` seconds, at most ``at_most``; returns the count of changes.

        A job's pods come one after the other; what happens to pods that are there is no reason to wait longer.
        """
        end = time.monotonic() + at_most
        with self._changed:
            while (left := min(quiet, end - time.monotonic())) > 0:
                before = self._arrivals
                if not self._changed.wait_for(partial(self._have_come, before), timeout=left):
                    break
            return self._changes

    def wake(self) -> None:
        """Let callers that wait look again."""
        with self._changed:
            self._note()

    def expect(self, kind: Kind, *, served: bool = True) -> None:
        """Adds to the kinds that must be listed before anything is decided; takes one that is not ``served`` away."""
        with self._changed:
            (self._expected.add if served else self._expected.discard)(kind.name)

    def known_for(self, pods: Iterable[Pod], *, seconds: float) -> tuple[Storage | None, Namespaces | None]:
        """What pods that are not there yet ask about: followed from now on, and waited for.

        Raises ``Unavailable`` where it is not known after that time.
        """
        asked = {kind.name: kind for pod in pods for kind in _asked_by(pod)}
        with self._changed:
            self._follow(asked.values())
            if not self._changed.wait_for(lambda: asked.keys() <= self._objects.keys(), timeout=seconds):
                missing = sorted(asked.keys() - self._objects.keys())
                raise Unavailable(
                    f"the acting autoscaler does not know which {', '.join(missing)} there are: ask again in a moment, "
                    "and see that it may list them (autoscaler/rbac.yaml)"
                )
            return self._all_of_storage(), self._namespaces()

    def asked_about(self) -> list[Kind]:
        """Those of :data:`LATE` that a pod has asked about so far."""
        with self._changed:
            return [kind for kind in LATE if kind in self._asked_about]

    def forget(self, kind: Kind) -> None:
        """Forgets all that is known of the kind."""
        with self._changed:
            self._expected.discard(kind.name)
            self._objects.pop(kind.name, None)
            self._moved(kind)

    def is_synced(self) -> bool:
        """Whether each kind that matters was listed at least once."""
        with self._changed:
            return self._expected <= self._objects.keys()

    def knows_groups(self) -> bool:
        """Whether AWS has answered at least once."""
        return self._groups is not None

    def cluster(self, now: datetime) -> Cluster:
        """One frozen look at everything."""
        with self._changed:
            jobs = self._objects.get(JOBS.name, {})
            return Cluster(
                seen_at=now,
                pods=self._pods(),
                nodes=self._all_nodes(),
                groups=tuple((self._groups or {}).values()),
                daemon_sets=self._all(DAEMON_SETS),
                lingering=ends_of_jobs.lingering(jobs),
                workflow_steps=ends_of_jobs.waiting_steps(jobs, self._completed),
                early_steps=ends_of_jobs.early_steps(jobs),
                gang_sizes=self._gang_sizes(),
                may_nominate=self._may_nominate,
                storage=self._all_of_storage(),
                namespaces=self._namespaces(),
                pauses=self._pauses(now),
                notices=self._all_notices(),
                provisioning_requests=self._provisioning_requests(),
                elastic=self._elastic_roles(),
                gpu_use=self._gpu_use,
                gpu_health=self._gpu_health,
            )

    def pod(self, key: str) -> Pod | None:
        """Returns the pod ``namespace/name``."""
        namespace, _, name = key.partition("/")
        found: Pod | None = self._get(PODS, (namespace, name))
        return found

    def pod_as_seen(self, key: str) -> tuple[Pod, int] | None:
        """The pod ``namespace/name`` with the version in which it was seen."""
        namespace, _, name = key.partition("/")
        with self._changed:
            found = self._objects.get(PODS.name, {}).get((namespace, name))
            return (found[1], found[0]) if found else None

    def has_listed(self, kind: Kind) -> bool:
        """Whether the kind was listed at least once."""
        with self._changed:
            return kind.name in self._objects

    def object(self, kind: Kind, key: Key) -> Any:
        """Returns the object of that kind, ``None`` where there is none."""
        return self._get(kind, key)

    def room_on(self, node: str) -> Resources:
        """What a node has left now, after pods that we have pinned to it and that are not bound yet."""
        with self._changed:
            found = self._objects.get(NODES.name, {}).get(("", node))
            if found is None:
                return Resources()
            taken = self._register.requests_on(node, host=found[1].labels.get(HOSTNAME, node))
            return cast("Resources", found[1].allocatable) - taken

    def node(self, name: str) -> Node | None:
        """The node of that name."""
        found: Node | None = self._get(NODES, ("", name))
        return found

    def group(self, name: str) -> Group | None:
        """The Auto Scaling group of that name."""
        with self._changed:
            return (self._groups or {}).get(name)

    # --- Told by the watchers ---

    def replace(self, kind: Kind, listed: dict[Key, tuple[int, Any]]) -> None:
        """Everything of a kind, as listed; the store keeps ``listed``. What we saw in a newer version stays so."""
        with self._changed:
            known = self._objects.get(kind.name, {})
            first, changed = kind.name not in self._objects, len(known) != len(listed)
            for key, (version, value) in listed.items():
                old = known.get(key)
                if old is not None and (old[0] > version or old[1] == value):
                    listed[key] = old
                    continue
                changed = True
                self._count(kind, old and old[1], value)
            for key in known.keys() - listed.keys():
                changed = True
                self._count(kind, known[key][1], None)
            self._objects[kind.name] = listed
            if first or changed:
                self._moved(kind)

    def put(self, kind: Kind, key: Key, version: int, value: Any) -> None:
        """One object that was added or changed."""
        with self._changed:
            shelf = self._objects.setdefault(kind.name, {})
            known = shelf.get(key)
            if known is not None and known[0] > version:
                return
            if known is not None and known[1] == value:  # the object is kept: looks know it by its identity
                shelf[key] = (version, known[1])
                return
            shelf[key] = (version, value)
            self._arrivals += known is None and kind is PODS
            self._count(kind, known and known[1], value)
            self._moved(kind)

    def drop(self, kind: Kind, key: Key) -> None:
        """One object that is gone."""
        with self._changed:
            known = self._objects.get(kind.name, {}).pop(key, None)
            if known is not None:
                self._count(kind, known[1], None)
                self._moved(kind)

    def saw_pod(self, raw: PodJson) -> None:
        """Our own write came back: know it before the watch tells. A pod that is gone meanwhile stays gone."""
        key = (raw.metadata.namespace, raw.metadata.name)
        if self._get(PODS, key) is not None:
            self.put(PODS, key, raw.metadata.version(), pod_from(raw))

    def may_not_nominate(self) -> None:
        """The API server has refused it: our rights are of an older release."""
        with self._changed:
            self._may_nominate = False
            self._note()

    def saw_node(self, raw: NodeJson) -> None:
        """Takes over our own write to a node, as :meth:`saw_pod` does."""
        if self.node(raw.metadata.name) is not None:
            self.put(NODES, ("", raw.metadata.name), raw.metadata.version(), node_from(raw))

    def saw_job(self, raw: JobJson) -> None:
        """Takes over our own write to a Job, as :meth:`saw_pod` does."""
        key = (raw.metadata.namespace, raw.metadata.name)
        if self._get(JOBS, key) is not None:
            self.put(JOBS, key, raw.metadata.version(), job_from(raw))

    def saw_groups(self, groups: Iterable[Group], *, asked_at: float) -> None:
        """What AWS said; ``asked_at`` (monotonic) is before the question: what we wrote since then is newer."""
        with self._changed:
            if asked_at < self._groups_forgotten:
                return
            known = self._groups or {}
            merged = {
                group.name: known[group.name]
                if group.name in known
                and (known[group.name] == group or self._groups_written.get(group.name, 0.0) > asked_at)
                else group
                for group in groups
            }
            if merged != self._groups:
                self._groups = merged
                self._note()

    def saw_notices(self, notices: Iterable[Notice]) -> None:
        """All that EC2 is about to take back, as far as its queue has told."""
        found = tuple(sorted(notices, key=lambda one: one.instance))
        with self._changed:
            if found != self._notices:
                self._notices = found
                self._note()

    def saw_gpus(self, uses: Iterable[GpuUse], health: Iterable[GpuHealth] | None) -> None:
        """How much all pods use their GPUs of which that is measured, and how well those of all measured nodes are."""
        used = tuple(sorted(uses, key=lambda one: one.pod))
        well = None if health is None else tuple(sorted(health, key=lambda one: one.node))
        with self._changed:
            if (used, well) != (self._gpu_use, self._gpu_health):
                self._gpu_use, self._gpu_health = used, well
                self._note()

    def forget_groups(self) -> None:
        """Forgets the groups until AWS has answered a question that is asked from now on."""
        with self._changed:
            self._groups, self._groups_forgotten = None, time.monotonic()
            self._note()

    def wrote_group(self, group: Group) -> None:
        """Our own write to a group."""
        with self._changed:
            self._groups = {**(self._groups or {}), group.name: group}
            self._groups_written[group.name] = time.monotonic()
            self._note()

    # --- Within the lock ---

    def _have_come(self, before: int) -> bool:
        return self._arrivals > before

    def _pods(self) -> PodIndex:
        if self._index is None:
            self._index = self._register.index(self._all(PODS))
        return self._index

    def _all_nodes(self) -> tuple[Node, ...]:
        """Made anew only after a node has changed."""
        if self._nodes is None:
            self._nodes = self._all(NODES)
        return self._nodes

    def _count(self, kind: Kind, before: Any, after: Any) -> None:
        """Keep the pods' sums in step with them."""
        if kind is PODS:
            self._register.change(before, after)
            self._completed.change(before, after)
            self._index = None
            if after is not None:
                self._follow(_asked_by(after))

    def _follow(self, kinds: Iterable[Kind]) -> None:
        """Those that no pod has asked about before."""
        for kind in kinds:
            if kind not in self._asked_about:
                self._asked_about.add(kind)
                self.on_question(kind)

    def _all(self, kind: Kind) -> tuple[Any, ...]:
        return tuple([value for _, value in self._objects.get(kind.name, {}).values()])

    def _get(self, kind: Kind, key: Key) -> Any:
        with self._changed:
            found = self._objects.get(kind.name, {}).get(key)
            return found[1] if found else None

    def _moved(self, kind: Kind) -> None:
        if kind is JOBS or kind.name in _SIZED_NAMES:
            self._sizes = None
        if kind is JOBS:
            self._elastic = None
        if kind is NODES:
            self._told_by_nodes = None
        if kind in STORAGE:
            self._storage = None
        if kind is NODES:
            self._nodes = None
        self._note()

    def _all_of_storage(self) -> Storage | None:
        """Made anew only after something of it has changed; ``None`` until all of it was listed."""
        if self._storage is None and all(kind.name in self._objects for kind in STORAGE):
            claims, volumes, classes, drivers = (
                [value for _, value in self._objects[kind.name].values()] for kind in STORAGE
            )
            self._storage = Storage(
                claims={(one.namespace, one.name): one for one in claims},
                volumes={one.name: one for one in volumes},
                classes={one.name: one for one in classes},
                drivers={one.node: one for one in drivers},
            )
        return self._storage

    def _namespaces(self) -> Namespaces | None:
        found = self._objects.get(NAMESPACES.name)
        return None if found is None else {name: labels for (_, name), (_, labels) in found.items()}

    def _pauses(self, now: datetime) -> tuple[Pause, ...]:
        return in_force((one for _, pauses in self._objects.get(PAUSES, {}).values() for one in pauses), now)

    def _gang_sizes(self) -> Mapping[tuple[str, str], GangSize]:
        """Made anew only after something that says a size has changed."""
        if self._sizes is None:
            self._sizes = {
                (namespace, size_source): size for namespace, said in self._said() for size_source, size in said
            }
        return self._sizes

    def _all_notices(self) -> tuple[Notice, ...]:
        """The gravest of each instance, told by the queue or by the node itself; made anew only after a change."""
        if self._told_by_nodes is None:
            self._told_by_nodes = tuple(node.notice for node in self._all_nodes() if node.notice is not None)
        found = {one.instance: one for one in self._told_by_nodes}
        found |= {one.instance: one for one in self._notices if one.is_certain or one.instance not in found}
        return tuple(found[instance] for instance in sorted(found))

    def _provisioning_requests(self) -> tuple[ProvisioningRequest, ...]:
        templates = self._objects.get(POD_TEMPLATES.name, {})

        def with_template(asked: ProvisioningRequest, one: PodSet) -> PodSet:
            _, pod = templates.get((asked.namespace, one.template), (0, None))
            return replace(one, pod=pod)

        return tuple(
            replace(asked, pod_sets=tuple(with_template(asked, one) for one in asked.pod_sets))
            for _, (_, asked) in sorted(self._objects.get(REQUESTS.name, {}).items())
            if asked is not None
        )

    def _elastic_roles(self) -> tuple[ElasticRole, ...]:
        """Made anew only after a Job has changed."""
        if self._elastic is None:
            jobs = self._objects.get(JOBS.name, {}).values()
            self._elastic = tuple(job.elastic for _, job in jobs if job.elastic is not None and not job.ended)
        return self._elastic

    def _said(self) -> Iterator[tuple[str, GangSizes]]:
        for (namespace, _), (_, job) in self._objects.get(JOBS.name, {}).items():
            yield namespace, job.gang_sizes
        for name in _SIZED_NAMES:
            for (namespace, _), (_, said) in self._objects.get(name, {}).items():
                yield namespace, said

    def _note(self) -> None:
        self._changes += 1
        self._changed.notify_all()


def _asked_by(pod: Pod) -> tuple[Kind, ...]:
    """Kinds of :data:`LATE` that say where the pod may go: volumes, until it has a node, and labels of namespaces."""
    asked = STORAGE if pod.claims and pod.node is None else ()
    terms = (*pod.near_to, *pod.apart_from)
    return (*asked, NAMESPACES) if any(one.namespace_selector is not None for one in terms) else asked
