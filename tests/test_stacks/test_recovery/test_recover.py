"""What a killed engine began: read from its state, and found in AWS without touching what others made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from moto.ec2.models import ec2_backends

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from stacks.recovery.orphans import Orphan, OrphanFinder, is_written_over, remove, token_of
from stacks.recovery.recover import begun_creations, recorded_in, state_folder, torn_attributes, what_next, whereabouts
from stacks.release.deployer_iam import WRITES
from tests.test_stacks.stand_in import StandIn, client, stand_in

URN = "urn:pulumi:lab::spillway::spillway:network:Network${token}::{name}"
VPC, ROLE = "aws:ec2/vpc:Vpc", "aws:iam/role:Role"
TAGS = [{"Key": words.TAG_CLUSTER, "Value": "lab"}]


def urn(token: str, name: str) -> str:
    """As the engine writes it."""
    return URN.replace("{token}", token).replace("{name}", name)


def operation(token: str, name: str, kind: str = "creating", **inputs: Any) -> dict[str, Any]:
    """One that was cut off."""
    return {"type": kind, "resource": {"urn": urn(token, name), "inputs": inputs}}


def test_creations_that_were_cut_off_are_read_from_the_state() -> None:
    """Each once, however often the stack was brought up since; updates and deletions are the engine's own affair."""
    state = {
        "pending_operations": [
            operation(VPC, "lab-vpc", cidrBlock="10.0.0.0/16"),
            operation(ROLE, "lab-node", "updating"),
            operation(VPC, "lab-vpc"),
            operation(ROLE, "other", "deleting"),
        ]
    }
    [begun] = begun_creations(state)
    assert (begun.token, begun.name, begun.inputs) == (VPC, "lab-vpc", {"cidrBlock": "10.0.0.0/16"})
    assert list(begun_creations({})) == []


def test_what_the_state_records_is_known_by_type_and_id() -> None:
    """Components have none."""
    resources = [{"urn": urn(VPC, "a"), "id": "vpc-1"}, {"urn": urn("x:y:Z", "b")}]
    assert recorded_in({"resources": resources}) == {(VPC, "vpc-1")}
    assert recorded_in({}) == frozenset()


def test_region_and_cluster_are_the_providers() -> None:
    """A state without one is not of this project."""
    provider = {
        "urn": "urn:pulumi:lab::spillway::pulumi:providers:aws::aws",
        "inputs": {"region": "eu-west-1", "defaultTags": json.dumps({"tags": {words.TAG_CLUSTER: "lab"}})},
    }
    prices = {"urn": provider["urn"] + "-prices", "inputs": {"region": "us-east-1"}}
    another = {"urn": urn("pulumi:providers:other", "x"), "inputs": {"region": "here", "defaultTags": "{}"}}
    state = {"resources": [{"urn": urn(VPC, "a")}, prices, another, provider]}
    assert whereabouts(state) == ("eu-west-1", "lab")
    with pytest.raises(BadInput, match="no AWS provider with the cluster's tag"):
        whereabouts({"resources": []})


def test_attributes_that_were_cut_off_are_found_and_no_other_file_is(tmp_path: Path) -> None:
    """Empty or half; whole ones, and the states themselves, are let be."""
    stacks = tmp_path / "stacks" / "spillway"
    stacks.mkdir(parents=True)
    for name, text in {"a.json": "", "a.json.attrs": "", "b.json.attrs": '{"user', "c.json.attrs": "{}"}.items():
        (stacks / name).write_text(text, encoding="utf-8")
    assert [one.name for one in torn_attributes(tmp_path)] == ["a.json.attrs", "b.json.attrs"]
    assert torn_attributes(tmp_path / "nowhere") == torn_attributes(None) == []


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file:///srv/state", Path("/srv/state/.pulumi")),
        ("file://./state?no_tmp_dir=true", Path("/lab/state/.pulumi")),
        ("file://~", Path.home() / ".pulumi"),
        ("s3://bucket/lab", None),
        ("https://pulumi.example", None),
    ],
)
def test_a_state_lies_in_a_folder_or_elsewhere(url: str, folder: Path | None) -> None:
    """As the engine's own URL of its backend says."""
    assert state_folder(url, Path("/lab")) == folder


