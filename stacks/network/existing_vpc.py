"""A VPC that is there already: looked at before anything is made, and the little that is added to it.

Somebody else made it, so what the stack file promises of it is checked: that its subnets are in it, in the zones named,
with room for the nodes, and lead to the internet by a private way, or to the services of AWS without it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pulumi
import pulumi_aws as aws

from autoscaler.model.errors import BadInput
from stacks.aws.security_groups import SecurityGroup
from stacks.network.addresses import Range
from stacks.network.endpoints import service_name
from stacks.network.vpc import node_security_group
from stacks.settings.network import ExistingVpcSettings

_NOT_FOUND: Final = ("no matching", "NotFound", "no results")
_ANYWHERE: Final = "0.0.0.0/0"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSubnet:
    """A subnet, as AWS tells of it."""

    id: str
    vpc_id: str
    zone: str
    free: int
    """Addresses that are free."""
    route_table: str
    leads_to: str
    """Target of its default route, e.g. ``nat-...``; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVpc:
    """A VPC, as AWS tells of it."""

    id: str
    networks: tuple[str, ...]
    dns: bool
    """Both that names are resolved in it, and that hosts have names."""
    subnets: Mapping[str, FoundSubnet]
    """By the zone under which the stack file has it."""
    endpoints: frozenset[str]
    """Services that have one, of those that were asked for."""


