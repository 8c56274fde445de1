"""Pauses in the cluster: one ConfigMap beside the Lease, which operators write and every autoscaler follows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from autoscaler.kube.client import Kube, Refused
from autoscaler.kube.policy_configmap import ConfigMapJson
from autoscaler.kube.schema.core import Json, Meta
from autoscaler.kube.watched_kinds import PAUSES, Kind
from autoscaler.model import labels as words
from autoscaler.model.pauses import Pause

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_TRIES: Final = 5
_DECODER: Final = msgspec.json.Decoder(ConfigMapJson)


class _Said(Json, frozen=True):
    """One pause as it is written; its scope is the key."""

    because: str = ""
    by: str = ""
    since: datetime | None = None
    until: datetime | None = None


def pauses_kind(namespace: str) -> Kind:
    """The ConfigMap of an autoscaler in that namespace, to be followed: its value is the pauses."""

    def decode(raw: msgspec.Raw) -> tuple[Meta, tuple[Pause, ...]]:
        found = _DECODER.decode(raw)
        return found.metadata, _pauses_of(found.data)

    path = f"/api/v1/namespaces/{namespace}/configmaps?fieldSelector=metadata.name%3D{words.PAUSES}"
    return Kind(PAUSES, path, decode)


def read_pauses(kube: Kube, *, namespace: str) -> tuple[Pause, ...]:
    """Those that are written there now, over or not. Raises ``Refused`` or ``Unavailable``."""
    return _pauses_of(_read(kube, namespace).data)


def change_pauses(
    kube: Kube, change: Callable[[tuple[Pause, ...]], tuple[Pause, ...]], *, namespace: str
) -> tuple[Pause, ...]:
    """Write what ``change`` makes of the pauses that are there; gives what is written.

    Bound to what was read: where another has written in between, it is done again. Raises ``Refused``, ``Unavailable``.
    """
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for _ in range(_TRIES - 1):
        try:
            return _change_once(kube, path, _read(kube, namespace), change)
        except Refused as refused:
            if refused.status != _CONFLICT:
                raise
    return _change_once(kube, path, _read(kube, namespace), change)


def _change_once(
    kube: Kube, path: str, found: ConfigMapJson, change: Callable[[tuple[Pause, ...]], tuple[Pause, ...]]
) -> tuple[Pause, ...]:
    wanted = change(_pauses_of(found.data))
    meta: dict[str, Any] = {"name": words.PAUSES}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {one.scope: _text(one) for one in wanted},
    }
    if found.metadata.resource_version:
        meta["resourceVersion"] = found.metadata.resource_version
        kube.send("PUT", f"{path}/{words.PAUSES}", body)
    else:
        kube.send("POST", path, body)
    return wanted


def _read(kube: Kube, namespace: str) -> ConfigMapJson:
    try:
        return _DECODER.decode(kube.get(f"/api/v1/namespaces/{namespace}/configmaps/{words.PAUSES}"))
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise
        return ConfigMapJson()


def _pauses_of(data: dict[str, str]) -> tuple[Pause, ...]:
    return tuple(_pause(scope, text) for scope, text in sorted(data.items()))


def _pause(scope: str, text: str) -> Pause:
    """What was written by hand and is no JSON is a reason without an end: in doubt it is paused."""
    try:
        said = msgspec.json.decode(text, type=_Said)
    except msgspec.DecodeError:
        return Pause(scope, because=text)
    return Pause(scope, said.because, said.by, said.since, said.until)


def _text(pause: Pause) -> str:
    return msgspec.json.encode(_Said(pause.because, pause.by, pause.since, pause.until)).decode()
