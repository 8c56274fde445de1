"""What `spillway recover` takes away by a name, or by what it joins: ours alone, and the one that was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from autoscaler.model import labels as words
from stacks.recovery.orphans import OrphanFinder, remove
from tests.test_stacks.stand_in import StandIn, client, stand_in

TAGS, OTHERS = ([{"Key": words.TAG_CLUSTER, "Value": cluster}] for cluster in ("lab", "other"))
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}],
}
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
Tags = list[dict[str, str]]


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """A stand-in for AWS."""
    with stand_in() as made:
        yield made


@pytest.fixture
def finder(here: StandIn, monkeypatch: pytest.MonkeyPatch) -> OrphanFinder:
    """One that looks for what belongs to the cluster ``lab``, and knows of nothing recorded."""
    for name, value in (("ENDPOINT_URL", here.url), ("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local")):
        monkeypatch.setenv(f"AWS_{name}", value)
    return OrphanFinder(region="us-east-1", cluster="lab", recorded=frozenset())


def found(finder: OrphanFinder, token: str, inputs: dict[str, Any]) -> list[str]:
    """Ids."""
    return [one.what.split(" ", 1)[1] for one in finder.find(token, "it", inputs)]


def specified(kind: str, tags: Tags) -> dict[str, Any]:
    """As EC2 takes tags at a creation, which must be some."""
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": tags}]} if tags else {}


# --- By name ---


def placement_group(here: StandIn, name: str, tags: Tags) -> None:
    """Of nodes that stand close."""
    here.ec2.create_placement_group(GroupName=name, Strategy="cluster", **specified("placement-group", tags))


def scaling_group(here: StandIn, name: str, tags: Tags) -> None:
    """Of nodes."""
    of_group = [{"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}]
    here.group(AutoScalingGroupName=name, Tags=[{**of_group[0], **tag} for tag in tags])


def template(here: StandIn, name: str, tags: Tags) -> None:
    """Of instances."""
    data = {"InstanceType": "m5.large"}
    here.ec2.create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData=data, **specified("launch-template", tags)
    )


def profile(here: StandIn, name: str, tags: Tags) -> None:
    """With a role in it."""
    iam = client(here.url, "iam")
    iam.create_instance_profile(InstanceProfileName=name, Tags=tags)
    iam.create_role(RoleName=f"{name}-in-it", AssumeRolePolicyDocument=json.dumps(TRUST))
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=f"{name}-in-it")


@pytest.mark.parametrize(
    ("token", "make"),
    [
        ("aws:ec2/placementGroup:PlacementGroup", placement_group),
        ("aws:autoscaling/group:Group", scaling_group),
        ("aws:ec2/launchTemplate:LaunchTemplate", template),
        ("aws:iam/instanceProfile:InstanceProfile", profile),
    ],
)
def test_of_what_has_a_name_ours_goes_and_anothers_of_that_name_stays(
    here: StandIn, finder: OrphanFinder, token: str, make: Callable[[StandIn, str, Tags], None]
) -> None:
    """Whose it is, its tag says: another cluster's, and one without a tag, are let be."""
    ours, others, untagged = (f"lab-{make.__name__}-{which}".replace("_", "-") for which in ("ours", "others", "none"))
    make(here, ours, TAGS)
    make(here, others, OTHERS)
    make(here, untagged, [])
    assert found(finder, token, {"name": others}) == []
    assert found(finder, token, {"name": untagged}) == []
    assert found(finder, token, {"name": f"{ours}-2"}) == []
    [orphan] = finder.find(token, "it", {"name": ours})
    assert remove(orphan)
    assert found(finder, token, {"name": ours}) == []


