"""What the stand-in for the aws plugin changes in place, each change made at the stand-in for AWS and read back."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from stacks.aws.trust import trust_of
from stacks.local.fake_aws.instances import World
from stacks.local.fake_aws.server import serving
from stacks.local.pulumi_plugins.aws.kinds import Cloud
from stacks.local.pulumi_plugins.aws.registry import KINDS
from tests.test_stacks.stand_in import IMAGE


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """One for the module."""
    with serving(World()) as url, pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "local")
        yield Cloud(region="us-east-1", endpoint=url, default_tags={})


def changed(cloud: Cloud, token: str, wanted: dict[str, Any], **changes: Any) -> tuple[str, dict[str, Any]]:
    """Make one, change it in place: its id, and what is read of it then."""
    kind = KINDS[token]
    assert not changes.keys() & kind.fixed
    key = kind.create(cloud, wanted, {})
    kind.update(cloud, key, wanted, wanted | changes)
    found = kind.read(cloud, key, wanted | changes)
    assert found is not None
    return key, found


def test_keys_of_a_vpn_change_one_tunnel_after_the_other(cloud: Cloud) -> None:
    """Another connection would have other addresses, and the router at the other end would be told of neither."""
    router = cloud.ec2.create_customer_gateway(BgpAsn=65000, IpAddress="192.0.2.9", Type="ipsec.1")
    other = cloud.ec2.create_customer_gateway(BgpAsn=65000, IpAddress="192.0.2.10", Type="ipsec.1")
    gateway = cloud.ec2.create_vpn_gateway(Type="ipsec.1")["VpnGateway"]["VpnGatewayId"]
    wanted = {
        "customerGatewayId": router["CustomerGateway"]["CustomerGatewayId"],
        "vpnGatewayId": gateway,
        "type": "ipsec.1",
        "staticRoutesOnly": True,
        "tunnel1PresharedKey": "before_1",
        "tunnel2PresharedKey": "before_2",
    }
    moved = other["CustomerGateway"]["CustomerGatewayId"]
    key, found = changed(
        cloud,
        "aws:ec2/vpnConnection:VpnConnection",
        wanted,
        customerGatewayId=moved,
        tunnel1PresharedKey="after_11",
        tunnel2PresharedKey="after_22",
    )
    assert found["customerGatewayId"] == moved
    [connection] = cloud.ec2.describe_vpn_connections(VpnConnectionIds=[key])["VpnConnections"]
    told = [one["PreSharedKey"] for one in connection["Options"]["TunnelOptions"]]
    assert told == ["after_11", "after_22"]
    with pytest.raises(ClientError, match="pre-shared key has 8 to 64"):
        KINDS["aws:ec2/vpnConnection:VpnConnection"].update(
            cloud, key, wanted, wanted | {"tunnel1PresharedKey": "0-short"}
        )


def test_an_instance_gets_another_profile_without_being_made_anew(cloud: Cloud) -> None:
    """And another type, for which it is stopped and started."""
    for name in ("one", "two"):
        cloud.iam.create_instance_profile(InstanceProfileName=name)
    subnet = cloud.ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    wanted = {
        "ami": IMAGE,
        "instanceType": "m6i.large",
        "iamInstanceProfile": "one",
        "metadataOptions": {"httpTokens": "required"},
        "rootBlockDevice": {"volumeSize": 8},
        "subnetId": subnet,
        "userDataBase64": base64.b64encode(b"#!/bin/sh").decode(),
    }
    key, found = changed(
        cloud, "aws:ec2/instance:Instance", wanted, iamInstanceProfile="two", instanceType="m6i.xlarge"
    )
    assert found["instanceType"] == "m6i.xlarge"
    by_instance = [{"Name": "instance-id", "Values": [key]}]
    held = cloud.ec2.describe_iam_instance_profile_associations(Filters=by_instance)["IamInstanceProfileAssociations"]
    assert [one["IamInstanceProfile"]["Arn"].rpartition("/")[2] for one in held] == ["two"]


def test_an_attachment_to_a_transit_gateway_gets_and_loses_subnets(cloud: Cloud) -> None:
    """In place: another attachment would end what runs through the other zones."""
    gateway = cloud.ec2.create_transit_gateway()["TransitGateway"]["TransitGatewayId"]
    vpc = cloud.ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    blocks = {"us-east-1a": "10.8.0.0/24", "us-east-1b": "10.8.1.0/24"}
    first, second = (
        cloud.ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for zone, block in blocks.items()
    )
    _, found = changed(
        cloud,
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment",
        {"transitGatewayId": gateway, "vpcId": vpc, "subnetIds": [first]},
        subnetIds=[second],
    )
    assert found["subnetIds"] == [second]


def test_an_eks_cluster_changes_its_way_in(cloud: Cloud) -> None:
    """From both ways to entries alone."""
    role = cloud.iam.create_role(RoleName="eks", AssumeRolePolicyDocument=json.dumps(trust_of("eks.amazonaws.com")))
    zones = {one["AvailabilityZone"]: one["SubnetId"] for one in cloud.ec2.describe_subnets()["Subnets"]}
    wanted = {
        "name": "lab",
        "version": "1.34",
        "roleArn": role["Role"]["Arn"],
        "vpcConfig": {"subnetIds": [*zones.values()][:2]},
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
    }
    _, found = changed(
        cloud, "aws:eks/cluster:Cluster", wanted, accessConfig={"authenticationMode": "API"}, version="1.35"
    )
    assert (found["accessConfig"]["authenticationMode"], found["version"]) == ("API", "1.35")


def test_an_internet_gateway_goes_to_another_vpc(cloud: Cloud) -> None:
    """It keeps its id, which routes name."""
    before, after = (cloud.ec2.create_vpc(CidrBlock=f"10.{n}.0.0/16")["Vpc"]["VpcId"] for n in (21, 22))
    _, found = changed(cloud, "aws:ec2/internetGateway:InternetGateway", {"vpcId": before}, vpcId=after)
    assert found["vpcId"] == after


def test_an_internet_gateway_goes_when_the_last_address_is_unmapped(cloud: Cloud) -> None:
    """Whatever has it may be deleted at the same time: the provider tries again until then."""
    ec2 = cloud.ec2
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.0.0/24")["Subnet"]["SubnetId"]
    kind = KINDS["aws:ec2/internetGateway:InternetGateway"]
    key = kind.create(cloud, {"vpcId": vpc}, {})
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
    helper = threading.Timer(0.5, ec2.delete_nat_gateway, kwargs={"NatGatewayId": nat})
    helper.start()
    kind.delete(cloud, key, {"vpcId": vpc})
    helper.join()
    by_id = [{"Name": "internet-gateway-id", "Values": [key]}]
    assert ec2.describe_internet_gateways(Filters=by_id)["InternetGateways"] == []
