"""The network component."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.failures import BadInput
from stacks.network import Network, NetworkArgs, check_zones, node_block, public_block
from tests.test_stacks.declared import declare, of_type

VPC = ipaddress.IPv4Network("10.40.0.0/16")
TWO_ZONES = ("us-east-1a", "us-east-1b")
LETTERS = st.sampled_from("abcdefgh")
VPCS = st.integers(16, 20).map(lambda prefix: ipaddress.IPv4Network(f"10.40.0.0/{prefix}"))


def network(**changed: Any) -> Any:
    """A program with one network."""
    args: dict[str, Any] = {"cidr": VPC, "zones": TWO_ZONES} | changed
    return declare(lambda: Network("lab", NetworkArgs(**args)).vpc_id)


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


def test_nobody_reaches_the_nodes_but_themselves_and_who_is_trusted() -> None:
    """No port is open to the world."""
    rules = of_type(
        network(trusted=("10.20.0.0/16",)), "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
    ).values()
    assert {rule.get("cidrIpv4") or rule["referencedSecurityGroupId"] for rule in rules} == {
        "10.20.0.0/16",
        "lab-nodes-id",
    }


@given(vpc=VPCS, letters=st.sets(LETTERS, min_size=1))
def test_no_two_subnets_overlap_and_all_lie_in_the_vpc(vpc: ipaddress.IPv4Network, letters: set[str]) -> None:
    """Whatever zones a policy names."""
    blocks = [block(vpc, f"us-east-1{letter}") for letter in letters for block in (node_block, public_block)]
    assert all(block.subnet_of(vpc) for block in blocks)
    assert not any(one.overlaps(other) for one in blocks for other in blocks if one is not other)


@given(letters=st.sets(LETTERS, min_size=1, max_size=7), new=LETTERS)
def test_a_new_zone_moves_no_other(letters: set[str], new: str) -> None:
    """A subnet that moves is replaced, and its nodes with it."""
    before = {letter: node_block(VPC, f"us-east-1{letter}") for letter in letters}
    after = {letter: node_block(VPC, f"us-east-1{letter}") for letter in letters | {new}}
    assert before == {letter: after[letter] for letter in letters}


@pytest.mark.parametrize(
    ("zones", "says"),
    [
        (("us-west-2a", "us-west-2-lax-1a"), "us-west-2a and us-west-2-lax-1a end in the same letter"),
        (("us-east-1z",), "ends in a letter from a to h"),
    ],
)
def test_zones_that_cannot_be_laid_out_are_refused(zones: tuple[str, ...], says: str) -> None:
    """Before anything is made."""
    with pytest.raises(BadInput, match=says):
        check_zones(zones)
