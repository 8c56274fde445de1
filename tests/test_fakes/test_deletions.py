"""What EC2 does not delete, because something still stands in it or names it, seen through boto3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from tests.test_stacks.stand_in import IMAGE, StandIn, eventually, stand_in


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """One stand-in for the module; every test makes its own network."""
    with stand_in() as made:
        yield made


class Network:
    """A VPC with a subnet and a security group."""

    def __init__(self, here: StandIn) -> None:
        self.ec2 = here.ec2
        self.vpc = here.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
        self.subnet = here.ec2.create_subnet(VpcId=self.vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]
        self.group = self.new_group("nodes")

    def new_group(self, name: str) -> str:
        """Another security group."""
        return str(self.ec2.create_security_group(GroupName=name, Description=name, VpcId=self.vpc)["GroupId"])

    def delete(self, what: str) -> str:
        """Delete one of the three; gives the code of the refusal, or nothing."""
        try:
            if what == "subnet":
                self.ec2.delete_subnet(SubnetId=self.subnet)
            elif what == "group":
                self.ec2.delete_security_group(GroupId=self.group)
            else:
                self.ec2.delete_vpc(VpcId=self.vpc)
        except ClientError as refused:
            return str(refused.response["Error"]["Code"])
        return ""


def test_an_interface_holds_its_subnet_and_its_group(here: StandIn) -> None:
    """Also one that no instance has; without it both go, and then the VPC."""
    network = Network(here)
    made = here.ec2.create_network_interface(SubnetId=network.subnet, Groups=[network.group])
    assert [network.delete(one) for one in ("subnet", "group", "vpc")] == ["DependencyViolation"] * 3
    here.ec2.delete_network_interface(NetworkInterfaceId=made["NetworkInterface"]["NetworkInterfaceId"])
    assert [network.delete(one) for one in ("subnet", "group", "vpc")] == ["", "", ""]


def test_an_instance_holds_them_until_it_is_terminated(here: StandIn) -> None:
    """Its interface goes with it."""
    network = Network(here)
    asked = {"ImageId": IMAGE, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    made = here.ec2.run_instances(**asked, SubnetId=network.subnet, SecurityGroupIds=[network.group])
    instance = made["Instances"][0]["InstanceId"]
    here.pass_time(10)
    assert [network.delete(one) for one in ("subnet", "group")] == ["DependencyViolation"] * 2
    here.ec2.terminate_instances(InstanceIds=[instance])
    here.pass_time(10)
    eventually(lambda: here.instance(instance)["State"]["Name"] == "terminated")
    assert [network.delete(one) for one in ("subnet", "group", "vpc")] == ["", "", ""]


def test_a_nat_gateway_holds_its_subnet(here: StandIn) -> None:
    """Until it is deleted."""
    network = Network(here)
    address = here.ec2.allocate_address(Domain="vpc")["AllocationId"]
    gateway = here.ec2.create_nat_gateway(SubnetId=network.subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]
    assert network.delete("subnet") == "DependencyViolation"
    here.ec2.delete_nat_gateway(NatGatewayId=gateway)
    assert network.delete("subnet") == ""


def test_a_rule_of_another_group_holds_the_group_that_it_names(here: StandIn) -> None:
    """One of its own rules does not."""
    network = Network(here)
    other = network.new_group("balancer")
    rule = [{"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "UserIdGroupPairs": [{"GroupId": network.group}]}]
    for group in (other, network.group):
        here.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=rule)
    assert network.delete("group") == "DependencyViolation"
    here.ec2.delete_security_group(GroupId=other)
    assert network.delete("group") == ""


def test_an_attached_internet_gateway_and_groups_hold_the_vpc(here: StandIn) -> None:
    """And subnets; the group called default does not."""
    network = Network(here)
    gateway = here.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    here.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    assert [network.delete("subnet"), network.delete("vpc")] == ["", "DependencyViolation"]
    here.ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    assert [network.delete("vpc"), network.delete("group"), network.delete("vpc")] == ["DependencyViolation", "", ""]
