"""The network component."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

import pytest

from stacks.network.vpc import Network, NetworkArgs
from stacks.settings.network import INTERFACE_ENDPOINTS, FlowLogSettings
from tests.test_stacks.declared import declare, of_type
from tests.test_stacks.graph import Graph, graph

VPC = ipaddress.IPv4Network("10.40.0.0/16")
TWO_ZONES = ("us-east-1a", "us-east-1b")
FOUR_ZONES = tuple(f"us-east-1{letter}" for letter in "abcd")
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"


def program(**changed: Any) -> Any:
    """A program with one network."""
    args: dict[str, Any] = {"cidr": VPC, "zones": TWO_ZONES, "region": "us-east-1"} | changed
    return lambda: Network("lab", NetworkArgs(**args)).vpc_id


def network(**changed: Any) -> Any:
    """What it declares."""
    return declare(program(**changed))


def drawn(**changed: Any) -> Graph:
    """Its resources with all that binds them."""
    return graph(program(**changed))


def test_a_vpc_with_names_in_dns() -> None:
    """Private DNS names are the nodes' names."""
    [vpc] = of_type(network(), "aws:ec2/vpc:Vpc").values()
    assert vpc["cidrBlock"] == "10.40.0.0/16"
    assert vpc["enableDnsSupport"]
    assert vpc["enableDnsHostnames"]


def test_a_private_subnet_of_its_own_for_each_zone() -> None:
    """A /20 each: 4,091 addresses for nodes and pods."""
    subnets = of_type(network(), "aws:ec2/subnet:Subnet")
    nodes = {name: subnet for name, subnet in subnets.items() if "-nodes-" in name}
    assert {subnet["availabilityZone"]: subnet["cidrBlock"] for subnet in nodes.values()} == {
        "us-east-1a": "10.40.0.0/20",
        "us-east-1b": "10.40.16.0/20",
    }
    assert not any(subnet.get("mapPublicIpOnLaunch") for subnet in nodes.values())


@pytest.mark.parametrize(("nat", "gateways"), [("one", 1), ("per-zone", 2), ("none", 0)])
def test_as_many_nat_gateways_as_asked_for(nat: str, gateways: int) -> None:
    """They are what costs money here."""
    declared = network(nat=nat)
    assert len(of_type(declared, "aws:ec2/natGateway:NatGateway")) == gateways
    assert len(of_type(declared, "aws:ec2/eip:Eip")) == gateways


@pytest.mark.parametrize("nat", ["one", "per-zone"])
def test_nodes_go_out_through_a_gateway(nat: str) -> None:
    """Their own zone's, where each has one: traffic between zones is paid for."""
    routes = of_type(network(nat=nat), "aws:ec2/route:Route")
    out = {name: route["natGatewayId"] for name, route in routes.items() if "-nodes-" in name}
    first, second = out["lab-nodes-us-east-1a-out"], out["lab-nodes-us-east-1b-out"]
    assert first == "lab-nat-us-east-1a-id"
    assert second == ("lab-nat-us-east-1a-id" if nat == "one" else "lab-nat-us-east-1b-id")


def test_without_nat_nothing_leads_out() -> None:
    """No internet gateway, no public subnet, no default route."""
    declared = network(nat="none")
    assert not of_type(declared, "aws:ec2/internetGateway:InternetGateway")
    assert not of_type(declared, "aws:ec2/route:Route")
    assert len(of_type(declared, "aws:ec2/subnet:Subnet")) == 2


@pytest.mark.parametrize("nat", ["one", "per-zone"])
def test_a_public_subnet_in_every_zone_also_with_one_gateway(nat: str) -> None:
    """A load balancer that faces the internet needs two; going from one gateway to several then moves nothing."""
    subnets = of_type(network(nat=nat, zones=FOUR_ZONES), "aws:ec2/subnet:Subnet")
    public = {name: subnet for name, subnet in subnets.items() if "-public-" in name}
    assert {subnet["availabilityZone"] for subnet in public.values()} == set(FOUR_ZONES)
    assert all(subnet["tags"]["kubernetes.io/role/elb"] == "1" for subnet in public.values())


