"""What is known of each bootstrap token: kept beside the tokens, so that no Secret of ``kube-system`` is ever read.

A token is a Secret, and rights on Secrets cannot be narrowed to names that are made up. So whoever lets nodes in may
only write and delete them, within the admission policy of ``rbac.yaml``, and keeps here, in a ConfigMap, which token is
for which node, until when, and by which request it was used. The secret half of a token is in its Secret alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import msgspec

from autoscaler.config.node_registration import TOKEN_LEDGER, TOKEN_LIFE, Token, token_entry, token_secret, write_ledger
from autoscaler.kube.client import Kube, Refused

LEDGER: Final = TOKEN_LEDGER
_CONFIG_MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
_SECRETS: Final = "/api/v1/namespaces/kube-system/secrets"
_OPERATIONS: Final = "application/json-patch+json"
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One token, without its secret."""

    key: str
    """The half that names it."""
    node: str
    expires: datetime
    used_by: str = ""
    """The request that a certificate was granted for by it."""

    def text(self) -> str:
        """Writes the token as it stands in the ledger."""
        return token_entry(node=self.node, expires=self.expires, used_by=self.used_by)

    def is_good(self, now: datetime) -> bool:
        """Whether the API server still takes it."""
        return self.expires > now


def keep(kube: Kube, token: Token, *, node: str, meant_for: str) -> None:
    """Write a token: known of first, so that none is in force that would not be taken away again."""
    now = datetime.now(UTC)
    write_ledger(kube.send, {token.key: Kept(key=token.key, node=node, expires=now + TOKEN_LIFE).text()})
    kube.send("POST", _SECRETS, token_secret(token, node=node, now=now, meant_for=meant_for))


def drop(kube: Kube, node: str) -> None:
    """Take away the tokens of this node, and what is known of any that have run out."""
    now = datetime.now(UTC)
    gone = [one for one in tokens(kube) if one.node == node or not one.is_good(now)]
    for one in gone:
        _delete(kube, f"{_SECRETS}/bootstrap-token-{one.key}")
    if gone:
        write_ledger(kube.send, {one.key: None for one in gone})


def token_of(kube: Kube, node: str) -> Kept | None:
    """The one that is good for this node."""
    now = datetime.now(UTC)
    return next((one for one in tokens(kube) if one.node == node and one.is_good(now)), None)


def use(kube: Kube, token: Kept, *, request: str) -> None:
    """Mark it as used. Of two that try at once one is ``Refused``: what is known of it must be what it was."""
    path = f"/data/{token.key}"
    operations = [
        {"op": "test", "path": path, "value": token.text()},
        {"op": "replace", "path": path, "value": replace(token, used_by=request).text()},
    ]
    kube.send("PATCH", f"{_CONFIG_MAPS}/{LEDGER}", operations, content=_OPERATIONS)


def tokens(kube: Kube) -> list[Kept]:
    """All that are known; none where nothing was ever kept. A garbled entry is none."""
    try:
        found = json.loads(kube.get(f"{_CONFIG_MAPS}/{LEDGER}"))
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise
        return []
    return [one for key, text in sorted((found.get("data") or {}).items()) if (one := _read(key, text))]


class _Entry(msgspec.Struct, rename="camel"):
    node: str
    expires: datetime
    used_by: str = ""


def _read(key: str, text: str) -> Kept | None:
    try:
        entry = msgspec.json.decode(text, type=_Entry)
    except msgspec.MsgspecError:
        return None
    if entry.expires.tzinfo is None:
        return None
    return Kept(key=key, node=entry.node, expires=entry.expires, used_by=entry.used_by)


def _delete(kube: Kube, path: str) -> None:
    try:
        kube.send("DELETE", path)
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise
