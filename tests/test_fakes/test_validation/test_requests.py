"""What AWS refuses of tags anywhere, of groups, hooks, interfaces, security groups, networks and names."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from stacks.local.wire.aws_protocol import Call, Refused
from tests.fakes.aws_services.validation.tags import check_tags
from tests.fakes.aws_services.validation.validate import check
from tests.test_fakes.test_validation.test_validate import (
    GOOD,
    There,
    ec2,
    group,
    refused,
    template,
)


def scaling(action: str, **parameters: str) -> Call:
    """A call of Auto Scaling."""
    flat = {key.replace("_", "."): value for key, value in parameters.items()}
    return Call(service="autoscaling", action=action, region="us-east-1", parameters=flat)


# --- Tags, whatever the service ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "asked", "code"),
    [
        ("iam", {"Tags": [{"Key": "team!", "Value": "a"}]}, "InvalidInput"),
        ("iam", {"Tags": [{"Key": "a", "Value": "{}"}]}, "InvalidInput"),
        ("kms", {"Tags": [{"TagKey": "aws:x", "TagValue": "a"}]}, "TagException"),
        ("eks", {"tags": {"k" * 129: "v"}}, "InvalidParameterException"),
        ("eks", {"tags": {str(number): "v" for number in range(51)}}, "InvalidParameterException"),
        ("elasticloadbalancing", {"Tags": [{"Key": "a", "Value": "v" * 257}]}, "ValidationError"),
        ("elasticloadbalancing", {"Tags": [{"Key": str(n)} for n in range(51)]}, "TooManyTags"),
        ("ssm", {"Tags": [{"Key": "", "Value": "v"}]}, "ValidationException"),
        ("ec2", {"TagSpecification": [{"Tag": [{"Key": "a"}, {"Key": "a"}]}]}, "InvalidParameterValue"),
        ("ec2", {"LaunchTemplateData": {"TagSpecification": [{"Tag": [{"Key": "aws:a"}]}]}}, "InvalidParameterValue"),
        ("unheard-of", {"Tags": [{"Key": "aws:a"}]}, "ValidationException"),
    ],
)
def test_wrong_tags_are_refused_in_the_services_words(service: str, asked: dict[str, Any], code: str) -> None:
    """Wherever they stand in the call, and however they are spelled."""
    with pytest.raises(Refused) as met:
        check_tags(service, asked)
    assert met.value.code == code


def test_ordinary_tags_pass() -> None:
    """EC2 takes every character; the others letters of any alphabet."""
    check_tags("ec2", {"Tag": [{"Key": "note", "Value": "a*b?"}]})
    check_tags("iam", {"Tags": [{"Key": "spillway.dev/cluster", "Value": "größe = 1_a:b+c-d@e"}]})
    check_tags("eks", {"tags": {}})


def test_a_call_of_any_service_is_looked_at() -> None:
    """In the JSON protocols as well."""
    call = Call("kms", "CreateKey", "us-east-1", json_protocol=True, parameters={"Tags": [{"TagKey": "aws:a"}]})
    assert refused(call)[0] == "TagException"


# --- Launch templates -------------------------------------------------------------------------------------------------


def interfaces(*kinds: str, **more: str) -> dict[str, str]:
    """One interface on each card."""
    flat = {}
    for card, kind in enumerate(kinds):
        start = f"NetworkInterface_{card + 1}_"
        flat |= {
            f"{start}NetworkCardIndex": str(card),
            f"{start}DeviceIndex": str(min(card, 1)),
            f"{start}InterfaceType": kind,
        }
    return flat | more


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (interfaces("efa", SecurityGroupId_1="sg-1"), "InvalidParameterCombination"),
        (interfaces("efa", SubnetId="subnet-1"), "InvalidParameterCombination"),
        (interfaces("efa-only"), "InvalidParameterCombination"),
        (interfaces("infiniband"), "InvalidParameterValue"),
        (
            interfaces("efa", "efa-only", NetworkInterface_2_NetworkCardIndex="0", NetworkInterface_2_DeviceIndex="0"),
            "InvalidParameterValue",
        ),
        (interfaces("efa", "efa", NetworkInterface_1_AssociatePublicIpAddress="true"), "InvalidParameterCombination"),
        ({"NetworkInterface_1_InterfaceType": "efa"}, "MissingParameter"),
        ({"BlockDeviceMapping_1_DeviceName": "/dev/disk"}, "InvalidBlockDeviceMapping"),
        ({"BlockDeviceMapping_1_Ebs_KmsKeyId": "key"}, "InvalidParameterDependency"),
        (
            {"BlockDeviceMapping_1_Ebs_Iops": "100", "BlockDeviceMapping_1_Ebs_VolumeType": "gp3"},
            "InvalidParameterValue",
        ),
        ({"BlockDeviceMapping_1_Ebs_Throughput": "125"}, "InvalidParameterCombination"),
        ({"InstanceMarketOptions_MarketType": "cheap"}, "InvalidParameterValue"),
        ({"InstanceMarketOptions_SpotOptions_MaxPrice": "1"}, "InvalidParameterCombination"),
    ],
)
def test_a_template_that_contradicts_itself_is_refused(data: dict[str, str], code: str) -> None:
    """Interfaces, volumes and market."""
    assert refused(template(**data))[0] == code


def test_a_template_with_adapters_passes() -> None:
    """Each on its card, the first as the node's interface too."""
    check(template(**interfaces("efa", "efa-only"), UserData=base64.b64encode(b"x").decode()), There())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"NetworkInterfaces": [{"InterfaceType": "efa", "Groups": ["sg-9"]}]}, "'sg-9' does not exist"),
        ({"NetworkInterfaces": [{"InterfaceType": "efa"}] * 3}, "count 3 exceeds the limit of 2 for m5.large"),
        ({"NetworkInterfaces": [{"NetworkCardIndex": 2}]}, "Network card index 2 is not valid for m5.large"),
        ({"Placement": {"GroupName": "far"}}, "The Placement Group 'far' is unknown."),
    ],
)
def test_a_group_of_interfaces_that_its_type_has_not_is_refused(change: dict[str, Any], says: str) -> None:
    """By the type, when the group is made."""
    data = {key: value for key, value in GOOD.items() if key != "SecurityGroupIds"} | change
    assert says in refused(group(), There({"node": data}))[1]


