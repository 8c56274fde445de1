"""The network: a VPC with one private subnet for nodes per zone, and the way out.

    VPC /16 ── node subnets  /20 each, by the zone's letter: a, b, c ... (block 0, 1, 2 ...)
            └─ public subnets /24 each, in the last /20: only the NAT gateways stand there

A zone's addresses depend on its letter alone, so adding a zone moves no other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_aws as aws

from autoscaler.failures import BadInput

_BLOCKS = 16
_ZONES_AT_MOST = 8


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What a network is made from."""

    cidr: ipaddress.IPv4Network
    zones: tuple[str, ...]
    nat: Literal["one", "per-zone", "none"] = "one"
    trusted: tuple[str, ...] = ()
    """Networks that may reach the nodes on every port: those of the on-prem machines."""


class Network(pulumi.ComponentResource):
    """VPC, subnets, routes, and the security group of the nodes."""

    vpc_id: pulumi.Output[str]
    subnets: Mapping[str, pulumi.Output[str]]
    """Of the nodes, by zone."""
    node_security_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:network:Network", name, None, opts)
        self._name = name
        self._args = args
        vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=str(args.cidr),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": name},
            opts=self._child,
        )
        self.vpc_id = vpc.id
        gateways = self._ways_out()
        self.subnets = {zone: self._node_subnet(zone, gateways.get(zone)) for zone in args.zones}
        self.node_security_group_id = self._node_security_group()
        self.register_outputs(
            {
                "vpcId": self.vpc_id,
                "subnets": self.subnets,
                "nodeSecurityGroupId": self.node_security_group_id,
            }
        )

    @property
    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self)

    def _ways_out(self) -> dict[str, pulumi.Output[str]]:
        """The NAT gateway that each zone's nodes use; none without NAT."""
        zones = self._args.zones
        if self._args.nat == "none":
            return {}
        public = self._public_routes()
        if self._args.nat == "one":
            shared = self._nat_gateway(zones[0], public)
            return dict.fromkeys(zones, shared)
        return {zone: self._nat_gateway(zone, public) for zone in zones}

    def _public_routes(self) -> aws.ec2.RouteTable:
        internet = aws.ec2.InternetGateway(
            f"{self._name}-internet", vpc_id=self.vpc_id, tags={"Name": self._name}, opts=self._child
        )
        table = aws.ec2.RouteTable(
            f"{self._name}-public", vpc_id=self.vpc_id, tags={"Name": f"{self._name}-public"}, opts=self._child
        )
        aws.ec2.Route(
            f"{self._name}-public-out",
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            opts=self._child,
        )
        return table

    def _nat_gateway(self, zone: str, public: aws.ec2.RouteTable) -> pulumi.Output[str]:
        name = f"{self._name}-nat-{zone}"
        subnet = aws.ec2.Subnet(
            f"{self._name}-public-{zone}",
            vpc_id=self.vpc_id,
            availability_zone=zone,
            cidr_block=str(public_block(self._args.cidr, zone)),
            tags={"Name": f"{self._name}-public-{zone}"},
            opts=self._child,
        )
        routed = aws.ec2.RouteTableAssociation(
            f"{self._name}-public-{zone}", subnet_id=subnet.id, route_table_id=public.id, opts=self._child
        )
        address = aws.ec2.Eip(name, domain="vpc", tags={"Name": name}, opts=self._child)
        gateway = aws.ec2.NatGateway(
            name,
            subnet_id=subnet.id,
            allocation_id=address.id,
            tags={"Name": name},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[routed]),
        )
        return gateway.id

    def _node_subnet(self, zone: str, gateway: pulumi.Output[str] | None) -> pulumi.Output[str]:
        name = f"{self._name}-nodes-{zone}"
        subnet = aws.ec2.Subnet(
            name,
            vpc_id=self.vpc_id,
            availability_zone=zone,
            cidr_block=str(node_block(self._args.cidr, zone)),
            tags={"Name": name},
            opts=self._child,
        )
        table = aws.ec2.RouteTable(name, vpc_id=self.vpc_id, tags={"Name": name}, opts=self._child)
        aws.ec2.RouteTableAssociation(name, subnet_id=subnet.id, route_table_id=table.id, opts=self._child)
        if gateway is not None:
            aws.ec2.Route(
                f"{name}-out",
                route_table_id=table.id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=gateway,
                opts=self._child,
            )
        return subnet.id

    def _node_security_group(self) -> pulumi.Output[str]:
        """Nodes reach each other and the world; only the trusted networks reach them."""
        name = f"{self._name}-nodes"
        group = aws.ec2.SecurityGroup(
            name,
            description="Nodes of the cluster",
            vpc_id=self.vpc_id,
            revoke_rules_on_delete=True,
            tags={"Name": name},
            opts=self._child,
        )
        aws.vpc.SecurityGroupEgressRule(
            f"{name}-out", security_group_id=group.id, ip_protocol="-1", cidr_ipv4="0.0.0.0/0", opts=self._child
        )
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-each-other",
            security_group_id=group.id,
            ip_protocol="-1",
            referenced_security_group_id=group.id,
            description="from node to node",
            opts=self._child,
        )
        for block in self._args.trusted:
            aws.vpc.SecurityGroupIngressRule(
                f"{name}-from-{block.replace('/', '-')}",
                security_group_id=group.id,
                ip_protocol="-1",
                cidr_ipv4=block,
                description="from a trusted network",
                opts=self._child,
            )
        return group.id


def node_block(vpc: ipaddress.IPv4Network, zone: str) -> ipaddress.IPv4Network:
    """Addresses of a zone's nodes."""
    return _block(vpc, _place(zone))


def public_block(vpc: ipaddress.IPv4Network, zone: str) -> ipaddress.IPv4Network:
    """Addresses of a zone's public subnet."""
    return _block(_block(vpc, _BLOCKS - 1), _place(zone))


def check_zones(zones: tuple[str, ...]) -> None:
    """Whether a network can be laid over these zones. Raises ``BadInput``."""
    places: dict[int, str] = {}
    for zone in zones:
        place = _place(zone)
        if place in places:
            raise BadInput(
                f"zones {places[place]} and {zone} end in the same letter, by which a zone gets its addresses: "
                "take one of them out of the policy"
            )
        places[place] = zone


def _block(network: ipaddress.IPv4Network, place: int) -> ipaddress.IPv4Network:
    return list(network.subnets(prefixlen_diff=4))[place]


def _place(zone: str) -> int:
    place = ord(zone[-1]) - ord("a")
    if not 0 <= place < _ZONES_AT_MOST:
        raise BadInput(f"zone {zone!r}: the name of a zone ends in a letter from a to h, e.g. us-east-1a")
    return place
