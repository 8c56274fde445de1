"""What is known of the cluster now: one thread per kind of object lists and watches, one store holds the nouns.

Whoever decides waits for :meth:`Store.wait`, then takes :meth:`Store.cluster`, one frozen look at everything.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from autoscaler.cluster import Cluster, Group, LingeringJob, Node, Pod
from autoscaler.failures import Unavailable
from autoscaler.kube import Change, Expired, Kube, Refused
from autoscaler.objects import (
    DaemonSetJson,
    JobJson,
    Meta,
    NodeJson,
    PodGroupJson,
    PodJson,
    daemon_set_from,
    job_from,
    node_from,
    pod_from,
    pod_group_minimum,
)

Minimums = Mapping[tuple[str, str], int]
Tell = Callable[[str, str], None]
"""Told which party is out of reach and why; an empty reason says that it answers again."""

_DISCOVERY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object that is followed."""

    name: str
    path: str
    decode: Callable[[msgspec.Raw, Minimums], tuple[Meta, Any]]


def _pod(raw: msgspec.Raw, minimums: Minimums) -> tuple[Meta, Pod]:
    seen = _POD.decode(raw)
    return seen.metadata, pod_from(seen, minimums=minimums)


def _decoder(model: Any, noun: Callable[[Any], Any]) -> Callable[[msgspec.Raw, Minimums], tuple[Meta, Any]]:
    decoder = msgspec.json.Decoder(model)

    def decode(raw: msgspec.Raw, _minimums: Minimums) -> tuple[Meta, Any]:
        seen = decoder.decode(raw)
        return seen.metadata, noun(seen)

    return decode


_POD: Final = msgspec.json.Decoder(PodJson)
PODS: Final = Kind("pods", "/api/v1/pods", _pod)
NODES: Final = Kind("nodes", "/api/v1/nodes", _decoder(NodeJson, node_from))
DAEMON_SETS: Final = Kind("daemonsets", "/apis/apps/v1/daemonsets", _decoder(DaemonSetJson, daemon_set_from))
JOBS: Final = Kind("jobs", "/apis/batch/v1/jobs", _decoder(JobJson, job_from))
KINDS: Final = (NODES, PODS, DAEMON_SETS, JOBS)
POD_GROUPS: Final = {
    # API group: where its PodGroups are, once somebody has installed them
    name: Kind(f"podgroups.{name}", f"/apis/{name}/{version}/podgroups", _decoder(PodGroupJson, pod_group_minimum))
    for name, version in {"scheduling.x-k8s.io": "v1alpha1", "scheduling.volcano.sh": "v1beta1"}.items()
}

Key = tuple[str, str]
"""Namespace (empty for what has none) and name."""


