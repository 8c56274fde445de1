"""What AWS refuses is refused, with its codes; what it accepts passes."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from stacks.local.wire.aws_protocol import Call, Refused, nested
from tests.fakes.aws_services.validation.launch_templates import USER_DATA_LIMIT
from tests.fakes.aws_services.validation.validate import check
from tests.test_stacks.stand_in import StandIn, stand_in


@dataclass
class There:
    """What there is, for these tests."""

    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def has_instance_type(self, name: str) -> bool:
        """One type."""
        return name == "m5.large"

    def has_image(self, image: str) -> bool:
        """One image."""
        return image == "ami-1"

    def has_security_group(self, group: str) -> bool:
        """One security group."""
        return group == "sg-1"

    def has_subnet(self, subnet: str) -> bool:
        """One subnet."""
        return subnet == "subnet-1"

    def has_placement_group(self, name: str) -> bool:
        """One placement group."""
        return name == "close"

    def most_adapters(self, instance_type: str) -> int:
        """Two adapters at most."""
        return 2 if instance_type == "m5.large" else 0

    def network_cards(self, instance_type: str) -> int:
        """Two cards."""
        return 2 if instance_type == "m5.large" else 1

    def rules_of(self, group: str, *, egress: bool) -> int:
        """Nearly full in one direction."""
        return 0 if egress or group != "sg-1" else 59

    def launch_template(self, specification: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Those that were given."""
        return self.templates.get(specification["LaunchTemplateName"])


def template(**data: str) -> Call:
    """A call that creates a launch template; data by flat names with ``_`` for the dots."""
    flat = {f"LaunchTemplateData.{key.replace('_', '.')}": value for key, value in data.items()}
    if any("BlockDeviceMapping" in key for key in flat):
        flat.setdefault("LaunchTemplateData.BlockDeviceMapping.1.DeviceName", "/dev/xvda")
    return ec2("CreateLaunchTemplate", {"LaunchTemplateName": "node", **flat})


def ec2(action: str, parameters: Mapping[str, str]) -> Call:
    """A call of EC2."""
    return Call(service="ec2", action=action, region="us-east-1", parameters=parameters)


def group(**changes: str) -> Call:
    """A call that creates a group; names with ``_`` for the dots."""
    ordinary = {
        "AutoScalingGroupName": "g",
        "MinSize": "0",
        "MaxSize": "1",
        "LaunchTemplate_LaunchTemplateName": "node",
        "VPCZoneIdentifier": "subnet-1",
    }
    flat = {key.replace("_", "."): value for key, value in (ordinary | changes).items()}
    return Call(service="autoscaling", action="CreateAutoScalingGroup", region="us-east-1", parameters=flat)


def refused(call: Call, known: There | None = None) -> tuple[str, str]:
    """Code and words of the refusal."""
    with pytest.raises(Refused) as met:
        check(call, known or There())
    return met.value.code, str(met.value)


GOOD = {"ImageId": "ami-1", "InstanceType": "m5.large", "SecurityGroupIds": ["sg-1"]}


def test_flat_names_become_what_they_stand_for() -> None:
    """Both of the query protocols' ways to write a list, in the order of their numbers."""
    flat = {"Tags.member.2.Key": "b", "Tags.member.1.Key": "a", "Tag.1.Key": "c", "Name": "n"}
    assert nested(flat) == {"Tags": [{"Key": "a"}, {"Key": "b"}], "Tag": [{"Key": "c"}], "Name": "n"}


def test_an_ordinary_template_passes() -> None:
    """All parts of it in form."""
    check(
        template(
            ImageId="ami-1",
            UserData=base64.b64encode(b"x" * USER_DATA_LIMIT).decode(),
            BlockDeviceMapping_1_DeviceName="/dev/xvda",
            BlockDeviceMapping_1_Ebs_VolumeType="gp3",
            BlockDeviceMapping_1_Ebs_VolumeSize="100",
            BlockDeviceMapping_1_Ebs_Encrypted="true",
            MetadataOptions_HttpTokens="required",
            MetadataOptions_HttpPutResponseHopLimit="1",
            TagSpecification_1_Tag_1_Key="team",
        ),
        There(),
    )


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ({"UserData": "no base64"}, "InvalidUserData.Malformed", "Invalid BASE64 encoding of user data."),
        (
            {"UserData": base64.b64encode(b"x" * (USER_DATA_LIMIT + 1)).decode()},
            "InvalidParameterValue",
            "User data is limited to 16384 bytes",
        ),
        ({"ImageId": "image-1"}, "InvalidAMIID.Malformed", 'Invalid id: "image-1" (expecting "ami-...")'),
        ({"BlockDeviceMapping_1_Ebs_Encrypted": "yes"}, "InvalidParameterValue", "must be a boolean"),
        ({"BlockDeviceMapping_1_Ebs_VolumeType": "gp9"}, "InvalidParameterValue", "'gp9' for VolumeType"),
        ({"BlockDeviceMapping_1_Ebs_VolumeSize": "0"}, "InvalidParameterValue", "Volume of 0GiB is invalid"),
        ({"BlockDeviceMapping_1_Ebs_VolumeSize": "20000"}, "InvalidParameterValue", "between 1 and 16384"),
        ({"MetadataOptions_HttpTokens": "maybe"}, "InvalidParameterValue", "Value (maybe) for parameter HttpTokens"),
        ({"MetadataOptions_HttpPutResponseHopLimit": "65"}, "InvalidParameterValue", "HttpPutResponseHopLimit"),
        ({"TagSpecification_1_Tag_1_Key": "aws:x"}, "InvalidParameterValue", "Tag keys starting with 'aws:'"),
        ({"TagSpecification_1_Tag_1_Key": "k" * 129}, "InvalidParameterValue", "128 characters"),
    ],
)
def test_a_template_out_of_form_is_refused(data: dict[str, str], code: str, words: str) -> None:
    """With EC2's code, at creation and for a new version."""
    met = refused(template(**data))
    assert (met[0], words in met[1]) == (code, True)
    versioned = ec2("CreateLaunchTemplateVersion", template(**data).parameters)
    assert refused(versioned) == met


