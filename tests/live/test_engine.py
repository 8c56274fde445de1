"""The real Pulumi engine, the project's own program, and the stand-ins for AWS and its plugin."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_destroy, pulumi_preview, pulumi_up
from stacks.settings.outputs import StackOutputs
from tests import ROOT
from tests.live.stacks import (
    CREDENTIALS,
    GROUPS,
    asked_since,
    calls_so_far,
    client,
    everything_in,
    faults_in,
    groups_in,
    settings_for,
)

pytestmark = pytest.mark.live

WORLD = "0.0.0.0/0"


def test_a_stack_through_its_life(
    aws_url: str, engine: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up, resized by the autoscaler, edited by hand, mended, destroyed: in one test, since engine runs take long."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    before = everything_in(aws_url)
    settings = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="lab", groups=GROUPS)
    assert not pulumi_preview(settings), "there is all to do"
    assert everything_in(aws_url) == before, "a preview touches nothing"

    outputs = pulumi_up(settings)
    assert_exports_are_what_stands(outputs, aws_url)
    assert_nothing_in_the_checkout(settings)

    scaling = client("autoscaling", aws_url)
    scaling.set_desired_capacity(AutoScalingGroupName="lab-gpu-us-east-1a", DesiredCapacity=2)
    assert pulumi_preview(settings), "a second up changes nothing, nor is the autoscaler's resizing drift"

    edit_by_hand(scaling, "lab-cpu-us-east-1a")
    as_written = around_the_groups(outputs, aws_url)
    edit_around_the_groups(outputs, aws_url)
    asked = calls_so_far(aws_url)
    assert not pulumi_preview(settings), "an edit by hand is found"
    assert calls_so_far(aws_url) == asked, "a preview mends nothing"
    assert pulumi_up(settings, refresh=True) == outputs
    assert_mended(aws_url)
    assert around_the_groups(outputs, aws_url) == as_written
    of_groups = {"UpdateAutoScalingGroup", "CreateOrUpdateTags", "ResumeProcesses"}
    assert {call["action"] for call in asked_since(aws_url, asked)} == of_groups | MENDING

    assert_another_cluster_is_refused(settings)
    pulumi_destroy(settings)
    assert everything_in(aws_url) == before, "destroy leaves nothing: no instance, no address, no role"
    assert list(temporary.iterdir()) == [], "the engine's logs lie in the stack's own folder"


def test_what_aws_shows_late_is_waited_for(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """Whatever is made is not described, or not accepted, for a second: the stack comes up whole all the same."""
    settings = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="late", groups=GROUPS)
    asked = calls_so_far(aws_url)
    with faults_in(aws_url, {"kind": "eventual-consistency", "by": "1s"}) as struck:
        assert_exports_are_what_stands(pulumi_up(settings), aws_url, cluster="late")
        assert struck() > len(GROUPS)
    refused = [one["error"] for one in asked_since(aws_url, asked) if one["error"]]
    assert any("NotFound" in error for error in refused), "a call that changes something met what is not seen yet"
    assert pulumi_preview(settings), "nothing was made twice, or half"
    pulumi_destroy(settings)


def assert_exports_are_what_stands(outputs: StackOutputs, url: str, *, cluster: str = "lab") -> None:
    """Asked of AWS, not of the engine."""
    found = groups_in(url, cluster)
    assert {one.name: (one.zone, one.min, one.max) for one in outputs.groups} == {
        name: (group["AvailabilityZones"][0], group["MinSize"], group["MaxSize"]) for name, group in found.items()
    }
    subnets = client("ec2", url).describe_subnets(SubnetIds=list(outputs.subnets.values()))["Subnets"]
    assert {one["AvailabilityZone"]: one["SubnetId"] for one in subnets} == outputs.subnets
    assert {one["VpcId"] for one in subnets} == {outputs.vpc_id}


def assert_nothing_in_the_checkout(settings: EngineSettings) -> None:
    """The engine adds a salt to the stack file that it uses."""
    root = ROOT
    assert "encryptionsalt" in (settings.directory / "project/Pulumi.local.yaml").read_text(encoding="utf-8")
    assert "encryptionsalt" not in (root / "stacks/config/Pulumi.local.yaml").read_text(encoding="utf-8")
    assert not (root / ".pulumi").exists()


def edit_by_hand(scaling: Any, name: str) -> None:
    """As somebody does in the console."""
    scaling.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=9)
    tag = {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": words.TAG_GROUP}
    scaling.create_or_update_tags(Tags=[{**tag, "Value": "other", "PropagateAtLaunch": False}])
    scaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])


MENDING = {
    *("CreateRoute", "AuthorizeSecurityGroupEgress", "RevokeSecurityGroupIngress", "PutRolePolicy"),
    *("DeleteRolePolicy", "DetachRolePolicy"),
    *("CreateLaunchTemplateVersion", "ModifyLaunchTemplate"),  # and it is the default one
}


def edit_around_the_groups(outputs: StackOutputs, url: str) -> None:
    """The same, of what else nodes need: one of each is gone, lets in more, or is one too many."""
    ec2 = client("ec2", url)
    ec2.delete_route(RouteTableId=outputs.route_tables["us-east-1b"], DestinationCidrBlock=WORLD)
    [out] = [one["SecurityGroupRuleId"] for one in rules_of(outputs, ec2) if one["IsEgress"] and "CidrIpv4" in one]
    ec2.revoke_security_group_egress(GroupId=outputs.node_security_group_id, SecurityGroupRuleIds=[out])
    ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": WORLD}]}
    ec2.authorize_security_group_ingress(GroupId=outputs.node_security_group_id, IpPermissions=[ssh])
    all_of_it = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam = client("iam", url)
    for policy in ("node", "written-by-hand"):
        iam.put_role_policy(RoleName="lab-node", PolicyName=policy, PolicyDocument=json.dumps(all_of_it))
    iam.attach_role_policy(RoleName="lab-node", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
    open_to_all = {"MetadataOptions": {"HttpTokens": "optional", "HttpEndpoint": "enabled"}}
    ec2.create_launch_template_version(
        LaunchTemplateName="lab-cpu", SourceVersion="$Latest", LaunchTemplateData=open_to_all
    )


def around_the_groups(outputs: StackOutputs, url: str) -> dict[str, Any]:
    """What was edited, without the ids that are new each time."""
    ec2, iam = client("ec2", url), client("iam", url)
    [table] = ec2.describe_route_tables(RouteTableIds=[outputs.route_tables["us-east-1b"]])["RouteTables"]
    asked = {"LaunchTemplateName": "lab-cpu", "Versions": ["$Latest"]}
    [version] = ec2.describe_launch_template_versions(**asked)["LaunchTemplateVersions"]
    rules = [(one["IsEgress"], one["IpProtocol"], one.get("CidrIpv4", "")) for one in rules_of(outputs, ec2)]
    return {
        "routes": {one.get("DestinationCidrBlock", ""): one.get("NatGatewayId") for one in table["Routes"]},
        "rules": sorted(rules),
        "rights": iam.get_role_policy(RoleName="lab-node", PolicyName="node")["PolicyDocument"],
        "written": iam.list_role_policies(RoleName="lab-node")["PolicyNames"],
        "attached": iam.list_attached_role_policies(RoleName="lab-node")["AttachedPolicies"],
        "metadata": version["LaunchTemplateData"]["MetadataOptions"]["HttpTokens"],
    }


def rules_of(outputs: StackOutputs, ec2: Any) -> list[dict[str, Any]]:
    """Of the nodes' security group."""
    of_nodes = [{"Name": "group-id", "Values": [outputs.node_security_group_id]}]
    found: list[dict[str, Any]] = ec2.describe_security_group_rules(Filters=of_nodes)["SecurityGroupRules"]
    return found


