"""The permissions boundary of a cluster's roles and users: what none of them may do, whatever policies they have.

An administrator makes it once (``python -m stacks.release.deployer_iam`` writes it), and whoever deploys can neither
change it nor make a role without it: so nobody becomes more by deploying than the boundary allows. Imports no Pulumi.
"""

from __future__ import annotations

from typing import Any, Final

from autoscaler.config.policy import interruption_queue
from autoscaler.model import labels as words

NAME: Final = "boundary"
_ANYWHERE: Final = (
    # What AWS's own policies for the control plane of EKS and its add-ons ask for, and none of our roles may narrow.
    *(
        "autoscaling:Describe*",
        "ec2:Describe*",
        "ec2messages:*",
        "ecr:BatchCheckLayerAvailability",
        "ecr:BatchGetImage",
        "ecr:BatchImportUpstreamImage",
    ),
    *(
        "ecr:GetAuthorizationToken",
        "ecr:GetDownloadUrlForLayer",
        "eks:DescribeCluster",
        "eks-auth:AssumeRoleForPodIdentity",
    ),
    *("elasticloadbalancing:Describe*", "kms:DescribeKey", "pricing:GetProducts", "ssm:DescribeAssociation"),
    "servicequotas:GetServiceQuota",
    *("ssm:DescribeDocument", "ssm:DescribeInstanceInformation", "ssm:GetDeployablePatchSnapshotForInstance"),
    *("ssm:GetDocument", "ssm:GetManifest", "ssm:ListAssociations", "ssm:ListInstanceAssociations"),
    *("ssm:PutComplianceItems", "ssm:PutConfigurePackageResult", "ssm:PutInventory", "ssm:UpdateAssociationStatus"),
    *("ssm:UpdateInstanceAssociationStatus", "ssm:UpdateInstanceInformation", "ssmmessages:*"),
)
_NETWORKING: Final = (
    *("ec2:AssignIpv6Addresses", "ec2:AssignPrivateIpAddresses", "ec2:AttachNetworkInterface", "ec2:AttachVolume"),
    *(
        "ec2:AuthorizeSecurityGroupIngress",
        "ec2:CopyVolumes",
        "ec2:CreateNetworkInterface",
        "ec2:CreateNetworkInterfacePermission",
    ),
    *("ec2:CreateRoute", "ec2:CreateSecurityGroup", "ec2:CreateSnapshot", "ec2:CreateVolume"),
    *("ec2:DeleteNetworkInterface", "ec2:DeleteRoute", "ec2:DeleteSecurityGroup", "ec2:DeleteSnapshot"),
    *("ec2:DeleteVolume", "ec2:DetachNetworkInterface", "ec2:DetachVolume", "ec2:EnableFastSnapshotRestores"),
    *("ec2:LockSnapshot", "ec2:ModifyInstanceAttribute", "ec2:ModifyNetworkInterfaceAttribute", "ec2:ModifyVolume"),
    *("ec2:RevokeSecurityGroupIngress", "ec2:UnassignPrivateIpAddresses", "elasticloadbalancing:*"),
)
"""Of a role of EKS's own service and its add-ons. AWS's policies narrow them by tags; here they are named."""


def boundary_of(*, cluster: str, region: str, eks: bool) -> dict[str, Any]:
    """The policy document: reads, the cluster's own groups, parameters, buckets and keys.

    With ``eks`` also what EKS and its add-ons do on EC2, as far as AWS's own policies for them leave it to tags.
    """
    own = f"arn:*:ssm:{region}:*:parameter/spillway/{cluster}/"
    tagged = {"StringEquals": {f"aws:ResourceTag/{words.TAG_CLUSTER}": cluster}}
    return {
        "Version": "2012-10-17",
        "Statement": [
            *(_of_eks(region) if eks else ()),
            _allow("Look", _ANYWHERE, "*"),
            *_of_capacity(cluster, region, tagged),
            *_of_files(cluster, region, own),
            *_of_keys(region, own, tagged),
            _allow(
                "LeaveAsAHybridNode",
                ("ssm:DeregisterManagedInstance",),
                "*",
                {"StringEquals": {f"ssm:resourceTag/{words.TAG_CLUSTER}": cluster}},
            ),
        ],
    }


