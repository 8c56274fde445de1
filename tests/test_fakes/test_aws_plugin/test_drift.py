"""What a refresh makes of properties that the program leaves out and that were set by hand, through the protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from stacks.aws.trust import trust_of
from stacks.local.fake_aws.instances import World
from stacks.local.fake_aws.server import serving
from stacks.local.pulumi_plugins.aws.defaults import DEFAULTS
from stacks.local.pulumi_plugins.aws.kinds import Cloud
from stacks.local.pulumi_plugins.aws.provider import StandIn
from stacks.local.pulumi_plugins.aws.registry import KINDS
from stacks.local.pulumi_plugins.plugin import read, written
from tests.test_stacks.stand_in import IMAGE

GROUP = "aws:autoscaling/group:Group"
ROLE = "aws:iam/role:Role"


class Engine:
    """The engine's side: what it keeps of one resource, and what it asks the provider."""

    def __init__(self, provider: StandIn, cloud: Cloud, token: str, **inputs: Any) -> None:
        self._provider, self.cloud = provider, cloud
        self.urn = f"urn:pulumi:test::lab::{token}::it"
        self.said = inputs
        made = provider.Create(provider_pb2.CreateRequest(urn=self.urn, properties=written(inputs)), None)
        self.id, self.inputs, self.state = made.id, inputs, read(made.properties)

    def refresh(self) -> None:
        """Take over what stands."""
        asked = provider_pb2.ReadRequest(
            id=self.id, urn=self.urn, inputs=written(self.inputs), properties=written(self.state)
        )
        found = self._provider.Read(asked, None)
        self.inputs, self.state = read(found.inputs), read(found.properties)

    def differing(self) -> list[str]:
        """Properties in which what stands differs from what the program says."""
        asked = provider_pb2.DiffRequest(
            id=self.id,
            urn=self.urn,
            olds=written(self.state),
            old_inputs=written(self.inputs),
            news=written(self.said),
        )
        return list(self._provider.Diff(asked, None).diffs)

    def update(self) -> None:
        """Bring about what the program says."""
        asked = provider_pb2.UpdateRequest(
            id=self.id,
            urn=self.urn,
            olds=written(self.state),
            old_inputs=written(self.inputs),
            news=written(self.said),
        )
        self.state, self.inputs = read(self._provider.Update(asked, None).properties), self.said


@pytest.fixture(scope="module")
def make() -> Iterator[Callable[..., Engine]]:
    """Make a resource of a type, at a stand-in of the module's own."""
    with serving(World()) as url, pytest.MonkeyPatch.context() as environment:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "local")
        environment.setenv("AWS_ENDPOINT_URL", url)
        provider = StandIn()
        provider.Configure(provider_pb2.ConfigureRequest(args=written({"region": "us-east-1"})), None)
        cloud = Cloud(region="us-east-1", endpoint=url, default_tags={})
        yield lambda token, **inputs: Engine(provider, cloud, token, **inputs)


@pytest.fixture
def group(make: Callable[..., Engine]) -> Iterator[Engine]:
    """An empty Auto Scaling group."""
    template = make("aws:ec2/launchTemplate:LaunchTemplate", name="of-g", imageId=IMAGE, instanceType="m5.large")
    [subnet, *_] = template.cloud.ec2.describe_subnets()["Subnets"]
    named = {"id": template.id, "version": "$Latest"}
    where = [subnet["SubnetId"]]
    yield make(GROUP, name="g", minSize=0, maxSize=2, launchTemplate=named, vpcZoneIdentifiers=where)
    template.cloud.scaling.delete_auto_scaling_group(AutoScalingGroupName="g", ForceDelete=True)
    template.cloud.ec2.delete_launch_template(LaunchTemplateId=template.id)


def test_a_suspended_process_is_found_and_resumed(group: Engine) -> None:
    """A group that cannot launch never grows: the provider takes nothing over of it."""
    group.refresh()
    assert group.differing() == []
    group.cloud.scaling.suspend_processes(AutoScalingGroupName="g", ScalingProcesses=["Launch"])
    group.refresh()
    assert group.differing() == ["suspendedProcesses"]
    assert group.state["suspendedProcesses"] == ["Launch"]
    group.update()
    group.refresh()
    assert (group.differing(), group.state["suspendedProcesses"]) == ([], [])


