"""What ``pulumi up`` needs on AWS: ``python -m stacks.release.deployer_iam CLUSTER REGION FOLDER [ARN ...]``.

Writes managed policies, and the permissions boundary without which they let nobody make a role. Every action of
``deployer_calls.py`` is bound to the cluster: by a name that no other cluster's begins with, or by the tag
``spillway.dev/cluster``. A further ARN is of a thing that is there already and that the stack joins: a VPC and its
subnets and route tables, a transit gateway. Imports no Pulumi.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from autoscaler.config.policy import interruption_queue
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from stacks.aws.boundary import NAME as BOUNDARY
from stacks.aws.boundary import boundary_of, buckets_of, path_of
from stacks.project import check_code_here
from stacks.release.deployer_calls import WRITES

LIMIT: Final = 6144
"""Characters of a managed policy, without white space."""
MOST_POLICIES: Final = 10
"""Attached to one user or role, before a higher quota is asked for."""
Statement = dict[str, Any]
Condition = Mapping[str, Mapping[str, Any]]

READS: Final = (
    *("autoscaling:Describe*", "ec2:Describe*", "ec2:GetInstanceTypesFromInstanceRequirements"),
    *("ec2:GetTransitGatewayAttachmentPropagations", "ec2:GetTransitGatewayRouteTableAssociations"),
    *("ec2:GetTransitGatewayRouteTablePropagations", "eks:Describe*", "eks:List*", "elasticloadbalancing:Describe*"),
    *("kms:DescribeKey", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:List*", "logs:Describe*", "logs:List*"),
    *("ssm:Describe*", "ssm:List*"),
)
"""Calls of the region that look, and cannot be narrowed to a resource, or show no more than that it is there."""
READS_OF_THE_ACCOUNT: Final = (
    *("iam:ListOpenIDConnectProviders", "pricing:GetProducts", "s3:ListAllMyBuckets", "sts:GetCallerIdentity"),
)
"""Of services without a region, or whose only region is another."""
UNBOUND: Final[Mapping[str, str]] = {
    "logs:CreateLogDelivery": "flow logs into a bucket; AWS knows no resource for it",
    "logs:DeleteLogDelivery": "the same",
    "ssm:DeleteActivation": "of hybrid nodes; AWS knows neither a resource nor a tag for it",
}
"""Calls that change something and that AWS lets nobody narrow, with what they are for."""

_FREE: Final = {
    "CreateVpc": "vpc",
    "CreateInternetGateway": "internet-gateway",
    "AllocateAddress": "elastic-ip",
    "CreateCustomerGateway": "customer-gateway",
    "CreateVpnGateway": "vpn-gateway",
    "CreatePlacementGroup": "placement-group",
    "CreateLaunchTemplate": "launch-template",
    "CreateVolume": "volume",
}
_IN_A_VPC: Final = {
    "CreateSubnet": "subnet",
    "CreateSecurityGroup": "security-group",
    "CreateRouteTable": "route-table",
}
_IN_A_SUBNET: Final = {
    "CreateNatGateway": "natgateway",
    "CreateNetworkInterface": "network-interface",
    "CreateVpcEndpoint": "vpc-endpoint",
    "CreateFlowLogs": "vpc-flow-log",
    "CreateVpnConnection": "vpn-connection",
    "CreateTransitGatewayVpcAttachment": "transit-gateway-attachment",
    "RunInstances": "instance",
    "AuthorizeSecurityGroupIngress": "security-group-rule",
    "AuthorizeSecurityGroupEgress": "security-group-rule",
}
MAKES: Final[Mapping[str, str]] = {f"ec2:{verb}": kind for verb, kind in (_FREE | _IN_A_VPC | _IN_A_SUBNET).items()}
"""Calls of EC2 that make something, and its kind. In three steps, none of which makes what it is made in: a tag in the
request binds what is made, and must not be taken for the tag of what it is made in."""
_RULES_OF_EKS: Final = ("AuthorizeSecurityGroupIngress", "ModifySecurityGroupRules", "RevokeSecurityGroupIngress")
_ROLE_WRITES: Final = ("iam:PutRolePolicy", "iam:DeleteRolePolicy", "iam:DetachRolePolicy")
_USER_WRITES: Final = ("iam:PutUserPolicy", "iam:DeleteUserPolicy")
POLICIES_OF_AWS: Final = (
    *("AmazonEKSClusterPolicy", "service-role/AmazonEBSCSIDriverPolicy", "AmazonEKS_CNI_Policy"),
    *("AmazonSSMManagedInstanceCore", "AmazonEC2ContainerRegistryPullOnly"),
)
"""All that the programs attach."""
_PASSED_TO: Final = ("ec2", "eks", "pods.eks", "ssm", "vpc-flow-logs")
_LINKED: Final = ("autoscaling", "eks", "elasticloadbalancing", "spot", "transitgateway")


def deployer_rights(*, cluster: str, region: str, joined: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Managed policies by name; ``joined`` are ARNs of what is there already."""
    own = _Own(cluster, region)
    actions = {action for listed in WRITES.values() for action in listed}
    ec2 = sorted(action for action in actions if action.startswith("ec2:"))
    documents = {
        "look": _look(own),
        "identities": _identities(own),
        "ec2": _ec2(own, ec2),
        "clusters": _clusters(own),
        "stores": _stores(own),
        **({"joined": [_join(ec2, joined)]} if joined else {}),
    }
    return {part: {"Version": "2012-10-17", "Statement": list(statements)} for part, statements in documents.items()}


