"""What a machine needs to join the cluster once: a bootstrap token of a few minutes.

It is such a token as ``roles/`` makes: one of a node, known by its annotation, and void when another is made for that
node. Whoever approves certificates (``spillway nodes apply``, ``nodes approve``) takes either.
https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import yaml

from autoscaler.config.node_registration import TOKEN_LIFE, new_token, token_entry, token_secret, write_ledger
from autoscaler.model import labels as words
from stacks.on_prem_provider.kube import CONFLICT, Kube, RefusedError
from stacks.release.approver_manifests import RBAC

_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_SECRETS: Final = "/api/v1/namespaces/kube-system/secrets"


def issue_token(kube: Kube, machine: str, *, cluster: str) -> str:
    """A new token for the machine; any that it had is void from here on."""
    withdraw_tokens(kube, machine)
    _let_bearers_ask(kube)
    token, now = new_token(), datetime.now(UTC)
    meant_for = f"lets {machine} join {cluster} once"
    write_ledger(kube.send, {token.key: token_entry(node=machine, expires=now + TOKEN_LIFE)})
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
        write_ledger(kube.send, {name.removeprefix("bootstrap-token-"): None for name in gone})


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
