"""Addresses of interfaces, and the targets of a load balancer that are registered by them, seen through boto3."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest

from tests.test_stacks.stand_in import IMAGE, StandIn, client, stand_in


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """One stand-in for the module."""
    with stand_in() as made:
        yield made


def test_every_interface_of_a_subnet_has_an_address_of_its_own(here: StandIn) -> None:
    """The smallest subnet that there is has room for eleven, of instances too; one that is deleted frees its own."""
    ec2 = here.ec2
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/28")["Subnet"]["SubnetId"]

    def new() -> dict[str, str]:
        made = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"]
        return {made["PrivateIpAddress"]: made["NetworkInterfaceId"]}

    instance = ec2.run_instances(ImageId=IMAGE, InstanceType="m5.large", MinCount=1, MaxCount=1, SubnetId=subnet)
    made = {instance["Instances"][0]["PrivateIpAddress"]: ""}
    for _ in range(10):
        made |= new()
    assert {ipaddress.ip_address(one) for one in made} == set(list(ipaddress.ip_network("10.9.0.0/28"))[4:-1])
    address, gone = made.popitem()
    ec2.delete_network_interface(NetworkInterfaceId=gone)
    assert set(new()) == {address}


def test_a_target_is_deregistered_twice(here: StandIn) -> None:
    """As by a call whose answer was lost; another stays."""
    elb = client(here.url, "elbv2")
    vpc = here.ec2.create_vpc(CidrBlock="10.10.0.0/16")["Vpc"]["VpcId"]
    asked = {"Name": "api", "Protocol": "TCP", "Port": 6443, "VpcId": vpc, "TargetType": "ip"}
    group = elb.create_target_group(**asked)["TargetGroups"][0]["TargetGroupArn"]
    elb.register_targets(TargetGroupArn=group, Targets=[{"Id": "10.10.0.4"}, {"Id": "10.10.0.5"}])
    for _ in range(2):
        elb.deregister_targets(TargetGroupArn=group, Targets=[{"Id": "10.10.0.4"}])
    left = elb.describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
    assert [one["Target"]["Id"] for one in left] == ["10.10.0.5"]