class _Own:
    """Names and tags by which a thing is the cluster's."""

    def __init__(self, cluster: str, region: str) -> None:
        self.cluster, self.region, self.path = cluster, region, path_of(cluster)
        self.here: Condition = {"StringEquals": {"aws:RequestedRegion": region}}
        self.tagged: Condition = {"StringEquals": {f"aws:ResourceTag/{words.TAG_CLUSTER}": cluster}}
        self.tagging: Condition = {"StringEquals": {f"aws:RequestTag/{words.TAG_CLUSTER}": cluster}}
        # What is another's, or nobody's, must not become the cluster's by a tag.
        self.other_tags: Condition = {"ForAllValues:StringNotEquals": {"aws:TagKeys": [words.TAG_CLUSTER]}}
        self.tagging_nothing_of_others: Condition = {
            **self.tagging,
            "StringEqualsIfExists": self.tagged["StringEquals"],
        }
        self.boundary: Condition = {"StringLike": {"iam:PermissionsBoundary": self.iam("policy", BOUNDARY)}}

    def iam(self, kind: str, name: str = "*") -> str:
        """ARN of one of IAM's things under the cluster's path, in this account."""
        return f"arn:*:iam::${{aws:PrincipalAccount}}:{kind}{self.path}{name}"

    def arn(self, service: str, what: str) -> str:
        """Returns the ARN of such things in the region."""
        return f"arn:*:{service}:{self.region}:*:{what}"


def _look(own: _Own) -> Iterable[Statement]:
    yield _allow("Look", READS, "*", own.here)
    yield _allow("LookAround", READS_OF_THE_ACCOUNT, "*")
    yield _allow("Unbound", sorted(UNBOUND), "*", own.here)
    kinds = [own.iam(kind) for kind in ("role", "user", "instance-profile", "policy")]
    yield _allow("OwnIdentities", ["iam:Get*", "iam:List*"], kinds)
    issuers = ["iam:GetOpenIDConnectProvider", "iam:ListOpenIDConnectProviderTags"]
    yield _allow("Issuers", issuers, f"arn:*:iam::*:oidc-provider/oidc.eks.{own.region}.*")
    public = f"arn:*:ssm:{own.region}::parameter/aws/service/*"
    yield _allow("Parameters", ["ssm:GetParameter", "ssm:GetParameters"], [_parameters(own), public])


