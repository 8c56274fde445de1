"""What a machine needs to join the cluster once: a bootstrap token of a few minutes.

https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
"""

from __future__ import annotations

import secrets
import string
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from autoscaler import labels as words
from stacks.on_prem_provider.kube import Kube

LIFE: Final = timedelta(minutes=10)
GROUP: Final = "system:bootstrappers:spillway"
"""Whoever signs certificates for nodes grants it to this group; ``GROUP:NAME`` says for which node alone."""
MACHINE: Final = f"{words.PREFIX}/machine"
"""Label on the Secret: the node that the token is for."""
_SECRETS: Final = "/api/v1/namespaces/kube-system/secrets"
_LETTERS: Final = string.ascii_lowercase + string.digits


def issue_token(kube: Kube, machine: str, *, cluster: str, now: datetime | None = None) -> str:
    """A new token for the machine; any that it had is void from here on."""
    withdraw_tokens(kube, machine)
    key, secret = _random(6), _random(16)
    kube.send("POST", _SECRETS, token_secret(key, secret, machine=machine, cluster=cluster, now=now))
    return f"{key}.{secret}"


def withdraw_tokens(kube: Kube, machine: str) -> None:
    """No token lets the machine in any more."""
    for secret in kube.get(_SECRETS, labelSelector=f"{MACHINE}={machine}")["items"]:
        kube.delete(f"{_SECRETS}/{secret['metadata']['name']}")


def token_secret(key: str, secret: str, *, machine: str, cluster: str, now: datetime | None = None) -> dict[str, Any]:
    """The Secret that makes the API server know the token.

    It proves who joins, and signs nothing: the machine gets the cluster's authority with the token, not by it.
    """
    ends = (now or datetime.now(UTC)) + LIFE
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{key}", "namespace": "kube-system", "labels": {MACHINE: machine}},
        "stringData": {
            "description": f"lets {machine} join {cluster} once",
            "token-id": key,
            "token-secret": secret,
            "expiration": ends.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": f"{GROUP},{GROUP}:{machine}",
        },
    }


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
