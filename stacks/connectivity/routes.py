"""Routes from the nodes in the VPC to the networks on the other side, whatever leads there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from stacks.network.parts import NetworkPart
from stacks.settings.on_prem import ConnectivitySettings, RoutedSettings

Fields = dict[str, pulumi.Input[Any]]


@dataclass(frozen=True, kw_only=True)
class ConnectivityArgs:
    """What stands on both sides."""

    cluster: str
    region: str
    settings: ConnectivitySettings
    network: NetworkPart
    vpc: tuple[str, ...]
    """Networks of the VPC."""
    on_prem: tuple[str, ...]
    """Networks of the machines, and of the pods on them where those are routed."""
    image_id: pulumi.Input[str] = ""
    """Of the WireGuard gateway: an Ubuntu, whose packages it takes."""


class Routed(pulumi.ComponentResource):
    """Routes to a gateway that is there."""

    def __init__(
        self, name: str, args: ConnectivityArgs, settings: RoutedSettings, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("spillway:connectivity:Routed", name, None, opts)
        if settings.via:
            kind, after = settings.via.partition("-")[0], []
            if kind == "tgw":
                after = [attached(name, args, settings.via, parent=self)]
            target = {"tgw": "transit_gateway_id", "vgw": "gateway_id", "pcx": "vpc_peering_connection_id"}[kind]
            routes(name, args, {target: settings.via}, parent=self, after=after)
        self.register_outputs({})


def attached(name: str, args: ConnectivityArgs, gateway: str, *, parent: pulumi.Resource) -> pulumi.Resource:
    """The VPC to a transit gateway, in every zone."""
    subnets = list(args.network.subnets.values())
    return aws.ec2transitgateway.VpcAttachment(
        name,
        transit_gateway_id=gateway,
        vpc_id=args.network.vpc_id,
        subnet_ids=subnets,
        tags={"Name": name},
        opts=pulumi.ResourceOptions(parent=parent),
    )


def routes(
    name: str,
    args: ConnectivityArgs,
    target: Mapping[str, Any],
    *,
    parent: pulumi.Resource,
    after: list[pulumi.Resource] | None = None,
) -> None:
    """Makes a route from each zone's nodes to each network on the other side."""
    for zone, table in args.network.route_tables.items():
        for block in args.on_prem:
            aws.ec2.Route(
                f"{name}-{zone}-{dashed(block)}",
                route_table_id=table,
                destination_cidr_block=block,
                **target,
                opts=pulumi.ResourceOptions(parent=parent, depends_on=after),
            )


def dashed(block: str) -> str:
    """A network in the name of a resource."""
    return block.replace("/", "-")
