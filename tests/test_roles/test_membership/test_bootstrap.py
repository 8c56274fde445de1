"""The controller's part of a join, at an API server that says what a real one says only for a moment."""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from autoscaler.config.node_registration import TOKEN_LEDGER, token_entry
from autoscaler.kube.client import Kube, Refused
from autoscaler.model.errors import Unavailable
from roles.membership import bootstrap
from roles.membership.csr_policy import BINDING, SERVING
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
REQUEST: dict[str, Any] = {
    "metadata": {"name": "csr-1", "uid": "old"},
    "spec": {"signerName": SERVING, "username": "system:node:dgx-01"},
    "status": {"certificate": "x", "conditions": [{"type": "Approved"}]},
}
LONG = datetime(2126, 1, 1, tzinfo=UTC)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A server of scripted answers."""
    with fake_api() as made:
        yield made


def node(*taints: dict[str, str]) -> dict[str, Any]:
    """A node that its kubelet calls Ready."""
    return {
        "metadata": {"name": "dgx-01", "uid": "u", "resourceVersion": "7"},
        "spec": {"taints": list(taints)},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def signing_request(subject: dict[x509.ObjectIdentifier, str], *names: x509.GeneralName) -> dict[str, Any]:
    """What a kubelet would send, with these alternative names."""
    asked = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject.items()])
    builder = x509.CertificateSigningRequestBuilder().subject_name(asked)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = REQUEST["spec"] | {"request": base64.b64encode(pem).decode(), "usages": ["server auth"], "groups": ["g"]}
    return REQUEST | {"spec": spec}


NODE = {NameOID.ORGANIZATION_NAME: "system:nodes", NameOID.COMMON_NAME: "system:node:dgx-01"}
HERE = (x509.DNSName("dgx-01"), x509.IPAddress(ip_address("10.1.0.7")))


@pytest.mark.parametrize(
    ("subject", "names", "others"),
    [
        (NODE, (), 0),
        (NODE, HERE, 0),
        (NODE, (*HERE, x509.UniformResourceIdentifier("spiffe://lab/admin")), 1),
        (NODE, (x509.RFC822Name("a@b.example"), *HERE, x509.RegisteredID(NameOID.SURNAME)), 2),
        (NODE | {NameOID.ORGANIZATIONAL_UNIT_NAME: "masters"}, HERE, 1),
    ],
)
def test_what_a_certificate_is_asked_for_is_read_whole(
    subject: dict[x509.ObjectIdentifier, str], names: tuple[x509.GeneralName, ...], others: int
) -> None:
    """Whatever is neither a host's name nor its address is counted: no certificate has it."""
    read = bootstrap.read_request(signing_request(subject, *names))
    assert (read.common_name, read.organizations) == ("system:node:dgx-01", ("system:nodes",))
    assert read.dns_names == ({"dgx-01"} if names else set())
    assert read.addresses == ({"10.1.0.7"} if names else set())
    assert read.others == others
    assert (read.name, read.signer, read.user) == ("csr-1", SERVING, "system:node:dgx-01")
    assert (read.usages, read.groups) == ({"server auth"}, {"g"})


def absent(asked: Asked) -> Answer:
    """A cluster in which there is nothing yet."""
    is_there = asked.method != "GET" or asked.path == "/version"
    return Answer({}) if is_there else Answer({"message": "none"}, status=404)


def test_a_node_is_a_member_once_pods_may_go_there(api: FakeApi, tmp_path: Path) -> None:
    """Its condition says Ready some moments before the controller manager takes the taint away."""
    seen = iter([node(NOT_READY), node(NOT_READY), node()])

    def answer(asked: Asked) -> Answer:
        if asked.path.startswith("/api/v1/nodes/"):
            return Answer(next(seen))
        return Answer({"items": [REQUEST] if "certificatesigningrequests" in asked.path else []})

    api.answer = answer
    kube = Kube.connect(api.kubeconfig(tmp_path))
    bootstrap.admit(kube, "dgx-01", "10.20.0.11", holds=lambda: True, sleep=lambda _seconds: None)
    assert next(seen, None) is None


def test_a_node_is_no_member_before_its_machine_holds_its_certificates(api: FakeApi, tmp_path: Path) -> None:
    """It is Ready still, and a kubelet that was started again has forgotten what it was granted."""
    held = iter([False, False, True])
    api.answer = lambda asked: Answer(node() if "/nodes/" in asked.path else {"items": [REQUEST]})
    kube = Kube.connect(api.kubeconfig(tmp_path))
    bootstrap.admit(kube, "dgx-01", "10.20.0.11", holds=lambda: next(held), sleep=lambda _seconds: None)
    assert next(held, None) is None
    with pytest.raises(Unavailable, match="it does not hold its signed certificates"):
        bootstrap.admit(kube, "dgx-01", "10.20.0.11", holds=lambda: False, patience=0.2, sleep=lambda _seconds: None)