@pytest.mark.parametrize("nat", ["one", "per-zone"])
def test_a_gateway_waits_for_its_subnets_way_out(nat: str) -> None:
    """EC2 fails a NAT gateway in a VPC without an internet gateway; mocks do not see that order."""
    made = drawn(nat=nat)
    for gateway in made.of_type("NatGateway"):
        zone = gateway.name.removeprefix("lab-nat-")
        assert {"Route lab-public-out", f"RouteTableAssociation lab-public-{zone}"} <= gateway.needs
        assert "InternetGateway lab-internet" in made.all_needs(str(gateway))


def test_every_resource_stands_under_its_component() -> None:
    """`pulumi up` shows a tree, and one URN prefix finds all of a network."""
    made = drawn(endpoints=("sts",), flow_logs=FlowLogSettings(to="s3"))
    assert made.under("Network lab") == {str(node) for node in made.nodes} - {"Network lab"}
    assert made["VpcEndpoint lab-sts"].parent == "Endpoints lab-endpoints"
    assert made["FlowLog lab-flow-logs"].parent == "FlowLogs lab-flow-logs"
    assert set(made.registered["Network lab"]) == {"vpcId", "subnets", "publicSubnets", "nodeSecurityGroupId"}


@pytest.mark.parametrize("protect", [True, False])
def test_the_vpc_is_protected_on_request(protect: bool) -> None:  # noqa: FBT001 - a parameter
    """So that a `destroy` in the wrong window takes nothing."""
    made = drawn(protect=protect, flow_logs=FlowLogSettings())
    assert {str(node) for node in made.nodes if node.protected} == (
        {"Vpc lab-vpc", "LogGroup lab-flow-logs"} if protect else set()
    )


@pytest.mark.parametrize("nat", ["one", "none"])
def test_a_preview_needs_nothing_that_only_aws_knows(nat: str) -> None:
    """Every resource is planned although no id is known yet."""
    changed: dict[str, Any] = {"nat": nat, "endpoints": ("sts",), "flow_logs": FlowLogSettings(to="s3")}
    planned = graph(program(**changed), preview=True)
    assert {str(node) for node in planned.nodes} == {str(node) for node in drawn(**changed).nodes}


def test_fabric_traffic_is_let_out_to_the_nodes_by_their_group() -> None:
    """It is no IP traffic: a rule for all addresses does not let it out."""
    made = drawn()
    [out] = [one for one in made.of_type("SecurityGroupEgressRule") if "cidrIpv4" not in one.inputs]
    assert out.inputs["referencedSecurityGroupId"] == out.inputs["securityGroupId"]
    assert out.inputs["ipProtocol"] == "-1"


@pytest.mark.parametrize("nat", ["one", "none"])
def test_s3_is_always_reached_by_a_gateway(nat: str) -> None:
    """It costs nothing, and image layers come from there: through NAT each gigabyte is paid."""
    [gateway] = of_type(network(nat=nat), ENDPOINT).values()
    assert (gateway["vpcEndpointType"], gateway["serviceName"]) == ("Gateway", "com.amazonaws.us-east-1.s3")
    assert gateway["routeTableIds"] == ["lab-nodes-us-east-1a-id", "lab-nodes-us-east-1b-id"]


