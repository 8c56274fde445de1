"""What IAM refuses of names, sizes and documents; and rights that no service has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from stacks.local.wire.aws_protocol import Refused
from tests.fakes.aws_services.validation.iam import check_iam, check_key_policy, check_trust, rights_of
from tests.test_stacks.stand_in import client, stand_in

TRUST = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}
GRANT = {"Effect": "Allow", "Action": ["autoscaling:SetDesiredCapacity", "ec2:Describe*"], "Resource": "*"}


class Stock:
    """One role."""

    def has_principal(self, arn: str) -> bool:
        """That one."""
        return arn == ROLE


ROLE = "arn:aws:iam::123456789012:role/there"
KNOWN: Any = Stock()


def document(*statements: Any, **changes: Any) -> str:
    """A policy document."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)} | changes)


def role(**changes: Any) -> dict[str, Any]:
    """A request for a role."""
    return {"RoleName": "lab-node", "AssumeRolePolicyDocument": document(TRUST)} | changes


def rights(text: str, name: str = "node") -> dict[str, Any]:
    """A request that gives a role rights."""
    return {"RoleName": "lab-node", "PolicyName": name, "PolicyDocument": text}


def refused(action: str, asked: dict[str, Any]) -> tuple[str, str]:
    """Code and words."""
    with pytest.raises(Refused) as met:
        check_iam(action, asked)
    return met.value.code, str(met.value)


def test_ordinary_requests_pass() -> None:
    """Also with wildcards, conditions, a list of services, and rights that no public API has."""
    check_iam("CreateRole", role(MaxSessionDuration="3600", Description="nodes"))
    check_iam("PutRolePolicy", rights(document(GRANT | {"Sid": "Resize", "Condition": {"StringEquals": {"a": "b"}}})))
    check_iam("PutRolePolicy", rights(document(GRANT | {"Action": ["ssmmessages:OpenDataChannel", "*"]})))
    check_iam(
        "PutRolePolicy", rights(document({"Effect": "Deny", "NotAction": "s3:*", "NotResource": "arn:aws:s3:::b/*"}))
    )
    check_iam("CreatePolicy", {"PolicyName": "p", "PolicyDocument": document(GRANT)})
    check_iam("CreateInstanceProfile", {"InstanceProfileName": "lab-node"})


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"RoleName": "a b"}, "ValidationError", "roleName"),
        ({"RoleName": "r" * 65}, "ValidationError", "less than or equal to 64"),
        ({"MaxSessionDuration": "60"}, "ValidationError", "between 3600 and 43200"),
        ({"Description": "d" * 1001}, "ValidationError", "1000"),
        ({"AssumeRolePolicyDocument": "{"}, "MalformedPolicyDocument", "invalid Json"),
        ({"AssumeRolePolicyDocument": document()}, "MalformedPolicyDocument", "Syntax errors"),
        ({"AssumeRolePolicyDocument": document(TRUST, Version="2020-01-01")}, "MalformedPolicyDocument", "version"),
        (
            {"AssumeRolePolicyDocument": document(TRUST | {"Resource": "*"})},
            "MalformedPolicyDocument",
            "prohibited field Resource",
        ),
        (
            {"AssumeRolePolicyDocument": document({"Effect": "Allow", "Action": "sts:AssumeRole"})},
            "MalformedPolicyDocument",
            "Missing required field Principal",
        ),
        (
            {"AssumeRolePolicyDocument": document(TRUST | {"Action": "ec2:RunInstances"})},
            "MalformedPolicyDocument",
            "only specify STS",
        ),
        (
            {"AssumeRolePolicyDocument": document(TRUST | {"Principal": {"Service": "ec2"}})},
            "MalformedPolicyDocument",
            '"SERVICE":"ec2"',
        ),
        ({"AssumeRolePolicyDocument": document(TRUST | {"Sid": "x" * 2048})}, "LimitExceeded", "ACLSizePerRole: 2048"),
    ],
)
def test_a_role_out_of_form_is_refused(changes: dict[str, Any], code: str, words: str) -> None:
    """With IAM's code."""
    met = refused("CreateRole", role(**changes))
    assert (met[0], words in met[1]) == (code, True)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (GRANT | {"Principal": "*"}, "should not specify a principal"),
        (GRANT | {"Effect": "allow"}, "Invalid effect: allow"),
        (GRANT | {"Resources": "*"}, "Syntax errors"),
        (GRANT | {"NotAction": "ec2:*"}, "must contain actions"),
        ({"Effect": "Allow", "Action": "ec2:*"}, "must contain resources"),
        (GRANT | {"Resource": "lab-*"}, 'Resource lab-* must be in ARN format or "*".'),
        (GRANT | {"Action": "DescribeInstances"}, "prefaced by a vendor"),
        (GRANT | {"Sid": "two words"}, "alpha-numeric"),
        (GRANT | {"Action": "autoscaling:SetDesiredCapacities"}, "autoscaling:SetDesiredCapacities is no right of"),
        (GRANT | {"Action": "ec3:*"}, "ec3:* is no right of ec3"),
    ],
)
def test_rights_out_of_form_are_refused(statement: dict[str, Any], words: str) -> None:
    """A misspelt right too, which IAM itself stores: it would grant nothing."""
    code, told = refused("PutRolePolicy", rights(document(statement)))
    assert (code, words in told) == ("MalformedPolicyDocument", True)


