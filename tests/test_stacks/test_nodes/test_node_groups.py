"""The node groups component: from policy entries to launch templates and Auto Scaling groups."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.group_entry import GroupEntry
from autoscaler.model import labels as words
from autoscaler.model.constraints import Taint
from autoscaler.model.errors import BadInput
from stacks.nodes.launch_templates import root_volume_gib
from stacks.nodes.node_groups import NodeGroup, NodeGroupArgs, NodeIdentity, minimums
from stacks.nodes.user_data import parse_user_data
from stacks.preflight.group_limits import check_groups
from tests.test_stacks.declared import Declared, declare, group, of_type, policy
from tests.test_stacks.graph import Graph, graph

HOOK = "aws:autoscaling/lifecycleHook:LifecycleHook"
GPU_TAINT = {"key": words.GPU, "effect": "NoSchedule"}


def declared_for(entry: GroupEntry, **changed: Any) -> list[Declared]:
    """What one policy entry becomes."""
    return declare(lambda: next(iter(made_from(entry, **changed).groups.values())).arn)


def made_from(entry: GroupEntry, **changed: Any) -> NodeGroup:
    """The component of one policy entry."""
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
    return NodeGroup(entry.name, NodeGroupArgs(**args))


def graph_of(entry: GroupEntry, **changed: Any) -> Graph:
    """What an engine sees of it."""
    return graph(lambda: made_from(entry, **changed))


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
    assert spec.taints == (Taint(words.GPU), Taint(words.RESERVED))
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


def test_a_capacity_reservation_is_targeted_by_the_template_and_shown_by_the_groups() -> None:
    """The autoscaler counts its room by the tag."""
    entry = group(zones=("us-east-1a",), capacity_reservation="cr-0123456789abcdef0")
    target = {"capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}}
    assert template_of(entry).get("capacityReservationSpecification") == target
    assert "capacityReservationSpecification" not in template_of(group())
    [one] = groups_of(entry).values()
    assert {tag["key"]: tag["value"] for tag in one["tags"]}[words.TAG_RESERVATION] == "cr-0123456789abcdef0"


def test_a_capacity_block_is_launched_into_by_its_own_market() -> None:
    """And no node of it is of another capacity type, in the planner's eyes as on the node."""
    block = {"capacity_type": "capacity-block", "capacity_reservation": "cr-0123456789abcdef0"}
    entry = group(zones=("us-east-1a",), **block)
    template = template_of(entry)
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    target = {"capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}}
    assert template["capacityReservationSpecification"] == target
    [one] = groups_of(entry).values()
    tags = {tag["key"]: tag["value"] for tag in one["tags"]}
    assert tags[f"{words.TEMPLATE_LABEL}{words.CAPACITY_TYPE}"] == "capacity-block"


A_SET = {"instance_type": None, "instance_types": ["g6.12xlarge", "g5.12xlarge"]}


@pytest.mark.parametrize(("capacity_type", "on_demand"), [("spot", 0), ("on-demand", 100)])
def test_a_set_of_types_becomes_a_mixed_instances_policy(capacity_type: str, on_demand: int) -> None:
    """Which says types and market; AWS refuses a template that says them too."""
    entry = group(**A_SET, capacity_type=capacity_type)
    [one] = groups_of(entry).values()
    mixed = one["mixedInstancesPolicy"]
    assert "launchTemplate" not in one
    assert mixed["launchTemplate"]["launchTemplateSpecification"]["launchTemplateId"] == "gpu-id"
    assert mixed["launchTemplate"]["overrides"] == [{"instanceType": "g6.12xlarge"}, {"instanceType": "g5.12xlarge"}]
    assert mixed["instancesDistribution"]["onDemandPercentageAboveBaseCapacity"] == on_demand
    assert mixed["instancesDistribution"]["onDemandAllocationStrategy"] == "prioritized"
    assert mixed["instancesDistribution"]["spotAllocationStrategy"] == "price-capacity-optimized"
    template = template_of(entry)
    assert "instanceType" not in template
    assert "instanceMarketOptions" not in template


def test_nodes_of_a_set_are_not_told_their_type() -> None:
    """They know it themselves; neither tags nor user data can."""
    entry = group(**A_SET)
    [one] = groups_of(entry).values()
    assert f"{words.TEMPLATE_LABEL}{words.INSTANCE_TYPE}" not in tags_of(one)
    assert words.INSTANCE_TYPE not in parse_user_data(base64.b64decode(template_of(entry)["userData"]).decode()).labels


def test_volumes_may_be_encrypted_with_a_key_of_ones_own() -> None:
    """Else AWS's key for EBS does it."""
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    [volume] = template_of(group(), kms_key_id=key)["blockDeviceMappings"]
    assert (volume["ebs"]["kmsKeyId"], volume["ebs"]["encrypted"]) == (key, "true")


def test_an_adapter_stands_on_each_network_card() -> None:
    """The first is the node's interface too; the others take no address. Interfaces bring their security groups."""
    template = template_of(group(efa=True), adapters=4)
    interfaces = template["networkInterfaces"]
    assert [(one["networkCardIndex"], one["deviceIndex"]) for one in interfaces] == [(0, 0), (1, 1), (2, 1), (3, 1)]
    assert [one["interfaceType"] for one in interfaces] == ["efa", *["efa-only"] * 3]
    assert all(one["securityGroups"] == ["sg-1"] for one in interfaces)
    assert "vpcSecurityGroupIds" not in template
    assert "networkInterfaces" not in template_of(group())


def test_where_the_first_card_takes_no_adapter_the_others_have_them_all() -> None:
    """As on p6-b300: EC2 refuses any other kind of interface there."""
    interfaces = template_of(group(efa=True), adapters=16, first_adapter_card=1)["networkInterfaces"]
    assert [one["networkCardIndex"] for one in interfaces] == list(range(17))
    assert [one["interfaceType"] for one in interfaces] == ["interface", *["efa-only"] * 16]
    assert {one["deviceIndex"] for one in interfaces} == {0}


def test_nodes_stand_close_together_where_asked() -> None:
    """In a placement group of their own, which the Auto Scaling group names."""
    declared = declared_for(group(placement="cluster"))
    [placement] = of_type(declared, "aws:ec2/placementGroup:PlacementGroup").values()
    [one] = of_type(declared, "aws:autoscaling/group:Group").values()
    assert (placement["strategy"], placement["name"], one["placementGroup"]) == ("cluster", "lab-gpu", "gpu-id")
    assert not of_type(declared_for(group()), "aws:ec2/placementGroup:PlacementGroup")


def test_an_instance_that_is_to_end_waits_for_its_jobs() -> None:
    """By a hook in each group; without an answer it ends when the time is over."""
    entry = group(zones=["us-east-1a", "us-east-1b"])
    hooks = of_type(declared_for(entry, termination_wait=timedelta(minutes=2)), HOOK)
    assert {one["autoscalingGroupName"] for one in hooks.values()} == set(groups_of(entry))
    for hook in hooks.values():
        assert hook["name"] == words.TERMINATION_HOOK
        assert hook["lifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"
        assert (hook["defaultResult"], hook["heartbeatTimeout"]) == ("CONTINUE", 120)


def test_an_entrys_resources_stand_under_it() -> None:
    """So that an alias of the entry is one of all of them."""
    entry = group(zones=["us-east-1a", "us-east-1b"])
    made = graph_of(entry)
    assert made.under("NodeGroup gpu") == {
        "LaunchTemplate gpu",
        *("Group gpu-us-east-1a", "LifecycleHook gpu-us-east-1a"),
        *("Group gpu-us-east-1b", "LifecycleHook gpu-us-east-1b"),
    }
    assert made["Group gpu-us-east-1a"].needs == {"LaunchTemplate gpu"}
    assert made["LifecycleHook gpu-us-east-1a"].needs == {"Group gpu-us-east-1a"}


def test_what_the_autoscaler_sets_is_left_alone_and_names_stay() -> None:
    """Mocks do not see what is ignored."""
    made = graph_of(group(placement="cluster"))
    assert made["Group gpu-us-east-1a"].ignores == ("name", "desiredCapacity")
    assert made["LaunchTemplate gpu"].ignores == ("name",)
    assert made["PlacementGroup gpu"].ignores == ("name",)


def test_a_renamed_entry_is_known_by_its_former_names() -> None:
    """The engine then takes what stands under them for its own."""
    made = graph_of(group(formerly=["gpu-old", "gpus"]))
    assert made["NodeGroup gpu"].aliases[:2] == ("gpu-old", "gpus")
    assert graph_of(group())["NodeGroup gpu"].aliases == ()


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
    seen: list[Any] = []
    declare(lambda: made_from(entry).described.apply(seen.append))
    described = {one.name: one for one in seen[0]}
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
        (group(labels={f"example.com/l{n}": "x" * 63 for n in range(250)}), "EC2 takes 16384"),
        (group(resources={"ephemeral-storage": "1" + "0" * 300}), "256 of value"),
    ],
)
def test_what_aws_would_refuse_is_refused_first(entry: GroupEntry, says: str) -> None:
    """With the file and the entry, before anything is made."""
    with pytest.raises(BadInput, match=says) as refused:
        check_groups(policy(entry), source="policy.yaml")
    assert str(refused.value).startswith("policy.yaml: groups[0] (gpu): ")
