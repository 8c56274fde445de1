"""What is written of a machine that joins, in one way for every room that writes it.

Its bootstrap token, and the ledger on its Node of what an inventory declared: the on-prem provider of ``stacks/`` and
the roles both write these, and each takes away what the other wrote once it is no longer so.
https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from autoscaler.model import labels as words

TOKEN_LIFE: Final = timedelta(minutes=10)
TOKEN_LEDGER: Final = "spillway-join-tokens"  # noqa: S105 - the name of a ConfigMap
"""ConfigMap in kube-system: key of each token -> :func:`token_entry`. Those that let nodes in read no Secret."""
_CONFIG_MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
_LETTERS: Final = string.ascii_lowercase + string.digits

Place = tuple[str, str]
"""Key and effect of a taint: a node has at most one taint of each."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bootstrap token: 6 characters that name it, 16 that are secret."""

    key: str
    secret: str

    def __str__(self) -> str:
        """Writes the token as a kubelet shows it."""
        return f"{self.key}.{self.secret}"


def new_token() -> Token:
    """One that nobody has yet."""
    return Token(key=_random(6), secret=_random(16))


def token_secret(token: Token, *, node: str, now: datetime, meant_for: str) -> dict[str, Any]:
    """The Secret that makes the API server know the token: good for ``TOKEN_LIFE``, marked with its node.

    ``meant_for`` is for a reader of the Secret. The token proves who joins, and signs nothing: the machine gets the
    cluster's authority with it, not by it.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": f"bootstrap-token-{token.key}",
            "namespace": "kube-system",
            "labels": {words.BOOTSTRAP_TOKEN: "true"},
            "annotations": {words.TOKEN_OF: node},
        },
        "stringData": {
            "description": meant_for,
            "token-id": token.key,
            "token-secret": token.secret,
            "expiration": (now + TOKEN_LIFE).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": words.BOOTSTRAPPERS,
        },
    }


def token_entry(*, node: str, expires: datetime, used_by: str = "") -> str:
    """What the ledger says of a token: its node, until when it is good, and the request that it was used for."""
    known = {"node": node, "expires": expires.isoformat(), "usedBy": used_by}
    return json.dumps(known, separators=(",", ":"))


def write_ledger(send: Callable[..., object], entries: Mapping[str, str | None]) -> None:
    """Write entries into the ledger of tokens, each by itself; ``None`` takes one away. The first writer makes it.

    ``send``: a client's own, by method, path, body and ``content``; what it raises has the HTTP ``status``.
    """
    if _is_refused(404, lambda: _merge(send, entries)) and _is_refused(409, lambda: _make(send, entries)):
        _merge(send, entries)  # another's first entry made it meanwhile


def _merge(send: Callable[..., object], entries: Mapping[str, str | None]) -> None:
    content = "application/merge-patch+json"
    send("PATCH", f"{_CONFIG_MAPS}/{TOKEN_LEDGER}", {"data": dict(entries)}, content=content)


def _make(send: Callable[..., object], entries: Mapping[str, str | None]) -> None:
    metadata = {"name": TOKEN_LEDGER, "namespace": "kube-system"}
    kept = {key: text for key, text in entries.items() if text is not None}
    send("POST", _CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": kept})


def _is_refused(status: int, write: Callable[[], None]) -> bool:
    """Whether the API server refuses it with this status; any other failure is raised."""
    try:
        write()
    except Exception as refused:
        if getattr(refused, "status", None) == status:
            return True
        raise
    return False


@dataclass(frozen=True, slots=True)
class Declared:
    """Keys of labels, and places of taints, that an inventory declared for a node."""

    labels: frozenset[str] = frozenset()
    taints: frozenset[Place] = frozenset()

    @staticmethod
    def on(node: Mapping[str, Any]) -> Declared:
        """What the Node (JSON of the API) says of itself; nothing where somebody garbled it."""
        try:
            found = json.loads((node["metadata"].get("annotations") or {}).get(words.DECLARED, "{}"))
            taints = frozenset((key, effect) for key, effect in found.get("taints", ()))
            return Declared(frozenset(found.get("labels", ())), taints)
        except (ValueError, TypeError, AttributeError):
            return Declared()

    def annotation(self) -> dict[str, str]:
        """Returns the annotation as it is written on the Node."""
        found = {"labels": sorted(self.labels), "taints": sorted(map(list, self.taints))}
        return {words.DECLARED: json.dumps(found, separators=(",", ":"))}


def place(taint: Mapping[str, Any]) -> Place:
    """Where on a node a taint stands."""
    return taint["key"], taint["effect"]


def places(taints: Iterable[Mapping[str, Any]]) -> frozenset[Place]:
    """Returns the place of each taint."""
    return frozenset(map(place, taints))


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
