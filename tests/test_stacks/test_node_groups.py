"""The node groups component: from policy entries to launch templates and Auto Scaling groups."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler import labels as words
from autoscaler.cluster import Taint
from autoscaler.failures import BadInput
from autoscaler.policy import GroupEntry
from stacks.node_groups import (
    NodeGroup,
    NodeGroupArgs,
    NodeIdentity,
    check_groups,
    describe_groups,
    minimums,
    root_volume_gib,
)
from stacks.user_data import parse_user_data
from tests.test_stacks.declared import Declared, declare, group, of_type, policy

GPU_TAINT = {"key": words.GPU, "effect": "NoSchedule"}


def declared_for(entry: GroupEntry, **changed: Any) -> list[Declared]:
    """What one policy entry becomes."""
    args: dict[str, Any] = {
        "cluster": "lab",
        "region": "us-east-1",
        "entry": entry,
        "subnets": {zone: f"subnet-{zone[-1]}" for zone in entry.zones},
        "security_group_id": "sg-1",
        "instance_profile_arn": "arn:profile",
        "image_id": "ami-1",
        "root_device": "/dev/sda1",
        "tags": {"spillway.dev/cluster": "lab"},
    } | changed
    return declare(lambda: next(iter(NodeGroup(entry.name, NodeGroupArgs(**args)).groups.values())).arn)


def template_of(entry: GroupEntry, **changed: Any) -> dict[str, Any]:
    """The one launch template of an entry."""
    [template] = of_type(declared_for(entry, **changed), "aws:ec2/launchTemplate:LaunchTemplate").values()
    return template


def groups_of(entry: GroupEntry, **changed: Any) -> dict[str, dict[str, Any]]:
    """The Auto Scaling groups of an entry, by AWS's name."""
    found = of_type(declared_for(entry, **changed), "aws:autoscaling/group:Group").values()
    return {one["name"]: one for one in found}


def tags_of(scaling_group: dict[str, Any]) -> dict[str, str]:
    """Of an Auto Scaling group."""
    return {tag["key"]: tag["value"] for tag in scaling_group["tags"]}


def test_one_launch_template_and_a_group_in_each_zone() -> None:
    """Named as the autoscaler expects."""
    entry = group(zones=["us-east-1a", "us-east-1c"])
    assert set(groups_of(entry)) == {"lab-gpu-us-east-1a", "lab-gpu-us-east-1c"}
    assert template_of(entry)["name"] == "lab-gpu"


def test_each_group_stands_in_the_subnet_of_its_zone() -> None:
    """So that its instances are where their label says."""
    entry = group(zones=["us-east-1a", "us-east-1c"])
    assert {name: one["vpcZoneIdentifiers"] for name, one in groups_of(entry).items()} == {
        "lab-gpu-us-east-1a": ["subnet-a"],
        "lab-gpu-us-east-1c": ["subnet-c"],
    }


def test_instances_ask_for_imds_v2_and_encrypt_their_disk() -> None:
    """And end with their volume."""
    template = template_of(group(disk="200Gi"))
    assert template["metadataOptions"]["httpTokens"] == "required"
    assert template["metadataOptions"]["httpPutResponseHopLimit"] == 1
    [volume] = template["blockDeviceMappings"]
    assert volume["deviceName"] == "/dev/sda1"
    assert volume["ebs"] == {
        "volumeType": "gp3",
        "volumeSize": 200,
        "encrypted": "true",
        "deleteOnTermination": "true",
    }


def test_user_data_tells_the_node_what_it_is() -> None:
    """The same words as the tags of its group."""
    entry = group(labels={words.GPU_PRODUCT: "NVIDIA-A10G"}, taints=[GPU_TAINT], capacity_type="spot")
    spec = parse_user_data(base64.b64decode(template_of(entry)["userData"]).decode())
    assert spec.cluster == "lab"
    assert spec.taints == (Taint(words.GPU),)
    assert spec.labels == {
        words.GPU_PRODUCT: "NVIDIA-A10G",
        words.ORIGIN: words.EC2,
        words.GROUP: "gpu",
        words.CAPACITY_TYPE: "spot",
        words.INSTANCE_TYPE: "g5.12xlarge",
        words.REGION: "us-east-1",
        words.OS: "linux",
    }


