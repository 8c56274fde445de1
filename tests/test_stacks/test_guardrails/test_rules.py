"""The guardrails' rules, one mistake at a time, and the pack as the engine asks it."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.guardrails.rules import (
    Seen,
    bare_buckets,
    default_tags,
    groups_beyond,
    metadata_without_token,
    missing_tags,
    unencrypted_volumes,
    world_open,
)

INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
EKS = "aws:eks/cluster:Cluster"
DEFAULT_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
SPOT = "aws:ec2/spotInstanceRequest:SpotInstanceRequest"
FLEET = "aws:ec2/spotFleetRequest:SpotFleetRequest"
CONFIGURATION = "aws:ec2/launchConfiguration:LaunchConfiguration"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
SCALING = "aws:autoscaling/group:Group"
BUCKET = "aws:s3/bucket:Bucket"


@pytest.mark.parametrize(
    ("kind", "inputs", "says"),
    [
        (INGRESS, {"ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "cidrIpv4": "0.0.0.0/0"}, "port 22 is open to"),
        (INGRESS, {"ipProtocol": "-1", "cidrIpv6": "::/0"}, "every port is open to ::/0"),
        (INGRESS, {"ipProtocol": "tcp", "fromPort": 80, "toPort": 443, "cidrIpv4": "0.0.0.0/1"}, "ports 80 to 443"),
        (RULE, {"type": "ingress", "fromPort": 22, "toPort": 22, "cidrBlocks": ["10.0.0.0/8", "0.0.0.0/0"]}, "port 22"),
        (GROUP, {"ingress": [{"fromPort": 0, "toPort": 0, "protocol": "-1", "cidrBlocks": ["0.0.0.0/0"]}]}, "open to"),
        (RULE, {"type": "ingress", "fromPort": 22, "toPort": 22, "ipv6CidrBlocks": ["2000::/3"]}, "open to 2000::/3"),
        (GROUP, {"ingress": [{"fromPort": 22, "toPort": 22, "protocol": "tcp", "ipv6CidrBlocks": ["::/1"]}]}, "::/1"),
        (DEFAULT_GROUP, {"ingress": [{"fromPort": 0, "toPort": 0, "ipv6CidrBlocks": ["::/0"]}]}, "open to ::/0"),
        (EKS, {"vpcConfig": {"endpointPublicAccess": True, "publicAccessCidrs": ["0.0.0.0/0"]}}, "open to 0.0.0.0/0"),
        (EKS, {"vpcConfig": {"subnetIds": []}}, "open to 0.0.0.0/0"),
        (INGRESS, {"ipProtocol": "tcp", "fromPort": 443, "toPort": 443, "prefixListId": "pl-1"}, "port 443 is open to"),
        (RULE, {"type": "ingress", "fromPort": 22, "toPort": 22, "prefixListIds": ["pl-1"]}, "prefix list pl-1"),
        (GROUP, {"ingress": [{"fromPort": 0, "toPort": 0, "prefixListIds": ["pl-1"]}]}, "not seen here"),
    ],
)
def test_a_way_in_from_the_whole_internet_is_refused(kind: str, inputs: dict[str, Any], says: str) -> None:
    """However it is written, also in halves and by a default."""
    [sentence] = world_open(kind, inputs)
    assert says in sentence
    assert "name the networks that need it" in sentence


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        (INGRESS, {"ipProtocol": "-1", "cidrIpv4": "10.20.0.0/16"}),
        (INGRESS, {"ipProtocol": "-1", "referencedSecurityGroupId": "sg-1"}),
        (RULE, {"type": "egress", "cidrBlocks": ["0.0.0.0/0"]}),
        (RULE, {"type": "egress", "prefixListIds": ["pl-1"]}),
        ("aws:rds/instance:Instance", {"publiclyAccessible": False}),
        ("aws:rds/instance:Instance", {}),
        (GROUP, {"egress": [{"cidrBlocks": ["0.0.0.0/0"]}]}),
        (EKS, {"vpcConfig": {"endpointPublicAccess": False}}),
        (EKS, {"vpcConfig": {"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.7/32"]}}),
    ],
)
def test_other_ways_are_let_be(kind: str, inputs: dict[str, Any]) -> None:
    """Out to everywhere, and in from those who are named."""
    assert not list(world_open(kind, inputs))


@pytest.mark.parametrize("kind", ["rds/instance:Instance", "rds/clusterInstance:ClusterInstance", "mq/broker:Broker"])
def test_a_database_on_the_internet_is_refused(kind: str) -> None:
    """Whatever its security groups say."""
    [sentence] = world_open(f"aws:{kind}", {"publiclyAccessible": True})
    assert "set it to false" in sentence


@pytest.mark.parametrize("kind", [TEMPLATE, INSTANCE])
@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (None, True),
        ({"httpTokens": "optional"}, True),
        ({"httpEndpoint": "enabled"}, True),
        ({"httpTokens": "required"}, False),
        ({"httpEndpoint": "disabled"}, False),
    ],
)
def test_metadata_needs_a_token(kind: str, options: dict[str, str] | None, *, refused: bool) -> None:
    """Or is told to nobody."""
    assert bool(list(metadata_without_token(kind, {"metadataOptions": options}))) == refused


@pytest.mark.parametrize(
    ("kind", "inputs", "says"),
    [
        (TEMPLATE, {}, "names no disk"),
        (TEMPLATE, {"blockDeviceMappings": [{"ebs": {"encrypted": "true"}}, {"ebs": {"volumeSize": 9}}]}, "[1].ebs"),
        (TEMPLATE, {"blockDeviceMappings": [{"ebs": {"encrypted": "false"}}]}, "[0].ebs.encrypted"),
        (INSTANCE, {"rootBlockDevice": {"volumeSize": 9}}, "encrypt every disk"),
        (INSTANCE, {"rootBlockDevice": {"encrypted": True}, "ebsBlockDevices": [{}]}, "encrypt every disk"),
        ("aws:ebs/volume:Volume", {"size": 9}, "encrypt what it keeps"),
    ],
)
def test_a_disk_in_clear_is_refused(kind: str, inputs: dict[str, Any], says: str) -> None:
    """Also one that nobody mentions."""
    [sentence] = unencrypted_volumes(kind, inputs)
    assert says in sentence


def test_encrypted_disks_are_let_be() -> None:
    """As the programs of this project ask for them."""
    assert not list(unencrypted_volumes(TEMPLATE, {"blockDeviceMappings": [{"ebs": {"encrypted": "true"}}]}))
    assert not list(unencrypted_volumes(INSTANCE, {"rootBlockDevice": {"encrypted": True}}))
    assert not list(unencrypted_volumes("aws:ebs/volume:Volume", {"encrypted": True}))


def test_tags_may_come_from_the_resource_or_from_its_provider() -> None:
    """The provider's nested settings arrive as JSON."""
    defaults = default_tags({"defaultTags": '{"tags": {"cluster": "lab"}}'})
    required = ("cluster", "team")
    assert not list(missing_tags("aws:ec2/vpc:Vpc", {"tags": {"team": "x"}}, required=required, defaults=defaults))
    [sentence] = missing_tags("aws:ec2/vpc:Vpc", {}, required=required, defaults=defaults)
    assert "has no tag team" in sentence
    tagged = {"tags": [{"key": "team", "value": "x"}]}
    [sentence] = missing_tags(SCALING, tagged, required=required, defaults=defaults)
    assert "has no tag cluster" in sentence, "Auto Scaling groups get no default tags"
    assert not list(missing_tags("aws:ec2/route:Route", {}, required=required, defaults={})), "it cannot have any"