def test_interface_endpoints_stand_in_every_zone_behind_one_group() -> None:
    """By the service's own name, for whoever is in the VPC, on the one port."""
    declared = network(nat="none", endpoints=INTERFACE_ENDPOINTS)
    interfaces = [one for one in of_type(declared, ENDPOINT).values() if one["vpcEndpointType"] == "Interface"]
    assert {one["serviceName"].removeprefix("com.amazonaws.us-east-1.") for one in interfaces} == set(
        INTERFACE_ENDPOINTS
    )
    for one in interfaces:
        assert one["subnetIds"] == ["lab-nodes-us-east-1a-id", "lab-nodes-us-east-1b-id"]
        assert one["securityGroupIds"] == ["lab-endpoints-id"]
        assert one["privateDnsEnabled"]
    rules = of_type(declared, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
    https = rules["lab-endpoints-https"]
    assert (https["fromPort"], https["toPort"], https["cidrIpv4"]) == (443, 443, "10.40.0.0/16")


def test_flow_logs_in_cloudwatch_with_the_least_rights() -> None:
    """The role writes into the one group, which forgets after the days asked for."""
    declared = network(flow_logs=FlowLogSettings(keep_days=90, traffic="REJECT"))
    [log] = of_type(declared, "aws:ec2/flowLog:FlowLog").values()
    [group] = of_type(declared, "aws:cloudwatch/logGroup:LogGroup").values()
    assert (log["trafficType"], log["logDestinationType"]) == ("REJECT", "cloud-watch-logs")
    assert (group["name"], group["retentionInDays"]) == ("/spillway/lab/flow-logs", 90)
    [rights] = of_type(declared, "aws:iam/rolePolicy:RolePolicy").values()
    [statement] = json.loads(rights["policy"])["Statement"]
    arn = "arn:aws:test:::lab-flow-logs"
    assert statement["Resource"] == [arn, f"{arn}:*"]
    assert set(statement["Action"]) == {"logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"}
    [role] = of_type(declared, "aws:iam/role:Role").values()
    assert "vpc-flow-logs.amazonaws.com" in role["assumeRolePolicy"]


def test_flow_logs_in_a_bucket_that_is_private_encrypted_and_forgets() -> None:
    """Only the delivery service writes to it, and only by TLS is it read."""
    declared = network(flow_logs=FlowLogSettings(to="s3", keep_days=365))
    [log] = of_type(declared, "aws:ec2/flowLog:FlowLog").values()
    assert log["logDestinationType"] == "s3"
    assert "iamRoleArn" not in log
    [block] = of_type(declared, "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock").values()
    assert [value for key, value in block.items() if key != "bucket"] == [True] * 4
    token = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"  # noqa: S105
    assert of_type(declared, token)
    [lifecycle] = of_type(declared, "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration").values()
    assert lifecycle["rules"][0]["expiration"] == {"days": 365}
    [policy] = of_type(declared, "aws:s3/bucketPolicy:BucketPolicy").values()
    by_sid = {one["Sid"]: one for one in json.loads(policy["policy"])["Statement"]}
    assert by_sid["Write"]["Principal"] == {"Service": "delivery.logs.amazonaws.com"}
    assert by_sid["OnlyByTls"]["Effect"] == "Deny"


@pytest.mark.parametrize(("to", "rights"), [("cloudwatch", "RolePolicy"), ("s3", "BucketPolicy")])
def test_a_flow_log_waits_for_the_right_to_write(to: Any, rights: str) -> None:
    """EC2 begins to deliver at once, and gives up on what it may not write."""
    assert f"{rights} lab-flow-logs" in drawn(flow_logs=FlowLogSettings(to=to))["FlowLog lab-flow-logs"].needs


def test_a_bucket_of_flow_logs_is_closed_before_its_policy_is_set() -> None:
    """S3 refuses a second change of a bucket's access while it makes the first."""
    policy = drawn(flow_logs=FlowLogSettings(to="s3"))["BucketPolicy lab-flow-logs"]
    assert "BucketPublicAccessBlock lab-flow-logs" in policy.needs


def test_no_flow_log_that_nobody_asked_for() -> None:
    """It costs by the gigabyte."""
    assert not of_type(network(), "aws:ec2/flowLog:FlowLog")


def test_nobody_reaches_the_nodes_but_themselves_and_who_is_trusted() -> None:
    """No port is open to the world."""
    rules = of_type(
        network(trusted=("10.20.0.0/16",)), "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    ).values()
    assert {rule.get("cidrIpv4") or rule["referencedSecurityGroupId"] for rule in rules} == {
        "10.20.0.0/16",
        "lab-nodes-id",
    }