# --- Groups, hooks and placement --------------------------------------------------------------------------------------

MIXED = "MixedInstancesPolicy_LaunchTemplate_"


def mixed(*types: str, **changes: str) -> Call:
    """A group of a mixed instances policy."""
    overrides = {f"{MIXED}Overrides_member_{n + 1}_InstanceType": kind for n, kind in enumerate(types)}
    ordinary = {
        "AutoScalingGroupName": "g",
        "MinSize": "0",
        "MaxSize": "1",
        "VPCZoneIdentifier": "subnet-1",
        f"{MIXED}LaunchTemplateSpecification_LaunchTemplateName": "node",
    }
    return scaling("CreateAutoScalingGroup", **ordinary, **overrides, **changes)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (mixed("m5.large", LaunchTemplate_LaunchTemplateName="node"), "must contain either LaunchTemplate"),
        (mixed("m5.large", "m5.large"), "Duplicate instance types"),
        (mixed(*["m5.large"] * 41), "exceeds the limit of 40"),
        (
            mixed("m5.large", MixedInstancesPolicy_InstancesDistribution_SpotAllocationStrategy="best"),
            "Invalid value 'best'",
        ),
        (
            mixed("m5.large", MixedInstancesPolicy_InstancesDistribution_OnDemandPercentageAboveBaseCapacity="101"),
            "from 0 to 100",
        ),
        (group(PlacementGroup="far"), "The Placement Group 'far' is unknown."),
    ],
)
def test_a_group_that_contradicts_itself_is_refused(call: Call, says: str) -> None:
    """As a ``ValidationError``."""
    code, told = refused(call, There({"node": GOOD}))
    assert (code, says in told) == ("ValidationError", True)


def test_a_template_with_a_market_is_refused_in_a_mixed_group() -> None:
    """The group says what is bought on which market."""
    check(mixed("m5.large"), There({"node": GOOD}))
    spot = GOOD | {"InstanceMarketOptions": {"MarketType": "spot"}}
    assert "Incompatible launch template" in refused(mixed("m5.large"), There({"node": spot}))[1]


@pytest.mark.parametrize(
    "change",
    [
        {"LifecycleHookName": "a b"},
        {"LifecycleTransition": "autoscaling:EC2_INSTANCE_STOPPING"},
        {"DefaultResult": "WAIT"},
        {"HeartbeatTimeout": "29"},
        {"HeartbeatTimeout": "7201"},
    ],
)
def test_a_hook_out_of_form_is_refused(change: dict[str, str]) -> None:
    """Name, transition, result, time."""
    ordinary = {
        "LifecycleHookName": "drain",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        "DefaultResult": "CONTINUE",
        "HeartbeatTimeout": "900",
    }
    check(scaling("PutLifecycleHook", **ordinary), There())
    assert refused(scaling("PutLifecycleHook", **ordinary | change))[0] == "ValidationError"