def test_every_request_of_a_machine_that_is_expected_is_decided(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind one of another signer, one with a decision, and one of a machine that is not expected."""

    def asked(name: str, signer: str, machine: str, *conditions: dict[str, str]) -> dict[str, Any]:
        spec = {"signerName": signer, "username": f"system:node:{machine}", "request": ""}
        return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": list(conditions)}}

    items = [
        asked("foreign", "kubernetes.io/legacy-unknown", "dgx-01"),
        asked("decided", SERVING, "dgx-01", {"type": "Denied"}),
        asked("stranger", SERVING, "dgx-02"),
        asked("open", SERVING, "dgx-01"),
        asked("also-open", SERVING, "dgx-01"),
    ]
    api.answer = lambda _: Answer({"items": items})
    machine = {one["metadata"]["name"]: one["spec"]["username"].rpartition(":")[2] for one in items}
    monkeypatch.setattr(
        bootstrap,
        "read_request",
        lambda raw: SimpleNamespace(name=raw["metadata"]["name"], node=machine[raw["metadata"]["name"]]),
    )
    monkeypatch.setattr(bootstrap, "why_not", lambda request, _: f"{request.name} asks for too much")
    found = bootstrap.approve_pending(Kube.connect(api.kubeconfig(tmp_path)), [SimpleNamespace(name="dgx-01")])  # type: ignore[list-item]
    assert [(one.request, one.node, one.refused_because) for one in found] == [
        ("open", "dgx-01", "open asks for too much"),
        ("also-open", "dgx-01", "also-open asks for too much"),
    ]


def test_what_is_missing_at_the_end_is_said(api: FakeApi, tmp_path: Path) -> None:
    """The taint that stays has another cause than a kubelet that is silent."""
    api.answer = lambda asked: Answer(node(NOT_READY) if "/nodes/" in asked.path else {"items": []})
    with pytest.raises(Unavailable, match="not-ready taint"):
        bootstrap.admit(
            Kube.connect(api.kubeconfig(tmp_path)), "dgx-01", "10.20.0.11", holds=lambda: True, patience=0.2
        )


@pytest.mark.parametrize("joins", [True, False])
def test_the_token_of_a_join_ends_with_it(api: FakeApi, tmp_path: Path, joins: bool) -> None:  # noqa: FBT001
    """Whether it came about or not; another node's token stays."""
    entries = {key: token_entry(node=name, expires=LONG) for key, name in (("aaa", "dgx-01"), ("bbb", "dgx-02"))}

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith(TOKEN_LEDGER):
            return Answer({"data": entries})
        if "/nodes/" in asked.path:
            return Answer(node(*([] if joins else [NOT_READY])))
        return Answer({"items": []})

    api.answer = answer
    kube = Kube.connect(api.kubeconfig(tmp_path))
    with contextlib.nullcontext() if joins else pytest.raises(Unavailable):
        bootstrap.admit(kube, "dgx-01", "10.20.0.11", holds=lambda: True, patience=0.2, sleep=lambda _seconds: None)
    deleted = [asked.path for asked in api.asked if asked.method == "DELETE"]
    assert deleted == ["/api/v1/namespaces/kube-system/secrets/bootstrap-token-aaa"]


def test_marks_are_made_to_what_the_node_is_now(api: FakeApi, tmp_path: Path) -> None:
    """Its kubelet wrote it in between: read again, with what that added. Somebody who always does is told of."""
    patches: list[Asked] = []

    def answer(asked: Asked) -> Answer:
        if asked.method == "GET":
            return Answer(node(*([NOT_READY] if not patches else [])))
        patches.append(asked)
        return Answer({"message": "the object has been modified"}, status=409 if len(patches) < conflicts else 200)

    api.answer = answer
    kube, conflicts = Kube.connect(api.kubeconfig(tmp_path)), 3
    bootstrap.mark(kube, "dgx-01", labels={"a": "b"}, taints=[])
    assert [one.body["spec"]["taints"] for one in patches] == [[NOT_READY], [], []]
    assert patches[-1].body["metadata"]["resourceVersion"] == "7"
    conflicts = 99
    with pytest.raises(Refused):
        bootstrap.mark(kube, "dgx-01", labels={}, taints=[])


@pytest.mark.parametrize(
    ("stands", "writes"),
    [
        (BINDING, []),
        (None, [BINDING]),
        (BINDING | {"subjects": []}, [BINDING]),
        (BINDING | {"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}, [BINDING]),
    ],
)
def test_what_a_token_may_ask_for_is_written_only_where_it_is_not_so(
    api: FakeApi, tmp_path: Path, stands: dict[str, Any] | None, writes: list[Any]
) -> None:
    """Few accounts may write a binding, and one that says more is set right before a token is handed out."""

    def answer(asked: Asked) -> Answer:
        if "clusterrolebindings" in asked.path and asked.method == "GET" and stands:
            return Answer(stands)
        return absent(asked)

    api.answer = answer
    bootstrap.mint_token(Kube.connect(api.kubeconfig(tmp_path)), "dgx-01")
    written = [one.body for one in api.asked if "clusterrolebindings" in one.path and one.method == "PATCH"]
    assert written == writes


@pytest.mark.parametrize("where", ["clusterrolebindings", "nodes"])
def test_what_may_not_be_read_is_not_taken_for_absent(api: FakeApi, tmp_path: Path, where: str) -> None:
    """A refusal is told: neither is a token made beside a binding of others, nor does a node count as unregistered."""

    def answer(asked: Asked) -> Answer:
        if where in asked.path:
            return Answer({"message": "no rights"}, status=403)
        if "certificatesigningrequests" in asked.path:
            return Answer({"items": []})
        return absent(asked)

    api.answer = answer
    kube = Kube.connect(api.kubeconfig(tmp_path))
    acts: dict[str, Callable[[], object]] = {
        "nodes": lambda: bootstrap.admit(kube, "dgx-01", "10.20.0.11", holds=lambda: True, sleep=lambda _seconds: None),
        "clusterrolebindings": lambda: bootstrap.mint_token(kube, "dgx-01"),
    }
    with pytest.raises(Refused, match="no rights"):
        acts[where]()


@pytest.mark.parametrize(
    ("stands", "said"),
    [
        (None, "it is not registered"),
        ({"conditions": []}, "it is not Ready: its kubelet has not reported yet"),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "cni"}]}, "it is not Ready: cni"),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, "it does not hold its signed certificates"),
    ],
)
def test_what_a_node_lacks_is_said(api: FakeApi, tmp_path: Path, stands: dict[str, Any] | None, said: str) -> None:
    """In the message at the end; a certificate that another machine of that name had is none."""

    def answer(asked: Asked) -> Answer:
        if "/api/v1/nodes/" in asked.path:
            return Answer(node() | {"status": stands}) if stands else Answer({"message": "none"}, status=404)
        return Answer({"items": [REQUEST] if "certificatesigningrequests" in asked.path else []})

    api.answer = answer
    with pytest.raises(Unavailable, match=f"within 0 s: {said}"):
        bootstrap.admit(
            Kube.connect(api.kubeconfig(tmp_path)), "dgx-01", "10.20.0.11", holds=lambda: False, patience=0.2
        )


