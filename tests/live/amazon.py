"""What a machine in EC2 reaches under AWS's own names: a metadata service, and the services' HTTPS endpoints.

User data of the programs names no other endpoint, so a bench machine that runs it must find these where EC2 has them:
169.254.169.254 is led to this machine by its bridge, ``*.amazonaws.com`` by the machine's hosts file, with certificates
of an authority that the machine was told to trust. Behind them is the stand-in for AWS.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.live.debian import run
from tests.live.machines import Bench, Host

METADATA = "169.254.169.254"


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Silent."""

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        """Whole."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Metadata(_Quiet):
    """A metadata service that answers only those who asked for a session first, as IMDSv2 does."""

    def __init__(self, says: dict[str, str], *arguments: Any) -> None:
        self._says = says
        super().__init__(*arguments)

    def do_PUT(self) -> None:
        """A session token."""
        self.answer(200, b"session")

    def do_GET(self) -> None:
        """One path."""
        path = self.path.removeprefix("/latest/")
        if self.headers.get("X-aws-ec2-metadata-token") != "session":
            self.answer(401, b"")
        else:
            self.answer(200 if path in self._says else 404, self._says.get(path, "").encode())


class Front(_Quiet):
    """Takes a request by TLS and hands it on to the stand-in, with the host name that was asked for."""

    def __init__(self, behind: str, *arguments: Any) -> None:
        self._behind = urlsplit(behind)
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """One request."""
        self._hand_on()

    def do_POST(self) -> None:
        """One request."""
        self._hand_on()

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        line = http.client.HTTPConnection(str(self._behind.hostname), self._behind.port or 80, timeout=60)
        with contextlib.closing(line):
            line.request(self.command, self.path, body=body, headers=dict(self.headers))
            got = line.getresponse()
            self.answer(got.status, got.read(), **{"Content-Type": got.getheader("Content-Type", "")})


def described(instance: dict[str, Any], *, role: str) -> dict[str, str]:
    """What the metadata service says to this instance, as EC2 describes it."""
    zone = instance["Placement"]["AvailabilityZone"]
    document = {
        "instanceId": instance["InstanceId"],
        "instanceType": instance["InstanceType"],
        "privateIp": instance["PrivateIpAddress"],
        "availabilityZone": zone,
        "region": zone[:-1],
    }
    keys = {"AccessKeyId": "local", "SecretAccessKey": "local", "Token": "session"}
    return {
        "dynamic/instance-identity/document": json.dumps(document),
        "meta-data/local-hostname": instance["PrivateDnsName"],
        "meta-data/iam/security-credentials/": role,
        f"meta-data/iam/security-credentials/{role}": json.dumps(keys),
    }


@contextlib.contextmanager
def in_ec2(
    bench: Bench, host: Host, *, instance: dict[str, Any], role: str, url: str, names: list[str], folder: Path
) -> Iterator[dict[str, str]]:
    """The machine is that instance, for the length of a ``with`` block: it is to be restarted inside.

    Gives what the metadata service says, path by path, which may be changed.

    ``url``: of the stand-in. ``names``: host names under ``amazonaws.com`` that it serves.
    """
    authority, chain = _certificate(folder, names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    front = ThreadingHTTPServer((bench.gateway, 443), partial(Front, url))
    # Each connection shakes hands in its own thread: one that never does would hold up all others, and the end.
    front.socket = context.wrap_socket(front.socket, server_side=True, do_handshake_on_connect=False)
    says = described(instance, role=role)
    told = ThreadingHTTPServer((bench.gateway, 0), partial(Metadata, says))
    for server in (front, told):
        threading.Thread(target=server.serve_forever).start()
    rule = ["PREROUTING", "-s", str(bench.subnet), "-d", METADATA, "-p", "tcp", "--dport", "80"]
    rule += ["-m", "comment", "--comment", bench.bridge, "-j", "DNAT"]
    rule += ["--to-destination", f"{bench.gateway}:{told.server_port}"]
    run("iptables", "-w", "-t", "nat", "-A", *rule)
    _furnish(bench, host, instance=instance, names=names, authority=authority)
    try:
        yield says
    finally:
        run("iptables", "-w", "-t", "nat", "-D", *rule)
        for server in (front, told):
            server.shutdown()
            server.server_close()


def _furnish(bench: Bench, host: Host, *, instance: dict[str, Any], names: list[str], authority: Path) -> None:
    """The names, who is trusted, and the address that EC2 gave the instance."""
    hosts = "".join(f"{bench.gateway} {name}\n" for name in names)
    host.run(f"cat >> /etc/hosts <<'END'\n{hosts}END")
    certificate = "/usr/local/share/ca-certificates/amazon.crt"
    host.run(f"cat > {certificate} <<'END'\n{authority.read_text(encoding='ascii')}END\nupdate-ca-certificates -f")
    unit = f"""[Unit]
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
ExecStart=ip addr add {instance["PrivateIpAddress"]}/32 dev eth0

[Install]
WantedBy=sysinit.target
"""
    host.run(f"cat > /etc/systemd/system/address.service <<'END'\n{unit}END\nsystemctl enable address.service")


def _certificate(folder: Path, names: list[str]) -> tuple[Path, Path]:
    """An authority's certificate, and a server's with its key."""
    now = dt.datetime.now(dt.UTC)

    def made(
        subject: str, key: ec.EllipticCurvePrivateKey, *, by: ec.EllipticCurvePrivateKey, more: Callable[[Any], Any]
    ) -> bytes:
        name, issuer = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (subject, "amazon of the bench")
        )
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1))
        signed = more(builder.not_valid_after(now + dt.timedelta(days=1))).sign(by, hashes.SHA256())
        return bytes(signed.public_bytes(serialization.Encoding.PEM))

    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority, chain = folder / "amazon.crt", folder / "amazon.pem"
    constraint = x509.BasicConstraints(ca=True, path_length=0)
    authority.write_bytes(
        made("amazon of the bench", root, by=root, more=lambda one: one.add_extension(constraint, critical=True))
    )
    alternative = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    own = made("amazonaws.com", key, by=root, more=lambda one: one.add_extension(alternative, critical=False))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    chain.write_bytes(pem + own)
    return authority, chain
