"""What AWS has made and does not show for a while, seen through boto3."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.test_stacks.stand_in import IMAGE, StandIn, client, eventually

LATE = "{kind: eventual-consistency, by: 10s}"
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)


def refused(act: Callable[[], Any]) -> str:
    """The code of a call's refusal; empty where it is granted."""
    try:
        act()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_an_instance_is_not_described_at_first(here: StandIn) -> None:
    """Nor is anything else done with it by its id; lists leave it out, and only it."""
    asked: dict[str, Any] = {"ImageId": IMAGE, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    old = here.ec2.run_instances(**asked)["Instances"][0]["InstanceId"]
    here.fail(LATE)
    new = here.ec2.run_instances(**asked)["Instances"][0]["InstanceId"]
    both = [{"Name": "instance-id", "Values": [old, new]}]

    def listed() -> list[str]:
        found = here.ec2.describe_instances(Filters=both)["Reservations"]
        return [one["InstanceId"] for each in found for one in each["Instances"]]

    assert listed() == [old]
    tag = [{"Key": "team", "Value": "vision"}]
    for act in (
        lambda: here.ec2.describe_instances(InstanceIds=[new]),
        lambda: here.ec2.create_tags(Resources=[new], Tags=tag),
    ):
        assert refused(act) == "InvalidInstanceID.NotFound"
    here.pass_time(10)
    assert listed() == [old, new]
    assert refused(lambda: here.ec2.create_tags(Resources=[new], Tags=tag)) == ""


def test_a_group_lists_an_instance_that_ec2_does_not_describe(here: StandIn) -> None:
    """What a group launches is as late as what a user launches."""
    group = here.group()
    here.fail("{kind: eventual-consistency, of: ec2, by: 10s}")
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    eventually(lambda: here.ids(group))
    [instance] = here.ids(group)
    assert refused(lambda: here.instance(instance)) == "InvalidInstanceID.NotFound"
    here.pass_time(10)
    eventually(lambda: here.states(group) == ["InService"])
    assert here.instance(instance)["InstanceId"] == instance


@pytest.mark.parametrize("kind", ["vpc", "subnet", "group", "template"])
def test_what_is_made_is_found_later(here: StandIn, kind: str) -> None:
    """Asked for by its id, and among all others."""
    here.fail(LATE)
    vpc = here.ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    if kind != "vpc":
        here.pass_time(10)
    make: dict[str, tuple[str, Callable[[], str], str, str, str]] = {
        "vpc": ("InvalidVpcID.NotFound", lambda: vpc, "describe_vpcs", "Vpcs", "VpcId"),
        "subnet": (
            "InvalidSubnetID.NotFound",
            lambda: str(here.ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.0.0/24")["Subnet"]["SubnetId"]),
            *("describe_subnets", "Subnets", "SubnetId"),
        ),
        "group": (
            "InvalidGroup.NotFound",
            lambda: str(here.ec2.create_security_group(GroupName="g", Description="g", VpcId=vpc)["GroupId"]),
            *("describe_security_groups", "SecurityGroups", "GroupId"),
        ),
        "template": (
            "InvalidLaunchTemplateId.NotFound",
            here.new_template,
            *("describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
        ),
    }
    code, made, describe, field, key = make[kind]
    what = made()
    describe = getattr(here.ec2, describe)

    def is_listed() -> bool:
        return what in [one[key] for one in describe()[field]]

    assert (refused(lambda: describe(**{f"{key}s": [what]})), is_listed()) == (code, False)
    here.pass_time(10)
    assert (refused(lambda: describe(**{f"{key}s": [what]})), is_listed()) == ("", True)


def test_a_group_may_not_name_what_is_not_seen(here: StandIn) -> None:
    """Auto Scaling looks its template up as anybody does."""
    here.fail(LATE)
    template = here.new_template()
    specification = {"LaunchTemplateId": template, "Version": "$Latest"}
    assert refused(lambda: here.group(LaunchTemplate=specification)) == "ValidationError"
    here.pass_time(10)
    assert refused(lambda: here.group(LaunchTemplate=specification)) == ""


def test_a_new_profile_is_known_to_iam_before_ec2_and_auto_scaling_know_it(here: StandIn) -> None:
    """As is one that has just been given its role; a user of the provider tries again by these words."""
    here.fail("{kind: eventual-consistency, of: iam, by: 10s}")
    iam = client(here.url, "iam")
    iam.create_role(RoleName="young", AssumeRolePolicyDocument=TRUST)
    made = iam.create_instance_profile(InstanceProfileName="young")["InstanceProfile"]
    iam.add_role_to_instance_profile(InstanceProfileName="young", RoleName="young")
    assert iam.get_instance_profile(InstanceProfileName="young")["InstanceProfile"]["Roles"]
    template = here.new_template(IamInstanceProfile={"Arn": made["Arn"]})
    asked: dict[str, Any] = {"ImageId": IMAGE, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    for act in (
        lambda: here.group(LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"}),
        lambda: here.ec2.run_instances(**asked, IamInstanceProfile={"Name": "young"}),
    ):
        with pytest.raises(ClientError, match="Invalid IAM Instance Profile"):
            act()
        here.pass_time(10)
        assert refused(act) == ""
        here.fail("{kind: eventual-consistency, of: iam, by: 10s}")
        iam.remove_role_from_instance_profile(InstanceProfileName="young", RoleName="young")
        iam.add_role_to_instance_profile(InstanceProfileName="young", RoleName="young")


def test_a_new_role_is_no_role_of_a_cluster_yet(here: StandIn) -> None:
    """EKS cannot assume what it does not see."""
    here.fail("{kind: eventual-consistency, of: iam, by: 10s}")
    arn = client(here.url, "iam").create_role(RoleName="plane", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    eks = client(here.url, "eks")

    def make() -> None:
        eks.create_cluster(name="lab", roleArn=arn, resourcesVpcConfig={"subnetIds": here.subnets})

    with pytest.raises(ClientError, match="does not exist"):
        make()
    here.pass_time(10)
    make()


def test_nothing_is_late_without_the_fault(here: StandIn) -> None:
    """It is off by default."""
    asked: dict[str, Any] = {"ImageId": IMAGE, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    made = here.ec2.run_instances(**asked)["Instances"][0]["InstanceId"]
    assert here.instance(made)["InstanceId"] == made
