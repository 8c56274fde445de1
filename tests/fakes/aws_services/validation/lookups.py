"""What the checks of the stand-in for AWS ask about: what there is, and what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from stacks.local.wire.aws_protocol import Refused


class Known(Protocol):
    """What there is in the call's region."""

    def has_instance_type(self, name: str) -> bool:
        """Whether EC2 has such a type."""

    def has_image(self, image: str) -> bool:
        """Whether there is such an image."""

    def has_security_group(self, group: str) -> bool:
        """Whether there is such a security group."""

    def has_subnet(self, subnet: str) -> bool:
        """Whether there is such a subnet."""

    def has_principal(self, arn: str) -> bool:
        """Whether there is such a role or user, as far as this account knows."""

    def has_placement_group(self, name: str) -> bool:
        """Whether there is such a placement group."""

    def most_adapters(self, instance_type: str) -> int:
        """Elastic Fabric Adapters that a type can have."""

    def network_cards(self, instance_type: str) -> int:
        """How many a type has."""

    def holders_of(self, thing: str) -> list[str]:
        """Ids of what must go before a VPC, a subnet or a security group may."""

    def bound_to(self, thing: str) -> list[str]:
        """Elastic addresses that something has: that of an allocation, or those in a VPC."""

    def tunnels_of(self, gateway: str) -> list[str]:
        """Ids of what must go before a customer's or a virtual private gateway may: VPN connections, attachments."""

    def rules_of(self, group: str, *, egress: bool) -> int:
        """How many rules a security group has in one direction."""

    def launch_template(self, specification: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The data of a template in the version that is named; ``None`` where there is no such template."""


def listed(data: Mapping[str, Any], *names: str) -> list[Any]:
    """A list that the query protocol may name in the singular."""
    return next((list(data[name]) for name in names if data.get(name)), [])


def invalid(message: str) -> Refused:
    """What most refusals of Auto Scaling are called."""
    return Refused("ValidationError", message)