def assert_mended(url: str) -> None:
    """The edited group is as the policy says, and the resized one is left as the autoscaler set it."""
    found = groups_in(url, "lab")
    edited, resized = found["lab-cpu-us-east-1a"], found["lab-gpu-us-east-1a"]
    assert (edited["MaxSize"], edited["SuspendedProcesses"]) == (2, [])
    assert {one["Key"]: one["Value"] for one in edited["Tags"]}[words.TAG_GROUP] == "cpu"
    assert resized["DesiredCapacity"] == 2


def assert_another_cluster_is_refused(settings: EngineSettings) -> None:
    """Another name, or addresses: a change of one value that would take all away, so nothing is touched."""
    so_far, policy = calls_so_far(settings.aws_url), settings.policy.read_text(encoding="utf-8")
    settings.policy.write_text(policy.replace('"cluster": "lab"', '"cluster": "vision"'), encoding="utf-8")
    with pytest.raises(BadInput, match=r"policy.yaml: cluster = 'vision' .*, and this stack has made 'lab'"):
        pulumi_up(settings)
    settings.policy.write_text(policy, encoding="utf-8")
    with pytest.raises(BadInput, match=r"network\.cidr = '10\.50\.0\.0/16', and the VPC that stands has 10\.40"):
        pulumi_up(replace(settings, overrides={"spillway:network": {"cidr": "10.50.0.0/16"}}))
    assert calls_so_far(settings.aws_url) == so_far


def test_a_mistake_in_a_file_is_told_before_anything_is_touched(
    aws_url: str, engine: dict[str, Path], tmp_path: Path
) -> None:
    """By file, entry and key; the engine's own noise is left out."""
    wrong = [{**GROUPS[0], "min": 9}]
    settings = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="wrong", groups=wrong)
    before = calls_so_far(aws_url)
    with pytest.raises(BadInput) as refused:
        pulumi_up(settings)
    assert str(refused.value).startswith(str(settings.policy))
    assert "groups[0] (gpu)" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert calls_so_far(aws_url) == before


def test_missing_credentials_are_blamed_on_nothing_else(
    aws_url: str, engine: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On no group of the policy, whose type is the first thing that AWS is asked about otherwise."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    nobody = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
        "AWS_CONFIG_FILE": "/nowhere",
    }
    settings = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="alone", groups=GROUPS)
    with pytest.raises(Unavailable, match=r"AWS does not let us in, in us-east-1 .*: `aws sts get") as outage:
        pulumi_up(replace(settings, env=nobody))
    assert "groups[0]" not in str(outage.value)
    assert "Traceback" not in str(outage.value)


def test_aws_not_answering_is_told_without_a_stack_trace(engine: dict[str, Path], tmp_path: Path) -> None:
    """With the address that does not answer."""
    nowhere = "http://127.0.0.1:1"
    settings = settings_for(tmp_path, aws_url=nowhere, tools=engine, cluster="alone", groups=GROUPS)
    with pytest.raises(Unavailable) as outage:
        pulumi_up(settings)
    assert nowhere in str(outage.value)
    assert "Traceback" not in str(outage.value)
    assert "File " not in str(outage.value)
