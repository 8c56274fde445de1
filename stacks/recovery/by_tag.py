"""Orphans of EC2: found by their ``Name`` and the cluster's tag, which each of the programs' resources has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.recovery.by_name import Found, Inputs, until

Remove = Callable[[str], object]
_ENDS: Final = ("deleting", "deleted", "failed", "shutting-down", "terminated", "gone")
"""States of what goes, or has gone: the tags stay for an hour, and are found that long."""
_OVER: Final = ("deleted", "terminated", "gone")
_LOOKS: Final[Mapping[str, tuple[str, str, str]]] = {
    # how ids begin -> call, field of its answer, and the argument that takes ids
    "vpc-": ("describe_vpcs", "Vpcs", "VpcIds"),
    "subnet-": ("describe_subnets", "Subnets", "SubnetIds"),
    "igw-": ("describe_internet_gateways", "InternetGateways", "InternetGatewayIds"),
    "eipalloc-": ("describe_addresses", "Addresses", "AllocationIds"),
    "rtb-": ("describe_route_tables", "RouteTables", "RouteTableIds"),
    "sg-": ("describe_security_groups", "SecurityGroups", "GroupIds"),
    "fl-": ("describe_flow_logs", "FlowLogs", "FlowLogIds"),
    "nat-": ("describe_nat_gateways", "NatGateways", "NatGatewayIds"),
    "i-": ("describe_instances", "Reservations", "InstanceIds"),
    "vol-": ("describe_volumes", "Volumes", "VolumeIds"),
    "eni-": ("describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceIds"),
    "cgw-": ("describe_customer_gateways", "CustomerGateways", "CustomerGatewayIds"),
    "vpce-": ("describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointIds"),
    "vgw-": ("describe_vpn_gateways", "VpnGateways", "VpnGatewayIds"),
    "vpn-": ("describe_vpn_connections", "VpnConnections", "VpnConnectionIds"),
    "tgw-attach-": (
        "describe_transit_gateway_vpc_attachments",
        "TransitGatewayVpcAttachments",
        "TransitGatewayAttachmentIds",
    ),
}


class TagFinder:
    """Looks into one region; ``ec2`` is a client of boto3's."""

    def __init__(self, ec2: Any, *, cluster: str) -> None:
        self._ec2, self._cluster = ec2, cluster
        self._kinds = self._by_prefix()
        self.finders = {token: partial(self._tagged, prefix, remove) for token, (prefix, remove) in self._kinds.items()}

    def _by_prefix(self) -> dict[str, tuple[str, Remove]]:
        """Token -> how ids of the type begin, and how one is taken away."""
        ec2 = self._ec2
        return {
            "aws:ec2/vpc:Vpc": ("vpc-", lambda key: ec2.delete_vpc(VpcId=key)),
            "aws:ec2/subnet:Subnet": ("subnet-", lambda key: ec2.delete_subnet(SubnetId=key)),
            "aws:ec2/internetGateway:InternetGateway": ("igw-", self._remove_gateway),
            "aws:ec2/eip:Eip": ("eipalloc-", lambda key: ec2.release_address(AllocationId=key)),
            "aws:ec2/natGateway:NatGateway": ("nat-", self._remove_nat),
            "aws:ec2/routeTable:RouteTable": ("rtb-", lambda key: ec2.delete_route_table(RouteTableId=key)),
            "aws:ec2/securityGroup:SecurityGroup": ("sg-", lambda key: ec2.delete_security_group(GroupId=key)),
            "aws:ec2/vpcEndpoint:VpcEndpoint": ("vpce-", self._remove_endpoint),
            "aws:ec2/flowLog:FlowLog": ("fl-", lambda key: ec2.delete_flow_logs(FlowLogIds=[key])),
            "aws:ec2/networkInterface:NetworkInterface": (
                "eni-",
                lambda key: ec2.delete_network_interface(NetworkInterfaceId=key),
            ),
            "aws:ebs/volume:Volume": ("vol-", lambda key: ec2.delete_volume(VolumeId=key)),
            "aws:ec2/instance:Instance": ("i-", self._remove_instance),
            "aws:ec2/customerGateway:CustomerGateway": (
                "cgw-",
                lambda key: ec2.delete_customer_gateway(CustomerGatewayId=key),
            ),
            "aws:ec2/vpnGateway:VpnGateway": ("vgw-", self._remove_vpn_gateway),
            "aws:ec2/vpnConnection:VpnConnection": ("vpn-", self._remove_vpn),
            "aws:ec2transitgateway/vpcAttachment:VpcAttachment": ("tgw-attach-", self._remove_attachment),
        }

    def _tagged(self, prefix: str, remove: Remove, inputs: Inputs) -> Found:
        of_cluster = self._with_tag(prefix, words.TAG_CLUSTER, self._cluster)
        for key in sorted(of_cluster & self._with_tag(prefix, "Name", name_tag(inputs))):
            if self._state(prefix, key) not in _ENDS:
                yield key, partial(remove, key)

    def _with_tag(self, prefix: str, tag: str, value: str) -> set[str]:
        """Ids of one type of resource: every type has a prefix of its own."""
        filters = [("key", tag), ("value", value)]
        pages = self._ec2.get_paginator("describe_tags").paginate(
            Filters=[{"Name": name, "Values": [one]} for name, one in filters]
        )
        return {one["ResourceId"] for page in pages for one in page["Tags"] if one["ResourceId"].startswith(prefix)}

    def _state(self, prefix: str, key: str) -> str:
        """``gone`` where it is not there; empty where EC2 tells of none, as of an address."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 - slow to import

        call, field, ids = _LOOKS[prefix]
        try:
            listed = getattr(self._ec2, call)(**{ids: [key]})[field]
        except ClientError as error:
            if "NotFound" not in error.response["Error"]["Code"]:
                raise
            return "gone"
        for found in listed:
            if prefix == "i-":
                return str(found["Instances"][0]["State"]["Name"])
            return str(found.get("Status" if prefix == "eni-" else "State", "")).lower()
        return "gone"

    def _remove_gateway(self, key: str) -> None:
        for gateway in self._ec2.describe_internet_gateways(InternetGatewayIds=[key])["InternetGateways"]:
            for attached in gateway["Attachments"]:
                self._ec2.detach_internet_gateway(InternetGatewayId=key, VpcId=attached["VpcId"])
        self._ec2.delete_internet_gateway(InternetGatewayId=key)

    def _remove_nat(self, key: str) -> None:
        self._ec2.delete_nat_gateway(NatGatewayId=key)
        until(lambda: self._state("nat-", key) in _OVER)  # its address is held till then

    def _remove_endpoint(self, key: str) -> None:
        for refused in self._ec2.delete_vpc_endpoints(VpcEndpointIds=[key]).get("Unsuccessful", ()):
            raise Unavailable(f"AWS does not delete {key}: {refused['Error']['Message']}")
        until(lambda: self._state("vpce-", key) in _OVER)  # its addresses and its names are held till then

    def _remove_instance(self, key: str) -> None:
        self._ec2.terminate_instances(InstanceIds=[key])
        until(lambda: self._state("i-", key) in _OVER)  # its interface and its volume are held till then

    def _remove_vpn(self, key: str) -> None:
        self._ec2.delete_vpn_connection(VpnConnectionId=key)
        until(lambda: self._state("vpn-", key) in _OVER)

    def _remove_vpn_gateway(self, key: str) -> None:
        for gateway in self._ec2.describe_vpn_gateways(VpnGatewayIds=[key])["VpnGateways"]:
            for attached in gateway.get("VpcAttachments", []):
                if attached["State"] not in ("detaching", "detached"):
                    self._ec2.detach_vpn_gateway(VpnGatewayId=key, VpcId=attached["VpcId"])
        self._ec2.delete_vpn_gateway(VpnGatewayId=key)

    def _remove_attachment(self, key: str) -> None:
        self._ec2.delete_transit_gateway_vpc_attachment(TransitGatewayAttachmentId=key)
        until(lambda: self._state("tgw-attach-", key) in _OVER)


def name_tag(inputs: Inputs) -> str:
    """Returns the tag by which two resources of one type are told apart; empty where there is none."""
    return str((inputs.get("tags") or {}).get("Name", ""))
