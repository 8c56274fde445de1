"""Fills the store: one thread per kind of object lists it once, then follows every change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from autoscaler.kube.cache import Key, Store
from autoscaler.kube.client import Change, Expired, Kube, Refused
from autoscaler.kube.retry_delay import RetryDelay
from autoscaler.kube.schema.core import Meta
from autoscaler.kube.watched_kinds import KINDS, LATE, POD_TEMPLATES, PROVISIONING, REQUESTS, SIZED, Kind
from autoscaler.model.errors import Unavailable

Tell = Callable[[str, str], None]
"""Told which party is out of reach and why; an empty reason says that it answers again."""

_DISCOVERY_SECONDS: Final = 60.0
_FORBIDDEN: Final = 403


class Observer:
    """Fills a store from the API server: once, or by threads that follow every change until :meth:`stop`."""

    def __init__(
        self, kube: Kube, store: Store, *, also: Sequence[Kind] = (), tell: Tell = lambda _party, _why: None
    ) -> None:
        """``also``: followed like pods and nodes: where it may not be seen, that is told and tried again."""
        self._kube = kube
        self._store = store
        self._tell = tell
        self._always = (*KINDS, *also)
        self._stopping = threading.Event()
        self._followed: set[str] = set()
        self.relists = 0
        """How often a watch could not go on from where it was."""

    def look_once(self) -> None:
        """List everything, without following it. Raises ``Unavailable`` or ``Refused``."""
        kinds = (*self._installed(), *self._always)
        with ThreadPoolExecutor(max_workers=len(kinds)) as pool:
            for done in [pool.submit(self._list, kind) for kind in kinds]:
                done.result()
            for done in [pool.submit(self._list, kind) for kind in self._store.asked_about()]:
                done.result()

    def start(self) -> None:
        """Follow every kind, each in a thread of its own; what pods ask about from when the first one does."""
        self._store.on_question = self._begin
        for kind in (*self._installed(), *self._always):
            self._begin(kind)
        threading.Thread(target=self._discover, name="discover", daemon=True).start()

    def stop(self) -> None:
        """Ends the threads."""
        self._stopping.set()
        self._kube.close()

    def _begin(self, kind: Kind) -> None:
        self._followed.add(kind.name)
        self._store.expect(kind)
        threading.Thread(target=self._follow, args=(kind,), name=f"follow {kind.name}", daemon=True).start()

    def _discover(self) -> None:
        """PodGroups and the like appear when somebody installs what brings them: look now and then."""
        while not self._stopping.wait(_DISCOVERY_SECONDS):
            for kind in (*self._installed(), *self._store.asked_about()):
                if kind.name not in self._followed:
                    self._begin(kind)

    def _installed(self) -> list[Kind]:
        """Where objects are served that say how large a gang is, or ask for one whose pods are not there yet."""
        try:
            served = msgspec.json.decode(self._kube.get("/apis"))["groups"]
        except (Unavailable, Refused):
            return []
        names = {group["name"] for group in served}
        resources = [places for group, found in SIZED.items() if group in names for places in found]
        resources += [(REQUESTS,), (POD_TEMPLATES,)] if PROVISIONING in names else []
        return [kind for places in resources if (kind := next(filter(self._is_served, places), None)) is not None]

    def _is_served(self, kind: Kind) -> bool:
        try:
            self._kube.get(kind.path, limit=1)
        except Refused as refused:
            if refused.status == _FORBIDDEN:
                self._tell(kind.name, f"what its objects say of gangs is not known: {refused}")
            return False
        except Unavailable:
            return False
        return True

    def _follow(self, kind: Kind) -> None:
        version, delay = "", RetryDelay()
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                if not version:
                    version = self._list(kind)
                    self._tell(self._party(kind), "")
                version = self._watch(kind, version, delay)
            except Expired:
                version = ""
                self.relists += 1
            except (Unavailable, Refused) as error:
                if self._stopping.is_set():
                    return
                if isinstance(error, Refused) and kind not in self._always:
                    self._forget(kind, str(error))
                    return
                if isinstance(error, Refused) and kind not in KINDS:
                    self._store.expect(kind, served=False)  # a role of an older release must not stop everything
                self._tell(self._party(kind), str(error))
            if time.monotonic() - began < 1.0:
                self._stopping.wait(delay.longer())

    def _list(self, kind: Kind) -> str:
        """Everything of a kind into the store; gives the version that a watch goes on from."""
        listed: dict[Key, tuple[int, Any]] = {}
        version = ""
        for raws, version in self._kube.pages(kind.path):  # noqa: B007 - the last one counts
            for raw in raws:
                seen = self._decoded(kind, raw)
                if seen:
                    meta, value = seen
                    listed[meta.namespace, meta.name] = (meta.version(), value)
        self._store.replace(kind, listed)
        return version

    def _watch(self, kind: Kind, version: str, delay: RetryDelay) -> str:
        """Follow changes until the server ends the watch or the connection breaks; gives the last version seen."""
        try:
            with self._kube.watch(kind.path, version) as changes:
                for change in changes:
                    version = self._take(kind, change) or version
                    delay.reset()
                    self._tell(self._party(kind), "")
        except Unavailable as error:
            if not self._stopping.is_set():
                self._tell(self._party(kind), str(error))
                self._stopping.wait(delay.longer())
        return version

    def _take(self, kind: Kind, change: Change) -> str:
        seen = self._decoded(kind, change.object, change.type)
        if seen is None:
            return ""
        meta, value = seen
        key = (meta.namespace, meta.name)
        if change.type == "DELETED":
            self._store.drop(kind, key)
        elif change.type != "BOOKMARK":
            self._store.put(kind, key, meta.version(), value)
        return meta.resource_version

    def _decoded(self, kind: Kind, raw: msgspec.Raw, change: str = "ADDED") -> tuple[Meta, Any] | None:
        """An object that makes no sense to us fails alone: it is told and left out."""
        try:
            return kind.decode(raw)
        except (msgspec.DecodeError, ValueError) as error:
            seen = _NAMED.decode(raw).metadata
            if change != "BOOKMARK":
                self._tell(f"{kind.name} {seen.namespace}/{seen.name}", f"it is left out: {error}")
            return (seen, None) if change in ("BOOKMARK", "DELETED") else None

    def _forget(self, kind: Kind, why: str) -> None:
        """The kind is not served any more; or we may not see it, and pods that ask about it wait."""
        if kind in LATE:
            self._tell(self._party(kind), why)
            self._store.forget(kind)
        else:
            self._store.expect(kind, served=False)
            self._store.replace(kind, {})
        self._followed.discard(kind.name)

    def _party(self, kind: Kind) -> str:
        return f"API server ({kind.name})"


class _Named(msgspec.Struct):
    metadata: Meta = Meta()


_NAMED: Final = msgspec.json.Decoder(_Named)
