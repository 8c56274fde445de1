"""The real Pulumi engine, the project's own program, and the stand-ins for AWS and its plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3
import pytest

from autoscaler import labels as words
from autoscaler.failures import BadInput, Unavailable
from stacks.local.engine import EngineSettings, pulumi_destroy, pulumi_preview, pulumi_up
from stacks.local.ground import ENGINE_BINARIES
from stacks.local.tools import ensure_tools
from stacks.outputs import StackOutputs

pytestmark = pytest.mark.live

GROUPS = [
    {"name": "gpu", "instance_type": "g5.12xlarge", "zones": ["us-east-1a", "us-east-1b"], "max": 4},
    {"name": "cpu", "instance_type": "m5.4xlarge", "zones": ["us-east-1a"], "max": 2},
]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def aws_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stand-in for AWS, of this module's own."""
    command = [sys.executable, "-m", "stacks.local.aws", "--port", "0", "--boot-delay", "0s"]
    log = tmp_path_factory.mktemp("aws") / "aws.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        assert server.stdout
        try:
            yield server.stdout.readline().split()[4].rstrip(",")
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def tools() -> dict[str, Path]:
    """The engine's binaries; a first run builds them."""
    return dict(ensure_tools(ENGINE_BINARIES, progress=print))


def settings_for(
    folder: Path, *, aws_url: str, tools: dict[str, Path], cluster: str, groups: list[dict[str, Any]]
) -> EngineSettings:
    """An engine with a folder and a policy of its own."""
    policy = folder / "policy.yaml"
    policy.write_text(json.dumps({"cluster": cluster, "groups": groups}), encoding="utf-8")
    return EngineSettings(
        directory=folder / "pulumi",
        tools=tools,
        policy=policy,
        inventory=None,
        env=CREDENTIALS,
        aws_url=aws_url,
        cluster=cluster,
        region="us-east-1",
    )


def client(service: str, url: str) -> Any:
    """A client of the stand-in."""
    make: Any = boto3.client
    return make(
        service,
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 - the stand-in takes any
    )


def groups_in(url: str, cluster: str) -> dict[str, Any]:
    """The cluster's Auto Scaling groups, as the autoscaler finds them."""
    by_tag = [{"Name": f"tag:{words.TAG_CLUSTER}", "Values": [cluster]}]
    found = client("autoscaling", url).describe_auto_scaling_groups(Filters=by_tag)["AutoScalingGroups"]
    return {group["AutoScalingGroupName"]: group for group in found}


def everything_in(url: str) -> dict[str, list[str]]:
    """Ids of all that programs make."""
    ec2, iam = client("ec2", url), client("iam", url)
    return {
        "vpcs": [one["VpcId"] for one in ec2.describe_vpcs()["Vpcs"]],
        "subnets": [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]],
        "security groups": [one["GroupId"] for one in ec2.describe_security_groups()["SecurityGroups"]],
        "route tables": [one["RouteTableId"] for one in ec2.describe_route_tables()["RouteTables"]],
        "gateways": [one["InternetGatewayId"] for one in ec2.describe_internet_gateways()["InternetGateways"]],
        "addresses": [one["PublicIp"] for one in ec2.describe_addresses()["Addresses"]],
        "nats": [
            one["NatGatewayId"] for one in ec2.describe_nat_gateways()["NatGateways"] if one["State"] != "deleted"
        ],
        "templates": [one["LaunchTemplateId"] for one in ec2.describe_launch_templates()["LaunchTemplates"]],
        "groups": [
            one["AutoScalingGroupName"]
            for one in client("autoscaling", url).describe_auto_scaling_groups()["AutoScalingGroups"]
        ],
        "placement groups": [one["GroupName"] for one in ec2.describe_placement_groups()["PlacementGroups"]],
        "roles": [one["RoleName"] for one in iam.list_roles()["Roles"]],
        "profiles": [one["InstanceProfileName"] for one in iam.list_instance_profiles()["InstanceProfiles"]],
        "instances": [
            one["InstanceId"]
            for reservation in ec2.describe_instances()["Reservations"]
            for one in reservation["Instances"]
            if one["State"]["Name"] != "terminated"
        ],
    }


def asked_since(url: str, count: int) -> list[dict[str, Any]]:
    """What AWS was asked to change after the first ``count`` calls."""
    with urlopen(f"{url}/spillway/requests?since={count}", timeout=10) as answer:  # noqa: S310 - on this machine
        calls: list[dict[str, Any]] = json.load(answer)["requests"]
    return calls


def calls_so_far(url: str) -> int:
    """How often something was asked to change."""
    return len(asked_since(url, 0))


