"""What whoever deploys needs on AWS, held against the types of resource that the programs make."""

from __future__ import annotations

import ast
import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import pytest

import stacks
from stacks.aws.boundary import boundary_of
from stacks.release.deployer_calls import WRITES
from stacks.release.deployer_iam import LIMIT, MOST_POLICIES, UNBOUND, deployer_rights, main
from tests.fakes.aws_services.validation.iam import check_iam, rights_of
from tests.rights import ACCOUNT, Asked, is_allowed


def types_used() -> tuple[set[str], set[str]]:
    """Types that the programs declare, and look-ups that they make."""
    types, lookups = set(), set()
    for file in Path(str(stacks.__path__[0])).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if not name.startswith("aws.") or name.count(".") != 2 or name.endswith("Args"):
                continue
            (lookups if name.split(".")[2].startswith("get_") else types).add(name.removeprefix("aws."))
    return types, lookups


def allowed(cluster: str = "lab") -> set[str]:
    """Every action that some statement allows."""
    documents = deployer_rights(cluster=cluster, region="us-east-1").values()
    return {
        action
        for one in documents
        for statement in one["Statement"]
        if statement["Effect"] == "Allow"
        for action in statement["Action"]
    }


def test_each_type_that_a_program_makes_is_covered_and_no_other() -> None:
    """A new type in a program needs its calls here; one that goes takes them with it."""
    types, _ = types_used()
    assert set(WRITES) == types


def test_each_call_of_each_type_is_allowed() -> None:
    """Also where it is narrowed to the cluster's names."""
    assert {action for actions in WRITES.values() for action in actions} <= allowed()


def test_in_a_network_of_others_nothing_is_deleted_but_routes() -> None:
    """What is there already is joined and led through; nothing of it is changed, stopped or given up."""
    vpc = f"arn:aws:ec2:us-east-1:{ACCOUNT}:vpc/vpc-1"
    (statement,) = deployer_rights(cluster="lab", region="us-east-1", joined=[vpc])["joined"]["Statement"]
    assert statement["Resource"] == [vpc]
    assert {"ec2:CreateRoute", "ec2:DeleteRoute", "ec2:CreateSubnet"} <= {*statement["Action"]}
    verbs = ("ec2:Delete", "ec2:Terminate", "ec2:Stop", "ec2:Modify", "ec2:Release")
    assert [one for one in statement["Action"] if one.startswith(verbs)] == ["ec2:DeleteRoute"]


def test_parameters_that_are_secret_are_encrypted_through_systems_manager_alone() -> None:
    """Under a key that was given: the key's own tag is another's, so the way and the parameter bind it."""
    documents = list(deployer_rights(cluster="lab", region="us-east-1").values())
    context = {
        "kms:ViaService": "ssm.us-east-1.amazonaws.com",
        "kms:EncryptionContext:PARAMETER_ARN": f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/spillway/lab/join",
        "aws:ResourceAccount": ACCOUNT,
    }
    key = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/given"
    for action in ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"):
        assert is_allowed(documents, Asked(action=action, resource=key, context=context)), action
        for name, other in (
            ("kms:ViaService", "s3.us-east-1.amazonaws.com"),
            (
                "kms:EncryptionContext:PARAMETER_ARN",
                f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/spillway/lab-2/join",
            ),
        ):
            assert not is_allowed(documents, Asked(action=action, resource=key, context=context | {name: other}))


def test_each_right_is_one_that_its_service_has() -> None:
    """A misspelled one would grant nothing, and be missed on the first `up`."""
    for action in allowed():
        service, _, name = action.partition(":")
        names = {"elasticloadbalancing": "elbv2"}
        assert any(fnmatch(one, name) for one in rights_of(names.get(service, service))), action


def test_an_administrator_can_attach_them() -> None:
    """By the commands of the README, against an IAM that tells misspelled rights."""
    documents = deployer_rights(cluster="lab", region="us-east-1", joined=["arn:aws:ec2:us-east-1:1:vpc/vpc-1"])
    documents["boundary"] = boundary_of(cluster="lab", region="us-east-1", eks=True)
    for part, document in documents.items():
        check_iam("CreatePolicy", {"PolicyName": f"lab-deployer-{part}", "PolicyDocument": json.dumps(document)})


def test_each_look_up_is_allowed() -> None:
    """By the service that it asks."""
    _, lookups = types_used()
    reads = {action.split(":")[0] for action in allowed() if action.split(":")[1].startswith(("Describe", "Get"))}
    services = {name.split(".")[0] for name in lookups}
    of_ec2 = ("ebs", "ec2transitgateway", "vpc")
    assert {"ec2" if one in of_ec2 else one for one in services} <= reads


