"""The rights bounded from above: what must be out of reach, of whoever deploys and of each role that a stack makes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from stacks.aws.boundary import boundary_arn, boundary_of
from stacks.control_plane.existing_members import parameters_of
from stacks.control_plane.member_iam import member_rights
from stacks.nodes.join import KNOW_ITSELF, fetch_bundle, read_own_token, read_token
from stacks.nodes.node_groups import NODE_RIGHTS
from stacks.release.approver_manifests import approver_rights
from stacks.release.autoscaler_iam import autoscaler_rights
from stacks.release.deployer_iam import MAKES, UNBOUND, deployer_rights
from tests.fakes.aws_services.validation.iam import rights_of
from tests.rights import ACCOUNT, Asked, Document, is_allowed, listed, names, statements

REGION: Final = "us-east-1"
TAG: Final = "spillway.dev/cluster"
BOUNDARY: Final = f"arn:aws:iam::{ACCOUNT}:policy/spillway/lab/boundary"
REVIEWED_READS: Final = frozenset(
    {
        *("autoscaling:Describe*", "ec2:Describe*", "ec2:GetInstanceTypesFromInstanceRequirements", "eks:Describe*"),
        *("ec2:GetTransitGatewayAttachmentPropagations", "ec2:GetTransitGatewayRouteTableAssociations"),
        *("ec2:GetTransitGatewayRouteTablePropagations", "eks:List*", "elasticloadbalancing:Describe*"),
        *("kms:DescribeKey", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:List*", "logs:Describe*"),
        *("logs:List*", "ssm:Describe*", "ssm:List*", "iam:ListOpenIDConnectProviders", "pricing:GetProducts"),
        *("s3:ListAllMyBuckets", "sts:GetCallerIdentity"),
    }
)
"""Calls on `*`: each was read, shows no secret of another, and changes nothing. One more is a decision."""
REVIEWED_WRITES: Final[Mapping[str, str]] = {
    # what is reached of a thing that is not the cluster's, and why that is so; stacks/README.md tells it
    **UNBOUND,
    "ec2:RunInstances network-interface": "an interface that is made with the instance has no tag yet",
    "ec2:RunInstances volume": "nor has its volume",
    "ec2:RunInstances image": "images are AWS's",
    "ec2:RunInstances snapshot": "and so are theirs",
    "ssm:CreateAssociation document": "the one document that runs a script; the machines are bound by their tag",
    "ssm:UpdateAssociation document": "the same",
    "ssm:DeleteAssociation document": "the same",
    "ssm:GetParameter parameter/aws": "AWS's public parameters",
    "ssm:GetParameters parameter/aws": "the same",
    "ssm:CreateActivation *": "what is made has no ARN before",
    "kms:CreateKey *": "the same",
    "autoscaling:CreateOrUpdateTags autoScalingGroup untagged": "of a name that begins with the cluster's",
    "autoscaling:CreateAutoScalingGroup autoScalingGroup": "what is made has its name alone",
    "ssm:CreateAssociation association": "what is made has no tag yet",
    "iam:CreateOpenIDConnectProvider oidc-provider": "the same",
    "kms:TagResource key untagged": "tagging while it is made cannot be told from tagging what nobody has tagged",
    "iam:TagOpenIDConnectProvider oidc-provider untagged": "the same",
    "ssm:AddTagsToResource association untagged": "the same",
    "iam:GetOpenIDConnectProvider oidc-provider": "shows an issuer, which is public",
    "iam:ListOpenIDConnectProviderTags oidc-provider": "the same",
    "iam:CreateServiceLinkedRole role/aws-service-role": "of services that are named, with AWS's own rights",
}
TAKEN: Final[Mapping[str, frozenset[str]]] = {
    "ec2:CreateSubnet": frozenset({"vpc"}),
    "ec2:CreateSecurityGroup": frozenset({"vpc"}),
    "ec2:CreateRouteTable": frozenset({"vpc"}),
    "ec2:CreateNatGateway": frozenset({"subnet", "elastic-ip"}),
    "ec2:CreateNetworkInterface": frozenset({"subnet", "security-group"}),
    "ec2:CreateVpcEndpoint": frozenset({"vpc", "subnet", "security-group", "route-table"}),
    "ec2:CreateFlowLogs": frozenset({"vpc", "subnet", "transit-gateway"}),
    "ec2:CreateVpnConnection": frozenset({"customer-gateway", "vpn-gateway", "transit-gateway"}),
    "ec2:CreateTransitGatewayVpcAttachment": frozenset({"vpc", "subnet", "transit-gateway"}),
    "ec2:RunInstances": frozenset(
        {
            *("subnet", "security-group", "launch-template", "placement-group", "key-pair"),
            *("network-interface", "volume", "image", "snapshot"),
        }
    ),
    "ec2:AuthorizeSecurityGroupIngress": frozenset({"security-group"}),
    "ec2:AuthorizeSecurityGroupEgress": frozenset({"security-group"}),
    **dict.fromkeys(
        (
            *("ec2:CreateVpc", "ec2:CreateInternetGateway", "ec2:AllocateAddress", "ec2:CreateCustomerGateway"),
            *("ec2:CreateVpnGateway", "ec2:CreatePlacementGroup", "ec2:CreateLaunchTemplate", "ec2:CreateVolume"),
        ),
        frozenset[str](),
    ),
}
"""What is there already that a call takes to make something: the service authorization reference of EC2.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
"""
SERVICES: Final = (
    *("autoscaling", "cloudformation", "ec2", "eks", "elasticloadbalancing", "iam", "kms", "lambda", "logs"),
    *("organizations", "pricing", "s3", "secretsmanager", "ssm", "sts"),
)
"""The services of the documents, and those by which others have become administrators."""


def foreign() -> Iterator[tuple[str, str]]:  # noqa: C901 - one table
    """ARNs of another's things: in this account and region, of a cluster whose name begins with ours, or of nobody."""
    own = f"{REGION}:{ACCOUNT}"
    for kind in sorted({*MAKES.values(), "transit-gateway", "transit-gateway-route-table", "network-acl", "key-pair"}):
        yield kind, f"arn:aws:ec2:{own}:{kind}/x-0123456789abcdef0"
    for kind in ("image", "snapshot"):
        yield kind, f"arn:aws:ec2:{REGION}::{kind}/x-0123456789abcdef0"
    for kind in ("role", "user", "instance-profile", "policy"):
        for name in ("lab-2-node", "Admin", "spillway/lab-2/lab-2-node", "spillway/labx", "service-role/lab"):
            yield kind, f"arn:aws:iam::{ACCOUNT}:{kind}/{name}"
    yield "role/aws-service-role", f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/x.amazonaws.com/AWSServiceRoleForX"
    yield "oidc-provider", f"arn:aws:iam::{ACCOUNT}:oidc-provider/oidc.eks.{REGION}.amazonaws.com/id/OTHER"
    yield "oidc-provider/github", f"arn:aws:iam::{ACCOUNT}:oidc-provider/token.actions.githubusercontent.com"
    yield "autoScalingGroup", f"arn:aws:autoscaling:{own}:autoScalingGroup:u-u-i-d:autoScalingGroupName/lab-2-gpu-a"
    for kind in ("cluster/lab-2", "access-entry/lab-2/role/1/x/y", "addon/lab-2/coredns/x", "cluster/labx"):
        yield "eks", f"arn:aws:eks:{own}:{kind}"
    for kind in ("loadbalancer/net/lab-2-api/1", "listener/net/lab-2-api/1/2", "targetgroup/lab-api-api/1"):
        yield "balancer", f"arn:aws:elasticloadbalancing:{own}:{kind}"
    for name in ("states", "lab-2-node-bundle-1a2b3c4", "lab-etcd-snapshots-2-etcd-snapshots-1a2b3c4", "lab"):
        yield "bucket", f"arn:aws:s3:::{name}"
        yield "bucket", f"arn:aws:s3:::{name}/key"
    for name in ("/spillway/lab-2/join-token", "/prod/password", "/spillway/labx/a"):
        yield "parameter", f"arn:aws:ssm:{own}:parameter{name}"
    yield "parameter/aws", f"arn:aws:ssm:{REGION}::parameter/aws/service/x"
    for name in ("/spillway/lab-2/flow-logs", "/aws/eks/lab-2/cluster", "prod"):
        yield "logs", f"arn:aws:logs:{own}:log-group:{name}:*"
    yield "key", f"arn:aws:kms:{own}:key/11111111-2222-3333-4444-555555555555"
    yield "document", f"arn:aws:ssm:{REGION}::document/AWS-RunShellScript"
    yield "document of another", f"arn:aws:ssm:{REGION}::document/AWS-RunPowerShellScript"
    for service, kind in (
        ("ssm", "association"),
        ("ssm", "managed-instance"),
        ("ssm", "session"),
        ("lambda", "function"),
    ):
        yield kind, f"arn:aws:{service}:{own}:{kind}/x"
    yield "secret", f"arn:aws:secretsmanager:{own}:secret:x"
    yield "role of another account", "arn:aws:iam::999999999999:role/spillway/lab/lab-node"
    yield "*", "*"