def test_a_stack_through_its_life(aws_url: str, tools: dict[str, Path], tmp_path: Path) -> None:
    """Up, resized by the autoscaler, edited by hand, mended, destroyed: in one test, since engine runs take long."""
    before = everything_in(aws_url)
    settings = settings_for(tmp_path, aws_url=aws_url, tools=tools, cluster="lab", groups=GROUPS)
    assert not pulumi_preview(settings), "there is all to do"
    assert everything_in(aws_url) == before, "a preview touches nothing"

    outputs = pulumi_up(settings)
    assert_exports_are_what_stands(outputs, aws_url)
    assert_nothing_in_the_checkout(settings)

    scaling = client("autoscaling", aws_url)
    scaling.set_desired_capacity(AutoScalingGroupName="lab-gpu-us-east-1a", DesiredCapacity=2)
    assert pulumi_preview(settings), "a second up changes nothing, nor is the autoscaler's resizing drift"

    edit_by_hand(scaling, "lab-cpu-us-east-1a")
    asked = calls_so_far(aws_url)
    assert not pulumi_preview(settings), "an edit by hand is found"
    assert calls_so_far(aws_url) == asked, "a preview mends nothing"
    assert pulumi_up(settings, refresh=True) == outputs
    assert_mended(aws_url)
    assert {call["action"] for call in asked_since(aws_url, asked)} == {"UpdateAutoScalingGroup", "CreateOrUpdateTags"}

    pulumi_destroy(settings)
    assert everything_in(aws_url) == before, "destroy leaves nothing: no instance, no address, no role"


def assert_exports_are_what_stands(outputs: StackOutputs, url: str) -> None:
    """Asked of AWS, not of the engine."""
    found = groups_in(url, "lab")
    assert {one.name: (one.zone, one.min, one.max) for one in outputs.groups} == {
        name: (group["AvailabilityZones"][0], group["MinSize"], group["MaxSize"]) for name, group in found.items()
    }
    subnets = client("ec2", url).describe_subnets(SubnetIds=list(outputs.subnets.values()))["Subnets"]
    assert {one["AvailabilityZone"]: one["SubnetId"] for one in subnets} == outputs.subnets
    assert {one["VpcId"] for one in subnets} == {outputs.vpc_id}


def assert_nothing_in_the_checkout(settings: EngineSettings) -> None:
    """The engine adds a salt to the stack file that it uses."""
    root = Path(__file__).parents[2]
    assert "encryptionsalt" in (settings.directory / "project/Pulumi.local.yaml").read_text(encoding="utf-8")
    assert "encryptionsalt" not in (root / "stacks/config/Pulumi.local.yaml").read_text(encoding="utf-8")
    assert not (root / ".pulumi").exists()


def edit_by_hand(scaling: Any, name: str) -> None:
    """As somebody does in the console."""
    scaling.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=9)
    tag = {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": words.TAG_GROUP}
    scaling.create_or_update_tags(Tags=[{**tag, "Value": "other", "PropagateAtLaunch": False}])


def assert_mended(url: str) -> None:
    """The edited group is as the policy says, and the resized one is left as the autoscaler set it."""
    found = groups_in(url, "lab")
    edited, resized = found["lab-cpu-us-east-1a"], found["lab-gpu-us-east-1a"]
    assert edited["MaxSize"] == 2
    assert {one["Key"]: one["Value"] for one in edited["Tags"]}[words.TAG_GROUP] == "cpu"
    assert resized["DesiredCapacity"] == 2


def test_a_mistake_in_a_file_is_told_before_anything_is_touched(
    aws_url: str, tools: dict[str, Path], tmp_path: Path
) -> None:
    """By file, entry and key; the engine's own noise is left out."""
    wrong = [{**GROUPS[0], "min": 9}]
    settings = settings_for(tmp_path, aws_url=aws_url, tools=tools, cluster="wrong", groups=wrong)
    before = calls_so_far(aws_url)
    with pytest.raises(BadInput) as refused:
        pulumi_up(settings)
    assert str(refused.value).startswith(str(settings.policy))
    assert "groups[0] (gpu)" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert calls_so_far(aws_url) == before


def test_aws_not_answering_is_told_without_a_stack_trace(tools: dict[str, Path], tmp_path: Path) -> None:
    """With the address that does not answer."""
    nowhere = "http://127.0.0.1:1"
    settings = settings_for(tmp_path, aws_url=nowhere, tools=tools, cluster="alone", groups=GROUPS)
    with pytest.raises(Unavailable) as outage:
        pulumi_up(settings)
    assert nowhere in str(outage.value)
    assert "Traceback" not in str(outage.value)
    assert "File " not in str(outage.value)
