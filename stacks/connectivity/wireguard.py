"""The configuration of both ends of a WireGuard tunnel, in the words of wg-quick(8): rendered, read back, compared.

No key is in it but public ones: each end reads its private key from a file that only root may read. What is rendered
is parsed again and checked as a pair, since two files that are each right may still not fit. Imports no Pulumi.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import yaml

from autoscaler.model.errors import BadInput

INTERFACE: Final = "wg0"
KEEPALIVE_SECONDS: Final = 25
"""So that the way back through a NAT stays open, and the first packet does not wait."""
KEY_FILE: Final = "/etc/wireguard/%i.key"
FETCH: Final = "/usr/local/sbin/spillway-wireguard-key"
_LIMIT: Final = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a tunnel, and the peer that it knows."""

    address: ipaddress.IPv4Interface
    port: int
    peer_key: str
    """Public."""
    peer_endpoint: str
    """ADDRESS:PORT on the internet."""
    allowed: tuple[ipaddress.IPv4Network, ...]
    """What is sent to the peer, and believed of it."""
    before: str = ""
    """A command that is run before the interface comes up."""


def ends(
    *,
    tunnel: str,
    port: int,
    vpc: Iterable[str],
    on_prem: Iterable[str],
    keys: tuple[str, str],
    addresses: tuple[str, str],
    fetch: str = "",
) -> tuple[End, End]:
    """The AWS end and the on-prem end. ``keys`` and ``addresses`` are theirs, in that order; the keys are public."""
    network = ipaddress.IPv4Network(tunnel)
    inside = [ipaddress.IPv4Interface(f"{host}/{network.prefixlen}") for host in network.hosts()]

    def end(own: int, networks: Iterable[str], before: str) -> End:
        other = 1 - own
        return End(
            address=inside[own],
            port=port,
            peer_key=keys[other],
            peer_endpoint=f"{addresses[other]}:{port}",
            allowed=(ipaddress.IPv4Network(inside[other].ip), *map(ipaddress.IPv4Network, networks)),
            before=before,
        )

    return end(0, on_prem, fetch), end(1, vpc, "")


def render(end: End) -> str:
    """Renders one end's file for wg-quick."""
    before = [f"PreUp = {end.before}"] if end.before else []
    return "\n".join(
        [
            "[Interface]",
            f"Address = {end.address}",
            f"ListenPort = {end.port}",
            *before,
            f"PostUp = wg set %i private-key {KEY_FILE}",
            "",
            "[Peer]",
            f"PublicKey = {end.peer_key}",
            f"AllowedIPs = {', '.join(map(str, end.allowed))}",
            f"Endpoint = {end.peer_endpoint}",
            f"PersistentKeepalive = {KEEPALIVE_SECONDS}",
            "",
        ]
    )


def parse(text: str) -> End:
    """What :func:`render` wrote. Raises ``ValueError`` for what wg-quick would not take."""
    said = dict(_settings(text))
    return End(
        address=ipaddress.IPv4Interface(said["Interface.Address"]),
        port=int(said["Interface.ListenPort"]),
        peer_key=said["Peer.PublicKey"],
        peer_endpoint=said["Peer.Endpoint"],
        allowed=tuple(ipaddress.IPv4Network(one.strip()) for one in said["Peer.AllowedIPs"].split(",")),
        before=said.get("Interface.PreUp", ""),
    )


def check_pair(aws: str, on_prem: str) -> None:
    """Whether the two files make one tunnel. Raises ``BadInput`` with all that does not fit."""
    try:
        one, other = parse(aws), parse(on_prem)
    except (KeyError, ValueError) as error:
        raise BadInput(f"a rendered WireGuard configuration cannot be read back: {error}") from None
    wrong = [*_mismatches(one, other), *_mismatches(other, one), *_overlaps(one, other)]
    if one.peer_key == other.peer_key:
        wrong.append("both ends have the same public key: each needs a pair of its own")
    if wrong:
        raise BadInput("the two ends of the WireGuard tunnel do not fit: " + "; ".join(dict.fromkeys(wrong)))


def render_gateway(conf: str, *, parameter: str, region: str, own_key: str) -> str:
    """User data of the instance at the AWS end. The private key is not in it: the instance's role may read it.

    ``own_key``, the public one, is there so that a new pair makes a new instance.
    """
    fetch = (
        "#!/usr/bin/python3\n"
        '"""Writes the private key of the tunnel, which the role of this instance alone may read."""\n'
        "import os\n"
        "import sys\n"
        "import boto3\n"
        f"ssm = boto3.client('ssm', region_name={region!r})\n"
        f"key = ssm.get_parameter(Name={parameter!r}, WithDecryption=True)['Parameter']['Value']\n"
        "file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)\n"
        "os.write(file, key.encode() + b'\\n')\n"
    )
    files = [
        _file(f"/etc/wireguard/{INTERFACE}.conf", f"# public key of this end: {own_key}\n{conf}", "0600"),
        _file(FETCH, fetch, "0755"),
        _file("/etc/sysctl.d/60-spillway.conf", "net.ipv4.ip_forward = 1\n", "0644"),
    ]
    document = {
        "package_update": True,
        "packages": ["wireguard-tools", "python3-boto3"],
        "write_files": files,
        "runcmd": [["sysctl", "--system"], ["systemctl", "enable", "--now", f"wg-quick@{INTERFACE}"]],
    }
    text = "#cloud-config\n" + yaml.safe_dump(document, sort_keys=False, width=1000)
    if len(text.encode()) > _LIMIT:
        raise BadInput(
            f"the user data of the WireGuard gateway is {len(text)} bytes, EC2 takes {_LIMIT}: name fewer networks"
        )
    return text


def _settings(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for raw in text.splitlines():
        line = raw.partition("#")[0].strip()
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            key, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{raw!r} is neither a section nor KEY = VALUE")
            yield f"{section}.{key.strip()}", value.strip()


def _mismatches(one: End, other: End) -> Iterator[str]:
    """What ``one`` believes of ``other`` that is not so."""
    if not any(other.address.ip in network for network in one.allowed):
        yield f"AllowedIPs of {one.address.ip} leave out the other end, {other.address.ip}"
    if one.address.network != other.address.network or one.address.ip == other.address.ip:
        yield f"{one.address} and {other.address} are not two addresses of one network"
    if one.peer_endpoint.rpartition(":")[2] != str(other.port):
        yield f"the endpoint {one.peer_endpoint} is not the port that the other end listens on, {other.port}"
    if any(ipaddress.IPv4Address(one.peer_endpoint.rpartition(":")[0]) in network for network in one.allowed):
        yield f"the endpoint {one.peer_endpoint} lies in AllowedIPs: the tunnel would be sent through itself"


def _overlaps(one: End, other: End) -> Iterator[str]:
    """An address that is at both ends is reached at neither."""
    for left in one.allowed:
        for right in other.allowed:
            if left.overlaps(right):
                yield f"{left} (on-prem) and {right} (AWS) overlap"
    for end in (one, other):
        for left, right in combinations(end.allowed, 2):
            if left.overlaps(right):
                yield f"AllowedIPs have {left} and {right}, which overlap"


def _file(path: str, content: str, permissions: str) -> dict[str, str]:
    return {"path": path, "owner": "root:root", "permissions": permissions, "content": content}
