"""The network: a VPC with one private subnet for nodes per zone, and the way out.

    VPC /16 ── node subnets  /20 each, by the zone's letter: a, b, c ... (block 0, 1, 2 ...)
            └─ public subnets /24 each, in the last /20: NAT gateways and load balancers that face the internet

A zone's addresses depend on its letter alone, so adding a zone moves no other.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_aws as aws

from stacks.aws.security_groups import SecurityGroup
from stacks.network.addresses import node_block, public_block
from stacks.network.endpoints import Endpoints, EndpointsArgs
from stacks.network.flow_logs import FlowLogs, FlowLogsArgs
from stacks.settings.network import FlowLogSettings


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What a network is made from."""

    cidr: ipaddress.IPv4Network
    zones: tuple[str, ...]
    region: str
    nat: Literal["one", "per-zone", "none"] = "one"
    endpoints: tuple[str, ...] = ()
    """Services of AWS that have an interface endpoint, e.g. ``ecr.api``."""
    flow_logs: FlowLogSettings | None = None
    trusted: tuple[str, ...] = ()
    """Networks that may reach the nodes on every port: those of the on-prem machines."""
    has_shared_rules: bool = False
    """Others write rules of the nodes' security group too."""
    protect: bool = False
    gateways: tuple[str, ...] = ()
    """Zones that have a NAT gateway already: with one for all, it stays where it is, and keeps its address."""


class Network(pulumi.ComponentResource):
    """VPC, subnets, routes, and the security group of the nodes."""

    vpc_id: pulumi.Output[str]
    subnets: Mapping[str, pulumi.Output[str]]
    """Of the nodes, by zone."""
    public_subnets: Mapping[str, pulumi.Output[str]]
    """By zone; none without a way to the internet."""
    route_tables: Mapping[str, pulumi.Output[str]]
    """Of the nodes' subnets, by zone."""
    node_security_group_id: pulumi.Output[str]
    node_group: SecurityGroup

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:network:Network", name, None, opts)
        self._name = name
        self._args = args
        self._vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=str(args.cidr),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": name},
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        self.vpc_id = self._vpc.id
        self.public_subnets = {}
        gateways = self._ways_out()
        self.subnets, self.route_tables = {}, {}
        for zone in args.zones:
            self.subnets[zone], self.route_tables[zone] = self._node_subnet(zone, gateways.get(zone))
        self.node_group = node_security_group(
            f"{name}-nodes",
            vpc_id=self.vpc_id,
            trusted=args.trusted,
            is_shared=args.has_shared_rules,
            opts=self._child,
        )
        self.node_security_group_id = self.node_group.id
        self._endpoints()
        if args.flow_logs:
            FlowLogs(
                f"{name}-flow-logs",
                FlowLogsArgs(name=name, vpc_id=self.vpc_id, settings=args.flow_logs, protect=args.protect),
                opts=self._child,
            )
        self.register_outputs(
            {
                "vpcId": self.vpc_id,
                "subnets": self.subnets,
                "publicSubnets": self.public_subnets,
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
        table, way_out = self._public_routes()
        routed = {zone: self._public_subnet(zone, table) for zone in zones}
        if self._args.nat == "one":
            zone = next((one for one in self._args.gateways if one in zones), zones[0])
            shared = self._nat_gateway(zone, after=[routed[zone], way_out])
            return dict.fromkeys(zones, shared)
        return {zone: self._nat_gateway(zone, after=[routed[zone], way_out]) for zone in zones}

    def _public_routes(self) -> tuple[aws.ec2.RouteTable, aws.ec2.Route]:
        internet = aws.ec2.InternetGateway(
            f"{self._name}-internet", vpc_id=self.vpc_id, tags={"Name": self._name}, opts=self._child
        )
        table = aws.ec2.RouteTable(
            f"{self._name}-public", vpc_id=self.vpc_id, tags={"Name": f"{self._name}-public"}, opts=self._child
        )
        route = aws.ec2.Route(
            f"{self._name}-public-out",
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            opts=self._child,
        )
        return table, route

    def _public_subnet(self, zone: str, table: aws.ec2.RouteTable) -> pulumi.Resource:
        """Makes a zone's public subnet, also with one gateway: a public load balancer needs two zones."""
        name = f"{self._name}-public-{zone}"
        subnet = aws.ec2.Subnet(
            name,
            vpc_id=self.vpc_id,
            availability_zone=zone,
            cidr_block=str(public_block(self._args.cidr, zone)),
            tags={"Name": name, "kubernetes.io/role/elb": "1"},
            opts=self._child,
        )
        self.public_subnets = {**self.public_subnets, zone: subnet.id}
        return aws.ec2.RouteTableAssociation(name, subnet_id=subnet.id, route_table_id=table.id, opts=self._child)

    def _nat_gateway(self, zone: str, *, after: list[pulumi.Resource]) -> pulumi.Output[str]:
        """A gateway in a subnet that leads nowhere fails to start: its subnet's way out comes first."""
        name = f"{self._name}-nat-{zone}"
        address = aws.ec2.Eip(name, domain="vpc", tags={"Name": name}, opts=self._child)
        gateway = aws.ec2.NatGateway(
            name,
            subnet_id=self.public_subnets[zone],
            allocation_id=address.id,
            tags={"Name": name},
            opts=pulumi.ResourceOptions(parent=self, depends_on=after),
        )
        return gateway.id

    def _node_subnet(
        self, zone: str, gateway: pulumi.Output[str] | None
    ) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
        name = f"{self._name}-nodes-{zone}"
        subnet = aws.ec2.Subnet(
            name,
            vpc_id=self.vpc_id,
            availability_zone=zone,
            cidr_block=str(node_block(self._args.cidr, zone)),
            tags={"Name": name, "kubernetes.io/role/internal-elb": "1"},
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
        return subnet.id, table.id

    def _endpoints(self) -> None:
        args = self._args
        Endpoints(
            f"{self._name}-endpoints",
            EndpointsArgs(
                name=self._name,
                region=args.region,
                vpc_id=self.vpc_id,
                vpc_cidr=str(args.cidr),
                subnets=self.subnets,
                route_tables=self.route_tables,
                services=args.endpoints,
            ),
            opts=self._child,
        )


def node_security_group(
    name: str,
    *,
    vpc_id: pulumi.Input[str],
    trusted: tuple[str, ...],
    is_shared: bool,
    opts: pulumi.ResourceOptions,
) -> SecurityGroup:
    """Nodes reach each other and the world; only the trusted networks reach them.

    ``is_shared``: others write rules there too, which stay, or this program will, and closes it then.
    """
    group = SecurityGroup(name, "Nodes of the cluster", vpc_id=vpc_id, opts=opts)
    group.let_out(f"{name}-out", cidr_ipv4="0.0.0.0/0")
    # Fabric traffic is no IP traffic: only a rule that names the group lets it out, whatever addresses are let out to.
    group.let_out(f"{name}-fabric-out", "from node to node, by fabric adapters", referenced_security_group_id=group.id)
    group.let_in(f"{name}-each-other", "from node to node", referenced_security_group_id=group.id)
    for block in trusted:
        group.let_in(f"{name}-from-{block.replace('/', '-')}", "from a trusted network", cidr_ipv4=block)
    if not is_shared:
        group.close()
    return group