def reached(documents: list[Document]) -> set[str]:
    """What is allowed of things that are not the cluster's, whatever tags and names a request brings with it."""
    chosen = {
        "aws:RequestedRegion": REGION,
        "aws:ResourceAccount": ACCOUNT,
        f"aws:RequestTag/{TAG}": "lab",
        "aws:TagKeys": ["Name"],
        "iam:PermissionsBoundary": BOUNDARY,
        "iam:PassedToService": "ec2.amazonaws.com",
        "iam:PolicyARN": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy",
        "iam:AWSServiceName": "autoscaling.amazonaws.com",
        "kms:ViaService": f"ssm.{REGION}.amazonaws.com",
        "kms:EncryptionContext:PARAMETER_ARN": f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/spillway/lab-2/join-token",
    }
    others = {" untagged": {}, "": {f"aws:ResourceTag/{TAG}": "lab-2", "aws:ResourceTag/aws:eks:cluster-name": "lab-2"}}
    found = set()
    for service in SERVICES:
        for action in (f"{service}:{verb}" for verb in sorted(rights_of(service))):
            named = [{"Statement": [one for one in statements(documents) if names(one, action)]}]
            for kind, arn in _things_of(action) if named[0]["Statement"] else ():
                allowed = [
                    how
                    for how, tags in others.items()
                    if is_allowed(named, Asked(action=action, resource=arn, context={**chosen, **tags}))
                ]
                if allowed:
                    found.add(f"{action} {kind}" + (" untagged" if allowed == [" untagged"] else ""))
    return found