def test_tags_tell_the_autoscaler_what_a_node_would_be() -> None:
    """While there is none: scale from zero."""
    entry = group(labels={"team": "vision"}, taints=[GPU_TAINT], resources={"ephemeral-storage": "150Gi"})
    tags = tags_of(groups_of(entry)["lab-gpu-us-east-1a"])
    assert tags[words.TAG_CLUSTER] == "lab"
    assert tags[words.TAG_GROUP] == "gpu"
    assert tags[f"{words.TEMPLATE_LABEL}team"] == "vision"
    assert tags[f"{words.TEMPLATE_LABEL}{words.ZONE}"] == "us-east-1a"
    assert tags[f"{words.TEMPLATE_LABEL}{words.INSTANCE_TYPE}"] == "g5.12xlarge"
    assert tags[f"{words.TEMPLATE_TAINT}{words.GPU}"] == ":NoSchedule"
    assert tags[f"{words.TEMPLATE_RESOURCE}ephemeral-storage"] == "150Gi"


def test_the_desired_capacity_is_never_set() -> None:
    """It is the autoscaler's."""
    for one in groups_of(group(min=1)).values():
        assert "desiredCapacity" not in one


@pytest.mark.parametrize("protected", [True, False])
def test_scale_in_protection_is_an_option(protected: bool) -> None:  # noqa: FBT001 - a test's parameter
    """With it a group ends no instance by itself."""
    for one in groups_of(group(), scale_in_protection=protected).values():
        assert one["protectFromScaleIn"] is protected


@pytest.mark.parametrize(("capacity_type", "market"), [("spot", {"marketType": "spot"}), ("on-demand", None)])
def test_spot_is_asked_for_in_the_template(capacity_type: str, market: dict[str, str] | None) -> None:
    """On-demand is what EC2 gives when nothing is said."""
    assert template_of(group(capacity_type=capacity_type)).get("instanceMarketOptions") == market


@given(minimum=st.integers(0, 40), count=st.integers(1, 6))
def test_an_entrys_minimum_is_spread_over_its_zones(minimum: int, count: int) -> None:
    """As evenly as whole nodes can be, and never more in all."""
    entry = group(min=minimum, max=40, zones=[f"us-east-1{letter}" for letter in "abcdef"[:count]])
    shares = dict(minimums(entry))
    assert list(shares) == list(entry.zones)
    assert sum(shares.values()) == minimum
    assert max(shares.values()) - min(shares.values()) <= 1


@pytest.mark.parametrize(("disk", "gib"), [("100Gi", 100), ("8Gi", 8), ("100G", 94), ("0.5Ti", 512)])
def test_a_disk_is_rounded_up_to_whole_gib(disk: str, gib: int) -> None:
    """EBS sells no fractions."""
    assert root_volume_gib(group(disk=disk)) == gib


def test_the_outputs_name_what_was_made() -> None:
    """Group for group."""
    entry = group(min=3, max=5, zones=["us-east-1a", "us-east-1b"])
    described = {one.name: one for one in describe_groups("lab", entry)}
    made = groups_of(entry)
    assert described.keys() == made.keys()
    for name, one in described.items():
        assert (one.min, one.max) == (made[name]["minSize"], made[name]["maxSize"])


def test_nodes_may_pull_images_and_little_else() -> None:
    """No right to change anything but their own session."""
    declared = declare(lambda: NodeIdentity("node", cluster="lab").instance_profile_arn)
    [rights] = of_type(declared, "aws:iam/rolePolicy:RolePolicy").values()
    actions = [action for one in json.loads(rights["policy"])["Statement"] for action in one["Action"]]
    assert all(action.startswith(("ecr:Get", "ecr:Batch", "ssmmessages:", "ssm:Update")) for action in actions)
    [role] = of_type(declared, "aws:iam/role:Role").values()
    assert "ec2.amazonaws.com" in role["assumeRolePolicy"]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (group(labels={f"example.com/l{n}": "x" for n in range(60)}), "tags on the Auto Scaling group; AWS takes 50"),
        (group(labels={f"{'x' * 90}.example.com/team": "a"}), "AWS takes 128 characters of key"),
        (group(labels={f"example.com/l{n}": "x" * 250 for n in range(70)}), "EC2 takes 16384"),
        (group(resources={"ephemeral-storage": "1" + "0" * 300}), "256 of value"),
    ],
)
def test_what_aws_would_refuse_is_refused_first(entry: GroupEntry, says: str) -> None:
    """With the file and the entry, before anything is made."""
    with pytest.raises(BadInput, match=says) as refused:
        check_groups(policy(entry), source="policy.yaml")
    assert str(refused.value).startswith("policy.yaml: groups[0] (gpu): ")
