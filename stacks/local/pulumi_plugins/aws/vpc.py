"""The VPC, what routes in it and its endpoints, as the stand-in for the aws plugin serves them."""

# ruff: noqa: ARG002 - every kind has the same methods, whatever it needs of what it is given
# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import Any, ClassVar, Final

from stacks.local.pulumi_plugins.aws.kinds import (
    Cloud,
    Ec2Kind,
    Kind,
    Properties,
    Tags,
    first,
    given,
    specified,
    tags_of,
)


class Vpc(Ec2Kind):
    """A VPC."""

    token = "aws:ec2/vpc:Vpc"
    inputs = frozenset({"cidrBlock", "enableDnsSupport", "enableDnsHostnames", "instanceTenancy", "tags"})
    noun, tag_type = "Vpc", "vpc"
    asked: ClassVar = {"cidrBlock": "CidrBlock", "instanceTenancy": "InstanceTenancy"}
    told: ClassVar = {"ownerId": "OwnerId"}
    _switches: ClassVar = {"enableDnsSupport": "EnableDnsSupport", "enableDnsHostnames": "EnableDnsHostnames"}

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        vpc = super().read(cloud, key, wanted)
        return vpc and vpc | {
            name: cloud.ec2.describe_vpc_attribute(VpcId=key, Attribute=name)[attribute]["Value"]
            for name, attribute in self._switches.items()
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        for name, attribute in self._switches.items():  # EC2 takes one of them per call
            if name in new and new[name] != old.get(name):
                cloud.ec2.modify_vpc_attribute(VpcId=key, **{attribute: {"Value": new[name]}})


class Subnet(Ec2Kind):
    """A subnet."""

    token = "aws:ec2/subnet:Subnet"
    inputs = frozenset({"vpcId", "cidrBlock", "availabilityZone", "mapPublicIpOnLaunch", "tags"})
    noun, tag_type = "Subnet", "subnet"
    asked: ClassVar = {"vpcId": "VpcId", "cidrBlock": "CidrBlock", "availabilityZone": "AvailabilityZone"}
    told: ClassVar = {"mapPublicIpOnLaunch": "MapPublicIpOnLaunch"}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        public = new.get("mapPublicIpOnLaunch", False)
        if public != old.get("mapPublicIpOnLaunch", False):
            cloud.ec2.modify_subnet_attribute(SubnetId=key, MapPublicIpOnLaunch={"Value": public})


class InternetGateway(Ec2Kind):
    """An internet gateway, attached to its VPC."""

    token = "aws:ec2/internetGateway:InternetGateway"
    inputs = frozenset({"vpcId", "tags"})
    noun, tag_type = "InternetGateway", "internet-gateway"

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old.get("vpcId") != new["vpcId"]:
            if old.get("vpcId"):
                cloud.ec2.detach_internet_gateway(InternetGatewayId=key, VpcId=old["vpcId"])
            cloud.ec2.attach_internet_gateway(InternetGatewayId=key, VpcId=new["vpcId"])

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        gateway = self.describe(cloud, key)
        if gateway is None:
            return None
        attached = gateway["Attachments"]
        return {"vpcId": attached[0]["VpcId"] if attached else "", **tags_of(gateway)}

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if state.get("vpcId"):
            cloud.ec2.detach_internet_gateway(InternetGatewayId=key, VpcId=state["vpcId"])
        super().delete(cloud, key, state)


class Eip(Kind):
    """An Elastic IP address."""

    token = "aws:ec2/eip:Eip"
    inputs = frozenset({"domain", "tags"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.allocate_address(
            Domain=wanted.get("domain", "vpc"), TagSpecifications=specified("elastic-ip", tags)
        )
        key: str = made["AllocationId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        address = first(cloud.ec2.describe_addresses, "Addresses", AllocationIds=[key])
        return address and {
            "domain": address["Domain"],
            "publicIp": address["PublicIp"],
            "allocationId": key,
            **tags_of(address),
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.release_address(AllocationId=key)


class NatGateway(Ec2Kind):
    """A NAT gateway."""

    token = "aws:ec2/natGateway:NatGateway"
    inputs = frozenset({"subnetId", "allocationId", "connectivityType", "tags"})
    noun, tag_type = "NatGateway", "natgateway"
    asked: ClassVar = {
        "subnetId": "SubnetId",
        "allocationId": "AllocationId",
        "connectivityType": "ConnectivityType",
    }

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        key = super().create(cloud, wanted, tags)
        cloud.ec2.get_waiter("nat_gateway_available").wait(NatGatewayIds=[key], WaiterConfig={"Delay": 1})
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        gateway = self.describe(cloud, key)
        if gateway is None or gateway["State"] in ("deleted", "deleting"):
            return None
        addresses = gateway.get("NatGatewayAddresses") or [{}]
        return {
            "subnetId": gateway["SubnetId"],
            "allocationId": addresses[0].get("AllocationId"),
            "connectivityType": gateway.get("ConnectivityType", "public"),
            "publicIp": addresses[0].get("PublicIp"),
            **tags_of(gateway),
        }


class RouteTable(Ec2Kind):
    """A route table; its routes are resources of their own."""

    token = "aws:ec2/routeTable:RouteTable"
    inputs = frozenset({"vpcId", "tags"})
    noun, tag_type = "RouteTable", "route-table"
    asked: ClassVar = {"vpcId": "VpcId"}


class Route(Kind):
    """One route of a table. Its id is made of the table's and the destination."""

    token = "aws:ec2/route:Route"
    tagged = False
    _targets: ClassVar = {
        "gatewayId": "GatewayId",
        "natGatewayId": "NatGatewayId",
        "networkInterfaceId": "NetworkInterfaceId",
        "transitGatewayId": "TransitGatewayId",
        "vpcPeeringConnectionId": "VpcPeeringConnectionId",
    }
    inputs = frozenset({"routeTableId", "destinationCidrBlock", *_targets})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.ec2.create_route(**self._place(wanted), **given(wanted, **self._targets))
        return f"{wanted['routeTableId']}_{wanted['destinationCidrBlock']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        table_id, _, destination = key.partition("_")
        table = first(cloud.ec2.describe_route_tables, "RouteTables", RouteTableIds=[table_id])
        routes = table["Routes"] if table else []
        route = next((one for one in routes if one.get("DestinationCidrBlock") == destination), None)
        return route and {
            "routeTableId": table_id,
            "destinationCidrBlock": destination,
            **{name: route.get(field) for name, field in self._targets.items()},
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.ec2.replace_route(**self._place(new), **given(new, **self._targets))

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_route(**self._place(state))

    @staticmethod
    def _place(wanted: Properties) -> dict[str, str]:
        return {"RouteTableId": wanted["routeTableId"], "DestinationCidrBlock": wanted["destinationCidrBlock"]}


class RouteTableAssociation(Kind):
    """Which table a subnet goes by."""

    token = "aws:ec2/routeTableAssociation:RouteTableAssociation"
    inputs = frozenset({"routeTableId", "subnetId"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.associate_route_table(RouteTableId=wanted["routeTableId"], SubnetId=wanted["subnetId"])
        key: str = made["AssociationId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        by_subnet = [{"Name": "association.subnet-id", "Values": [wanted["subnetId"]]}]
        table = first(cloud.ec2.describe_route_tables, "RouteTables", Filters=by_subnet)
        if table is None:
            return None
        return {"routeTableId": table["RouteTableId"], "subnetId": wanted["subnetId"]}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        cloud.ec2.replace_route_table_association(AssociationId=key, RouteTableId=new["routeTableId"])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.disassociate_route_table(AssociationId=key)


class VpcEndpoint(Ec2Kind):
    """An endpoint of a service: a gateway in route tables, or an interface in subnets."""

    token = "aws:ec2/vpcEndpoint:VpcEndpoint"
    inputs = frozenset(
        {
            *("vpcId", "serviceName", "vpcEndpointType", "routeTableIds", "subnetIds", "securityGroupIds"),
            *("privateDnsEnabled", "policy", "tags"),
        }
    )
    unordered = frozenset({"routeTableIds", "subnetIds", "securityGroupIds"})
    noun, tag_type = "VpcEndpoint", "vpc-endpoint"
    asked: ClassVar = {
        "vpcId": "VpcId",
        "serviceName": "ServiceName",
        "vpcEndpointType": "VpcEndpointType",
        "routeTableIds": "RouteTableIds",
        "subnetIds": "SubnetIds",
        "securityGroupIds": "SecurityGroupIds",
        "privateDnsEnabled": "PrivateDnsEnabled",
        "policy": "PolicyDocument",
    }
    told: ClassVar = {"state": "State", "networkInterfaceIds": "NetworkInterfaceIds"}

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        found = super().read(cloud, key, wanted)
        if found is None or found["state"] in ("deleted", "deleting"):
            return None
        groups = self.describe(cloud, key).get("Groups", [])
        return found | {"securityGroupIds": [group["GroupId"] for group in groups], "policy": wanted.get("policy")}

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if not old:
            return
        changes: dict[str, Any] = {}
        for name in self.unordered:
            field = self.asked[name]
            before, after = set(old.get(name) or ()), set(new.get(name) or ())
            changes |= {f"Add{field}": sorted(after - before), f"Remove{field}": sorted(before - after)}
        changes = {field: ids for field, ids in changes.items() if ids}
        if new.get("policy") != old.get("policy"):
            changes["PolicyDocument"] = new.get("policy", "")
        if changes:
            cloud.ec2.modify_vpc_endpoint(VpcEndpointId=key, **changes)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_vpc_endpoints(VpcEndpointIds=[key])


KINDS: Final[tuple[Kind, ...]] = (
    Vpc(),
    Subnet(),
    InternetGateway(),
    Eip(),
    NatGateway(),
    RouteTable(),
    Route(),
    RouteTableAssociation(),
    VpcEndpoint(),
)
