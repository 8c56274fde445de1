"""The network's choices with the real engine: made, found unchanged, changed, and gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_destroy, pulumi_preview, pulumi_up
from tests.live.stacks import GROUPS, calls_so_far, client, everything_in, settings_for

pytestmark = pytest.mark.live


def network_only(settings: EngineSettings, **network: Any) -> EngineSettings:
    """The program that makes the network alone."""
    own = {"spillway:program": "network", "spillway:network": network}
    return replace(settings, overrides=(settings.overrides or {}) | own)


def all_of_the_network(url: str) -> dict[str, Any]:
    """What a network is made of, asked of AWS."""
    ec2 = client("ec2", url)
    endpoints = [one for one in ec2.describe_vpc_endpoints()["VpcEndpoints"] if one["State"] != "deleted"]
    return everything_in(url) | {
        "endpoints": sorted(one["ServiceName"].removeprefix("com.amazonaws.us-east-1.") for one in endpoints),
        "flow logs": sorted(one["LogDestinationType"] for one in ec2.describe_flow_logs()["FlowLogs"]),
        "buckets": [one["Name"] for one in client("s3", url).list_buckets()["Buckets"]],
        "log groups": [one["logGroupName"] for one in client("logs", url).describe_log_groups()["logGroups"]],
    }


def test_a_private_network_through_its_life(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """Endpoints and flow logs come as asked for, change in place, and leave nothing: no log group, no bucket."""
    before = all_of_the_network(aws_url)
    ordinary = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="private", groups=GROUPS)

    private = network_only(ordinary, nat="none", flow_logs={"to": "s3", "keep_days": 90})
    pulumi_up(private)
    made = all_of_the_network(aws_url)
    services = ["autoscaling", "ec2", "ecr.api", "ecr.dkr", "logs", "s3", "ssm", "ssmmessages", "sts"]
    assert (made["endpoints"], made["flow logs"], made["nats"]) == (services, ["s3"], [])
    assert pulumi_preview(private), "what stands is what was asked for"

    open_to_the_net = network_only(ordinary, nat="one", endpoints=["sts"], flow_logs={"keep_days": 7})
    outputs = pulumi_up(open_to_the_net)
    changed = all_of_the_network(aws_url)
    assert (changed["endpoints"], changed["flow logs"]) == (["s3", "sts"], ["cloud-watch-logs"])
    assert changed["log groups"] == [*before["log groups"], "/spillway/private/flow-logs"]
    assert changed["buckets"] == before["buckets"]
    assert len(changed["nats"]) == 1
    assert set(outputs.public_subnets) == set(outputs.subnets) == {"us-east-1a", "us-east-1b"}
    assert pulumi_preview(open_to_the_net)

    calls = calls_so_far(aws_url)
    elsewhere = {"us-east-1a": "subnet-0123abcd", "us-east-1b": "subnet-0123abce"}
    with pytest.raises(BadInput, match=r"network\.vpc\.id = 'vpc-0123abcd', and this stack has made a VPC of its own"):
        pulumi_up(network_only(ordinary, vpc={"id": "vpc-0123abcd", "subnets": elsewhere}))
    assert calls_so_far(aws_url) == calls

    pulumi_destroy(open_to_the_net)
    assert all_of_the_network(aws_url) == before


def test_a_vpc_that_is_there_is_looked_at_and_left_as_it_is(
    aws_url: str, engine: dict[str, Path], tmp_path: Path
) -> None:
    """Only the nodes' security group comes and goes; with a promise broken, nothing does."""
    ec2 = client("ec2", aws_url)
    vpc, subnets = a_vpc(ec2)
    before = all_of_the_network(aws_url)
    ordinary = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="guest", groups=GROUPS)
    there = network_only(ordinary, vpc={"id": vpc, "subnets": subnets})

    calls = calls_so_far(aws_url)
    with pytest.raises(BadInput, match=r"vpc.subnets.us-east-1a = 'subnet-\w+' has no default route"):
        pulumi_up(there)
    assert calls_so_far(aws_url) == calls

    gateway = ec2.create_nat_gateway(SubnetId=subnets["us-east-1a"], ConnectivityType="private")["NatGateway"]
    main = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"][0]["RouteTableId"]
    ec2.create_route(RouteTableId=main, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway["NatGatewayId"])
    ready = all_of_the_network(aws_url)
    outputs = pulumi_up(there)
    assert (outputs.vpc_id, outputs.subnets) == (vpc, subnets)
    assert outputs.route_tables == dict.fromkeys(subnets, main)
    made = all_of_the_network(aws_url)
    assert set(made["security groups"]) - set(before["security groups"]) == {outputs.node_security_group_id}
    assert {key: value for key, value in made.items() if key != "security groups"} == {
        key: value for key, value in ready.items() if key != "security groups"
    }
    pulumi_destroy(there)
    assert all_of_the_network(aws_url) == ready


def a_vpc(ec2: Any) -> tuple[str, dict[str, str]]:
    """One that somebody else made, with two subnets that lead nowhere yet."""
    vpc = ec2.create_vpc(CidrBlock="10.70.0.0/16")["Vpc"]["VpcId"]
    for name in ("EnableDnsSupport", "EnableDnsHostnames"):
        ec2.modify_vpc_attribute(VpcId=vpc, **{name: {"Value": True}})
    subnets = {
        zone: ec2.create_subnet(VpcId=vpc, CidrBlock=block, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for zone, block in (("us-east-1a", "10.70.0.0/20"), ("us-east-1b", "10.70.16.0/20"))
    }
    return vpc, subnets