def _identities(own: _Own) -> Iterable[Statement]:
    roles, users, profiles = own.iam("role"), own.iam("user"), own.iam("instance-profile")
    attached: Condition = {"ArnLike": {"iam:PolicyARN": [f"arn:*:iam::aws:policy/{name}" for name in POLICIES_OF_AWS]}}
    yield _allow(
        "MakeBounded", ["iam:CreateRole", "iam:CreateUser", *_ROLE_WRITES, *_USER_WRITES], [roles, users], own.boundary
    )
    yield _allow("AttachOfAws", ["iam:AttachRolePolicy"], roles, {**own.boundary, **attached})
    yield _allow(
        "ChangeOwn",
        [
            *("iam:DeleteRole", "iam:UpdateRole", "iam:UpdateAssumeRolePolicy", "iam:TagRole", "iam:UntagRole"),
            *("iam:DeleteUser", "iam:TagUser", "iam:UntagUser", "iam:CreateAccessKey", "iam:UpdateAccessKey"),
            *("iam:DeleteAccessKey", "iam:CreateInstanceProfile", "iam:DeleteInstanceProfile"),
            *("iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:TagInstanceProfile"),
            "iam:UntagInstanceProfile",
        ],
        [roles, users, profiles],
    )
    services = [f"{name}.amazonaws.com" for name in _PASSED_TO]
    yield _allow("HandOn", ["iam:PassRole"], roles, {"StringEquals": {"iam:PassedToService": services}})
    linked = [f"{name}.amazonaws.com" for name in _LINKED]
    of_services = "arn:*:iam::*:role/aws-service-role/*"
    yield _allow(
        "RolesOfServices",
        ["iam:CreateServiceLinkedRole"],
        of_services,
        {"StringEquals": {"iam:AWSServiceName": linked}},
    )
    issuers = f"arn:*:iam::*:oidc-provider/oidc.eks.{own.region}.*"
    yield _allow("MakeIssuer", ["iam:CreateOpenIDConnectProvider"], issuers, own.tagging)
    yield _allow("TagIssuer", ["iam:TagOpenIDConnectProvider"], issuers, own.tagging_nothing_of_others)
    changing = [
        "DeleteOpenIDConnectProvider",
        "UpdateOpenIDConnectProviderThumbprint",
        "AddClientIDToOpenIDConnectProvider",
    ]
    yield _allow("OwnIssuer", [f"iam:{verb}" for verb in changing], issuers, own.tagged)
    yield _allow("UntagOwnIssuer", ["iam:UntagOpenIDConnectProvider"], issuers, {**own.tagged, **own.other_tags})
    yield {
        "Sid": "LeaveTheBoundary",
        "Effect": "Deny",
        "Action": [
            *("iam:CreatePolicyVersion", "iam:DeletePolicy", "iam:DeletePolicyVersion", "iam:SetDefaultPolicyVersion"),
            *("iam:DeleteRolePermissionsBoundary", "iam:DeleteUserPermissionsBoundary"),
            *("iam:PutRolePermissionsBoundary", "iam:PutUserPermissionsBoundary"),
        ],
        "Resource": [own.iam("policy"), roles, users],
    }


def _ec2(own: _Own, actions: Sequence[str]) -> Iterable[Statement]:
    for sid, made in (("Make", _FREE), ("MakeInVpc", _IN_A_VPC), ("MakeInSubnet", _IN_A_SUBNET)):
        kinds = [own.arn("ec2", f"{kind}/*") for kind in sorted(set(made.values()))]
        yield _allow(sid, [f"ec2:{verb}" for verb in made], kinds, own.tagging)
    image = [f"arn:*:ec2:{own.region}::{kind}/*" for kind in ("image", "snapshot")]
    with_it = [own.arn("ec2", f"{kind}/*") for kind in ("network-interface", "volume")]
    yield _allow("StartWith", ["ec2:RunInstances"], [*image, *with_it])
    everything = own.arn("ec2", "*/*")
    in_place = [f"ec2:{verb}" for verb in (_IN_A_VPC | _IN_A_SUBNET)]
    change = [action for action in actions if action not in MAKES]
    yield _allow("ChangeOwn", [*in_place, *change], everything, own.tagged)
    creating = {"StringEquals": {"ec2:CreateAction": [action.removeprefix("ec2:") for action in MAKES]}}
    yield _allow("TagWhatIsMade", ["ec2:CreateTags"], everything, creating)
    yield _allow("TagOwn", ["ec2:CreateTags", "ec2:DeleteTags"], everything, {**own.tagged, **own.other_tags})
    of_eks = {"StringEquals": {"aws:ResourceTag/aws:eks:cluster-name": own.cluster}}
    yield _allow("GroupOfEks", [f"ec2:{verb}" for verb in _RULES_OF_EKS], own.arn("ec2", "security-group/*"), of_eks)


