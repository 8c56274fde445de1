"""The policy in the cluster: a ConfigMap that is edited, watched through the API; and the last good one, kept beside.

A ConfigMap that is mounted into a pod lags by a minute, one that is watched by milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from autoscaler.config.policy_file import Edition
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Expired, Kube, Refused
from autoscaler.kube.schema.core import Json, Meta
from autoscaler.kube.watched_kinds import Kind
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable

PREFIX: Final = "configmap:"
"""Of what ``--policy`` says in place of a path."""
_NOT_FOUND: Final = 404
_ABOUT: Final = "about.json"

Tell = Callable[[str, str], None]


class ConfigMapJson(Json, frozen=True):
    """A ConfigMap as the API server tells it."""

    metadata: Meta = Meta()
    data: dict[str, str] = msgspec.field(default_factory=dict)


_DECODER: Final = msgspec.json.Decoder(ConfigMapJson)


def one_configmap(namespace: str, name: str) -> Kind:
    """That ConfigMap alone, to be followed: its value is its data."""

    def decode(raw: msgspec.Raw) -> tuple[Meta, dict[str, str]]:
        found = _DECODER.decode(raw)
        return found.metadata, found.data

    path = f"/api/v1/namespaces/{namespace}/configmaps?fieldSelector=metadata.name%3D{name}"
    return Kind(f"configmap {namespace}/{name}", path, decode)


class PolicyConfigMap:
    """The ConfigMap that a release's policy is edited in."""

    def __init__(self, kube: Kube, store: Store, where: str) -> None:
        """``where``: ``configmap:NAMESPACE/NAME``. Raises ``BadInput`` where it is not spelled so."""
        namespace, _, name = where.removeprefix(PREFIX).partition("/")
        if not namespace or not name or "/" in name:
            raise BadInput(f"--policy {where}: write configmap:NAMESPACE/NAME, e.g. configmap:spillway/{words.POLICY}")
        self.kind = one_configmap(namespace, name)
        self._kube, self._store, self._where = kube, store, where
        self._key = (namespace, name)

    def read(self) -> Edition:
        """The ConfigMap as it is at this moment. Raises ``Unavailable``."""
        namespace, name = self._key
        try:
            found = _DECODER.decode(self._kube.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}"))
        except Refused as refused:
            why = "there is no such ConfigMap" if refused.status == _NOT_FOUND else str(refused)
            return Edition(self._where, problem=f"{self._where}: {why}")
        return self._edition(found.data)

    def newest(self) -> Edition:
        """What the watch has told last; before its first list, what is there now. Raises ``Unavailable``."""
        if not self._store.has_listed(self.kind):
            return self.read()
        data = self._store.object(self.kind, self._key)
        if data is None:
            return Edition(self._where, problem=f"{self._where}: there is no such ConfigMap")
        return self._edition(data)

    def start(self, wake: Callable[[], None]) -> None:
        """Starts nothing: the observer follows the kind, and the store wakes."""

    def stop(self) -> None:
        """Ends nothing: the watch ends with its observer."""

    def _edition(self, data: dict[str, str]) -> Edition:
        if words.POLICY_KEY not in data:
            has = ", ".join(sorted(data)) or "nothing"
            problem = f"{self._where}: has no key {words.POLICY_KEY}, but {has}: write the policy under that key"
            return Edition(self._where, problem=problem)
        return Edition(self._where, data[words.POLICY_KEY])


class Refusal(Json, frozen=True):
    """An edit that was not taken over."""

    at: datetime
    why: str


class About(Json, frozen=True):
    """What is told of the policy that the acting autoscaler obeys."""

    since: datetime
    origin: str
    by: str
    """Identity of the autoscaler that wrote it."""
    refused: Refusal | None = None
    pending: tuple[str, ...] = ()
    """What waits for ``pulumi up``."""


@dataclass(frozen=True, slots=True)
class Record:
    """The policy that the acting autoscaler obeys."""

    text: str
    about: About


@dataclass(slots=True)
class PolicyRecord:
    """The ConfigMap with the last good policy, for those that start while the edited one is bad, and for people."""

    kube: Kube
    namespace: str
    tell: Tell = lambda _party, _why: None
    read_only: bool = False
    _written: Record | None = None

    def read(self) -> Record | None:
        """What the acting autoscaler wrote last; ``None`` where there is nothing that can be read.

        Raises ``Unavailable`` or ``Refused``.
        """
        try:
            found = _DECODER.decode(self.kube.get(f"{self._path}/{words.ACTING_POLICY}"))
            return Record(found.data[words.POLICY_KEY], msgspec.json.decode(found.data[_ABOUT], type=About))
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
        except (msgspec.DecodeError, KeyError, Expired):
            pass
        return None

    def write(self, record: Record) -> None:
        """Write it where it says something new; what cannot be written is told, and tried again at the next call."""
        if self.read_only or record == self._written:
            return
        why = ""
        try:
            self._write(record)
            self._written = record
        except (Unavailable, Refused, Expired) as error:
            why = str(error)
        self.tell(f"the acting policy (ConfigMap {self.namespace}/{words.ACTING_POLICY})", why)

    def forget(self) -> None:
        """Another autoscaler may write now."""
        self._written = None

    def _write(self, record: Record) -> None:
        data = {words.POLICY_KEY: record.text, _ABOUT: msgspec.json.encode(record.about).decode()}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": words.ACTING_POLICY}, "data": data}
        try:
            self.kube.send("PUT", f"{self._path}/{words.ACTING_POLICY}", body)
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
            self.kube.send("POST", self._path, body)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"