class Store:
    """The nouns by kind. Safe to use from several threads; every change that matters wakes who waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._changes = 0
        self._arrivals = 0
        self._nouns: dict[str, dict[Key, tuple[int, Any]]] = {}
        self._groups: dict[str, Group] | None = None
        self._groups_written: dict[str, float] = {}

    # --- Asked by who decides ---

    def wait(self, since: int, *, seconds: float | None) -> int:
        """Until something changed after ``since``, or the time is over; gives the count of changes so far."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes > since, timeout=seconds)
            return self._changes

    def settle(self, *, quiet: float, at_most: float) -> int:
        """Until no new pod has come for ``quiet`` seconds, at most for ``at_most``; gives the count of changes so far.

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
        """Let who waits look again."""
        with self._changed:
            self._note()

    def is_synced(self, kinds: Iterable[Kind] = KINDS) -> bool:
        """Whether each of these was listed at least once."""
        with self._changed:
            return all(kind.name in self._nouns for kind in kinds)

    def knows_groups(self) -> bool:
        """Whether AWS has answered at least once."""
        return self._groups is not None

    def cluster(self, now: datetime) -> Cluster:
        """One frozen look at everything."""
        with self._changed:
            return Cluster(
                seen_at=now,
                pods=self._all(PODS),
                nodes=self._all(NODES),
                groups=tuple((self._groups or {}).values()),
                daemon_sets=self._all(DAEMON_SETS),
                lingering=self._lingering(),
            )

    def pod(self, key: str) -> Pod | None:
        """The pod ``namespace/name``."""
        namespace, _, name = key.partition("/")
        found: Pod | None = self._get(PODS, (namespace, name))
        return found

    def node(self, name: str) -> Node | None:
        """The node of that name."""
        found: Node | None = self._get(NODES, ("", name))
        return found

    def group(self, name: str) -> Group | None:
        """The Auto Scaling group of that name."""
        with self._changed:
            return (self._groups or {}).get(name)

    def minimums(self) -> dict[tuple[str, str], int]:
        """``minMember`` of every PodGroup."""
        with self._changed:
            return {
                key: minimum
                for kind in POD_GROUPS.values()
                for key, (_, minimum) in self._nouns.get(kind.name, {}).items()
            }

    # --- Told by who watches ---

    def replace(self, kind: Kind, listed: Mapping[Key, tuple[int, Any]]) -> None:
        """Everything of a kind, as listed. What we saw in a newer version stays as we saw it."""
        with self._changed:
            known = self._nouns.get(kind.name, {})
            merged = {
                key: known[key] if key in known and known[key][0] > version else (version, noun)
                for key, (version, noun) in listed.items()
            }
            first = kind.name not in self._nouns
            self._nouns[kind.name] = merged
            if first or _nouns(known) != _nouns(merged):
                self._moved(kind)

    def put(self, kind: Kind, key: Key, version: int, noun: Any) -> None:
        """One object that was added or changed."""
        with self._changed:
            shelf = self._nouns.setdefault(kind.name, {})
            known = shelf.get(key)
            if known is not None and known[0] > version:
                return
            shelf[key] = (version, noun)
            self._arrivals += known is None and kind is PODS
            if known is None or known[1] != noun:
                self._moved(kind)

    def drop(self, kind: Kind, key: Key) -> None:
        """One object that is gone."""
        with self._changed:
            if self._nouns.get(kind.name, {}).pop(key, None) is not None:
                self._moved(kind)

    def saw_pod(self, raw: PodJson) -> None:
        """Our own write came back: know it before the watch tells. A pod that is gone meanwhile stays gone."""
        key = (raw.metadata.namespace, raw.metadata.name)
        if self._get(PODS, key) is not None:
            self.put(PODS, key, raw.metadata.version(), pod_from(raw, minimums=self.minimums()))

    def saw_node(self, raw: NodeJson) -> None:
        """As :meth:`saw_pod`."""
        if self.node(raw.metadata.name) is not None:
            self.put(NODES, ("", raw.metadata.name), raw.metadata.version(), node_from(raw))

    def saw_groups(self, groups: Iterable[Group], *, asked_at: float) -> None:
        """What AWS said; ``asked_at`` (monotonic) is before the question: what we wrote since then is newer."""
        with self._changed:
            known = self._groups or {}
            merged = {
                group.name: known[group.name]
                if group.name in known and self._groups_written.get(group.name, 0.0) > asked_at
                else group
                for group in groups
            }
            if merged != self._groups:
                self._groups = merged
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

    def _all(self, kind: Kind) -> tuple[Any, ...]:
        return tuple([noun for _, noun in self._nouns.get(kind.name, {}).values()])

    def _get(self, kind: Kind, key: Key) -> Any:
        with self._changed:
            found = self._nouns.get(kind.name, {}).get(key)
            return found[1] if found else None

    def _lingering(self) -> tuple[LingeringJob, ...]:
        jobs = self._nouns.get(JOBS.name, {})
        return tuple(
            LingeringJob(namespace=job.namespace, name=job.name, ended_with=job.ends_with)
            for _, job in jobs.values()
            if job.ends_with and not job.ended and (job.namespace, job.ends_with) in jobs
            if jobs[job.namespace, job.ends_with][1].ended
        )

    def _moved(self, kind: Kind) -> None:
        if kind.name.startswith("podgroups."):
            self._regang()
        self._note()

    def _regang(self) -> None:
        """A PodGroup changed: so did the gangs of its pods. Seldom, so a pass over all pods will do."""
        minimums = self.minimums()
        shelf = self._nouns.get(PODS.name, {})
        for key, (version, pod) in shelf.items():
            gang = pod.gang
            if gang is None or gang.size is not None or (gang.namespace, gang.name) not in minimums:
                continue
            minimum = minimums[gang.namespace, gang.name] or None
            if gang.minimum != minimum:
                shelf[key] = (version, replace(pod, gang=replace(gang, minimum=minimum)))

    def _note(self) -> None:
        self._changes += 1
        self._changed.notify_all()


class Observer:
    """Fills a store from the API server: once, or by threads that follow every change until :meth:`stop`."""

    def __init__(self, kube: Kube, store: Store, *, tell: Tell = lambda _party, _why: None) -> None:
        self._kube = kube
        self._store = store
        self._tell = tell
        self._stopping = threading.Event()
        self._followed: set[str] = set()
        self.relists = 0
        """How often a watch could not go on from where it was."""

    def look_once(self) -> None:
        """List everything, without following it. Raises ``Unavailable`` or ``Refused``."""
        kinds = (*self._pod_groups(), *KINDS)
        with ThreadPoolExecutor(max_workers=len(kinds)) as pool:
            for done in [pool.submit(self._list, kind) for kind in kinds]:
                done.result()

    def start(self) -> None:
        """Follow every kind, each in a thread of its own."""
        for kind in KINDS:
            self._begin(kind)
        threading.Thread(target=self._discover, name="discover", daemon=True).start()

    def stop(self) -> None:
        """End the threads."""
        self._stopping.set()
        self._kube.close()

    def _begin(self, kind: Kind) -> None:
        self._followed.add(kind.name)
        threading.Thread(target=self._follow, args=(kind,), name=f"follow {kind.name}", daemon=True).start()

    def _discover(self) -> None:
        """PodGroups appear when somebody installs what brings them: look now and then."""
        while not self._stopping.is_set():
            for kind in self._pod_groups():
                if kind.name not in self._followed:
                    self._begin(kind)
            self._stopping.wait(_DISCOVERY_SECONDS)

    def _pod_groups(self) -> list[Kind]:
        try:
            served = msgspec.json.decode(self._kube.get("/apis"))["groups"]
        except (Unavailable, Refused):
            return []
        names = {group["name"] for group in served}
        return [kind for name, kind in POD_GROUPS.items() if name in names and self._is_served(kind)]

    def _is_served(self, kind: Kind) -> bool:
        try:
            self._kube.get(kind.path, limit=1)
        except (Unavailable, Refused):
            return False
        return True

    def _follow(self, kind: Kind) -> None:
        version, pause = "", Pause()
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                if not version:
                    version = self._list(kind)
                    self._tell(self._party(kind), "")
                version = self._watch(kind, version, pause)
            except Expired:
                version = ""
                self.relists += 1
            except (Unavailable, Refused) as error:
                if self._stopping.is_set():
                    return
                if isinstance(error, Refused) and kind.name.startswith("podgroups."):
                    self._forget(kind)
                    return
                self._tell(self._party(kind), str(error))
            if time.monotonic() - began < 1.0:
                self._stopping.wait(pause.longer())

    def _list(self, kind: Kind) -> str:
        """Everything of a kind into the store; gives the version that a watch goes on from."""
        listed: dict[Key, tuple[int, Any]] = {}
        version = ""
        minimums = self._store.minimums()
        for raws, version in self._kube.pages(kind.path):  # noqa: B007 - the last one counts
            for raw in raws:
                seen = self._decoded(kind, raw, minimums)
                if seen:
                    meta, noun = seen
                    listed[meta.namespace, meta.name] = (meta.version(), noun)
        self._store.replace(kind, listed)
        return version

    def _watch(self, kind: Kind, version: str, pause: Pause) -> str:
        """Follow changes until the server ends the watch or the connection breaks; gives the last version seen."""
        try:
            with self._kube.watch(kind.path, version) as changes:
                for change in changes:
                    version = self._take(kind, change) or version
                    pause.reset()
                    self._tell(self._party(kind), "")
        except Unavailable as error:
            if not self._stopping.is_set():
                self._tell(self._party(kind), str(error))
                self._stopping.wait(pause.longer())
        return version

    def _take(self, kind: Kind, change: Change) -> str:
        seen = self._decoded(kind, change.object, self._store.minimums() if kind is PODS else {}, change.type)
        if seen is None:
            return ""
        meta, noun = seen
        key = (meta.namespace, meta.name)
        if change.type == "DELETED":
            self._store.drop(kind, key)
        elif change.type != "BOOKMARK":
            self._store.put(kind, key, meta.version(), noun)
        return meta.resource_version

    def _decoded(
        self, kind: Kind, raw: msgspec.Raw, minimums: Minimums, change: str = "ADDED"
    ) -> tuple[Meta, Any] | None:
        """An object that makes no sense to us fails alone: it is told and left out."""
        try:
            return kind.decode(raw, minimums)
        except (msgspec.DecodeError, ValueError) as error:
            seen = _NAMED.decode(raw).metadata
            if change != "BOOKMARK":
                self._tell(f"{kind.name} {seen.namespace}/{seen.name}", f"it is left out: {error}")
            return (seen, None) if change in ("BOOKMARK", "DELETED") else None

    def _forget(self, kind: Kind) -> None:
        """The kind is not served any more."""
        self._store.replace(kind, {})
        self._followed.discard(kind.name)

    def _party(self, kind: Kind) -> str:
        return f"API server ({kind.name})"


class _Named(msgspec.Struct):
    metadata: Meta = Meta()


_NAMED: Final = msgspec.json.Decoder(_Named)


class Pause:
    """Longer and longer, up to half a minute, never twice the same."""

    def __init__(self, *, least: float = 0.2, most: float = 30.0) -> None:
        self._least = self._next = least
        self._most = most

    def longer(self) -> float:
        """Seconds to wait now; the next answer is twice as long."""
        now = self._next * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        self._next = min(self._next * 2, self._most)
        return now

    def reset(self) -> None:
        """Something worked."""
        self._next = self._least


def _nouns(shelf: Mapping[Key, tuple[int, Any]]) -> dict[Key, Any]:
    return {key: noun for key, (_, noun) in shelf.items()}
