"""What programs look up of a VPC that is there, as the stand-in for the aws plugin answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Properties, camel, complaint, first, mapped


def look_up_vpc(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_vpc``, by its id."""
    vpc = first(cloud.ec2.describe_vpcs, "Vpcs", VpcIds=[asked["id"]])
    if vpc is None:
        raise _absent("EC2 VPC", "DescribeVpcs")
    return {
        "id": vpc["VpcId"],
        "cidrBlock": vpc["CidrBlock"],
        "cidrBlockAssociations": [
            {"associationId": one["AssociationId"], "cidrBlock": one["CidrBlock"], "state": "associated"}
            for one in vpc.get("CidrBlockAssociationSet", [])
        ],
        "enableDnsSupport": _switch(cloud, vpc["VpcId"], "enableDnsSupport"),
        "enableDnsHostnames": _switch(cloud, vpc["VpcId"], "enableDnsHostnames"),
        "tags": mapped(vpc.get("Tags") or []),
    }


def look_up_subnet(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_subnet``, by its id."""
    subnet = first(cloud.ec2.describe_subnets, "Subnets", SubnetIds=[asked["id"]])
    if subnet is None:
        raise _absent("EC2 Subnet", "DescribeSubnets")
    return {
        "id": subnet["SubnetId"],
        "vpcId": subnet["VpcId"],
        "availabilityZone": subnet["AvailabilityZone"],
        "cidrBlock": subnet["CidrBlock"],
        "availableIpAddressCount": subnet["AvailableIpAddressCount"],
        "mapPublicIpOnLaunch": subnet["MapPublicIpOnLaunch"],
        "tags": mapped(subnet.get("Tags") or []),
    }


def look_up_route_tables(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_route_tables``: the ids of those that the filters leave, which may be none."""
    tables = cloud.ec2.describe_route_tables(Filters=_filters(asked))["RouteTables"]
    return {"id": cloud.region, "ids": [table["RouteTableId"] for table in tables]}


def look_up_route_table(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_route_table``, by its id."""
    table = first(cloud.ec2.describe_route_tables, "RouteTables", RouteTableIds=[asked["routeTableId"]])
    if table is None:
        raise _absent("EC2 Route Table", "DescribeRouteTables")
    return {
        "id": table["RouteTableId"],
        "routeTableId": table["RouteTableId"],
        "vpcId": table["VpcId"],
        "routes": [{**_NO_TARGET, **_as_plugin(route)} for route in table["Routes"]],
        "associations": [],
        "tags": mapped(table.get("Tags") or []),
    }


def look_up_endpoint(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_vpc_endpoint``, by VPC and service."""
    by = [
        {"Name": "vpc-id", "Values": [asked["vpcId"]]},
        {"Name": "service-name", "Values": [asked["serviceName"]]},
    ]
    found = [
        one
        for one in cloud.ec2.describe_vpc_endpoints(Filters=by)["VpcEndpoints"]
        if one["State"] not in ("deleted", "deleting")
    ]
    if not found:
        raise _absent("EC2 VPC Endpoint", "DescribeVpcEndpoints")
    return {
        "id": found[0]["VpcEndpointId"],
        "vpcId": found[0]["VpcId"],
        "serviceName": found[0]["ServiceName"],
        "vpcEndpointType": found[0]["VpcEndpointType"],
        "state": found[0]["State"],
    }


def look_up_endpoint_service(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_vpc_endpoint_service``, by its name and the type of endpoint."""
    found = cloud.ec2.describe_vpc_endpoint_services(ServiceNames=[asked["serviceName"]])["ServiceDetails"]
    of_type = [one for one in found if {"ServiceType": asked["serviceType"]} in one["ServiceType"]]
    if not of_type:
        raise _absent("VPC Endpoint Service", "DescribeVpcEndpointServices")
    [service] = of_type
    return {
        "id": service["ServiceId"],
        "serviceName": service["ServiceName"],
        "serviceType": asked["serviceType"],
        "availabilityZones": service["AvailabilityZones"],
        "privateDnsName": service.get("PrivateDnsName", ""),
    }


def look_up_transit_gateway(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2transitgateway.get_transit_gateway``, by its id."""
    call = cloud.ec2.describe_transit_gateways
    return _by_id(call, "TransitGateways", "TransitGatewayIds", asked["id"], what="EC2 Transit Gateway")


def look_up_vpn_gateway(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_vpn_gateway``, by its id."""
    return _by_id(cloud.ec2.describe_vpn_gateways, "VpnGateways", "VpnGatewayIds", asked["id"], what="EC2 VPN Gateway")


def look_up_peering(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.ec2.get_vpc_peering_connection``, by its id."""
    call, field = cloud.ec2.describe_vpc_peering_connections, "VpcPeeringConnections"
    return _by_id(call, field, "VpcPeeringConnectionIds", asked["id"], what="EC2 VPC Peering Connection")


def _by_id(call: Callable[..., Any], field: str, ids: str, key: str, *, what: str) -> Properties:
    if first(call, field, **{ids: [key]}) is None:
        raise _absent(what, f"Describe{field}")
    return {"id": key}


def _switch(cloud: Cloud, vpc: str, name: str) -> bool:
    answer = cloud.ec2.describe_vpc_attribute(VpcId=vpc, Attribute=name)
    return bool(answer[name[:1].upper() + name[1:]]["Value"])


def _filters(asked: Properties) -> list[dict[str, Any]]:
    return [{"Name": one["name"], "Values": one["values"]} for one in asked.get("filters", [])]


def _as_plugin(route: Mapping[str, Any]) -> Properties:
    properties: Properties = camel(dict(route))
    return {
        "cidrBlock": properties.get("destinationCidrBlock", ""),
        **{name: value for name, value in properties.items() if name in _NO_TARGET},
    }


def _absent(what: str, call: str) -> ClientError:
    """As the plugin says it."""
    return ClientError(complaint(f"no matching {what} found", code="NotFound"), call)


_NO_TARGET: Final = dict.fromkeys(
    (
        *("gatewayId", "natGatewayId", "transitGatewayId", "networkInterfaceId", "vpcPeeringConnectionId"),
        *("instanceId", "vpcEndpointId", "localGatewayId", "carrierGatewayId", "egressOnlyGatewayId"),
        *("coreNetworkArn", "destinationPrefixListId", "ipv6CidrBlock", "cidrBlock"),
    ),
    "",
)
LOOKUPS: Final[Mapping[str, Callable[[Cloud, Properties], Properties]]] = {
    "aws:ec2transitgateway/getTransitGateway:getTransitGateway": look_up_transit_gateway,
    "aws:ec2/getVpnGateway:getVpnGateway": look_up_vpn_gateway,
    "aws:ec2/getVpcPeeringConnection:getVpcPeeringConnection": look_up_peering,
    "aws:ec2/getRouteTable:getRouteTable": look_up_route_table,
    "aws:ec2/getRouteTables:getRouteTables": look_up_route_tables,
    "aws:ec2/getSubnet:getSubnet": look_up_subnet,
    "aws:ec2/getVpc:getVpc": look_up_vpc,
    "aws:ec2/getVpcEndpoint:getVpcEndpoint": look_up_endpoint,
    "aws:ec2/getVpcEndpointService:getVpcEndpointService": look_up_endpoint_service,
}
"""By token."""
