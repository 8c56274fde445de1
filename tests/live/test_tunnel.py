"""The rendered files of a WireGuard tunnel carry packets: two network namespaces, a userspace WireGuard in each."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.connectivity.wireguard import ends, parse, render
from stacks.local.process.supervisor import die_with_parent
from stacks.local.toolchain.tools import ensure_tools
from stacks.on_prem_provider.keys import wireguard_pair

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and TUN devices need root"),
    pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="there is no TUN device here"),
    pytest.mark.skipif(not shutil.which("ip"), reason="there is no ip(8) here"),
]

SOCKETS = Path("/var/run/wireguard")
OUTSIDE = ("192.0.2.1", "192.0.2.2")
BEHIND = ("10.40.0.1", "10.20.0.1")
"""An address of the network behind each end."""


def sh(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=30)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two hosts that see each other on one wire, and have an address of their own site."""
    names = (f"wga{os.getpid()}", f"wgo{os.getpid()}")
    try:
        for name in names:
            sh("ip", "netns", "add", name)
        wires = [f"v{name}" for name in names]
        sh(
            "ip",
            "link",
            "add",
            wires[0],
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            wires[1],
            "netns",
            names[1],
        )
        for name, wire, outside, behind in zip(names, wires, OUTSIDE, BEHIND, strict=True):
            inside = ("ip", "-n", name)
            sh(*inside, "addr", "add", f"{outside}/24", "dev", wire)
            sh(*inside, "addr", "add", f"{behind}/32", "dev", "lo")
            for device in ("lo", wire):
                sh(*inside, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            sh("ip", "netns", "del", name, check=False)


@contextlib.contextmanager
def wireguard(namespace: str, conf: str, private: str) -> Iterator[None]:
    """What wg-quick does with such a file, where there is no wg-quick: interface, keys, address, routes."""
    end = parse(conf)
    binary = ensure_tools(["wireguard-go"], progress=print)["wireguard-go"]
    device = f"t{namespace}"
    daemon = subprocess.Popen(
        ["ip", "netns", "exec", namespace, str(binary), "--foreground", device],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it takes no lock in the child
    )
    try:
        control = SOCKETS / f"{device}.sock"
        until(control.exists)
        configure(
            control,
            private_key=hexadecimal(private),
            listen_port=str(end.port),
            public_key=hexadecimal(end.peer_key),
            endpoint=end.peer_endpoint,
            allowed_ip=[str(network) for network in end.allowed],
        )
        inside = ("ip", "-n", namespace)
        sh(*inside, "addr", "add", str(end.address), "dev", device)
        sh(*inside, "link", "set", device, "up")
        for network in end.allowed:
            if end.address.ip not in network and not network.subnet_of(end.address.network):
                sh(*inside, "route", "add", str(network), "dev", device)
        yield
    finally:
        daemon.terminate()
        daemon.wait(timeout=10)


def configure(control: Path, **settings: str | list[str]) -> None:
    """Over the socket that every userspace WireGuard has: https://www.wireguard.com/xplatform/."""
    lines = ["set=1"]
    for key, value in settings.items():
        lines += [f"{key}={one}" for one in (value if isinstance(value, list) else [value])]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(str(control))
        link.sendall(("\n".join(lines) + "\n\n").encode())
        assert link.recv(4096).decode().strip() == "errno=0"


def hexadecimal(key: str) -> str:
    """As that socket wants keys."""
    return base64.b64decode(key).hex()


def until(holds: object, *, patience: float = 120.0) -> None:
    """Wait until it does."""
    end = time.monotonic() + patience
    assert callable(holds)
    while not holds():
        assert time.monotonic() < end, "did not come about"
        time.sleep(0.02)


def reaches(namespace: str, source: str, target: str) -> bool:
    """Whether a packet goes there and back, by UDP: a minimal machine has no ping."""
    other = (
        "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3); "
        f"s.bind(('{source}', 0)); s.sendto(b'hello', ('{target}', 4242)); print(s.recvfrom(99)[0].decode())"
    )
    said = sh("ip", "netns", "exec", namespace, "python3", "-c", other, check=False)
    return said.stdout.strip() == "olleh"


@contextlib.contextmanager
def echoing(namespace: str, address: str) -> Iterator[None]:
    """Somebody who answers there."""
    program = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        f"s.bind(('{address}', 4242)); print('up', flush=True)\n"
        "while True:\n d, a = s.recvfrom(99); s.sendto(d[::-1], a)"
    )
    with subprocess.Popen(
        ["ip", "netns", "exec", namespace, "python3", "-c", program],
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it takes no lock in the child
    ) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == b"up\n"
            yield
        finally:
            server.kill()


def test_packets_go_from_site_to_site_and_from_nowhere_else(namespaces: tuple[str, str]) -> None:
    """By the files as they are rendered; an address that AllowedIPs leave out is not believed."""
    pairs = wireguard_pair(), wireguard_pair()
    both = ends(
        tunnel="10.255.255.0/30",
        port=51820,
        vpc=("10.40.0.0/16",),
        on_prem=("10.20.0.0/16",),
        keys=(pairs[0]["publicKey"], pairs[1]["publicKey"]),
        addresses=OUTSIDE,
    )
    aws, on_prem = namespaces
    with (
        wireguard(aws, render(both[0]), pairs[0]["privateKey"]),
        wireguard(on_prem, render(both[1]), pairs[1]["privateKey"]),
        echoing(on_prem, BEHIND[1]),
    ):
        assert reaches(aws, BEHIND[0], BEHIND[1]), "from a node in the VPC to a machine on-prem"
        assert reaches(aws, str(ipaddress.ip_interface("10.255.255.1/30").ip), BEHIND[1]), "from the gateway itself"
        sh("ip", "-n", aws, "addr", "add", "172.31.0.1/32", "dev", "lo")
        assert not reaches(aws, "172.31.0.1", BEHIND[1]), "from a network that is not the VPC's"