def _join(actions: Sequence[str], joined: Sequence[str]) -> Statement:
    """Allows to be in it, and to lead through it: nothing there is deleted but routes."""
    ending = ("ec2:Delete", "ec2:Terminate", "ec2:Stop", "ec2:Create", "ec2:Modify", "ec2:Release", "ec2:Allocate")
    inside = [f"ec2:{verb}" for verb in (_IN_A_VPC | _IN_A_SUBNET)]
    changing = [action for action in actions if action not in MAKES and not action.startswith(ending)]
    return _allow(
        "JoinWhatIsThere", [*inside, *changing, *(f"ec2:{verb}Route" for verb in ("Create", "Delete"))], joined
    )


def _clusters(own: _Own) -> Iterable[Statement]:
    groups = own.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{own.cluster}-*")
    yield _allow("MakeGroups", ["autoscaling:CreateAutoScalingGroup"], groups, own.tagging)
    yield _allow("TagGroups", ["autoscaling:CreateOrUpdateTags"], groups, own.tagging_nothing_of_others)
    tags = ["autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags"]
    yield _allow("TagOwnGroups", tags, groups, {**own.tagged, **own.other_tags})
    of_groups = _calls("autoscaling.Group", "autoscaling.LifecycleHook", service="autoscaling")
    yield _allow(
        "OwnGroups",
        [one for one in of_groups if one not in ("autoscaling:CreateAutoScalingGroup", *tags)],
        groups,
        own.tagged,
    )
    name = f"{own.cluster}-api"[:32]
    kinds = (f"loadbalancer/net/{name}/*", f"listener/net/{name}/*", f"targetgroup/{name}/*")
    of_balancers = _calls("lb.LoadBalancer", "lb.Listener", "lb.TargetGroup", "lb.TargetGroupAttachment")
    yield _allow("OwnBalancer", of_balancers, [own.arn("elasticloadbalancing", kind) for kind in kinds])
    of_eks = _calls("eks.Cluster", "eks.AccessEntry", "eks.AccessPolicyAssociation", "eks.Addon", service="eks")
    kinds = (f"cluster/{own.cluster}", f"access-entry/{own.cluster}/*", f"addon/{own.cluster}/*")
    yield _allow("OwnEks", of_eks, [own.arn("eks", kind) for kind in kinds])
    gate, association = f"arn:*:ssm:{own.region}::document/AWS-RunShellScript", own.arn("ssm", "association/*")
    of_gates = [one for one in _calls("ssm.Association") if one != "ssm:AddTagsToResource"]
    yield _allow("GateDocument", of_gates, gate)
    yield _allow("GateOfOwn", of_gates, [own.arn("ec2", "instance/*"), association], own.tagged)
    yield _allow("MakeGate", ["ssm:CreateAssociation"], association, own.tagging)
    yield _allow("TagGate", ["ssm:AddTagsToResource"], association, own.tagging_nothing_of_others)
    yield _allow("MakeActivation", ["ssm:CreateActivation"], "*", _both(own.here, own.tagging))