@pytest.mark.parametrize(
    ("address", "addresses", "names"),
    [
        ("10.20.0.11", {"10.20.0.11"}, set()),
        ("fd00:0::11", {"fd00::11"}, set()),
        ("dgx-01.lab", {"10.20.0.11", "10.20.0.12"}, {"dgx-01.lab"}),
        ("gone.lab", set(), {"gone.lab"}),
    ],
)
def test_a_machine_known_by_name_may_serve_where_the_name_leads(  # noqa: PLR0917 - what is given, and what comes
    api: FakeApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    addresses: set[str],
    names: set[str],
) -> None:
    """A name that leads nowhere lets no address in."""
    real = socket.getaddrinfo

    def look_up(name: str, *more: Any, **options: Any) -> Any:
        if name == "gone.lab":
            raise OSError("Name or service not known")
        if name == "dgx-01.lab":
            return [(2, 1, 6, "", (found, 0)) for found in ("10.20.0.12", "10.20.0.11", "10.20.0.11")]
        return real(name, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    api.answer = absent
    found = bootstrap.expected_node(Kube.connect(api.kubeconfig(tmp_path)), "dgx-01", address)
    assert (found.addresses, found.dns_names, found.token) == (addresses, names, "")


def test_marks_replace_what_was_declared_before_and_leave_what_others_set() -> None:
    """Labels that were ours and are no more go; the joining taint goes; a taint of the cloud's controller stays."""
    stands = {
        "metadata": {
            "labels": {"old": "1", "theirs": "2"},
            "annotations": bootstrap.Declared(
                frozenset({"old"}), bootstrap.places([{"key": "ours", "effect": "NoSchedule"}])
            ).annotation(),
        },
        "spec": {
            "taints": [
                {"key": "ours", "effect": "NoSchedule"},
                {"key": bootstrap.words.JOINING, "effect": "NoSchedule"},
                {"key": "theirs", "effect": "NoExecute"},
                {"key": "new", "value": "was", "effect": "NoSchedule"},
            ]
        },
    }
    new = {"key": "new", "value": "is", "effect": "NoSchedule"}
    patch = bootstrap.marks(stands, labels={"new": "3"}, taints=[new])
    assert patch["metadata"]["labels"] == {"old": None, "new": "3"}
    assert patch["spec"]["taints"] == [{"key": "theirs", "effect": "NoExecute"}, new]


def test_what_a_node_asked_for_and_may_not_have_is_said(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many of its requests were refused, and why the last was; what it was granted is none of it."""
    verdicts = [
        bootstrap.Verdict("csr-2", "system:node:dgx-01", "asks for another name"),
        bootstrap.Verdict("csr-1", "system:node:dgx-01", ""),
    ]
    monkeypatch.setattr(bootstrap, "approve_pending", lambda _kube, _expected: verdicts)
    api.answer = absent
    kube = Kube.connect(api.kubeconfig(tmp_path))
    told = "; of its requests 1 were refused, csr-2 because asks for another name"
    with pytest.raises(Unavailable, match=told):
        bootstrap.admit(kube, "dgx-01", "10.20.0.11", holds=lambda: True, patience=0.2, sleep=lambda _seconds: None)