def test_protection_and_the_grace_period_go_back_to_their_defaults(group: Engine) -> None:
    """Those of the provider."""
    group.cloud.scaling.update_auto_scaling_group(
        AutoScalingGroupName="g", NewInstancesProtectedFromScaleIn=True, HealthCheckGracePeriod=0
    )
    group.refresh()
    assert group.differing() == ["healthCheckGracePeriod", "protectFromScaleIn"]
    group.update()
    group.refresh()
    assert group.differing() == []
    assert (group.state["healthCheckGracePeriod"], group.state["protectFromScaleIn"]) == (300, False)


def test_what_the_provider_takes_over_is_no_difference(group: Engine) -> None:
    """The desired capacity is the autoscaler's, and stays; the state knows it."""
    group.cloud.scaling.set_desired_capacity(AutoScalingGroupName="g", DesiredCapacity=1)
    group.refresh()
    assert (group.differing(), group.state["desiredCapacity"]) == ([], 1)
    group.update()
    group.refresh()
    assert group.state["desiredCapacity"] == 1


def test_a_boundary_set_by_hand_is_found_and_taken_away(make: Callable[..., Engine]) -> None:
    """And a description, and a longer session."""
    trust = json.dumps(trust_of("ec2.amazonaws.com"))
    role = make(ROLE, name="r", assumeRolePolicy=trust)
    role.refresh()
    assert role.differing() == []
    role.cloud.iam.put_role_permissions_boundary(
        RoleName="r", PermissionsBoundary="arn:aws:iam::aws:policy/ReadOnlyAccess"
    )
    role.cloud.iam.update_role(RoleName="r", Description="by hand", MaxSessionDuration=7200)
    role.refresh()
    assert role.differing() == ["description", "maxSessionDuration", "permissionsBoundary"]
    role.update()
    role.refresh()
    assert role.differing() == []
    found = role.cloud.iam.get_role(RoleName="r")["Role"]
    assert (found.get("Description") or "", found["MaxSessionDuration"]) == ("", 3600)
    assert "PermissionsBoundary" not in found


def test_a_subnet_that_gives_public_addresses_is_found(make: Callable[..., Engine]) -> None:
    """By hand it was opened; the program closes it."""
    vpc = make("aws:ec2/vpc:Vpc", cidrBlock="10.8.0.0/16")
    subnet = make("aws:ec2/subnet:Subnet", vpcId=vpc.id, cidrBlock="10.8.0.0/24")
    subnet.cloud.ec2.modify_subnet_attribute(SubnetId=subnet.id, MapPublicIpOnLaunch={"Value": True})
    vpc.cloud.ec2.modify_vpc_attribute(VpcId=vpc.id, EnableDnsSupport={"Value": False})
    for one, name, default in ((subnet, "mapPublicIpOnLaunch", False), (vpc, "enableDnsSupport", True)):
        one.refresh()
        assert one.differing() == [name]
        one.update()
        one.refresh()
        assert (one.differing(), one.state[name]) == ([], default)


def test_a_market_written_into_a_template_by_hand_is_found(make: Callable[..., Engine]) -> None:
    """A newer version that asks for spot capacity; another version says what the program says."""
    template = make("aws:ec2/launchTemplate:LaunchTemplate", name="spot", imageId=IMAGE, instanceType="m5.large")
    template.cloud.ec2.create_launch_template_version(
        LaunchTemplateId=template.id,
        SourceVersion="$Latest",
        LaunchTemplateData={"InstanceMarketOptions": {"MarketType": "spot"}},
    )
    template.refresh()
    assert template.differing() == ["instanceMarketOptions"]
    template.update()
    template.refresh()
    assert (template.differing(), template.state["latestVersion"]) == ([], 3)


def test_the_table_is_about_what_the_stand_in_takes_and_can_change() -> None:
    """Of what replaces a resource a hand cannot have set it."""
    for token, defaults in DEFAULTS.items():
        assert defaults.keys() <= KINDS[token].inputs - KINDS[token].fixed, token
