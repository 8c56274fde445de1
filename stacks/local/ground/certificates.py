"""A certificate authority for one local ground, made anew at each start and thrown away with it."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFE = dt.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: the authority, the API server's certificate and key, the key that signs service account tokens."""

    authority: Path
    authority_key: Path
    certificate: Path
    key: Path
    account_key: Path
    kubelet_client: Path
    """By which kubelets know the API server when it calls them."""
    kubelet_client_key: Path


def make_certificates(directory: Path, *, addresses: tuple[str, ...] = ("127.0.0.1",)) -> Certificates:
    """Write a fresh authority and a server certificate for ``addresses``; only this user can read the keys."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Certificates(
        authority=directory / "ca.crt",
        authority_key=directory / "ca.key",
        certificate=directory / "apiserver.crt",
        key=directory / "apiserver.key",
        account_key=directory / "accounts.key",
        kubelet_client=directory / "kubelet-client.crt",
        kubelet_client_key=directory / "kubelet-client.key",
    )
    root_key, key, client_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    root_name = _name("spillway local ground")
    root = (
        _builder(subject=root_name, issuer=root_name, key=root_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    names += [x509.DNSName(name) for name in ("localhost", "kubernetes", "kubernetes.default.svc")]
    server = (
        _builder(subject=_name("kube-apiserver"), issuer=root_name, key=key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    made.authority.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    caller = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
            x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver-kubelet-client"),
        ]
    )
    client = _builder(subject=caller, issuer=root_name, key=client_key).sign(root_key, hashes.SHA256())
    made.kubelet_client.write_bytes(client.public_bytes(serialization.Encoding.PEM))
    _write_key(made.kubelet_client_key, client_key)
    _write_key(made.authority_key, root_key)
    _write_key(made.key, key)
    _write_key(made.account_key, ec.generate_private_key(ec.SECP256R1()))
    return made


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(*, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
