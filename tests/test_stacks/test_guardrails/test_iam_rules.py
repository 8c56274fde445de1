"""The rules for IAM, from what a program asks for to the words that refuse it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stacks.guardrails.iam_rules import rights_without_bounds
from tests.test_stacks.test_release.test_rights_bounds import ROLES

POLICY = "aws:iam/rolePolicy:RolePolicy"


def told(kind: str, **inputs: Any) -> list[str]:
    """What is said of a resource."""
    return list(rights_without_bounds(kind, inputs))


def policy(**statement: Any) -> str:
    """A document of one statement."""
    whole = {
        "Sid": "One",
        "Effect": "Allow",
        "Action": "ec2:StartInstances",
        "Resource": "arn:aws:ec2:*:*:instance/i-1",
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [{**whole, **statement}]})


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ({"Action": "*"}, "allows *:"),
        ({"Action": ["ec2:Describe*", "iam:*"]}, "allows iam:*:"),
        ({"Action": "s3:*", "Resource": "*"}, "s3:* on every resource"),
        ({"Action": "ec2:RunInstances", "Resource": ["*"]}, "ec2:RunInstances on every resource"),
        ({"Action": "ssm:GetParameter*", "Resource": "*"}, "ssm:GetParameter* on every resource"),
        ({"Action": "s3:Get*", "Resource": "*"}, "s3:Get* on every resource"),
        ({"Action": "kms:Decrypt", "Resource": "*"}, "kms:Decrypt on every resource"),
        ({"NotAction": "iam:*", "Resource": "*"}, "whatever it does not name"),
    ],
)
def test_a_policy_that_gives_too_much_is_told(statement: dict[str, Any], says: str) -> None:
    """By its statement, with what would be right."""
    for kind in (POLICY, "aws:iam/userPolicy:UserPolicy", "aws:iam/policy:Policy"):
        assert says in told(kind, policy=policy(**statement))[0]
    assert says in told("aws:iam/role:Role", inlinePolicies=[{"policy": policy(**statement)}])[0]


@pytest.mark.parametrize(
    "statement",
    [
        {},
        {"Action": "ec2:Describe*", "Resource": "*"},
        {"Effect": "Deny", "Action": "*", "Resource": "*"},
        {"Action": "kms:Decrypt", "Resource": "*", "Condition": {"StringEquals": {"kms:ViaService": "x"}}},
        {"Action": "ssmmessages:OpenDataChannel", "Resource": "*"},
    ],
)
def test_a_policy_that_is_bound_passes(statement: dict[str, Any]) -> None:
    """By a resource, by a condition, or since it only looks."""
    assert told(POLICY, policy=policy(**statement)) == []


@pytest.mark.parametrize("role", ["autoscaler", "approver", "node", "member"])
def test_what_our_own_roles_have_passes(role: str) -> None:
    """Else the pack would refuse the stacks that it comes with."""
    assert [said for document in ROLES[role] for said in told(POLICY, policy=json.dumps(document))] == []


@pytest.mark.parametrize("principal", ["*", {"AWS": "*"}, {"AWS": ["arn:aws:iam::1:root", "*"]}])
def test_a_role_that_anything_may_take_on_is_told(principal: Any) -> None:
    """Also where it is one of several."""
    trust = {
        "Version": "2012-10-17",
        "Statement": {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal},
    }
    [said] = told("aws:iam/role:Role", assumeRolePolicy=json.dumps(trust))
    assert "name the service" in said


def test_administrators_policies_are_told_where_they_are_attached() -> None:
    """By name: what they allow is everything."""
    arn = "arn:aws:iam::aws:policy/AdministratorAccess"
    assert told("aws:iam/rolePolicyAttachment:RolePolicyAttachment", policyArn=arn, role="x")
    assert told("aws:iam/role:Role", managedPolicyArns=[arn])
    assert not told(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment", policyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
    )


def test_what_is_not_known_yet_is_not_told() -> None:
    """A preview knows no ARN of what is to be made."""
    assert told(POLICY) == told(POLICY, policy=None) == told(POLICY, policy="{") == []
