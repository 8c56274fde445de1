"""What EC2 does not delete, because something still stands in it or names it, seen through boto3."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


@pytest.mark.parametrize("named_by", ["its group", "its template"])
def test_an_instance_holds_its_placement_group_until_it_is_terminated(here: StandIn, named_by: str) -> None:
    """Whether the Auto Scaling group or the launch template places it."""
    name = f"close {named_by}"
    here.ec2.create_placement_group(GroupName=name, Strategy="cluster")
    by_group = named_by == "its group"
    template = here.template if by_group else here.new_template(Placement={"GroupName": name})
    group = here.group(
        PlacementGroup=name if by_group else None,
        LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"},
    )

    def delete() -> str:
        return refused(here.ec2.delete_placement_group, GroupName=name)

    here.want(group, 1)
    assert delete() == "InvalidPlacementGroup.InUse"
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    eventually(lambda: here.states(group) != ["InService"])  # before time passes, which it takes to end
    here.pass_time(10)
    eventually(lambda: not here.states(group))
    assert [delete(), delete()] == ["", "InvalidPlacementGroup.Unknown"]


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


def refused(call: Callable[..., object], **asked: str) -> str:
    """The code of a refusal, or nothing."""
    try:
        call(**asked)
    except ClientError as refusal:
        return str(refusal.response["Error"]["Code"])
    return ""


def test_the_address_of_a_nat_gateway_holds_the_internet_gateway_and_itself(here: StandIn) -> None:
    """Until the NAT gateway is deleted: the commonest failure of a destroy in the wrong order."""
    network, ec2 = Network(here), here.ec2
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=network.subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]

    def detach() -> str:
        return refused(ec2.detach_internet_gateway, InternetGatewayId=gateway, VpcId=network.vpc)

    assert detach() == "DependencyViolation"
    assert refused(ec2.release_address, AllocationId=address) == "InvalidIPAddress.InUse"
    ec2.delete_nat_gateway(NatGatewayId=nat)
    assert [detach(), refused(ec2.release_address, AllocationId=address)] == ["", ""]


def test_a_vpn_connection_and_an_attachment_hold_the_gateways(here: StandIn) -> None:
    """At both ends."""
    network, ec2 = Network(here), here.ec2
    ours = ec2.create_vpn_gateway(Type="ipsec.1")["VpnGateway"]["VpnGatewayId"]
    theirs = ec2.create_customer_gateway(Type="ipsec.1", PublicIp="192.0.2.1", BgpAsn=65000)["CustomerGateway"]
    ends = {"VpnGatewayId": ours, "CustomerGatewayId": theirs["CustomerGatewayId"]}
    ec2.attach_vpn_gateway(VpnGatewayId=ours, VpcId=network.vpc)
    made = ec2.create_vpn_connection(Type="ipsec.1", **ends)["VpnConnection"]["VpnConnectionId"]

    def delete() -> list[str]:
        calls = {"VpnGatewayId": ec2.delete_vpn_gateway, "CustomerGatewayId": ec2.delete_customer_gateway}
        return [refused(call, **{end: ends[end]}) for end, call in calls.items()]

    assert delete() == ["IncorrectState", "IncorrectState"]
    ec2.delete_vpn_connection(VpnConnectionId=made)
    assert refused(ec2.delete_vpn_gateway, VpnGatewayId=ours) == "IncorrectState"
    ec2.detach_vpn_gateway(VpnGatewayId=ours, VpcId=network.vpc)
    assert delete() == ["", ""]
