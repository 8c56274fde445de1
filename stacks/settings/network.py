"""The network in a stack's configuration: ``spillway:network``.

What is wrong in itself is refused here; what is wrong with the rest of the stack (zones, other networks), by
``stacks/network/addresses.py``; what is wrong with a VPC that is there already, by ``stacks/network/existing_vpc.py``.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from autoscaler.config.documents import Document
from stacks.settings.control_plane import Apart, LogDays, Once, PrivateNetwork

_WIDEST, _NARROWEST = 16, 20
FEWEST_ZONES: Final = 2
MOST_ZONES: Final = 4
"""AWS asks for subnets in two zones for a control plane and a load balancer; NAT and endpoints are paid per zone."""
INTERFACE_ENDPOINTS: Final = ("autoscaling", "ec2", "ecr.api", "ecr.dkr", "logs", "ssm", "ssmmessages", "sts")
"""What nodes, Session Manager, the autoscaler and who sends logs talk to: made where nothing leads out, unless the
stack file names others."""


Service = Annotated[str, Field(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)*$")]
Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z0-9-]*[a-h]$")]


def _check_count(zones: tuple[str, ...]) -> None:
    if not FEWEST_ZONES <= len(set(zones)) <= MOST_ZONES or len(set(zones)) < len(zones):
        raise ValueError(
            f"names {', '.join(zones) or 'no zone'}: a VPC is laid over {FEWEST_ZONES} to {MOST_ZONES} different "
            "zones, e.g. us-east-1a and us-east-1b"
        )


class FlowLogSettings(Document):
    """A record of which addresses talked to which in the VPC."""

    to: Literal["cloudwatch", "s3"] = Field(default="cloudwatch", description="where they are kept; s3 is cheaper")
    traffic: Literal["ALL", "ACCEPT", "REJECT"] = Field(default="ALL", description="which connections are recorded")
    keep_days: LogDays = Field(default=30, description="days until a record is removed, e.g. 30")


class ExistingVpcSettings(Document):
    """A VPC that is there already, and the subnets in it that nodes may use."""

    id: str = Field(pattern=r"^vpc-[0-9a-f]{8,17}$", description="e.g. vpc-0123456789abcdef0")
    subnets: dict[Zone, Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]] = Field(
        description="private subnet of the nodes in each zone, e.g. {us-east-1a: subnet-..., us-east-1b: subnet-...}",
    )

    @field_validator("subnets")
    @classmethod
    def _in_two_to_four_zones(cls, subnets: dict[str, str]) -> dict[str, str]:
        _check_count(tuple(subnets))
        return subnets


class NetworkSettings(Document):
    """The VPC: one that is made, or one that is there."""

    vpc: ExistingVpcSettings | None = Field(default=None, description="a VPC that is there; absent: one is made")
    cidr: PrivateNetwork = Field(default="10.40.0.0/16", description="addresses of the VPC, /16 to /20")
    zones: tuple[Zone, ...] | None = Field(
        default=None,
        description="zones with a subnet, 2 to 4; absent: those that the policy names",
    )
    nat: Literal["one", "per-zone", "none"] = Field(
        default="one", description="how private nodes reach the internet: one gateway, one per zone, or not at all"
    )
    endpoints: Annotated[tuple[Service, ...], Once] | None = Field(
        default=None,
        description="services of AWS that have an interface endpoint in the VPC, e.g. [ecr.api, ecr.dkr]; "
        "absent: with nat none all that nodes need, else none",
    )
    flow_logs: FlowLogSettings | None = Field(default=None, description="record connections; absent: none is kept")
    on_prem: Annotated[tuple[PrivateNetwork, ...], Apart] = Field(
        default=(), description="networks of the on-prem machines, e.g. [10.20.0.0/16]: no other may overlap them"
    )
    trusted: Annotated[tuple[PrivateNetwork, ...], Apart] = Field(
        default=(), description="private networks, on-prem ones as a rule, that may reach the nodes on every port"
    )
    rules: Literal["own", "shared"] | None = Field(
        default=None,
        description="whether the nodes' security group has no rules but this stack's own, or is shared with "
        "controllers that write there; absent: own, but with eks and in a stack of the network alone shared",
    )
    protect: bool = Field(default=False, description="whether the engine refuses to delete the VPC")

    @field_validator("cidr")
    @classmethod
    def _cidr_holds_the_subnets(cls, text: str) -> str:
        if not _WIDEST <= ipaddress.IPv4Network(text).prefixlen <= _NARROWEST:
            raise ValueError(f"must be between /{_WIDEST} and /{_NARROWEST}, e.g. 10.40.0.0/16")
        return text

    @field_validator("zones")
    @classmethod
    def _two_to_four_zones(cls, zones: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if zones is not None:
            _check_count(zones)
        return zones

    @model_validator(mode="after")
    def _one_vpc(self) -> Self:
        said = [key for key in ("cidr", "zones", "endpoints", "flow_logs", "protect") if key in self.model_fields_set]
        if self.vpc and said:
            raise ValueError(f"has vpc, one that is there, and {', '.join(said)} of one to be made: take either out")
        return self

    def interface_endpoints(self, *, eks: bool) -> tuple[str, ...]:
        """The services that get an interface endpoint."""
        if self.endpoints is not None:
            return tuple(sorted(set(self.endpoints)))
        if self.nat != "none":
            return ()
        return tuple(sorted((*INTERFACE_ENDPOINTS, *(("eks",) if eks else ()))))
