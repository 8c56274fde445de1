"""What connects a VPC to other networks, as the stand-in for the aws plugin serves it."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

import re
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

_GONE: Final = ("deleted", "deleting", "terminated", "shutting-down")
_OF_TUNNELS: Final = ("PresharedKey", "IkeVersions", "InsideCidr")
_TUNNEL: Final = tuple(f"tunnel{number}{what}" for number in (1, 2) for what in _OF_TUNNELS)


class CustomerGateway(Ec2Kind):
    """The router at the other end."""

    token = "aws:ec2/customerGateway:CustomerGateway"
    inputs = frozenset({"bgpAsn", "ipAddress", "type", "tags"})
    noun, tag_type = "CustomerGateway", "customer-gateway"
    asked: ClassVar = {"ipAddress": "IpAddress", "type": "Type"}

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_customer_gateway(
            **given(wanted, **self.asked),
            BgpAsn=int(wanted["bgpAsn"]),
            TagSpecifications=specified(self.tag_type, tags),
        )
        key: str = made["CustomerGateway"]["CustomerGatewayId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        gateway = self.describe(cloud, key)
        if gateway is None or gateway.get("State") in _GONE:
            return None
        return {
            "bgpAsn": str(gateway["BgpAsn"]),
            "ipAddress": gateway["IpAddress"],
            "type": gateway["Type"],
            **tags_of(gateway),
        }


class VpnGateway(Ec2Kind):
    """The end of the VPC, attached to it."""

    token = "aws:ec2/vpnGateway:VpnGateway"
    inputs = frozenset({"vpcId", "amazonSideAsn", "tags"})
    noun, tag_type = "VpnGateway", "vpn-gateway"

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_vpn_gateway(
            Type="ipsec.1",
            AmazonSideAsn=int(wanted.get("amazonSideAsn", 64512)),
            TagSpecifications=specified(self.tag_type, tags),
        )
        key: str = made["VpnGateway"]["VpnGatewayId"]
        self.update(cloud, key, {}, wanted)
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        gateway = self.describe(cloud, key)
        if gateway is None or gateway.get("State") in _GONE:
            return None
        attached = [one["VpcId"] for one in gateway.get("VpcAttachments", []) if one["State"] == "attached"]
        return {
            "vpcId": attached[0] if attached else "",
            "amazonSideAsn": str(gateway.get("AmazonSideAsn", "")),
            **tags_of(gateway),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        if old.get("vpcId") != new.get("vpcId"):
            if old.get("vpcId"):
                cloud.ec2.detach_vpn_gateway(VpnGatewayId=key, VpcId=old["vpcId"])
            cloud.ec2.attach_vpn_gateway(VpnGatewayId=key, VpcId=new["vpcId"])

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        if state.get("vpcId"):
            cloud.ec2.detach_vpn_gateway(VpnGatewayId=key, VpcId=state["vpcId"])
        super().delete(cloud, key, state)


class VpnConnection(Ec2Kind):
    """A connection of two tunnels. What AWS does not tell again (keys) stays as it was said."""

    token = "aws:ec2/vpnConnection:VpnConnection"
    noun, tag_type = "VpnConnection", "vpn-connection"
    asked: ClassVar = {
        "customerGatewayId": "CustomerGatewayId",
        "vpnGatewayId": "VpnGatewayId",
        "transitGatewayId": "TransitGatewayId",
        "type": "Type",
    }
    inputs = frozenset({*asked, "staticRoutesOnly", *_TUNNEL, "tags"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_vpn_connection(
            **given(wanted, **self.asked),
            Options={
                "StaticRoutesOnly": wanted.get("staticRoutesOnly", False),
                "TunnelOptions": [_tunnel(wanted, number) for number in (1, 2)],
            },
            TagSpecifications=specified(self.tag_type, tags),
        )
        key: str = made["VpnConnection"]["VpnConnectionId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        connection = self.describe(cloud, key)
        if connection is None or connection["State"] in _GONE:
            return None
        outside = re.findall(
            r"<vpn_gateway>\s*<tunnel_outside_address>\s*<ip_address>([^<]+)<",
            connection.get("CustomerGatewayConfiguration", ""),
        )
        addresses = {f"tunnel{number}Address": address for number, address in enumerate(outside[:2], start=1)}
        return {name: connection.get(field) for name, field in self.asked.items()} | addresses | tags_of(connection)

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        """As the plugin: the ends first, then one tunnel after the other, so that one of them carries on."""
        if not old:
            return
        ends = {name: field for name, field in self.asked.items() if old.get(name) != new.get(name)}
        if ends:
            cloud.ec2.modify_vpn_connection(VpnConnectionId=key, **given(new, **ends))
        for number in (1, 2):
            if any(old.get(f"tunnel{number}{what}") != new.get(f"tunnel{number}{what}") for what in _OF_TUNNELS):
                cloud.ec2.modify_vpn_tunnel_options(
                    VpnConnectionId=key,
                    VpnTunnelOutsideIpAddress=self.read(cloud, key, new)[f"tunnel{number}Address"],  # type: ignore[index]
                    TunnelOptions=_tunnel(new, number),
                )


class VpnConnectionRoute(Kind):
    """A network behind the router, where no protocol tells of it."""

    token = "aws:ec2/vpnConnectionRoute:VpnConnectionRoute"
    inputs = frozenset({"destinationCidrBlock", "vpnConnectionId"})
    tagged = False
    _names: ClassVar = {"destinationCidrBlock": "DestinationCidrBlock", "vpnConnectionId": "VpnConnectionId"}

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.ec2.create_vpn_connection_route(**given(wanted, **self._names))
        return f"{wanted['destinationCidrBlock']}:{wanted['vpnConnectionId']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        block, _, connection_id = key.partition(":")
        connection = first(cloud.ec2.describe_vpn_connections, "VpnConnections", VpnConnectionIds=[connection_id])
        routes = (connection or {}).get("Routes", [])
        if not any(one["DestinationCidrBlock"] == block for one in routes):
            return None
        return {"destinationCidrBlock": block, "vpnConnectionId": connection_id}

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_vpn_connection_route(**given(state, **self._names))


class VpnGatewayRoutePropagation(Kind):
    """A route table learns what the gateway knows."""

    token = "aws:ec2/vpnGatewayRoutePropagation:VpnGatewayRoutePropagation"
    inputs = frozenset({"vpnGatewayId", "routeTableId"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.ec2.enable_vgw_route_propagation(GatewayId=wanted["vpnGatewayId"], RouteTableId=wanted["routeTableId"])
        return f"{wanted['vpnGatewayId']}_{wanted['routeTableId']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        gateway, _, table_id = key.partition("_")
        table = first(cloud.ec2.describe_route_tables, "RouteTables", RouteTableIds=[table_id])
        learns_of = [one["GatewayId"] for one in (table or {}).get("PropagatingVgws", [])]
        return {"vpnGatewayId": gateway, "routeTableId": table_id} if gateway in learns_of else None

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        gateway, _, table_id = key.partition("_")
        cloud.ec2.disable_vgw_route_propagation(GatewayId=gateway, RouteTableId=table_id)


class TransitGatewayVpcAttachment(Kind):
    """The VPC at a transit gateway."""

    token = "aws:ec2transitgateway/vpcAttachment:VpcAttachment"
    inputs = frozenset({"transitGatewayId", "vpcId", "subnetIds", "tags"})
    unordered = frozenset({"subnetIds"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.create_transit_gateway_vpc_attachment(
            **given(wanted, transitGatewayId="TransitGatewayId", vpcId="VpcId", subnetIds="SubnetIds"),
            TagSpecifications=specified("transit-gateway-attachment", tags),
        )
        key: str = made["TransitGatewayVpcAttachment"]["TransitGatewayAttachmentId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        attachment = first(
            cloud.ec2.describe_transit_gateway_vpc_attachments,
            "TransitGatewayVpcAttachments",
            TransitGatewayAttachmentIds=[key],
        )
        if attachment is None or attachment["State"] in _GONE:
            return None
        return {
            "transitGatewayId": attachment["TransitGatewayId"],
            "vpcId": attachment["VpcId"],
            "subnetIds": attachment["SubnetIds"],
            **tags_of(attachment),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        before, after = set(old["subnetIds"]), set(new["subnetIds"])
        if before != after:
            cloud.ec2.modify_transit_gateway_vpc_attachment(
                TransitGatewayAttachmentId=key,
                AddSubnetIds=sorted(after - before),
                RemoveSubnetIds=sorted(before - after),
            )

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.delete_transit_gateway_vpc_attachment(TransitGatewayAttachmentId=key)


class EipAssociation(Kind):
    """An Elastic IP address at an instance."""

    token = "aws:ec2/eipAssociation:EipAssociation"
    inputs = frozenset({"allocationId", "instanceId"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        made = cloud.ec2.associate_address(AllocationId=wanted["allocationId"], InstanceId=wanted["instanceId"])
        key: str = made["AssociationId"]
        return key

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        address = first(cloud.ec2.describe_addresses, "Addresses", AllocationIds=[wanted["allocationId"]])
        if address is None or not address.get("InstanceId"):
            return None
        return {"allocationId": address["AllocationId"], "instanceId": address["InstanceId"]}

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.ec2.disassociate_address(AssociationId=key)


def _tunnel(wanted: Properties, number: int) -> dict[str, Any]:
    names = {"PresharedKey": "PreSharedKey", "InsideCidr": "TunnelInsideCidr"}
    options: dict[str, Any] = {
        field: wanted[f"tunnel{number}{name}"] for name, field in names.items() if wanted.get(f"tunnel{number}{name}")
    }
    versions = wanted.get(f"tunnel{number}IkeVersions") or []
    return options | ({"IKEVersions": [{"Value": version} for version in versions]} if versions else {})


KINDS: Final[tuple[Kind, ...]] = (
    CustomerGateway(),
    VpnGateway(),
    VpnConnection(),
    VpnConnectionRoute(),
    VpnGatewayRoutePropagation(),
    TransitGatewayVpcAttachment(),
    EipAssociation(),
)
