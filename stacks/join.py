"""How nodes come in: where the bootstrap token is kept, and the right of the EC2 nodes' role to be admitted by it.

A token stands in one place only: a SecureString of SSM Parameter Store. User data and outputs name that place.
"""

from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from stacks.parts import ControlPlanePart


def join_parameter(cluster: str) -> str:
    """Name of the SecureString that holds the bootstrap token (``id.secret``) of the cluster's nodes."""
    return f"/spillway/{cluster}/join-token"


class NodeAdmission(pulumi.ComponentResource):
    """Lets the EC2 nodes' role into the cluster: on EKS by an access entry, elsewhere by the bootstrap token."""

    def __init__(
        self,
        name: str,
        *,
        cluster: str,
        control_plane: ControlPlanePart,
        role_name: pulumi.Input[str],
        role_arn: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("spillway:control:NodeAdmission", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        if control_plane.kind == "eks":
            stands = control_plane.about.apply(lambda _: cluster)  # an entry needs its cluster
            aws.eks.AccessEntry(name, cluster_name=stands, principal_arn=role_arn, type="EC2_LINUX", opts=child)
            aws.iam.RolePolicy(
                name, name="join", role=role_name, policy=json.dumps(describe_cluster(cluster)), opts=child
            )
        else:
            rights = json.dumps(read_token(cluster))
            aws.iam.RolePolicy(name, name="join", role=role_name, policy=rights, opts=child)
        self.register_outputs({})


def read_token(cluster: str) -> dict[str, object]:
    """The right to read the bootstrap token, and nothing else that is kept beside it."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "ReadJoinToken",
                "Effect": "Allow",
                "Action": "ssm:GetParameter",
                "Resource": f"arn:*:ssm:*:*:parameter{join_parameter(cluster)}",
            },
            {
                "Sid": "DecryptIt",
                "Effect": "Allow",
                "Action": "kms:Decrypt",
                "Resource": "*",
                # Whatever key the parameter is under: for this one parameter, and through Parameter Store alone.
                "Condition": {
                    "StringLike": {
                        "kms:ViaService": "ssm.*.amazonaws.com",
                        "kms:EncryptionContext:PARAMETER_ARN": f"arn:*:ssm:*:*:parameter{join_parameter(cluster)}",
                    }
                },
            },
        ],
    }


def describe_cluster(cluster: str) -> dict[str, object]:
    """What an EKS node asks at boot: where the cluster is."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "FindTheCluster",
                "Effect": "Allow",
                "Action": "eks:DescribeCluster",
                "Resource": f"arn:*:eks:*:*:cluster/{cluster}",
            }
        ],
    }