def test_what_is_written_over_needs_no_search() -> None:
    """Made again it is the same thing."""
    assert is_written_over(token_of(urn("kubernetes:core/v1:ConfigMap", "policy")))
    assert is_written_over("aws:autoscaling/lifecycleHook:LifecycleHook")
    assert not is_written_over(VPC)


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


def vpc(here: StandIn, **tags: str) -> str:
    """A VPC with these tags."""
    listed = [{"Key": key.replace("_", "."), "Value": value} for key, value in tags.items()]
    spec = [{"ResourceType": "vpc", "Tags": listed}]
    return str(here.ec2.create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=spec)["Vpc"]["VpcId"])


def test_a_thing_of_ours_is_found_by_its_name_and_taken_away(here: StandIn, finder: OrphanFinder) -> None:
    """Another cluster's of that name is not touched, nor is one of ours of another name."""
    mine = here.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    here.ec2.create_tags(Resources=[mine], Tags=[*TAGS, {"Key": "Name", "Value": "lab-vpc"}])
    others = vpc(here, Name="lab-vpc")
    second = here.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    here.ec2.create_tags(Resources=[second], Tags=[*TAGS, {"Key": "Name", "Value": "lab-other"}])
    [orphan] = finder.find(VPC, "lab-vpc", {"tags": {"Name": "lab-vpc"}})
    assert orphan.what == f"Vpc {mine}"
    remove(orphan)
    left = {one["VpcId"] for one in here.ec2.describe_vpcs()["Vpcs"]}
    assert {others, second} <= left
    assert mine not in left


def test_what_is_recorded_is_no_orphan(here: StandIn, finder: OrphanFinder) -> None:
    """It may have been made again since."""
    key = vpc(here, Name="lab-kept")
    here.ec2.create_tags(Resources=[key], Tags=TAGS)
    assert finder.find(VPC, "lab-kept", {"tags": {"Name": "lab-kept"}})
    owner = OrphanFinder(region="us-east-1", cluster="lab", recorded=frozenset({(VPC, key)}))
    assert owner.find(VPC, "lab-kept", {"tags": {"Name": "lab-kept"}}) == []


def test_a_role_of_that_name_that_is_not_ours_stays(here: StandIn, finder: OrphanFinder) -> None:
    """Its name is taken; the next `up` says so."""
    iam = client(here.url, "iam")
    trust = json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}
            ],
        }
    )
    iam.create_role(RoleName="lab-node", AssumeRolePolicyDocument=trust)
    assert finder.find(ROLE, "lab-node", {"name": "lab-node"}) == []
    iam.tag_role(RoleName="lab-node", Tags=TAGS)
    [orphan] = finder.find(ROLE, "lab-node", {"name": "lab-node"})
    remove(orphan)
    assert finder.find(ROLE, "lab-node", {"name": "lab-node"}) == []


@pytest.mark.usefixtures("finder")
def test_a_profile_is_no_less_an_orphan_for_the_role_of_its_name(here: StandIn) -> None:
    """Both have their name for an id, and only the role is recorded."""
    iam = client(here.url, "iam")
    iam.create_instance_profile(InstanceProfileName="lab-node", Tags=TAGS)
    finder = OrphanFinder(region="us-east-1", cluster="lab", recorded=frozenset({(ROLE, "lab-node")}))
    [orphan] = finder.find("aws:iam/instanceProfile:InstanceProfile", "lab-node", {"name": "lab-node"})
    assert orphan.what == "InstanceProfile lab-node"
    remove(orphan)


def test_one_that_has_gone_by_itself_is_no_failure_and_was_not_taken_away(here: StandIn) -> None:
    """Between the look and the act; whatever a service calls that."""
    iam, s3, logs, ssm = (client(here.url, service) for service in ("iam", "s3", "logs", "ssm"))
    acts: list[Callable[[], object]] = [
        lambda: here.ec2.delete_vpc(VpcId="vpc-00000000"),
        lambda: iam.delete_role(RoleName="none"),
        lambda: s3.delete_bucket(Bucket="none"),
        lambda: logs.delete_log_group(logGroupName="none"),
        lambda: ssm.delete_association(AssociationId="00000000-0000-0000-0000-000000000000"),
    ]
    for act in acts:
        assert remove(Orphan("lab-it", "It", act)) is False
    kept = here.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    assert remove(Orphan("lab-it", "Vpc", lambda: here.ec2.delete_vpc(VpcId=kept))) is True


