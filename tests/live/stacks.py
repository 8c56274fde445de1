"""A stack of the project's program for the real engine, and what the stand-in for AWS says of it afterwards."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3

from autoscaler.model import labels as words
from stacks.local.toolchain.pulumi_engine import EngineSettings
from stacks.release.deployer_iam import deployer_rights
from tests.live.forked_python import forked_python

GROUPS = [
    {"name": "gpu", "instance_type": "g5.12xlarge", "zones": ["us-east-1a", "us-east-1b"], "max": 4},
    {"name": "cpu", "instance_type": "m5.4xlarge", "zones": ["us-east-1a"], "max": 2},
]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_REGION": "us-east-1"}


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
        python=forked_python(),
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


@contextlib.contextmanager
def faults_in(url: str, *faults: dict[str, Any]) -> Iterator[Callable[[], int]]:
    """These are in force for the length of a ``with`` block. Gives what tells how often they struck."""

    def ask(method: str, data: bytes | None = None) -> Any:
        with urlopen(Request(f"{url}/spillway/faults", data=data, method=method), timeout=10) as answer:  # noqa: S310
            return json.load(answer)["faults"]

    ask("PUT", json.dumps({"faults": list(faults)}).encode())
    try:
        yield lambda: sum(one["struck"] for one in ask("GET"))
    finally:
        ask("DELETE")


def calls_so_far(url: str) -> int:
    """How often something was asked to change."""
    return len(asked_since(url, 0))


def not_granted(url: str, since: int, *, cluster: str) -> set[str]:
    """Rights that whoever deploys used after the first ``since`` calls, and that the documented policies do not give.

    Of services that are asked by name: calls of S3 and EKS are told apart by their paths.
    """
    documents = deployer_rights(cluster=cluster, region="us-east-1").values()
    granted = [
        right
        for one in documents
        for statement in one["Statement"]
        if statement["Effect"] == "Allow"
        for right in statement["Action"]
    ]
    calls = [call for call in asked_since(url, since) if " " not in call["action"]]
    used = {f"{call['service']}:{call['action']}" for call in calls}
    assert used
    return {right for right in used if not any(fnmatch(right, one) for one in granted)}
