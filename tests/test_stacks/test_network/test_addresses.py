"""Which addresses a network gives, and which it must not share."""

from __future__ import annotations

import ipaddress
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from stacks.network.addresses import (
    check_networks,
    check_room,
    check_zones,
    named_networks,
    node_block,
    public_block,
    room,
    tell_docker,
    tell_pods,
)
from stacks.settings.inventory import Inventory
from stacks.settings.stack import Settings, read_settings
from tests.test_stacks.declared import group, policy

VPC = ipaddress.IPv4Network("10.40.0.0/16")
LETTERS = st.sampled_from("abcdefgh")
VPCS = st.integers(16, 20).map(lambda prefix: ipaddress.IPv4Network(f"10.40.0.0/{prefix}"))
PREFIXES = st.tuples(st.integers(0, 255), st.integers(16, 24)).map(
    lambda given: str(ipaddress.IPv4Network(f"10.{given[0]}.0.0/{given[1]}"))
)
NOBODY = Inventory(machines=())
KUBEADM = {"kind": "kubeadm", "ami": "ami-0123456789abcdef0"}
EKS = {"kind": "eks", "admins": ["arn:aws:iam::123456789012:role/admin"]}


def settings(**configured: Any) -> Settings:
    """A stack file's, with these keys under ``spillway:``."""
    return read_settings({"spillway:policy": "p.yaml"} | {f"spillway:{k}": v for k, v in configured.items()}, stack="s")


def inventory(*addresses: str) -> Inventory:
    """Machines at these addresses."""
    machine = {"cpus": 8, "memory": "32Gi"}
    return Inventory.model_validate(
        {"machines": [machine | {"name": f"m{n}", "address": address} for n, address in enumerate(addresses)]}
    )


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
        (("us-east-1a", "us-east-1-lax-1a"), "us-east-1a and us-east-1-lax-1a end in the same letter"),
        (("us-east-1a", "us-east-1z"), "ends in a letter from a to h"),
        (("us-east-1a",), r"policy\.yaml: the groups are in us-east-1a, and a VPC is laid over 2 to 4"),
        (
            tuple(f"us-east-1{letter}" for letter in "abcde"),
            "us-east-1e, and .*: name them all in spillway:net",
        ),
        (("us-east-1b", "us-east-1c"), r"groups\[0\] .gpu.\.zones names us-east-1a, where spillway:network"),
    ],
)
def test_zones_that_cannot_be_laid_out_are_refused(zones: tuple[str, ...], says: str) -> None:
    """Before anything is made, with the key."""
    entry = group(zones=["us-east-1a"] if "us-east-1b" in zones and len(zones) == 2 else list(zones))
    with pytest.raises(BadInput, match=says):
        check_zones(zones, policy=policy(entry), source="policy.yaml")


@pytest.mark.parametrize("count", [2, 3, 4])
def test_two_to_four_zones_will_do(count: int) -> None:
    """Also where the groups are in fewer."""
    zones = tuple(f"us-east-1{letter}" for letter in "abcd"[:count])
    check_zones(zones, policy=policy(group(zones=[zones[0]])), source="policy.yaml")


@pytest.mark.parametrize(
    ("configured", "machines", "first", "second"),
    [
        ({"network": {"on_prem": ["10.40.8.0/24"]}}, (), "network.cidr = 10.40.0.0/16", "network.on_prem[0] = 10.40.8"),
        (
            {"network": {"on_prem": ["10.200.0.0/16", "10.0.0.0/9"]}},
            (),
            "network.cidr = 10.40.0.0/16",
            "network.on_prem[1] = 10.0.0.0/9",
        ),
        ({"network": {"trusted": ["10.40.0.0/20"]}}, (), "network.cidr", "network.trusted[0] = 10.40.0.0/20"),
        ({}, ("10.20.0.1", "10.40.0.9"), "network.cidr = 10.40.0.0/16", ": machines[1] (m1).address = 10.40.0.9"),
        (
            {"control_plane": {**KUBEADM, "pod_network": "10.40.0.0/17"}},
            (),
            "network.cidr",
            "control_plane.pod_network = 10.40.0.0/17",
        ),
        (
            {"control_plane": KUBEADM, "network": {"on_prem": ["10.100.0.0/16"]}},
            (),
            "network.on_prem[0] = 10.100.0.0/16",
            "control_plane.service_network = 10.96.0.0/12",
        ),
        (
            {"control_plane": KUBEADM},
            ("10.244.3.7",),
            "control_plane.pod_network = 10.244.0.0/16",
            ": machines[0] (m0).address = 10.244.3.7",
        ),
        (
            {"control_plane": {**EKS, "remote_node_networks": ["10.40.0.0/16"]}},
            (),
            "network.cidr",
            "control_plane.remote_node_networks[0]",
        ),
        (
            {
                "control_plane": {
                    **EKS,
                    "remote_node_networks": ["10.80.0.0/16"],
                    "remote_pod_networks": ["10.85.0.0/16"],
                },
                "network": {"on_prem": ["10.85.0.0/16"]},
            },
            (),
            "network.on_prem[0] = 10.85.0.0/16",
            "control_plane.remote_pod_networks[0] = 10.85.0.0/16",
        ),
    ],
)
def test_networks_that_meet_are_told_with_both_keys(
    configured: dict[str, Any], machines: tuple[str, ...], first: str, second: str
) -> None:
    """And a network of the same size that is free."""
    with pytest.raises(BadInput) as refused:
        check_networks(settings(**configured), inventory(*machines))
    assert first in str(refused.value)
    assert second in str(refused.value)
    assert "is free, for example" in str(refused.value)


