"""The controller's part of a join, at the Kubernetes API: a token for one node, its certificates, labels and taints.

What may be approved is decided in :mod:`roles.membership.csr_policy`; here it is read, and carried out.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from autoscaler.config.node_registration import Declared, new_token, place, places
from autoscaler.kube.client import Kube, Refused
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from roles.membership import tokens
from roles.membership.csr_policy import BINDING, SIGNERS, Expected, Request, why_not
from roles.membership.node_patch import patch_node

PATIENCE: Final = 120.0
"""Seconds from the kubelet's start to a Ready node with a signed serving certificate."""
_REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_APPLY: Final = "application/apply-patch+yaml"
_NOT_FOUND: Final = 404
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_APPROVED_BY: Final = "SpillwayNodeApprover"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one request."""

    request: str
    node: str
    refused_because: str
    """Empty: it was approved."""


def mint_token(kube: Kube, node: str) -> str:
    """A fresh token for this node, ``id.secret``; older ones of the node end with it."""
    tokens.drop(kube, node)
    _bind(kube)
    token = new_token()
    tokens.keep(kube, token, node=node, meant_for=f"one certificate for node {node}")
    return str(token)


def drop_tokens(kube: Kube, node: str) -> None:
    """No token of this node is good any more."""
    tokens.drop(kube, node)


def expected_node(kube: Kube, name: str, address: str) -> Expected:
    """The node as the inventory has it, with the token that was made for it."""
    mine = tokens.token_of(kube, name)
    return Expected(
        name=name,
        addresses=frozenset(_addresses(address)),
        dns_names=frozenset() if _is_address(address) else frozenset({address}),
        token=mine.key if mine else "",
        used_by=mine.used_by if mine else "",
    )


def approve_pending(kube: Kube, nodes: Iterable[Expected]) -> list[Verdict]:
    """Decide every request that is open and asks for one of these nodes."""
    expected = {node.name: node for node in nodes}
    verdicts = []
    for raw in json.loads(kube.get(_REQUESTS))["items"]:
        if raw["spec"]["signerName"] not in SIGNERS or raw.get("status", {}).get("conditions"):
            continue
        request = read_request(raw)
        if request.node not in expected:
            continue
        because = why_not(request, expected[request.node]) or _approve(kube, raw, request, expected[request.node])
        verdicts.append(Verdict(request.name, request.node, because))
    return verdicts


def admit(
    kube: Kube,
    node: str,
    address: str,
    *,
    holds: Callable[[], bool],
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Approve what the node may have until it is Ready and has its certificates; then its token ends.

    ``holds``: whether the machine has both, signed. Granted requests say nothing of that: a kubelet that was started
    again, or a machine that was installed anew, has forgotten what it asked for. Raises ``Unavailable`` saying what is
    missing, and what was refused.
    """
    end, refused, missing = time.monotonic() + patience, dict[str, str](), "nothing was heard of it"
    try:
        while time.monotonic() < end:
            for verdict in approve_pending(kube, [expected_node(kube, node, address)]):
                if verdict.refused_because:
                    refused[verdict.request] = verdict.refused_because
            missing = _what_is_missing(kube, node)
            if not missing and not holds():
                missing = "it does not hold its signed certificates"
            if not missing:
                return
            sleep(0.3)
    finally:
        drop_tokens(kube, node)
    last = next(reversed(refused.items()), None)
    told = f"; of its requests {len(refused)} were refused, {last[0]} because {last[1]}" if last else ""
    raise Unavailable(f"node {node} did not join within {patience:.0f} s: {missing}{told}")


def mark(kube: Kube, node: str, *, labels: Mapping[str, str], taints: Sequence[Mapping[str, str]]) -> None:
    """Have these on the node. Of others only those go that were declared before, and the joining taint."""
    patch_node(kube, node, lambda now: marks(now, labels=labels, taints=taints))