TAGGED: dict[str, tuple[Callable[[StandIn, str], str], Callable[[StandIn, str], object]]] = {
    VPC: (
        lambda it, _: str(it.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]),
        lambda it, key: it.ec2.delete_vpc(VpcId=key),
    ),
    "aws:ec2/subnet:Subnet": (
        lambda it, vpc: str(it.ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24")["Subnet"]["SubnetId"]),
        lambda it, key: it.ec2.delete_subnet(SubnetId=key),
    ),
    "aws:ec2/internetGateway:InternetGateway": (
        lambda it, _: str(it.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]),
        lambda it, key: it.ec2.delete_internet_gateway(InternetGatewayId=key),
    ),
    "aws:ec2/eip:Eip": (
        lambda it, _: str(it.ec2.allocate_address(Domain="vpc")["AllocationId"]),
        lambda it, key: it.ec2.release_address(AllocationId=key),
    ),
    "aws:ec2/routeTable:RouteTable": (
        lambda it, vpc: str(it.ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]),
        lambda it, key: it.ec2.delete_route_table(RouteTableId=key),
    ),
    "aws:ec2/securityGroup:SecurityGroup": (
        lambda it, vpc: str(it.ec2.create_security_group(GroupName="it", Description="it", VpcId=vpc)["GroupId"]),
        lambda it, key: it.ec2.delete_security_group(GroupId=key),
    ),
}
"""By type: how one is made, in a VPC, and how it is taken away."""


@pytest.mark.parametrize("token", TAGGED)
def test_what_has_gone_and_left_its_tags_is_not_found(here: StandIn, finder: OrphanFinder, token: str) -> None:
    """EC2 keeps the tags for an hour: `recover` would claim to have taken it away."""
    make, delete = TAGGED[token]
    key = make(here, str(here.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]))
    tags = [*TAGS, {"Key": "Name", "Value": "lab-gone"}]
    here.ec2.create_tags(Resources=[key], Tags=tags)
    inputs = {"tags": {"Name": "lab-gone"}}
    assert [one.what for one in finder.find(token, "it", inputs)] == [f"{token.rpartition(':')[2]} {key}"]
    delete(here, key)
    backend = ec2_backends["123456789012"]["us-east-1"]
    backend.tags.setdefault(key, {}).update({tag["Key"]: tag["Value"] for tag in tags})
    kept = here.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [key]}])["Tags"]
    assert kept, "as EC2 keeps them"
    assert finder.find(token, "it", inputs) == []


def test_what_goes_on_is_told_by_what_was_cut_off() -> None:
    """After a destroy never `up` alone, which would build it again."""
    gone = operation(ROLE, "lab-node", "deleting")
    made, changed = operation(VPC, "lab-vpc"), operation(VPC, "lab-vpc", "updating")
    only_down = what_next({"pending_operations": [gone]})
    assert only_down.startswith("the deletion of Role (lab-node) was cut off: `pulumi destroy` goes on")
    for up in ([made], [changed]):
        assert what_next({"pending_operations": up}) == "`pulumi up --refresh` goes on where it was cut off"
    for either in ([], [gone, made]):
        said = what_next({"pending_operations": either})
        assert "`pulumi up --refresh` goes on with a `pulumi up`" in said
        assert "`pulumi destroy` with a `pulumi destroy`" in said


def test_whatever_a_program_makes_is_looked_for_or_written_over(finder: OrphanFinder) -> None:
    """An engine may be cut off at any of them: a type that nobody looks for would stop the whole recovery."""
    named = {"tags": {"Name": "lab-it"}}
    for made in WRITES:
        module, _, kind = made.partition(".")
        token = f"aws:{module}/{kind[0].lower()}{kind[1:]}:{kind}"
        assert finder.knows(token, named) != is_written_over(token), token


def test_what_cannot_be_told_apart_is_not_looked_for(finder: OrphanFinder) -> None:
    """A type that no program makes, or one without a `Name` tag: a person looks."""
    assert not finder.knows("aws:rds/cluster:Cluster", {})
    assert not finder.knows(VPC, {"tags": {"team": "a"}})
    assert finder.knows(VPC, {"tags": {"Name": "lab-vpc"}})
