"""What the instances of a kubeadm control plane may do on AWS. Imports no Pulumi."""

from __future__ import annotations

from typing import Any

from stacks.control_plane.member_user_data import Parameters


def member_rights(*, cluster: str, region: str, parameters: Parameters, key: str, bucket: str) -> dict[str, Any]:
    """Keep and read what joins others, put snapshots, and be reached by Session Manager.

    ``key`` and ``bucket`` are ARNs. A snapshot once put can neither be read nor taken away from here.
    """
    names = (parameters.token, parameters.certificate_key, parameters.kubeconfig, parameters.version)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "KeepWhatJoinsOthers",
                "Effect": "Allow",
                "Action": ["ssm:GetParameter", "ssm:PutParameter"],
                "Resource": [f"arn:*:ssm:{region}:*:parameter{name}" for name in names],
            },
            {
                "Sid": "PutSnapshots",
                "Effect": "Allow",
                "Action": "s3:PutObject",
                "Resource": f"{bucket}/{cluster}/*",
            },
            {
                "Sid": "UseTheKey",
                "Effect": "Allow",
                "Action": ["kms:Encrypt", "kms:Decrypt", "kms:GenerateDataKey"],
                "Resource": key,
            },
            {
                "Sid": "SessionManager",
                "Effect": "Allow",
                "Action": [
                    "ec2messages:AcknowledgeMessage",
                    "ec2messages:DeleteMessage",
                    "ec2messages:FailMessage",
                    "ec2messages:GetEndpoint",
                    "ec2messages:GetMessages",
                    "ec2messages:SendReply",
                    "ssm:DescribeAssociation",
                    "ssm:GetDocument",
                    "ssm:ListAssociations",
                    "ssm:ListInstanceAssociations",
                    "ssm:UpdateAssociationStatus",
                    "ssm:UpdateInstanceAssociationStatus",
                    "ssm:UpdateInstanceInformation",
                    "ssmmessages:CreateControlChannel",
                    "ssmmessages:CreateDataChannel",
                    "ssmmessages:OpenControlChannel",
                    "ssmmessages:OpenDataChannel",
                ],
                "Resource": "*",
            },
        ],
    }
