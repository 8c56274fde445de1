"""What a machine needs to join the cluster once: a bootstrap token of a few minutes.

It is such a token as ``roles/`` makes: one of a node, known by its annotation, and void when another is made for that
node. Whoever approves certificates (``spillway nodes apply``, ``nodes approve``) takes either.
https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import yaml

from autoscaler.config.node_registration import TOKEN_LEDGER, TOKEN_LIFE, new_token, token_entry, token_secret
from autoscaler.model import labels as words
from stacks.on_prem_provider.kube import CONFLICT, MERGE, NOT_FOUND, Kube, RefusedError
from stacks.release.approver_manifests import RBAC

_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_SECRETS: Final = "/api/v1/namespaces/kube-system/secrets"
_CONFIG_MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"


def issue_token(kube: Kube, machine: str, *, cluster: str) -> str:
    """A new token for the machine; any that it had is void from here on."""
    withdraw_tokens(kube, machine)
    _let_bearers_ask(kube)
    token, now = new_token(), datetime.now(UTC)
    meant_for = f"lets {machine} join {cluster} once"
    _note(kube, {token.key: token_entry(node=machine, expires=now + TOKEN_LIFE)})
    kube.send("POST", _SECRETS, token_secret(token, node=machine, now=now, meant_for=meant_for))
    return str(token)


def withdraw_tokens(kube: Kube, machine: str) -> None:
    """No token lets the machine in any more."""
    gone = [
        secret["metadata"]["name"]
        for secret in kube.get(_SECRETS, labelSelector=f"{words.BOOTSTRAP_TOKEN}=true")["items"]
        if secret["metadata"].get("annotations", {}).get(words.TOKEN_OF) == machine
    ]
    for name in gone:
        kube.delete(f"{_SECRETS}/{name}")
    if gone:
        _note(kube, {name.removeprefix("bootstrap-token-"): None for name in gone})


def _note(kube: Kube, entries: Mapping[str, str | None]) -> None:
    """Write into the ledger that the roles read in place of the Secrets, each entry by itself."""
    try:
        _merge(kube, entries)
    except RefusedError as refused:
        if refused.status != NOT_FOUND:
            raise
        _make_ledger(kube, entries)


def _merge(kube: Kube, entries: Mapping[str, str | None]) -> None:
    kube.send("PATCH", f"{_CONFIG_MAPS}/{TOKEN_LEDGER}", {"data": dict(entries)}, content=MERGE)


def _make_ledger(kube: Kube, entries: Mapping[str, str | None]) -> None:
    metadata = {"name": TOKEN_LEDGER, "namespace": "kube-system"}
    ledger = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(entries)}
    try:
        kube.send("POST", _CONFIG_MAPS, ledger)
    except RefusedError as refused:
        if refused.status != CONFLICT:
            raise
        _merge(kube, entries)  # another machine's first entry made it meanwhile


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
