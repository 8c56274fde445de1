"""The objects of the approver (``spillway nodes approve``) in the cluster, and its rights on AWS. Imports no Pulumi.

It lets the instances of the node groups in, where the project's own roles make nodes of them. It comes with the
autoscaler's release, from the same image, and reaches AWS in the same way.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from autoscaler.config.release_manifests import Manifest, ReleaseSpec, container, two_replicas
from autoscaler.model import labels as words
from stacks import ROOT

RBAC: Final = ROOT / "roles" / "rbac.yaml"
NAME: Final = words.APPROVER


def approver_manifests(spec: ReleaseSpec, *, cluster: str) -> list[Manifest]:
    """Accounts and rights from ``roles/rbac.yaml``, then the Deployment."""
    rbac = [one for one in yaml.safe_load_all(RBAC.read_text(encoding="utf-8")) if one]
    args = ["nodes", "approve", "--cluster", cluster, "--region", spec.region]
    args += ["--namespace", words.NAMESPACE, "--identity", "$(POD_NAME)"]
    program = container("approver", spec, args=args, memory=("96Mi", "256Mi"))
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - where Python expects it
    volumes = [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}]
    return [*rbac, two_replicas(NAME, spec, container=program | {"volumeMounts": mounts}, volumes=volumes)]


def approver_rights(*, cluster: str, region: str) -> dict[str, Any]:
    """See which instances run; keep tokens for them, each under the instance's name, and take them away again."""
    join = words.JOIN_PARAMETER.format(cluster=cluster, instance="")
    parameters = f"arn:*:ssm:{region}:*:parameter{join}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Sid": "SeeInstances", "Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"},
            {
                "Sid": "SeeTokens",
                "Effect": "Allow",
                "Action": "ssm:GetParametersByPath",
                "Resource": [parameters.rstrip("/"), f"{parameters}*"],
            },
            {
                "Sid": "KeepTokens",
                "Effect": "Allow",
                "Action": ["ssm:PutParameter", "ssm:DeleteParameter", "ssm:AddTagsToResource"],
                "Resource": f"{parameters}*",
            },
            {
                "Sid": "WithAwsOwnKey",
                "Effect": "Allow",
                "Action": ["kms:Encrypt", "kms:Decrypt"],
                "Resource": "*",
                "Condition": {
                    "StringLike": {
                        "kms:ViaService": "ssm.*.amazonaws.com",
                        "kms:EncryptionContext:PARAMETER_ARN": f"{parameters}*",
                    }
                },
            },
        ],
    }