def test_sids_are_used_once() -> None:
    """In one document."""
    assert "must be unique" in refused("PutRolePolicy", rights(document(GRANT | {"Sid": "A"}, GRANT | {"Sid": "A"})))[1]


def test_documents_have_a_size() -> None:
    """Without white space; a managed policy's is smaller than an inline one's."""
    long = document(*[GRANT | {"Sid": f"S{number}"} for number in range(90)])
    check_iam("PutRolePolicy", rights(long))
    assert refused("CreatePolicy", {"PolicyName": "p", "PolicyDocument": long})[0] == "LimitExceeded"
    longer = document(*[GRANT | {"Sid": f"S{number}"} for number in range(120)])
    assert "10240" in refused("PutRolePolicy", rights(longer))[1]


def test_rights_are_those_of_the_apis() -> None:
    """As botocore describes them, with those that are named otherwise."""
    assert "CompleteLifecycleAction" in rights_of("autoscaling")
    assert "PassRole" in rights_of("iam")
    assert rights_of("ec3") == frozenset()


def test_a_trust_names_roles_that_there_are() -> None:
    """One that is not there yet, as right after it was asked for, is no principal."""
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole"}
    fine = document(trust | {"Principal": {"AWS": ROLE}})
    check_trust("CreateRole", role(AssumeRolePolicyDocument=fine), KNOWN)
    absent = document(trust | {"Principal": {"AWS": [ROLE, f"{ROLE}-not"]}})
    for action, asked in (
        ("CreateRole", role(AssumeRolePolicyDocument=absent)),
        ("UpdateAssumeRolePolicy", {"RoleName": "lab-node", "PolicyDocument": absent}),
    ):
        with pytest.raises(Refused, match=f'Invalid principal in policy: "AWS":"{ROLE}-not"') as met:
            check_trust(action, asked, KNOWN)
        assert met.value.code == "MalformedPolicyDocument"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1}', "Syntax errors"),
        (document(), "Syntax errors"),
        (document({"Effect": "Allow", "Action": "kms:*", "Resource": "*"}), "field Principal"),
        (document({"Effect": "Allow", "Action": "kms:*", "Principal": "*"}), "field Resource"),
        (document({"Effect": "Allow", "Action": "kms:*", "Principal": "ada", "Resource": "*"}), "Invalid principal"),
    ],
)
def test_a_policy_of_a_key_or_a_bucket_out_of_form_is_refused(text: str, words: str) -> None:
    """With the service's own code; a key without one has AWS's."""
    with pytest.raises(Refused, match=words) as met:
        check_key_policy({"Policy": text}, KNOWN)
    assert met.value.code == "MalformedPolicyDocumentException"
    check_key_policy({}, KNOWN)


def test_kms_and_s3_refuse_them_and_keep_what_is_right() -> None:
    """Through boto3: the documents of the program, and one without a statement."""
    good = document({"Effect": "Deny", "Action": "s3:*", "Principal": "*", "Resource": "arn:aws:s3:::lab/*"})
    absent = document({"Effect": "Allow", "Action": "kms:*", "Principal": {"AWS": f"{ROLE}-not"}, "Resource": "*"})
    with stand_in() as here:
        kms, s3 = client(here.url, "kms"), client(here.url, "s3")
        s3.create_bucket(Bucket="lab")
        s3.put_bucket_policy(Bucket="lab", Policy=good)
        with pytest.raises(ClientError, match=r"MalformedPolicy\)"):
            s3.put_bucket_policy(Bucket="lab", Policy=document())
        assert json.loads(s3.get_bucket_policy(Bucket="lab")["Policy"]) == json.loads(good)
        with pytest.raises(ClientError, match=r"MalformedPolicyDocumentException.*Invalid principal"):
            kms.create_key(Policy=absent)