def test_a_bucket_that_was_cut_off_before_its_tags_is_known_by_the_name_that_was_drawn_for_it(
    here: StandIn, finder: OrphanFinder
) -> None:
    """Buckets have their tags by a second call. One of a name that a person could choose, or with tags, is let be."""
    s3, token = client(here.url, "s3"), "aws:s3/bucket:Bucket"
    for name in ("lab-snapshots-1a2b3c4", "lab-snapshots-0000000", "lab-snapshots"):
        s3.create_bucket(Bucket=name)
    s3.put_bucket_tagging(Bucket="lab-snapshots-0000000", Tagging={"TagSet": [{"Key": "team", "Value": "a"}]})
    assert found(finder, token, {"bucket": "lab-snapshots"}) == []
    assert found(finder, token, {"bucket": "lab-snapshots-0000000"}) == []
    [orphan] = finder.find(token, "it", {"bucket": "lab-snapshots-1a2b3c4"})
    assert remove(orphan)
    assert {one["Name"] for one in s3.list_buckets()["Buckets"]} == {"lab-snapshots-0000000", "lab-snapshots"}


def test_an_access_key_that_was_used_has_its_owner(here: StandIn, finder: OrphanFinder) -> None:
    """A person made it beside the stack's: the secret of one that an engine lost was never used."""
    iam = client(here.url, "iam")
    iam.create_user(UserName="lab-autoscaler")
    lost, used = (iam.create_access_key(UserName="lab-autoscaler")["AccessKey"] for _ in range(2))
    credentials = {"aws_access_key_id": used["AccessKeyId"], "aws_secret_access_key": used["SecretAccessKey"]}
    boto3.client("sts", endpoint_url=here.url, region_name="us-east-1", **credentials).get_caller_identity()
    assert found(finder, "aws:iam/accessKey:AccessKey", {"user": "lab-autoscaler"}) == [lost["AccessKeyId"]]


# --- By what they join ---


def rule(here: StandIn, group: str, *, tags: Tags, egress: bool = False, **wanted: Any) -> str:
    """A rule of the group; its id."""
    permission = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "10.0.0.0/8"}], **wanted}
    allow = here.ec2.authorize_security_group_egress if egress else here.ec2.authorize_security_group_ingress
    made = allow(
        GroupId=group,
        IpPermissions=[{key: value for key, value in permission.items() if value is not None}],
        **specified("security-group-rule", tags),
    )
    return str(made["SecurityGroupRules"][0]["SecurityGroupRuleId"])


@pytest.fixture
def group(here: StandIn) -> Iterator[str]:
    """A security group, without the rule that each has for all that goes out."""
    vpc = here.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = str(here.ec2.create_security_group(GroupName="it", Description="it", VpcId=vpc)["GroupId"])
    for one in here.ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [made]}])[
        "SecurityGroupRules"
    ]:
        here.ec2.revoke_security_group_egress(GroupId=made, SecurityGroupRuleIds=[one["SecurityGroupRuleId"]])
    yield made
    here.ec2.delete_security_group(GroupId=made)


def asked(group: str, **changed: Any) -> dict[str, Any]:
    """What the engine asks for, for the rule that `rule` makes."""
    ordinary = {
        "securityGroupId": group,
        "ipProtocol": "tcp",
        "fromPort": 22,
        "toPort": 22,
        "cidrIpv4": "10.0.0.0/8",
    }
    return {key: value for key, value in {**ordinary, **changed}.items() if value is not None}


def test_a_rule_is_the_one_of_its_way(here: StandIn, finder: OrphanFinder, group: str) -> None:
    """Of two that say the same, in and out, each is found as what it is, and goes alone."""
    into, out = rule(here, group, tags=TAGS), rule(here, group, tags=TAGS, egress=True)
    assert found(finder, INGRESS, asked(group)) == [into]
    [orphan] = finder.find(EGRESS, "it", asked(group))
    assert orphan.what.endswith(out)
    assert remove(orphan)
    assert found(finder, EGRESS, asked(group)) == []
    assert found(finder, INGRESS, asked(group)) == [into]