def _things_of(action: str) -> Iterator[tuple[str, str]]:
    """Another's things that a call may be about."""
    service = action.partition(":")[0]
    if action in ("kms:CreateKey", "ssm:CreateActivation"):
        yield "*", "*"
        return
    for kind, arn in foreign():
        is_its = arn == "*" or arn.split(":")[2] == service or (service == "ssm" and kind == "instance")
        if is_its and (action not in MAKES or kind in TAKEN[action]):
            yield kind, arn


def beyond(documents: list[Document]) -> set[str]:
    """What is reached, and nobody has reviewed."""
    reads = {"Statement": [{"Effect": "Allow", "Action": sorted(REVIEWED_READS), "Resource": "*"}]}

    def is_reviewed(action: str) -> bool:
        return action in UNBOUND or is_allowed([reads], Asked(action=action, resource="*"))

    on_everything = {
        f"{action} *"
        for one in statements(documents)
        for action in listed(one["Action"])
        if one["Effect"] == "Allow" and "*" in listed(one["Resource"]) and action not in REVIEWED_READS
    }
    found = on_everything | reached(documents)
    return {one for one in found if one not in REVIEWED_WRITES and not is_reviewed(one.split()[0])}


def deployer() -> list[Document]:
    """As an administrator attaches them."""
    return list(deployer_rights(cluster="lab", region=REGION).values())