def test_a_template_may_name_what_is_not_there_yet() -> None:
    """EC2 takes it; only what is made from it is refused."""
    check(template(ImageId="ami-9", InstanceType="m9.huge"), There())


def test_a_template_needs_a_proper_name() -> None:
    """Between 3 and 128 characters of those that EC2 takes."""
    assert refused(ec2("CreateLaunchTemplate", {"LaunchTemplateName": "a b"}))[0] == (
        "InvalidLaunchTemplateName.MalformedException"
    )


def test_an_ordinary_group_passes() -> None:
    """Everything that it refers to is there."""
    check(group(), There({"node": GOOD}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"InstanceType": "m9.huge"}, "Invalid value 'm9.huge' for InstanceType."),
        ({"ImageId": "ami-9"}, "The image id '[ami-9]' does not exist"),
        ({"ImageId": None}, "must contain the parameter ImageId"),
        ({"SecurityGroupIds": ["sg-9"]}, "The security group 'sg-9' does not exist"),
    ],
)
def test_a_group_of_a_template_that_cannot_launch_is_refused(change: dict[str, Any], words: str) -> None:
    """Auto Scaling tries the template when the group is made."""
    code, told = refused(group(), There({"node": GOOD | change}))
    assert code == "ValidationError"
    assert told.startswith("You must use a valid fully-formed launch template. ")
    assert words in told


def test_overrides_are_tried_too() -> None:
    """A type of the mixed instances policy that is not there."""
    mixed = "MixedInstancesPolicy_LaunchTemplate_"
    call = group(
        LaunchTemplate_LaunchTemplateName="",
        **{
            f"{mixed}LaunchTemplateSpecification_LaunchTemplateName": "node",
            f"{mixed}Overrides_member_1_InstanceType": "m9.huge",
        },
    )
    call_without = Call(
        service=call.service,
        action=call.action,
        region=call.region,
        parameters={key: value for key, value in call.parameters.items() if value},
    )
    assert "Invalid value 'm9.huge'" in refused(call_without, There({"node": GOOD}))[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"AutoScalingGroupName": "g" * 256}, "length between 1 and 255"),
        ({"VPCZoneIdentifier": "subnet-1,subnet-9"}, "The subnet ID 'subnet-9' does not exist"),
        ({"LaunchTemplate_LaunchTemplateName": "none"}, "does not exist"),
        ({"Tags_member_1_Key": "aws:mine"}, "reserved"),
        ({"Tags_member_1_Key": "k", "Tags_member_1_Value": "v" * 257}, "256 characters"),
    ],
)
def test_a_group_out_of_form_is_refused(changes: dict[str, str], words: str) -> None:
    """As a ``ValidationError``."""
    code, told = refused(group(**changes), There({"node": GOOD}))
    assert (code, words in told) == ("ValidationError", True)


def test_more_than_fifty_tags_are_refused() -> None:
    """On whatever they are put."""
    tags = {f"Tag.{number}.Key": str(number) for number in range(1, 52)}
    assert refused(ec2("CreateTags", {"ResourceId.1": "i-1", **tags}))[0] == "TagLimitExceeded"


def test_a_page_has_a_hundred_groups_at_most() -> None:
    """To a larger one moto answers with an internal error."""
    asked = Call("autoscaling", "DescribeAutoScalingGroups", "us-east-1", parameters={"MaxRecords": "101"})
    assert refused(asked)[0] == "ValidationError"
    check(replace(asked, parameters={"MaxRecords": "100"}), There())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"InstanceType": "m9.huge"}, "InvalidParameterValue"),
        ({"ImageId": "ami-9"}, "InvalidAMIID.NotFound"),
        ({"SubnetId": "subnet-9"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupId.1": "sg-9"}, "InvalidGroup.NotFound"),
        ({"MinCount": "2"}, "InvalidParameterValue"),
    ],
)
def test_instances_of_what_is_not_there_are_refused(change: dict[str, str], code: str) -> None:
    """With EC2's code for each."""
    asked = {"ImageId": "ami-1", "InstanceType": "m5.large", "MinCount": "1", "MaxCount": "1"}
    check(ec2("RunInstances", asked), There())
    assert refused(ec2("RunInstances", asked | change))[0] == code


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """The stand-in that these checks stand before."""
    with stand_in() as made:
        yield made


def test_a_refusal_reaches_the_caller_and_nothing_is_made(here: StandIn) -> None:
    """Through boto3, from moto's own catalogue."""
    template_id = here.new_template(InstanceType="p9.huge")
    with pytest.raises(ClientError, match=r"Invalid value 'p9\.huge' for InstanceType"):
        here.group(AutoScalingGroupName="never", LaunchTemplate={"LaunchTemplateId": template_id})
    assert here.see("never") == {}


def test_what_is_there_is_found(here: StandIn) -> None:
    """Security groups and subnets as moto has them."""
    vpc = here.ec2.describe_subnets(SubnetIds=here.subnets)["Subnets"][0]["VpcId"]
    security = here.ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    template_id = here.new_template(SecurityGroupIds=[security])
    group_name = here.group(LaunchTemplate={"LaunchTemplateId": template_id})
    assert here.see(group_name)["LaunchTemplate"]["LaunchTemplateId"] == template_id
