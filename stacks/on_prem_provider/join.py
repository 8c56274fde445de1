"""What a machine needs to join the cluster once: a bootstrap token of a few minutes.

It is such a token as ``roles/`` makes: one of a node, known by its annotation, and void when another is made for that
node. Whoever approves certificates (``spillway nodes apply``, ``nodes approve``) takes either.
https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
"""

from __future__ import annotations

import secrets
import string
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import yaml

from autoscaler import labels as words
from stacks.approver_manifests import RBAC
from stacks.on_prem_provider.kube import CONFLICT, Kube, RefusedError

LIFE: Final = timedelta(minutes=10)
_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_SECRETS: Final = "/api/v1/namespaces/kube-system/secrets"
_LETTERS: Final = string.ascii_lowercase + string.digits


def issue_token(kube: Kube, machine: str, *, cluster: str, now: datetime | None = None) -> str:
    """A new token for the machine; any that it had is void from here on."""
    withdraw_tokens(kube, machine)
    _let_bearers_ask(kube)
    key, secret = _random(6), _random(16)
    kube.send("POST", _SECRETS, token_secret(key, secret, machine=machine, cluster=cluster, now=now))
    return f"{key}.{secret}"


def withdraw_tokens(kube: Kube, machine: str) -> None:
    """No token lets the machine in any more."""
    for secret in kube.get(_SECRETS, labelSelector=f"{words.BOOTSTRAP_TOKEN}=true")["items"]:
        if secret["metadata"].get("annotations", {}).get(words.TOKEN_OF) == machine:
            kube.delete(f"{_SECRETS}/{secret['metadata']['name']}")


def _let_bearers_ask(kube: Kube) -> None:
    """The binding that the roles have, where it is not there yet."""
    documents = yaml.safe_load_all(RBAC.read_text(encoding="utf-8"))
    [binding] = [one for one in documents if one and one.get("subjects", [{}])[0].get("name") == words.BOOTSTRAPPERS]
    if kube.find(f"{_BINDINGS}/{binding['metadata']['name']}") is not None:
        return
    try:
        kube.send("POST", _BINDINGS, binding)
    except RefusedError as refused:
        if refused.status != CONFLICT:  # another machine's was faster
            raise


def token_secret(key: str, secret: str, *, machine: str, cluster: str, now: datetime | None = None) -> dict[str, Any]:
    """The Secret that makes the API server know the token.

    It proves who joins, and signs nothing: the machine gets the cluster's authority with the token, not by it.
    """
    ends = (now or datetime.now(UTC)) + LIFE
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": f"bootstrap-token-{key}",
            "namespace": "kube-system",
            "labels": {words.BOOTSTRAP_TOKEN: "true"},
            "annotations": {words.TOKEN_OF: machine},
        },
        "stringData": {
            "description": f"lets {machine} join {cluster} once",
            "token-id": key,
            "token-secret": secret,
            "expiration": ends.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": words.BOOTSTRAPPERS,
        },
    }


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