def marks(node: Mapping[str, Any], *, labels: Mapping[str, str], taints: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The merge patch that does it."""
    before, now = Declared.on(node), Declared(frozenset(labels), places(taints))
    ours = before.taints | now.taints | {(words.JOINING, "NoSchedule")}
    others = [one for one in node["spec"].get("taints", ()) if place(one) not in ours]
    gone: dict[str, str | None] = dict.fromkeys(sorted(before.labels - now.labels))
    return {
        "metadata": {"labels": {**gone, **labels}, "annotations": now.annotation()},
        "spec": {"taints": [*others, *(dict(one) for one in taints)]},
    }


def read_request(raw: Mapping[str, Any]) -> Request:
    """A CertificateSigningRequest of the API in plain values."""
    spec = raw["spec"]
    csr = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
    names, others = _alternative_names(csr)
    subject = {NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME}
    return Request(
        name=raw["metadata"]["name"],
        signer=spec["signerName"],
        user=spec.get("username", ""),
        groups=frozenset(spec.get("groups", ())),
        usages=frozenset(spec.get("usages", ())),
        common_name="".join(str(one.value) for one in csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME)),
        organizations=tuple(str(one.value) for one in csr.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)),
        dns_names=frozenset(names.get_values_for_type(x509.DNSName)) if names else frozenset(),
        addresses=frozenset(map(str, names.get_values_for_type(x509.IPAddress))) if names else frozenset(),
        others=others + sum(1 for one in csr.subject if one.oid not in subject),
    )


def _alternative_names(csr: x509.CertificateSigningRequest) -> tuple[x509.SubjectAlternativeName | None, int]:
    try:
        names = csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None, 0
    return names, sum(1 for one in names if not isinstance(one, (x509.DNSName, x509.IPAddress)))


def _approve(kube: Kube, raw: dict[str, Any], request: Request, node: Expected) -> str:
    """Why it could not be; else empty.

    The token is marked as used before it is: should two be tried at once, one of the two writes is refused.
    """
    if request.user.startswith("system:bootstrap:"):
        mine = tokens.token_of(kube, node.name)
        if mine is None or mine.key != node.token or mine.used_by:
            return f"its token {node.token} has ended, or was used, in this moment"
        tokens.use(kube, mine, request=request.name)
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": _APPROVED_BY,
        "message": f"asked for node {node.name} by {request.user}, as the inventory has it",
    }
    raw.setdefault("status", {})["conditions"] = [condition]
    kube.send("PUT", f"{_REQUESTS}/{request.name}/approval", raw)
    return ""


def _bind(kube: Kube) -> None:
    """What a token's bearer may ask for; written only where it is not so, since few may write it."""
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{BINDING['metadata']['name']}"
    try:
        now = json.loads(kube.get(path))
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise
        now = {}
    if any(now.get(key) != BINDING[key] for key in ("roleRef", "subjects")):
        kube.send("PATCH", f"{path}?fieldManager=spillway-roles&force=true", BINDING, content=_APPLY)


def _what_is_missing(kube: Kube, node: str) -> str:
    try:
        found = json.loads(kube.get(f"/api/v1/nodes/{node}"))
    except Refused as refused:
        if refused.status != _NOT_FOUND:
            raise
        return "it is not registered"
    ready: dict[str, str] = next((one for one in found["status"].get("conditions", ()) if one["type"] == "Ready"), {})
    if ready.get("status") != "True":
        return f"it is not Ready: {ready.get('message', 'its kubelet has not reported yet')}"
    if any(one["key"] == _NOT_READY for one in found["spec"].get("taints", ())):
        return "it is Ready, but the controller manager has not taken its not-ready taint away"
    return ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _addresses(address: str) -> list[str]:
    """Returns the addresses of a machine: where the inventory has a DNS name, what it resolves to here."""
    if _is_address(address):
        return [str(ipaddress.ip_address(address))]
    try:
        return sorted({str(one[4][0]) for one in socket.getaddrinfo(address, None)})
    except OSError:
        return []
