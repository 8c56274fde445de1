"""Roles and users of whole stacks: where they stand in IAM, what bounds them, and that they have no other right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from moto.iam.aws_managed_policies import aws_managed_policies_data

from stacks.aws.boundary import boundary_of
from stacks.programs import build
from stacks.release.deployer_iam import POLICIES_OF_AWS
from tests.rights import listed, names, statements
from tests.test_stacks.declared import Declared, Recorder, plans
from tests.test_stacks.test_control_plane.test_kubeadm import KUBECONFIG
from tests.test_stacks.test_release.test_rights_bounds import REGION, ROLES

BOUNDARY = "arn:aws:iam::123456789012:policy/spillway/lab/boundary"
PROGRAMS: dict[str, dict[str, Any]] = {
    "eks": {
        "control_plane": {
            "kind": "eks",
            "version": "1.35",
            "admins": ["arn:aws:iam::123456789012:role/admins"],
            "remote_node_networks": ["10.80.0.0/16"],
            "hybrid": {"machines": 2},
        },
        "network": {"flow_logs": {"to": "cloudwatch"}},
    },
    "kubeadm": {
        "control_plane": {"kind": "kubeadm", "ami": "ami-0123456789abcdef0"},
        "network": {"on_prem": ["10.20.0.0/16"]},
        "connectivity": {"kind": "wireguard", "address": "198.51.100.7", "ami": "ami-0123456789abcdef0"},
        "nodes": {"roles": "baked", "ami": "ami-0123456789abcdef0"},
        "release": {"image": "registry.example.org/autoscaler:1"},
    },
}


def made(tmp_path: Path, **given: Any) -> list[Declared]:
    """What the program of everything declares."""
    recorder = Recorder(getParameter={"value": KUBECONFIG})
    pulumi.runtime.set_mocks(recorder, project="spillway", stack="test", preview=False)
    pulumi.runtime.test(lambda: build(plans(tmp_path, **given)) and None)()  # type: ignore[no-untyped-call]  # Pulumi's
    return recorder.declared


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_role_and_user_is_bounded_and_under_the_clusters_path(program: str, tmp_path: Path) -> None:
    """So that none can be given more than the boundary, and no other cluster's rights reach it."""
    found = [one for one in made(tmp_path, **PROGRAMS[program]) if one.token.endswith((":Role", ":User"))]
    of_iam = [one for one in found if one.token.startswith("aws:iam")]
    assert len(of_iam) > 3
    for one in of_iam:
        assert one.inputs["permissionsBoundary"] == BOUNDARY, one.name
        assert one.inputs["path"] == "/spillway/lab/", one.name


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_role_has_no_policy_but_those_of_the_program(program: str, tmp_path: Path) -> None:
    """One that is written into it by hand, or attached, is drift."""
    found = made(tmp_path, **PROGRAMS[program])

    def of(kind: str, *, by: str, gives: str) -> dict[str, set[str]]:
        held: dict[str, set[str]] = {}
        for one in found:
            if one.token.endswith(f":{kind}"):
                held.setdefault(one.inputs[by], set()).update([one.inputs[gives]] if gives in one.inputs else [])
        return held

    roles = {one.inputs["name"] for one in found if one.token.endswith("iam/role:Role")}
    for kind, inline in (
        ("RolePoliciesExclusive", "RolePolicy"),
        ("RolePolicyAttachmentsExclusive", "RolePolicyAttachment"),
    ):
        key, gives = ("policyNames", "name") if inline == "RolePolicy" else ("policyArns", "policyArn")
        declared = {one.inputs["roleName"]: set(one.inputs[key]) for one in found if one.token.endswith(f":{kind}")}
        assert declared == {role: of(inline, by="role", gives=gives).get(role, set()) for role in roles}


@pytest.mark.parametrize("role", ["autoscaler", "approver", "node", "member"])
def test_the_boundary_leaves_each_role_what_its_policies_give(role: str) -> None:
    """By the words of each statement: what the boundary does not name, no policy gives."""
    bound = list(statements([boundary_of(cluster="lab", region=REGION, eks=False)]))
    for statement in statements(ROLES[role]):
        for action in statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]:
            assert any(names(one, action) for one in bound), action


@pytest.mark.parametrize("policy", POLICIES_OF_AWS)
def test_the_boundary_leaves_awss_policies_what_eks_needs_of_them(policy: str) -> None:
    """As moto has them from AWS: each call, but those that no cluster of ours asks for."""
    bound = list(statements([boundary_of(cluster="lab", region=REGION, eks=True)]))
    data = json.loads(aws_managed_policies_data)[policy.rpartition("/")[2]]["Document"]
    given = {action for one in statements([data]) for action in listed(one["Action"])}
    left_out = {action for action in given if not any(names(one, action) for one in bound)}
    assert left_out <= LEFT_OUT


LEFT_OUT = {
    # Of AmazonSSMManagedInstanceCore and AmazonEKSClusterPolicy; in the boundary they would be rights of every role.
    "ssm:GetParameters",
}