def _stores(own: _Own) -> Iterable[Statement]:
    buckets = buckets_of(own.cluster)
    mine = {"StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}}
    kinds = [kind for kind in WRITES if kind.startswith("s3.")]
    yield _allow(
        "OwnBuckets", ["s3:Get*", "s3:List*", *_calls(*kinds)], [*buckets, *(f"{one}/*" for one in buckets)], mine
    )
    yield _allow(
        "OwnParameters",
        [*("ssm:PutParameter", "ssm:DeleteParameter"), *("ssm:AddTagsToResource", "ssm:RemoveTagsFromResource")],
        _parameters(own),
    )
    groups = [
        own.arn("logs", f"log-group:{name}")
        for name in (f"/spillway/{own.cluster}/*", f"/aws/eks/{own.cluster}/cluster*")
    ]
    yield _allow("OwnLogs", _calls("cloudwatch.LogGroup"), groups)
    called = interruption_queue(own.cluster)
    of_queues = ["sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:ListQueueTags"]
    yield _allow("OwnQueue", [*of_queues, *_calls("sqs.Queue", "sqs.QueuePolicy")], own.arn("sqs", called))
    of_rules = ["events:DescribeRule", "events:ListTagsForResource", "events:ListTargetsByRule"]
    writes = _calls("cloudwatch.EventRule", "cloudwatch.EventTarget")
    yield _allow("OwnRule", [*of_rules, *writes], own.arn("events", f"rule/{called}"))
    yield _allow("MakeKey", ["kms:CreateKey"], "*", _both(own.here, own.tagging))
    keys = own.arn("kms", "key/*")
    yield _allow("TagKey", ["kms:TagResource"], keys, own.tagging_nothing_of_others)
    yield _allow("TagOwnKey", ["kms:TagResource", "kms:UntagResource"], keys, {**own.tagged, **own.other_tags})
    of_keys = [one for one in _calls("kms.Key") if not one.endswith(("CreateKey", "TagResource", "UntagResource"))]
    yield _allow("OwnKeys", [*of_keys, *_USES_OF_KEYS, "kms:CreateGrant"], keys, own.tagged)
    through = {
        "kms:ViaService": f"ssm.{own.region}.amazonaws.com",
        "kms:EncryptionContext:PARAMETER_ARN": _parameters(own),
    }
    yield _allow(
        "KeysOfParameters", ["kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"], keys, {"StringLike": through}
    )


_USES_OF_KEYS: Final = ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext")


def _both(first: Condition, second: Condition) -> Condition:
    return {"StringEquals": {**first["StringEquals"], **second["StringEquals"]}}


def _parameters(own: _Own) -> str:
    return own.arn("ssm", f"parameter/spillway/{own.cluster}/*")


def _calls(*types: str, service: str = "") -> list[str]:
    """Returns the calls for these types, without those that pass on a role or belong to another service."""
    found = {action for kind in types for action in WRITES[kind] if not action.startswith(("iam:", "ec2:"))}
    return sorted(action for action in found if not service or action.startswith(f"{service}:"))


def _allow(
    sid: str, actions: Sequence[str], resources: Sequence[str] | str, condition: Condition | None = None
) -> Statement:
    found: Statement = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": resources}
    return found | ({"Condition": condition} if condition else {})


def main(arguments: list[str]) -> int:
    """Write one file for each policy, and one for the boundary."""
    parser = argparse.ArgumentParser(prog="python -m stacks.release.deployer_iam", description=__doc__)
    parser.add_argument("cluster")
    parser.add_argument("region")
    parser.add_argument("folder", type=Path)
    parser.add_argument("joined", nargs="*", metavar="ARN", help="of a thing that is there and that the stack joins")
    parser.add_argument("--eks", action="store_true", help="the control plane is EKS: its roles need more")
    asked = parser.parse_args(arguments)
    try:
        check_code_here()
    except BadInput as mistake:
        print(mistake, file=sys.stderr)
        return 2
    named = {
        f"deployer-{part}": document
        for part, document in deployer_rights(cluster=asked.cluster, region=asked.region, joined=asked.joined).items()
    }
    named[BOUNDARY] = boundary_of(cluster=asked.cluster, region=asked.region, eks=asked.eks)
    for name, document in named.items():
        path = asked.folder / f"{asked.cluster}-{name}.json"
        try:
            path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        except OSError as error:
            print(f"{path}: cannot write here: {error.strerror}", file=sys.stderr)
            return 2
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
