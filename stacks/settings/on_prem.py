"""The on-prem side in a stack's configuration: ``spillway:machines`` and ``spillway:connectivity``.

What is wrong in itself is refused here; what is wrong with the rest of the stack, by
``stacks/connectivity/component.py``.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from datetime import timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from autoscaler.config.documents import Document, parse_span
from autoscaler.model.resources import parse_quantity
from stacks.settings.control_plane import Once

_SMALLEST_TUNNEL: Final = 30
_WIREGUARD_KEY: Final = 32
_SHORTEST: Final = timedelta(seconds=1)
_RESERVED_INSIDE: Final = frozenset(f"169.254.{third}.0/30" for third in (0, 1, 2, 3, 4, 5)) | {"169.254.169.252/30"}
"""https://docs.aws.amazon.com/vpn/latest/s2svpn/VPNTunnels.html"""


def _a_patience(text: str) -> str:
    if parse_span(text) < _SHORTEST:
        raise ValueError("must be 1s or more: with none no pod is asked to leave, and a machine with any never goes")
    return text


def _a_quantity(text: str) -> str:
    if parse_quantity(text) < 0:
        raise ValueError("must not be negative, e.g. 20Gi")
    return text


def _a_public_address(text: str) -> str:
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise ValueError("must be an IPv4 address such as 198.51.100.7") from None
    if not (address.is_global or _is_documentation(address)) or address.is_multicast:
        raise ValueError("must be an address of the internet, as the VPC sees your site: this one is private")
    return text


def _is_documentation(address: ipaddress.IPv4Address) -> bool:
    """Those of RFC 5737, which stand in examples and tests."""
    return any(
        address in ipaddress.IPv4Network(block) for block in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
    )


def _a_wireguard_key(text: str) -> str:
    try:
        good = len(base64.b64decode(text, validate=True)) == _WIREGUARD_KEY
    except ValueError:
        good = False
    if not good:
        raise ValueError("must be the public key of your side, as `wg pubkey` prints it: 44 characters of base64")
    return text


def _an_inside_network(text: str) -> str:
    if not re.fullmatch(r"169\.254\.\d+\.\d+/30", text) or text in _RESERVED_INSIDE:
        raise ValueError("must be a /30 of 169.254.0.0/16 that AWS has not reserved, e.g. 169.254.77.0/30")
    return str(ipaddress.IPv4Network(text))


PublicAddress = Annotated[str, AfterValidator(_a_public_address)]
Asn = Annotated[int, Field(ge=1, le=4294967294)]


class MachineSettings(Document):
    """How the machines of the inventory are handled."""

    probe: Literal["ssh", "none"] | None = Field(
        default=None, description="for all machines, whatever their entries say; none: they are stand-ins"
    )
    drain_timeout: Annotated[str, AfterValidator(_a_patience)] = Field(
        default="10m", description="how long pods may take to leave a machine that is taken out, e.g. 10m"
    )
    min_disk_free: Annotated[str, AfterValidator(_a_quantity)] = Field(
        default="20Gi", description="disk that must be free for images and logs, e.g. 20Gi"
    )
    force_removal: Annotated[tuple[str, ...], Once] = Field(
        default=(), description="names of machines that are down for good: no drain waits for their pods"
    )
    renew_join: str = Field(default="", description="any new text: every machine gets new join credentials")


class RoutedSettings(Document):
    """The networks reach each other already, or by a gateway that is there."""

    kind: Literal["routed"]
    via: str | None = Field(
        default=None,
        pattern=r"^(tgw|vgw|pcx)-[0-9a-f]{8,17}$",
        description="transit or virtual private gateway, or peering, that leads on-prem; absent: made elsewhere",
    )


class WireguardSettings(Document):
    """A tunnel between an instance in the VPC and a machine of yours."""

    kind: Literal["wireguard"]
    address: PublicAddress = Field(description="your side's address on the internet, e.g. 198.51.100.7")
    port: int = Field(default=51820, ge=1024, le=65535, description="UDP port of both ends, e.g. 51820")
    public_key: Annotated[str, AfterValidator(_a_wireguard_key)] | None = Field(
        default=None, description="your side's public key; absent: a pair is made, the private half a secret output"
    )
    tunnel: str = Field(default="10.255.255.0/30", description="addresses inside the tunnel, a /30")
    instance_type: str = Field(default="t3.small", pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")
    ami: str | None = Field(
        default=None,
        pattern=r"^(ami-[0-9a-f]{8,17}|ssm:/\S+)$",
        description="image of the gateway, an Ubuntu: ami-..., or ssm:/path; absent: the newest 24.04",
    )
    rotate: str = Field(default="", description="any new text: new keys on the AWS side, and on yours where made here")

    @model_validator(mode="after")
    def _tunnel_is_small_and_private(self) -> Self:
        try:
            network = ipaddress.IPv4Network(self.tunnel)
        except ValueError as error:
            raise ValueError(f"tunnel must be a network such as 10.255.255.0/30: {error}") from None
        if network.prefixlen != _SMALLEST_TUNNEL or not network.is_private:
            raise ValueError(f"tunnel is {self.tunnel}: must be a private /30 such as 10.255.255.0/30")
        return self


class TunnelSettings(Document):
    """One of the two tunnels of a VPN connection."""

    inside: Annotated[str, AfterValidator(_an_inside_network)] | None = Field(
        default=None, description="addresses inside it, a /30 of 169.254.0.0/16; absent: AWS takes one"
    )


class VpnSettings(Document):
    """An IPsec connection of two tunnels to a router of yours."""

    kind: Literal["vpn"]
    address: PublicAddress = Field(description="your router's address on the internet, e.g. 198.51.100.7")
    asn: Asn = Field(default=65000, description="your router's autonomous system, e.g. 65000")
    routing: Literal["static", "bgp"] = "static"
    amazon_asn: Asn = Field(
        default=64512,
        description="the autonomous system of the AWS side, a private one: 64512 to 65534, or from 4200000000",
    )
    transit_gateway: str | None = Field(
        default=None,
        pattern=r"^tgw-[0-9a-f]{8,17}$",
        description="a transit gateway that is there; else a gateway is made",
    )
    tunnels: tuple[TunnelSettings, TunnelSettings] = (TunnelSettings(), TunnelSettings())
    rotate: str = Field(default="", description="any new text: new pre-shared keys")

    @model_validator(mode="after")
    def _two_different_tunnels(self) -> Self:
        inside = [tunnel.inside for tunnel in self.tunnels if tunnel.inside]
        if len(set(inside)) < len(inside):
            raise ValueError(f"tunnels have the same inside network {inside[0]}: each needs its own")
        if self.transit_gateway and self.routing == "static":
            raise ValueError("routing must be bgp with a transit_gateway, whose table learns your networks by it")
        if not (64512 <= self.amazon_asn <= 65534 or self.amazon_asn >= 4200000000):  # noqa: PLR2004 - RFC 6996
            raise ValueError(
                f"amazon_asn is {self.amazon_asn}: AWS takes a private one, 64512 to 65534 or "
                "from 4200000000, e.g. 64512"
            )
        if self.asn == self.amazon_asn:
            raise ValueError(f"asn and amazon_asn are both {self.asn}: the two sides are two autonomous systems")
        return self


ConnectivitySettings = Annotated[RoutedSettings | WireguardSettings | VpnSettings, Field(discriminator="kind")]