def test_what_eks_offers_may_be_asked() -> None:
    """Its look-ups are not called as the calls of EKS are."""
    asked = ("DescribeClusterVersions", "DescribeAddonVersions", "DescribeAddon", "DescribeCluster", "ListClusters")
    assert {action for action in asked if any(fnmatch(f"eks:{action}", one) for one in allowed())} == set(asked)


def test_each_policy_fits_into_a_managed_policy(tmp_path: Path) -> None:
    """And is written where it is asked for."""
    longest = ["a" * 40, "ap-southeast-2", str(tmp_path)]
    joined = [f"arn:aws:ec2:ap-southeast-2:123456789012:subnet/subnet-{number:017d}" for number in range(30)]
    assert main([*longest, *joined, "--eks"]) == 0
    written = len(list(tmp_path.iterdir()))
    assert written == len(deployer_rights(cluster="lab", region="us-east-1", joined=joined)) + 1, "and the boundary"
    assert written <= MOST_POLICIES
    for file in tmp_path.iterdir():
        assert len("".join(file.read_text(encoding="utf-8").split())) <= LIMIT
        assert json.loads(file.read_text(encoding="utf-8"))["Version"] == "2012-10-17"


def test_a_folder_that_is_not_there_is_told_without_a_stack_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the file that could not be written."""
    assert main(["lab", "us-east-1", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.endswith("lab-deployer-look.json: cannot write here: No such file or directory\n")


TRANSIT_GATEWAY: Final = (
    # internal/service/ec2/transitgateway_vpc_attachment.go of terraform-provider-aws 6.34: each read of an attachment
    # asks for the gateway, and for the two tables that it may be in by default; a create, update or delete that wants
    # another default than the gateway's, and one alone, associates and propagates.
    *("ec2:DescribeTransitGateways", "ec2:DescribeTransitGatewayVpcAttachments"),
    *("ec2:GetTransitGatewayRouteTableAssociations", "ec2:GetTransitGatewayRouteTablePropagations"),
    *("ec2:CreateTransitGatewayVpcAttachment", "ec2:ModifyTransitGatewayVpcAttachment"),
    "ec2:DeleteTransitGatewayVpcAttachment",
)
BUCKET: Final = (
    # internal/service/s3/bucket.go and tags_gen.go: tags go by S3's older call, or by S3 Control's.
    *("s3:CreateBucket", "s3:DeleteBucket", "s3:GetBucketTagging", "s3:PutBucketTagging", "s3:ListTagsForResource"),
    *("s3:TagResource", "s3:UntagResource", "s3:ListBucket", "s3:ListBucketVersions", "s3:GetBucketPolicy"),
    *(
        "s3:GetBucketAcl",
        "s3:GetBucketCORS",
        "s3:GetBucketWebsite",
        "s3:GetBucketVersioning",
        "s3:GetAccelerateConfiguration",
    ),
    *(
        "s3:GetBucketRequestPayment",
        "s3:GetBucketLogging",
        "s3:GetLifecycleConfiguration",
        "s3:GetReplicationConfiguration",
    ),
    *("s3:GetEncryptionConfiguration", "s3:GetBucketObjectLockConfiguration", "s3:GetBucketLocation"),
)
EXCLUSIVE: Final = (
    # internal/service/iam/role_policies_exclusive.go and role_policy_attachments_exclusive.go
    *("iam:ListRolePolicies", "iam:DeleteRolePolicy", "iam:PutRolePolicy"),
    *("iam:ListAttachedRolePolicies", "iam:AttachRolePolicy", "iam:DetachRolePolicy"),
)


@pytest.mark.parametrize("calls", [TRANSIT_GATEWAY, BUCKET, EXCLUSIVE])
def test_what_the_real_plugin_calls_is_allowed(calls: tuple[str, ...]) -> None:
    """By its source: what a stand-in of it calls is less."""
    assert [one for one in calls if not any(fnmatch(one, pattern) for pattern in allowed())] == []


def test_rights_of_another_checkout_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose programs may make other things: refused in the folder of a project that names other code."""
    (tmp_path / "Pulumi.yaml").write_text("{name: spillway, runtime: python, main: stacks/}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "us-east-1", str(tmp_path)]) == 2
    assert f"main names the code in {tmp_path}/stacks" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["Pulumi.yaml"]


def test_what_cannot_be_narrowed_is_allowed_once_with_the_reason() -> None:
    """A statement that names resources gives none of it: it would read as if it were narrowed."""
    statements = [
        statement
        for one in deployer_rights(cluster="lab", region="us-east-1").values()
        for statement in one["Statement"]
        if statement["Effect"] == "Allow"
    ]
    given = [(action, statement["Resource"]) for statement in statements for action in statement["Action"]]
    assert {action: where for action, where in given if action in UNBOUND} == dict.fromkeys(UNBOUND, "*")
    assert sum(action in UNBOUND for action, _ in given) == len(UNBOUND)