def test_whoever_deploys_reaches_nothing_of_another_but_what_was_reviewed() -> None:
    """Every call of every service there is in the documents, on a thing of `lab-2` and on one that nobody tagged."""
    assert beyond(deployer()) == set()


def test_what_was_reviewed_is_still_so() -> None:
    """A gap that was closed leaves the list: it must not stand open for the next."""
    found = reached(deployer())
    assert {one for one in REVIEWED_WRITES if one not in UNBOUND} <= found
    assert all(any(one.startswith(f"{action} ") for one in found) for action in UNBOUND)


def mutated(change: Callable[[dict[str, Any]], bool]) -> Iterator[tuple[str, list[Document]]]:
    """Each statement that allows something, changed, with what is denied: the others let in what they let in before."""
    denied = [one for one in statements(deployer()) if one["Effect"] == "Deny"]
    for statement in copy.deepcopy(list(statements(deployer()))):
        if statement["Effect"] == "Allow" and change(statement):
            yield str(statement["Sid"]), [{"Statement": [statement, *denied]}]


def _on_everything(statement: dict[str, Any]) -> bool:
    changes = bool(statement["Resource"] != "*")
    statement["Resource"] = "*"
    return changes


@pytest.mark.parametrize("action", ["*", "iam:*", "s3:*", "ec2:*", "ssm:SendCommand", "kms:Decrypt", "lambda:*"])
def test_one_more_action_on_everything_is_told(action: str) -> None:
    """The mutation that passed forty tests: `iam:*` in a statement on every resource."""
    documents = deployer()
    documents[0]["Statement"][0]["Action"].append(action)
    assert beyond(documents)


def test_a_statement_on_everything_is_told() -> None:
    """Each, also where a tag would bind it: no region and no kind of thing does then."""
    assert {sid for sid, documents in mutated(_on_everything) if not beyond(documents)} == set()


def test_a_condition_that_is_dropped_is_told() -> None:
    """Each key of each condition binds something."""
    untold = set()
    keys = {
        (operator, key)
        for one in statements(deployer())
        for operator, found in one.get("Condition", {}).items()
        for key in found
    }
    for operator, key in sorted(keys):

        def drop(statement: dict[str, Any], operator: str = operator, key: str = key) -> bool:
            return statement.get("Condition", {}).get(operator, {}).pop(key, None) is not None

        for sid, documents in mutated(drop):
            if not beyond(documents) and not escalations(documents):
                untold.add((sid, key))
    assert untold == set(), untold


