"""Which certificate a kubelet may have: the decision, apart from the API that carries it out.

A bootstrap token lets its bearer ask for a certificate, any certificate. What is approved is only this: the name of the
node that the token was made for, once; the renewal that a node asks for under its own name; and a serving certificate
for names and addresses that the inventory gives the node. Everything else is left unapproved, and the reason told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from autoscaler.model import labels as words

CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING: Final = "kubernetes.io/kubelet-serving"
SIGNERS: Final = (CLIENT, SERVING)
_OPTIONAL: Final = {"digital signature", "key encipherment"}
_DEMANDED: Final = {CLIENT: "client auth", SERVING: "server auth"}


@dataclass(frozen=True, slots=True)
class Request:
    """A CertificateSigningRequest: which identity asks, and for what."""

    name: str
    signer: str
    user: str
    groups: frozenset[str]
    usages: frozenset[str]
    common_name: str
    organizations: tuple[str, ...]
    dns_names: frozenset[str]
    addresses: frozenset[str]
    others: int
    """Subject alternative names of other kinds, and further parts of the subject."""

    @property
    def node(self) -> str:
        """The node whose identity is asked for; empty where it is none."""
        return self.common_name.removeprefix("system:node:") if self.common_name.startswith("system:node:") else ""


@dataclass(frozen=True, slots=True)
class Expected:
    """A node as the inventory knows it, and the token that was made for it."""

    name: str
    addresses: frozenset[str]
    dns_names: frozenset[str] = frozenset()
    token: str = ""
    """Id of the bootstrap token; empty where none is valid now."""
    used_by: str = ""
    """The request that the token was used for."""


def why_not(request: Request, expected: Expected | None) -> str:
    """Why the request is not approved; empty where it is."""
    if request.signer not in SIGNERS:
        return f"the signer {request.signer} is none of a kubelet's"
    if expected is None or request.node != expected.name:
        return f"no node {request.common_name!r} is expected"
    if request.organizations != ("system:nodes",) or request.others:
        return "its subject must be the organization system:nodes and the node's name, and nothing else"
    if _DEMANDED[request.signer] not in request.usages or request.usages - {_DEMANDED[request.signer]} - _OPTIONAL:
        return f"its usages must be {_DEMANDED[request.signer]} and those of a TLS key, not {sorted(request.usages)}"
    return _why_no_client(request, expected) if request.signer == CLIENT else _why_no_server(request, expected)


def _why_no_client(request: Request, expected: Expected) -> str:
    if request.dns_names or request.addresses:
        return "a client certificate has no alternative names"
    if request.user == f"system:node:{expected.name}" and "system:nodes" in request.groups:
        return ""  # it renews the one that it has
    if not expected.token:
        return f"no token is valid for {expected.name}"
    if request.user != f"system:bootstrap:{expected.token}":
        return f"{request.user} asks for {expected.name}, whose token is {expected.token}"
    if expected.used_by and expected.used_by != request.name:
        return f"the token {expected.token} was used by {expected.used_by}: it is good for one certificate"
    return ""


def _why_no_server(request: Request, expected: Expected) -> str:
    if request.user != f"system:node:{expected.name}" or "system:nodes" not in request.groups:
        return f"{request.user} asks for the serving certificate of {expected.name}"
    strangers = sorted(
        (request.addresses - expected.addresses) | (request.dns_names - expected.dns_names - {expected.name})
    )
    if strangers:
        return f"it names {', '.join(strangers)}, which is not {expected.name}'s"
    if not request.addresses and not request.dns_names:
        return "a serving certificate needs a name or an address"
    return ""


GROUP: Final = words.BOOTSTRAPPERS
BINDING: Final[dict[str, Any]] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "spillway:node-bootstrappers"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}],
}