@pytest.mark.parametrize(
    ("configured", "machines"),
    [
        ({}, ("10.20.0.1", "dgx.lab.example.org", "fd00::7")),
        ({"network": {"on_prem": ["10.20.0.0/16"], "trusted": ["10.20.0.0/16"]}}, ("10.20.0.1",)),
        ({"control_plane": {**KUBEADM, "clients": ["10.20.0.0/16"]}}, ("10.20.0.1",)),
        ({"control_plane": {**EKS, "remote_node_networks": ["10.20.0.0/16"]}}, ("10.20.0.1",)),
    ],
)
def test_networks_of_one_place_may_be_said_twice(configured: dict[str, Any], machines: tuple[str, ...]) -> None:
    """A machine is in its own network, and may trust it."""
    check_networks(settings(**configured), inventory(*machines))


@pytest.mark.parametrize(
    ("configured", "machines", "says"),
    [
        ({"network": {"on_prem": ["172.16.0.0/12"]}}, (), "spillway:network.on_prem[0] = 172.16.0.0/12 (on-prem)"),
        ({}, ("172.17.4.7",), "machines[0] (m0).address = 172.17.4.7 (on-prem)"),
        ({"network": {"on_prem": ["172.18.0.0/16"]}}, ("10.20.0.1",), None),
    ],
)
def test_a_lab_in_dockers_own_network_is_told_of(
    configured: dict[str, Any], machines: tuple[str, ...], says: str | None
) -> None:
    """It may stand there for years, with Docker on no machine that it talks to: nobody can move it for us."""
    check_networks(settings(**configured), inventory(*machines))
    told = tell_docker(settings(**configured), inventory(*machines))
    assert len(told) == (says is not None)
    assert all(says in line and "/etc/docker/daemon.json" in line for line in told if says)


@pytest.mark.parametrize(
    ("pods", "most", "told"), [("10.244.0.0/21", 3, 0), ("10.244.0.0/21", 4, 1), ("10.244.0.0/16", 99, 0)]
)
def test_a_network_of_pods_with_fewer_parts_than_nodes_is_told_of(pods: str, most: int, told: int) -> None:
    """Three members and two machines are nodes as well; a network that hands out its own addresses needs no part."""
    wanted = settings(control_plane={**KUBEADM, "pod_network": pods})
    lines = tell_pods(wanted, policy(group(max=most)), inventory("10.20.0.1", "10.20.0.2"))
    assert len(lines) == told
    assert all("has 8 parts of /24" in line and "machines are 9" in line for line in lines)
    assert not tell_pods(settings(), policy(group(max=999)), NOBODY)


@given(on_prem=st.lists(PREFIXES, max_size=3, unique=True), cidr=PREFIXES.filter(lambda text: int(text[-2:]) <= 20))
def test_what_passes_shares_no_address(on_prem: list[str], cidr: str) -> None:
    """And what is refused does."""
    wanted = settings(network={"cidr": cidr, "on_prem": on_prem})
    ranges = list(named_networks(wanted))
    meet = any(
        one.network.overlaps(other.network) for one, other in combinations(ranges, 2) if one.place != other.place
    )
    try:
        check_networks(wanted, NOBODY)
    except BadInput as refused:
        assert meet
        free = ipaddress.IPv4Network(str(refused).splitlines()[0].rpartition("; ")[2].split(" ")[0])
        assert not any(free.overlaps(one.network) for one in ranges), "the remedy is one"
    else:
        assert not meet


def test_a_zone_needs_an_address_for_every_node() -> None:
    """EC2 says `InsufficientFreeAddressesInSubnet` on the day when the nodes are needed most."""
    small = ipaddress.IPv4Network("10.40.0.0/20")
    free = room(small, ["us-east-1a", "us-east-1b"])
    assert free == {"us-east-1a": 251, "us-east-1b": 251}
    check_room(policy(group(max=251)), free, source="p.yaml", where="spillway:network.cidr")
    with pytest.raises(BadInput, match=r"come to 252 nodes in us-east-1a, .* 251 addresses.*spillway:network.cidr"):
        check_room(policy(group(max=252)), free, source="p.yaml", where="spillway:network.cidr")