def test_a_bucket_needs_encryption_and_a_block_of_its_own() -> None:
    """Those of another bucket do not count."""
    encryption = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
    block = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
    resources = [
        Seen(kind=BUCKET, name="good", inputs={}),
        Seen(kind=encryption, name="good", inputs={}, of=frozenset({"good"})),
        Seen(kind=block, name="good", inputs={}, of=frozenset({"good"})),
    ]
    assert not list(bare_buckets(resources))
    wrong = list(bare_buckets([*resources, Seen(kind=BUCKET, name="bare", inputs={})]))
    assert [name for name, _ in wrong] == ["bare", "bare"]


def scaling_group(name: str, *, most: int, entry: str = "") -> Seen:
    """An Auto Scaling group, of an entry of the policy or of nobody."""
    tags = [{"key": "spillway.dev/group", "value": entry}] if entry else []
    return Seen(kind=SCALING, name=name, inputs={"maxSize": most, "tags": tags})


def stack(**prices: float | None) -> Seen:
    """What the program exports."""
    groups = [{"entry": entry, "usdPerHour": price} for entry, price in prices.items()]
    return Seen(kind="pulumi:pulumi:Stack", name="lab", inputs={"cost": {"groups": groups}})


def test_the_ceiling_holds_for_the_sum_of_the_entries() -> None:
    """An entry keeps to its max over all its zones, and counts once."""
    resources = [
        stack(gpu=10.0, cpu=1.0),
        scaling_group("gpu-a", most=4, entry="gpu"),
        scaling_group("gpu-b", most=4, entry="gpu"),
        scaling_group("cpu-a", most=5, entry="cpu"),
    ]
    assert not list(groups_beyond(resources, usd_per_hour=45.0))
    [sentence] = groups_beyond(resources, usd_per_hour=44.99)
    assert "cost 45.00 $/h (cpu 5 x 1, gpu 4 x 10), over the ceiling of 44.99 $/h" in sentence


