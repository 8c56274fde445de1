"""Every security group of the programs has its own rules and no others, unless somebody else is to write there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stacks.programs import build
from tests.test_stacks.declared import plans
from tests.test_stacks.graph import Graph, graph
from tests.test_stacks.test_preflight.test_removals import EKS, KUBEADM, VPC, Cloud

NODES = "SecurityGroup lab-nodes"
ENDPOINTS = "SecurityGroup lab-endpoints"
MEMBERS = {"SecurityGroup lab-control-plane", "SecurityGroup lab-control-plane-balancer"}


def made(folder: Path, **configured: Any) -> Graph:
    """What such a stack file declares."""
    return graph(lambda: build(plans(folder, **configured)), mocks=Cloud())


@pytest.mark.parametrize(
    ("configured", "closed", "shared"),
    [
        ({}, {NODES}, set()),
        ({"network": {"nat": "none"}}, {NODES, ENDPOINTS}, set()),
        ({"network": {"vpc": VPC, "trusted": ["10.20.0.0/16"]}}, {NODES}, set()),
        ({"network": {"rules": "shared", "nat": "none"}}, {ENDPOINTS}, {NODES}),
        ({"network": {"vpc": VPC, "rules": "shared"}}, set(), {NODES}),
        ({"control_plane": KUBEADM, "network": {"trusted": ["10.20.0.0/16"]}}, {NODES, *MEMBERS}, set()),
        ({"control_plane": EKS}, set(), {NODES}),
        ({"program": "network"}, set(), {NODES}),
        ({"program": "network", "network": {"rules": "own"}}, {NODES}, set()),
        (
            {
                "connectivity": {"kind": "wireguard", "address": "198.51.100.7"},
                "network": {"on_prem": ["10.20.0.0/16"]},
            },
            {NODES, "SecurityGroup lab-on-prem-gateway"},
            set(),
        ),
    ],
)
def test_a_group_is_closed_with_all_of_its_rules(
    tmp_path: Path, configured: dict[str, Any], closed: set[str], shared: set[str]
) -> None:
    """A rule that was left out would be revoked as somebody else's."""
    found = made(tmp_path, **configured)
    exclusive = {one.name: one.inputs for one in found.of_type("VpcSecurityGroupRulesExclusive")}
    groups = {str(one) for one in found.of_type("SecurityGroup")}
    assert groups == closed | shared
    assert {f"SecurityGroup {name}" for name in exclusive} == closed
    for name, inputs in exclusive.items():
        key = f"{name}-id"
        rules = {
            way: sorted(
                f"{one.name}-id"
                for one in found.of_type(f"SecurityGroup{way.capitalize()}Rule")
                if one.inputs["securityGroupId"] == key
            )
            for way in ("ingress", "egress")
        }
        assert rules["ingress"], "else nothing was looked at"
        assert inputs["securityGroupId"] == key
        assert {way: sorted(inputs[f"{way}RuleIds"]) for way in rules} == rules