def _of_capacity(cluster: str, region: str, tagged: dict[str, Any]) -> list[dict[str, Any]]:
    """What the autoscaler buys and gives back, and hears of."""
    return [
        _allow(
            "OwnGroups",
            (
                "autoscaling:CompleteLifecycleAction",
                "autoscaling:LaunchInstances",
                "autoscaling:SetDesiredCapacity",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
                "autoscaling:UpdateAutoScalingGroup",
            ),
            f"arn:*:autoscaling:{region}:*:autoScalingGroup:*",
            tagged,
        ),
        _allow("LaunchAtOnce", ("ec2:CreateFleet",), "*", {"StringEquals": {"aws:RequestedRegion": region}}),
        _allow(
            "OwnQueue",
            ("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"),
            f"arn:*:sqs:{region}:*:{interruption_queue(cluster)}",
        ),
    ]


def _of_files(cluster: str, region: str, own: str) -> list[dict[str, Any]]:
    """Parameters under ``own``, buckets and logs."""
    return [
        _allow(
            "OwnParameters",
            (
                *("ssm:GetParameter", "ssm:GetParameters", "ssm:GetParametersByPath", "ssm:PutParameter"),
                *("ssm:DeleteParameter", "ssm:AddTagsToResource"),
            ),
            [f"{own}*", own.rstrip("/"), f"{own}join"],
        ),
        _allow(
            "OwnBuckets",
            ("s3:GetObject", "s3:PutObject"),
            [f"{bucket}/*" for bucket in buckets_of(cluster)],
            {"StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}},
        ),
        _allow(
            "OwnLogs",
            ("logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"),
            f"arn:*:logs:{region}:*:log-group:/spillway/{cluster}/*",
        ),
    ]


def _of_keys(region: str, own: str, tagged: dict[str, Any]) -> list[dict[str, Any]]:
    """Keys, for the parameters under ``own`` and for what is tagged as the cluster's."""
    of_parameters = {
        "kms:ViaService": f"ssm.{region}.amazonaws.com",
        "kms:EncryptionContext:PARAMETER_ARN": f"{own}*",
    }
    return [
        _allow(
            "KeysOfParameters",
            ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"),
            "*",
            {"StringLike": of_parameters},
        ),
        _allow("OwnKeys", ("kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey*", "kms:CreateGrant"), "*", tagged),
    ]


def _of_eks(region: str) -> list[dict[str, Any]]:
    here = {"StringEquals": {"aws:RequestedRegion": region}}
    # Whoever could write the cluster's tag on a thing of another could change that thing: no role of ours may.
    not_ours = {"ForAllValues:StringNotEquals": {"aws:TagKeys": [words.TAG_CLUSTER]}}
    linked = {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}}
    return [
        _allow("EksOnEc2", _NETWORKING, "*", here),
        _allow("Tags", ("ec2:CreateTags", "ec2:DeleteTags"), "*", here | not_ours),
        _allow("RoleOfBalancers", ("iam:CreateServiceLinkedRole",), "*", linked),
    ]


def boundary_arn(*, account: str, partition: str, cluster: str) -> str:
    """Where the administrator made it."""
    return f"arn:{partition}:iam::{account}:policy{path_of(cluster)}{NAME}"


def path_of(cluster: str) -> str:
    """Returns the path of the cluster's IAM objects: no name holds a slash, so `lab` is no `lab-2`."""
    return f"/spillway/{cluster}/"


def buckets_of(cluster: str) -> list[str]:
    """ARNs of the cluster's buckets, each ending in the seven characters that the engine makes up.

    Exactly seven: with a star the buckets of a cluster whose name goes on with a purpose would match.
    """
    purposes = ("node-bundle", "etcd-snapshots", "flow-logs")
    return [f"arn:*:s3:::{cluster}-{purpose}-{'?' * 7}" for purpose in purposes]


def _allow(
    sid: str, actions: tuple[str, ...], resources: str | list[str], condition: dict[str, Any] | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": resources}
    return found | ({"Condition": condition} if condition else {})