@pytest.mark.parametrize("told", [stack(), stack(gpu=None), Seen(kind="other", name="x", inputs={})])
def test_a_group_without_a_price_is_refused(told: Seen) -> None:
    """What cannot be counted cannot be let through."""
    [sentence] = groups_beyond([told, scaling_group("gpu-a", most=1, entry="gpu")], usd_per_hour=1e9)
    assert "the group gpu has no price: write usd_per_hour" in sentence


def test_a_group_of_nobodys_policy_is_counted_by_its_own_name() -> None:
    """Somebody else's program in the same stack."""
    [sentence] = groups_beyond([stack(gpu=1.0), scaling_group("strange", most=1)], usd_per_hour=1e9)
    assert "the group strange has no price" in sentence


@pytest.mark.parametrize("kind", [INSTANCE, SPOT, CONFIGURATION])
def test_machines_are_held_to_tokens_and_encryption_however_they_are_made(kind: str) -> None:
    """Also by the kinds of resource that came before launch templates."""
    assert list(metadata_without_token(kind, {"metadataOptions": {"httpTokens": "optional"}}))
    assert list(metadata_without_token(kind, {}))
    assert not list(metadata_without_token(kind, {"metadataOptions": {"httpTokens": "required"}}))
    assert list(unencrypted_volumes(kind, {}))
    bare = {"rootBlockDevice": {"encrypted": True}, "ebsBlockDevices": [{"deviceName": "/dev/sdf"}]}
    assert list(unencrypted_volumes(kind, bare))
    assert not list(unencrypted_volumes(kind, {"rootBlockDevice": {"encrypted": True}}))


def test_a_fleet_that_cannot_ask_for_a_token_is_refused() -> None:
    """Its own specifications know no metadata options."""
    [sentence] = metadata_without_token(FLEET, {"launchSpecifications": [{"instanceType": "g5.xlarge"}]})
    assert "give launchTemplateConfigs" in sentence
    assert not list(metadata_without_token(FLEET, {"launchTemplateConfigs": [{}]}))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("aws:efs/fileSystem:FileSystem", "encrypted"),
        ("aws:rds/instance:Instance", "storageEncrypted"),
        ("aws:rds/cluster:Cluster", "storageEncrypted"),
        ("aws:ec2/amiCopy:AmiCopy", "encrypted"),
        ("aws:ebs/snapshotCopy:SnapshotCopy", "encrypted"),
    ],
)
def test_whatever_keeps_data_is_encrypted(kind: str, said: str) -> None:
    """By the input that each has for it."""
    [sentence] = unencrypted_volumes(kind, {})
    assert sentence.startswith(f"{said} is not true")
    assert list(unencrypted_volumes(kind, {said: False}))
    assert not list(unencrypted_volumes(kind, {said: True}))


def test_encryption_by_default_is_not_switched_off() -> None:
    """It is on where nothing is said."""
    kind = "aws:ebs/encryptionByDefault:EncryptionByDefault"
    assert list(unencrypted_volumes(kind, {"enabled": False}))
    assert not list(unencrypted_volumes(kind, {}))