class ExistingNetwork(pulumi.ComponentResource):
    """A VPC that is there: the security group of the nodes is all that is made."""

    vpc_id: pulumi.Output[str]
    subnets: Mapping[str, pulumi.Output[str]]
    public_subnets: Mapping[str, pulumi.Output[str]]
    route_tables: Mapping[str, pulumi.Output[str]]
    node_security_group_id: pulumi.Output[str]
    node_group: SecurityGroup

    def __init__(
        self,
        name: str,
        found: FoundVpc,
        *,
        trusted: tuple[str, ...],
        has_shared_rules: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("spillway:network:ExistingNetwork", name, None, opts)
        known = pulumi.Output.from_input
        self.vpc_id = known(found.id)
        self.subnets = {zone: known(subnet.id) for zone, subnet in found.subnets.items()}
        self.public_subnets = {}
        self.route_tables = {zone: known(subnet.route_table) for zone, subnet in found.subnets.items()}
        self.node_group = node_security_group(
            f"{name}-nodes",
            vpc_id=found.id,
            trusted=trusted,
            is_shared=has_shared_rules,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.node_security_group_id = self.node_group.id
        self.register_outputs(
            {"vpcId": self.vpc_id, "subnets": self.subnets, "nodeSecurityGroupId": self.node_security_group_id}
        )


def look_up_vpc(
    wanted: ExistingVpcSettings, *, services: tuple[str, ...], region: str, provider: aws.Provider
) -> FoundVpc:
    """Ask AWS for the VPC and what of it is to be used. Raises ``BadInput`` for what is not there."""
    opts = pulumi.InvokeOptions(provider=provider)
    key = "spillway:network.vpc"
    vpc = _asked(lambda: aws.ec2.get_vpc(id=wanted.id, opts=opts), f"{key}.id = {wanted.id!r}", region)
    return FoundVpc(
        id=wanted.id,
        networks=tuple(one.cidr_block for one in vpc.cidr_block_associations) or (vpc.cidr_block,),
        dns=bool(vpc.enable_dns_support and vpc.enable_dns_hostnames),
        subnets={
            zone: _look_up_subnet(subnet, key=f"{key}.subnets.{zone} = {subnet!r}", region=region, opts=opts)
            for zone, subnet in wanted.subnets.items()
        },
        endpoints=frozenset(one for one in services if _has_endpoint(wanted.id, one, region=region, opts=opts)),
    )


def check_vpc(found: FoundVpc, *, nat: str, services: Mapping[str, str]) -> None:
    """Whether it is what the stack file promises. Raises ``BadInput`` with every mistake.

    ``services`` must have an endpoint, each with what cannot do without.
    """
    wrong = [f"spillway:network.{mistake}" for mistake in _mistakes(found, nat=nat, services=services)]
    if wrong:
        raise BadInput("\n".join(wrong))


def networks_of(found: FoundVpc) -> tuple[Range, ...]:
    """Its addresses, for the comparison with all others."""
    return tuple(
        Range(key=f"the VPC spillway:network.vpc.id = {found.id}", network=ipaddress.IPv4Network(one), place="vpc")
        for one in found.networks
    )


def _look_up_subnet(subnet: str, *, key: str, region: str, opts: pulumi.InvokeOptions) -> FoundSubnet:
    found = _asked(lambda: aws.ec2.get_subnet(id=subnet, opts=opts), key, region)
    a_filter = aws.ec2.GetRouteTablesFilterArgs
    by_subnet = [a_filter(name="association.subnet-id", values=[subnet])]
    # A subnet without a table of its own goes by the VPC's main one.
    main = [a_filter(name="association.main", values=["true"]), a_filter(name="vpc-id", values=[found.vpc_id])]
    tables = (
        aws.ec2.get_route_tables(filters=by_subnet, opts=opts).ids
        or aws.ec2.get_route_tables(filters=main, opts=opts).ids
    )
    table = aws.ec2.get_route_table(route_table_id=tables[0], opts=opts)
    default = next((route for route in table.routes if route.cidr_block == _ANYWHERE), None)
    return FoundSubnet(
        id=subnet,
        vpc_id=found.vpc_id,
        zone=found.availability_zone,
        free=found.available_ip_address_count,
        route_table=tables[0],
        leads_to=_target(default),
    )


def _target(route: Any) -> str:
    names = ("nat_gateway_id", "transit_gateway_id", "gateway_id", "network_interface_id", "vpc_peering_connection_id")
    return next((target for name in names if (target := getattr(route, name, ""))), "")


def _has_endpoint(vpc_id: str, service: str, *, region: str, opts: pulumi.InvokeOptions) -> bool:
    try:
        aws.ec2.get_vpc_endpoint(vpc_id=vpc_id, service_name=service_name(service, region), opts=opts)
    except Exception as error:  # the SDK has no type of its own for a look-up that failed
        if _is_absent(error):
            return False
        raise
    return True


def _asked(look_up: Callable[[], T], key: str, region: str) -> T:
    try:
        return look_up()
    except Exception as error:  # as above
        if not _is_absent(error):
            raise
        raise BadInput(f"{key} is not there in {region}: look in this account and region, or mend the id") from None


def _is_absent(error: Exception) -> bool:
    return any(said in str(error) for said in _NOT_FOUND)


def _mistakes(found: FoundVpc, *, nat: str, services: Mapping[str, str]) -> Iterator[str]:
    if not found.dns:
        yield (
            f"vpc.id = {found.id!r}: DNS support or DNS host names are off, by which nodes get their names and find "
            "endpoints: turn both on (aws ec2 modify-vpc-attribute)"
        )
    for zone, subnet in found.subnets.items():
        key = f"vpc.subnets.{zone} = {subnet.id!r}"
        if subnet.vpc_id != found.id:
            yield f"{key} is in {subnet.vpc_id}: name a subnet of {found.id}"
        elif subnet.zone != zone:
            yield f"{key} is in {subnet.zone}: name it under that zone"
        elif subnet.leads_to.startswith("igw-"):
            yield f"{key} is public, its default route leads to {subnet.leads_to}: nodes belong in a private one"
        elif nat != "none" and not subnet.leads_to:
            yield (
                f"{key} has no default route: give it one to a NAT or transit gateway, or say nat: none and have "
                "VPC endpoints"
            )
    missing = [f"{service} (for {who})" for service, who in services.items() if service not in found.endpoints]
    if nat == "none" and missing:
        yield (
            f"nat = 'none', but {found.id} has no endpoint for {', '.join(missing)}: make them, or give the subnets "
            "a route to the internet and take nat: none out"
        )