OWN_ROLE: Final = f"arn:aws:iam::{ACCOUNT}:role/spillway/lab/lab-x"
OWN_USER: Final = f"arn:aws:iam::{ACCOUNT}:user/spillway/lab/lab-x"
OWN_PARAMETER: Final = f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/spillway/lab/join-token"
OWN_INSTANCE: Final = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-own"
OWN_GROUP: Final = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:u-u-i-d:autoScalingGroupName/lab-gpu-a"
OWN_KEY: Final = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/11111111-2222-3333-4444-555555555555"
OWN_ISSUER: Final = f"arn:aws:iam::{ACCOUNT}:oidc-provider/oidc.eks.{REGION}.amazonaws.com/id/OWN"
ANOTHERS_TAG: Final = {f"aws:RequestTag/{TAG}": "lab-2"}
BOUNDED: Final = {"iam:PermissionsBoundary": BOUNDARY}
ADMIN: Final = "arn:aws:iam::aws:policy/AdministratorAccess"
ESCALATIONS: Final[Mapping[str, tuple[Asked, ...]]] = {
    # Rhino Security Labs, "AWS IAM Privilege Escalation Methods"
    **{
        f"{verb} ({what})": (Asked(action=f"iam:{verb}", resource=arn, context=BOUNDED),)
        for verb in (
            "CreatePolicyVersion",
            "SetDefaultPolicyVersion",
            "DeletePolicyVersion",
            "DeletePolicy",
            "CreatePolicy",
        )
        for what, arn in {"of the boundary": BOUNDARY, "of another": f"arn:aws:iam::{ACCOUNT}:policy/Admin"}.items()
    },
    **{
        f"{verb} on {what}": (Asked(action=f"iam:{verb}", resource=arn, context=BOUNDED),)
        for what, arn in {"a role": OWN_ROLE, "a user": OWN_USER}.items()
        for kind in ("Role", "User")
        for verb in (f"Put{kind}PermissionsBoundary", f"Delete{kind}PermissionsBoundary")
    },
    **{
        f"{verb} without the boundary": (
            Asked(action=f"iam:{verb}", resource=arn),
            Asked(action=f"iam:{verb}", resource=arn, context={"iam:PermissionsBoundary": ADMIN}),
        )
        for verb, arn in {
            "CreateRole": OWN_ROLE,
            "PutRolePolicy": OWN_ROLE,
            "AttachRolePolicy": OWN_ROLE,
            "CreateUser": OWN_USER,
            "PutUserPolicy": OWN_USER,
        }.items()
    },
    "AttachRolePolicy of administrators": (
        Asked(action="iam:AttachRolePolicy", resource=OWN_ROLE, context={**BOUNDED, "iam:PolicyARN": ADMIN}),
    ),
    "AttachUserPolicy": (
        Asked(action="iam:AttachUserPolicy", resource=OWN_USER, context={**BOUNDED, "iam:PolicyARN": ADMIN}),
    ),
    "PassRole to what runs code": tuple(
        Asked(action="iam:PassRole", resource=OWN_ROLE, context={"iam:PassedToService": f"{name}.amazonaws.com"})
        for name in ("lambda", "glue", "cloudformation", "sagemaker", "codebuild", "ecs-tasks", "datapipeline")
    ),
    "PassRole of another": (
        Asked(
            action="iam:PassRole",
            resource=f"arn:aws:iam::{ACCOUNT}:role/Admin",
            context={"iam:PassedToService": "ec2.amazonaws.com"},
        ),
    ),
    **{
        verb: tuple(Asked(action=f"iam:{verb}", resource=arn, context=BOUNDED) for arn in (OWN_USER, "*"))
        for verb in (
            *("CreateLoginProfile", "UpdateLoginProfile", "AddUserToGroup", "AttachGroupPolicy", "PutGroupPolicy"),
            *(
                "CreateGroup",
                "CreateSAMLProvider",
                "UpdateSAMLProvider",
                "DeactivateMFADevice",
                "UploadSigningCertificate",
            ),
            "CreateServiceSpecificCredential",
        )
    },
    "UpdateAssumeRolePolicy of another": (
        Asked(action="iam:UpdateAssumeRolePolicy", resource=f"arn:aws:iam::{ACCOUNT}:role/Admin"),
    ),
    "CreateAccessKey of another": (Asked(action="iam:CreateAccessKey", resource=f"arn:aws:iam::{ACCOUNT}:user/admin"),),
    "AssumeRole": (Asked(action="sts:AssumeRole", resource=f"arn:aws:iam::{ACCOUNT}:role/Admin"),),
    "a shell on a machine": tuple(
        Asked(action=f"ssm:{verb}", resource=arn, context={f"aws:ResourceTag/{TAG}": "lab"})
        for verb in ("SendCommand", "StartSession", "StartAutomationExecution", "ResumeSession")
        for arn in (OWN_INSTANCE, f"arn:aws:ssm:{REGION}::document/AWS-RunShellScript", "*")
    ),
    "an association on another's machine": (
        Asked(action="ssm:CreateAssociation", resource=f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-other"),
    ),
    "code that runs with a role": tuple(
        Asked(action=action, resource="*")
        for action in (
            *("lambda:CreateFunction", "lambda:UpdateFunctionCode", "lambda:InvokeFunction", "lambda:AddPermission"),
            *("cloudformation:CreateStack", "cloudformation:UpdateStack", "cloudformation:SetStackPolicy"),
            *("glue:CreateDevEndpoint", "glue:UpdateDevEndpoint", "sagemaker:CreateNotebookInstance"),
            *("codestar:CreateProject", "datapipeline:CreatePipeline", "ecs:RunTask", "codebuild:CreateProject"),
        )
    ),
    "secrets": (
        Asked(action="secretsmanager:GetSecretValue", resource="*"),
        Asked(action="kms:Decrypt", resource=f"arn:aws:kms:{REGION}:{ACCOUNT}:key/other"),
    ),
    "the metadata of a machine that stands": (
        Asked(action="ec2:ModifyInstanceAttribute", resource=f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-other"),
        Asked(action="ec2-instance-connect:SendSSHPublicKey", resource="*"),
    ),
    "an association of a profile": (
        Asked(action="ec2:AssociateIamInstanceProfile", resource=f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-other"),
        Asked(action="ec2:ReplaceIamInstanceProfileAssociation", resource=f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i"),
    ),
    "rights in another cluster": (
        Asked(action="eks:CreateAccessEntry", resource=f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/lab-2"),
        Asked(
            action="eks:AssociateAccessPolicy", resource=f"arn:aws:eks:{REGION}:{ACCOUNT}:access-entry/lab-2/role/1/x/y"
        ),
    ),
    "another region": (
        Asked(
            action="ec2:RunInstances",
            resource=f"arn:aws:ec2:eu-west-1:{ACCOUNT}:instance/i-x",
            context={f"aws:RequestTag/{TAG}": "lab"},
        ),
        Asked(action="ec2:DescribeInstances", resource="*", context={"aws:RequestedRegion": "eu-west-1"}),
        *(
            Asked(
                action=action,
                resource="*",
                context={"aws:RequestedRegion": "eu-west-1", f"aws:RequestTag/{TAG}": "lab"},
            )
            for action in ("kms:CreateKey", "ssm:CreateActivation")
        ),
    ),
    "a bucket of another account, under a name of ours": (
        Asked(
            action="s3:PutObject",
            resource="arn:aws:s3:::lab-etcd-snapshots-1a2b3c4/key",
            context={"aws:ResourceAccount": "999999999999"},
        ),
    ),
    "another's key, with words that a parameter would give": (
        Asked(
            action="kms:Decrypt",
            resource=f"arn:aws:kms:{REGION}:{ACCOUNT}:key/other",
            context={"kms:EncryptionContext:PARAMETER_ARN": OWN_PARAMETER},
        ),
    ),
    "what is made and has not the cluster's tag": (
        Asked(action="ec2:RunInstances", resource=f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-x"),
        Asked(action="ec2:CreateVolume", resource=f"arn:aws:ec2:{REGION}:{ACCOUNT}:volume/x"),
        Asked(action="kms:CreateKey", resource="*", context={"aws:RequestedRegion": REGION}),
        Asked(
            action="iam:CreateOpenIDConnectProvider",
            resource=f"arn:aws:iam::{ACCOUNT}:oidc-provider/oidc.eks.{REGION}.amazonaws.com/id/NEW",
        ),
        Asked(action="ssm:CreateActivation", resource="*", context={"aws:RequestedRegion": REGION}),
    ),
    "the tag of a thing that stands": (
        Asked(
            action="ec2:CreateTags",
            resource=f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-other",
            context={f"aws:RequestTag/{TAG}": "lab", "aws:TagKeys": [TAG]},
        ),
        Asked(
            action="ec2:CreateTags",
            resource=OWN_INSTANCE,
            context={f"aws:ResourceTag/{TAG}": "lab", f"aws:RequestTag/{TAG}": "lab-2", "aws:TagKeys": [TAG]},
        ),
        *(
            Asked(
                action=action,
                resource=own,
                context={f"aws:ResourceTag/{TAG}": "lab", "aws:TagKeys": [TAG], **tags},
            )
            for own, actions in (
                (OWN_INSTANCE, {"ec2:DeleteTags": {}}),
                (OWN_GROUP, {"autoscaling:CreateOrUpdateTags": ANOTHERS_TAG, "autoscaling:DeleteTags": {}}),
                (OWN_KEY, {"kms:TagResource": ANOTHERS_TAG, "kms:UntagResource": {}}),
                (OWN_ISSUER, {"iam:TagOpenIDConnectProvider": ANOTHERS_TAG, "iam:UntagOpenIDConnectProvider": {}}),
            )
            for action, tags in actions.items()
        ),
    ),
    "a service's role with rights of its own": (
        Asked(
            action="iam:CreateServiceLinkedRole",
            resource=f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/x.amazonaws.com/AWSServiceRoleForX",
            context={"iam:AWSServiceName": "organizations.amazonaws.com"},
        ),
    ),
}


def escalations(documents: list[Document]) -> set[str]:
    """Which of these ways are open."""
    return {way for way, asked in ESCALATIONS.items() if any(is_allowed(documents, one) for one in asked)}


ROLES: Final[Mapping[str, list[Document]]] = {
    "autoscaler": [autoscaler_rights(cluster="lab", region=REGION)],
    "approver": [approver_rights(cluster="lab", region=REGION)],
    "node": [NODE_RIGHTS, KNOW_ITSELF, read_token("lab"), read_own_token("lab"), fetch_bundle("arn:aws:s3:::b/k")],
    "member": [
        member_rights(
            cluster="lab",
            region=REGION,
            parameters=parameters_of("lab"),
            key=f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1",
            bucket="arn:aws:s3:::lab-etcd-snapshots-1a2b3c4",
        )
    ],
    "boundary": [boundary_of(cluster="lab", region=REGION, eks=False)],
}


def test_roles_are_made_with_the_boundary_that_the_deployer_may_give_them() -> None:
    """With another, or with none, they are refused; in each partition of AWS it has an ARN of its own."""
    role = f"arn:aws:iam::{ACCOUNT}:role/spillway/lab/lab-x"
    ours = boundary_arn(account=ACCOUNT, partition="aws", cluster="lab")
    assert ours == BOUNDARY
    assert boundary_arn(account=ACCOUNT, partition="aws-cn", cluster="lab") == BOUNDARY.replace(
        "arn:aws:", "arn:aws-cn:"
    )
    for given, allowed in ((ours, True), (boundary_arn(account=ACCOUNT, partition="aws", cluster="lab-2"), False)):
        asked = Asked(action="iam:CreateRole", resource=role, context={"iam:PermissionsBoundary": given})
        assert is_allowed(deployer(), asked) is allowed


def test_no_known_way_to_more_rights_is_open_to_whoever_deploys() -> None:
    """Also where the role is the cluster's own: without the boundary nothing is made of it."""
    assert escalations(deployer()) == set()


@pytest.mark.parametrize("role", ROLES)
def test_no_known_way_to_more_rights_is_open_to_a_role(role: str) -> None:
    """Of those that stacks make, nor to any that the boundary leaves."""
    looking = {"another region"}  # they only look at what every region shows
    assert escalations(ROLES[role]) - looking == set()


def test_the_boundary_leaves_no_way_on_eks_either() -> None:
    """Where AWS's own policies need more of EC2."""
    assert escalations([boundary_of(cluster="lab", region=REGION, eks=True)]) <= {
        "another region",
        "the metadata of a machine that stands",  # EKS turns off the source check of its nodes by this call
    }
