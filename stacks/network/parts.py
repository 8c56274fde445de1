"""What the parts of a cluster tell each other, whether one stack makes them all or each has a stack of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import msgspec
import pulumi

from stacks.aws.security_groups import SecurityGroup
from stacks.network.existing_vpc import ExistingNetwork
from stacks.network.vpc import Network
from stacks.settings.outputs import ControlPlaneOutput, exported_name
from stacks.settings.stack import Kind


@dataclass(frozen=True, kw_only=True)
class NetworkPart:
    """What other parts of the stack stand in."""

    vpc_id: pulumi.Output[str]
    subnets: Mapping[str, pulumi.Output[str]]
    """Of the nodes, by zone."""
    node_security_group_id: pulumi.Output[str]
    node_group: SecurityGroup | None = None
    """The nodes' security group, where this program makes it, and may still give it rules."""
    public_subnets: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)
    """By zone; none where no way leads to the internet, or the VPC was there before."""
    route_tables: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)
    """Of the nodes' subnets, by zone."""

    @classmethod
    def made(cls, network: Network | ExistingNetwork) -> Self:
        """Returns the parts that this program made, or was given."""
        return cls(
            vpc_id=network.vpc_id,
            subnets=network.subnets,
            node_security_group_id=network.node_security_group_id,
            node_group=network.node_group,
            public_subnets=network.public_subnets,
            route_tables=network.route_tables,
        )

    @classmethod
    def referred(cls, stack: str, *, zones: Iterable[str]) -> Self:
        """Returns what another program's stack exports."""
        other = pulumi.StackReference(stack)
        subnets, tables = _required(other, "subnets"), _required(other, "route_tables")
        public = _required(other, "public_subnets")
        return cls(
            vpc_id=_required(other, "vpc_id"),
            subnets={zone: subnets.apply(partial(_subnet, zone=zone, stack=stack)) for zone in zones},
            public_subnets={zone: public.apply(partial(_subnet_or_none, zone=zone)) for zone in zones},
            route_tables={zone: tables.apply(partial(_subnet, zone=zone, stack=stack)) for zone in zones},
            node_security_group_id=_required(other, "node_security_group_id"),
        )

    def fields(self) -> dict[str, pulumi.Input[Any]]:
        """Those of the outputs' record."""
        return {
            "vpc_id": self.vpc_id,
            "subnets": dict(self.subnets),
            "public_subnets": dict(self.public_subnets),
            "route_tables": dict(self.route_tables),
            "node_security_group_id": self.node_security_group_id,
        }


@dataclass(frozen=True, kw_only=True)
class ControlPlanePart:
    """The cluster's API server, for those who come in or work with it."""

    kind: Kind
    about: pulumi.Output[ControlPlaneOutput]
    kubeconfig: pulumi.Output[str]
    """Secret."""
    hybrid_activation_code: pulumi.Output[str] | None = None
    """Secret; where EKS hybrid nodes were asked for."""

    @classmethod
    def referred(cls, stack: str, *, kind: Kind) -> Self:
        """Returns what another program's stack exports."""
        other = pulumi.StackReference(stack)
        about = _required(other, "control_plane").apply(lambda plain: msgspec.convert(plain, ControlPlaneOutput))
        code = other.get_output(exported_name("hybrid_activation_code")) if kind == "eks" else None
        return cls(
            kind=kind,
            about=about,
            kubeconfig=pulumi.Output.secret(_required(other, "kubeconfig")),
            hybrid_activation_code=pulumi.Output.secret(code) if code is not None else None,
        )

    def fields(self) -> dict[str, pulumi.Input[Any]]:
        """Those of the outputs' record."""
        secret = {"hybrid_activation_code": self.hybrid_activation_code} if self.hybrid_activation_code else {}
        return {"control_plane": self.about.apply(msgspec.to_builtins), "kubeconfig": self.kubeconfig, **secret}


def _required(stack: pulumi.StackReference, field: str) -> pulumi.Output[Any]:
    return stack.require_output(exported_name(field))


def _subnet(by_zone: Mapping[str, str], *, zone: str, stack: str) -> str:
    if zone not in by_zone:
        raise pulumi.RunError(
            f"bad input: the network of the stack {stack} has no subnet in {zone}, which the policy names: "
            f"it has {', '.join(sorted(by_zone))}"
        )
    return by_zone[zone]


def _subnet_or_none(by_zone: Mapping[str, str], *, zone: str) -> str:
    """Public ones are only where a way leads to the internet."""
    return by_zone.get(zone, "")