@pytest.mark.parametrize(
    "changed",
    [
        {"ipProtocol": "udp"},
        {"cidrIpv4": "10.1.0.0/16"},
        {"cidrIpv4": None},
        {"referencedSecurityGroupId": "sg-0123abcd", "cidrIpv4": None},
        {"fromPort": 21},
        {"toPort": 23},
        {"ipProtocol": "-1", "fromPort": None, "toPort": None},
    ],
    ids=str,
)
def test_a_rule_that_says_something_else_is_not_the_one(
    here: StandIn, finder: OrphanFinder, group: str, changed: dict[str, Any]
) -> None:
    """In one respect only."""
    rule(here, group, tags=TAGS)
    assert found(finder, INGRESS, asked(group, **changed)) == []


def test_a_rule_of_every_port_has_none(here: StandIn, finder: OrphanFinder, group: str) -> None:
    """As EC2 tells of it, whatever the program has said."""
    key = rule(here, group, tags=TAGS, IpProtocol="-1", FromPort=None, ToPort=None)
    assert found(finder, INGRESS, asked(group, ipProtocol="-1", fromPort=0, toPort=0)) == [key]


def test_a_rule_of_a_group_is_found_by_it(here: StandIn, finder: OrphanFinder, group: str) -> None:
    """And no rule of another."""
    pairs = [{"GroupId": group}]
    key = rule(here, group, tags=TAGS, IpRanges=None, UserIdGroupPairs=pairs)
    own = asked(group, cidrIpv4=None, referencedSecurityGroupId=group)
    assert found(finder, INGRESS, own) == [key]
    assert found(finder, INGRESS, own | {"referencedSecurityGroupId": "sg-0123abcd"}) == []


@pytest.mark.parametrize("tags", [[], OTHERS], ids=["none", "another's"])
def test_a_rule_that_somebody_else_wrote_stays(here: StandIn, finder: OrphanFinder, group: str, tags: Tags) -> None:
    """In a group that is shared with controllers: it says the same, and has not our tag."""
    rule(here, group, tags=tags)
    assert found(finder, INGRESS, asked(group)) == []


@pytest.fixture
def network(here: StandIn) -> dict[str, str]:
    """A table with a gateway of its VPC, and a subnet."""
    vpc = here.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    gateway = here.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    here.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table, second = (here.ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"] for _ in range(2))
    subnet = here.ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]
    return {"gateway": gateway, "table": table, "second": second, "subnet": subnet}


def test_a_route_is_the_one_by_its_way(here: StandIn, finder: OrphanFinder, network: dict[str, str]) -> None:
    """Another way to the same networks was written by somebody else: EC2 takes one route to each."""
    token, table = "aws:ec2/route:Route", network["table"]
    here.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=network["gateway"])
    wanted = {"routeTableId": table, "destinationCidrBlock": "0.0.0.0/0", "gatewayId": network["gateway"]}
    assert found(finder, token, {**wanted, "gatewayId": "vgw-0123abcd"}) == []
    assert found(finder, token, {**wanted, "destinationCidrBlock": "10.80.0.0/16"}) == []
    assert found(finder, token, {**wanted, "routeTableId": network["second"]}) == []
    assert found(finder, token, {"routeTableId": table, "destinationCidrBlock": "0.0.0.0/0", "natGatewayId": "n"}) == []
    [orphan] = finder.find(token, "it", wanted)
    assert remove(orphan)
    assert found(finder, token, wanted) == []


def test_an_association_is_the_one_with_its_table(here: StandIn, finder: OrphanFinder, network: dict[str, str]) -> None:
    """A subnet that somebody gave another table keeps it."""
    token = "aws:ec2/routeTableAssociation:RouteTableAssociation"  # noqa: S105 - the name of a type
    made = here.ec2.associate_route_table(RouteTableId=network["table"], SubnetId=network["subnet"])
    wanted = {"subnetId": network["subnet"], "routeTableId": network["table"]}
    assert found(finder, token, {**wanted, "routeTableId": network["second"]}) == []
    [orphan] = finder.find(token, "it", wanted)
    assert orphan.what.endswith(made["AssociationId"])
    assert remove(orphan)
    assert found(finder, token, wanted) == []