def test_a_placement_group_out_of_form_is_refused() -> None:
    """Name and strategy."""
    check(ec2("CreatePlacementGroup", {"GroupName": "close", "Strategy": "cluster"}), There())
    assert refused(ec2("CreatePlacementGroup", {"GroupName": "g" * 256}))[0] == "InvalidParameterValue"
    assert refused(ec2("CreatePlacementGroup", {"GroupName": "g", "Strategy": "near"}))[0] == "InvalidParameterValue"
    both = {"GroupName": "g", "Strategy": "cluster", "PartitionCount": "2"}
    assert refused(ec2("CreatePlacementGroup", both))[0] == "InvalidParameterCombination"


# --- Networks ---------------------------------------------------------------------------------------------------------


def rule(**changes: str) -> Call:
    """A rule in."""
    ordinary = {"GroupId": "sg-2", "IpPermissions.1.IpProtocol": "tcp", "IpPermissions.1.FromPort": "443"}
    ordinary |= {"IpPermissions.1.ToPort": "443", "IpPermissions.1.IpRanges.1.CidrIp": "10.0.0.0/8"}
    flat = ordinary | {key.replace("_", "."): value for key, value in changes.items()}
    return ec2("AuthorizeSecurityGroupIngress", {key: value for key, value in flat.items() if value})


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"IpPermissions_1_IpProtocol": "tpc"}, "InvalidParameterValue"),
        ({"IpPermissions_1_FromPort": "444"}, "InvalidParameterValue"),
        ({"IpPermissions_1_ToPort": "65536"}, "InvalidParameterValue"),
        ({"IpPermissions_1_ToPort": ""}, "MissingParameter"),
        ({"IpPermissions_1_IpRanges_1_CidrIp": "10.0.0.0/33"}, "InvalidParameterValue"),
        ({"IpPermissions_1_IpRanges_1_Description": "naïve"}, "InvalidParameterValue"),
        ({"GroupId": "sg-1", "IpPermissions_1_IpRanges_2_CidrIp": "10.1.0.0/16"}, "RulesPerSecurityGroupLimitExceeded"),
    ],
)
def test_a_rule_out_of_form_is_refused(changes: dict[str, str], code: str) -> None:
    """Protocol, ports, sources, description; and there are sixty at most."""
    check(rule(GroupId="sg-1"), There())
    assert refused(rule(**changes))[0] == code


@pytest.mark.parametrize(
    ("action", "asked", "code"),
    [
        ("CreateSecurityGroup", {"GroupName": "sg-mine", "GroupDescription": "d"}, "InvalidParameterValue"),
        ("CreateSecurityGroup", {"GroupName": "g"}, "MissingParameter"),
        ("CreateSecurityGroup", {"GroupName": "g", "GroupDescription": "größer"}, "InvalidParameterValue"),
        ("CreateVpc", {"CidrBlock": "10.0.0.0/8"}, "InvalidVpc.Range"),
        ("CreateVpc", {"CidrBlock": "here"}, "InvalidParameterValue"),
        ("CreateSubnet", {"CidrBlock": "10.0.0.0/29"}, "InvalidSubnet.Range"),
    ],
)
def test_a_network_out_of_form_is_refused(action: str, asked: dict[str, str], code: str) -> None:
    """Names, descriptions and ranges."""
    assert refused(ec2(action, asked))[0] == code


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "action", "asked", "code"),
    [
        ("s3", "PUT /Snapshots", {}, "InvalidBucketName"),
        ("s3", "PUT /a..b", {}, "InvalidBucketName"),
        ("elasticloadbalancing", "CreateLoadBalancer", {"Name": "l" * 33}, "ValidationError"),
        ("elasticloadbalancing", "CreateLoadBalancer", {"Name": "internal-lab"}, "ValidationError"),
        ("kms", "CreateAlias", {"AliasName": "alias/aws/mine"}, "InvalidAliasNameException"),
    ],
)
def test_a_name_that_a_service_does_not_take(service: str, action: str, asked: dict[str, str], code: str) -> None:
    """With its code."""
    call = Call(service, action, "us-east-1", json_protocol=service == "kms", parameters=asked)
    assert refused(call)[0] == code


def test_ordinary_names_pass() -> None:
    """A key in a bucket is no bucket's name."""
    for service, action, asked in (
        ("s3", "PUT /lab-etcd-snapshots", {}),
        ("s3", "PUT /lab/Key.Of/Something", {}),
        ("elasticloadbalancing", "CreateLoadBalancer", {"Name": "lab-api"}),
        ("kms", "CreateAlias", {"AliasName": "alias/lab"}),
    ):
        check(Call(service, action, "us-east-1", json_protocol=service != "s3", parameters=asked), There())
