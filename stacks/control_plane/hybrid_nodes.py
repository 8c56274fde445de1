"""On-prem machines as hybrid nodes of EKS: their identity on AWS, and how they get it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from stacks.aws.boundary import path_of
from stacks.aws.identities import Role
from stacks.aws.trust import trust_of
from stacks.settings.control_plane import HybridSettings

_MOST: Final = timedelta(days=30)


class HybridNodes(pulumi.ComponentResource):
    """The role of on-prem machines, and the activation by which they come to it."""

    role_arn: pulumi.Output[str]
    activation_id: pulumi.Output[str]
    code: pulumi.Output[str]
    """Secret."""

    def __init__(
        self,
        name: str,
        settings: HybridSettings,
        *,
        cluster: aws.eks.Cluster,
        cluster_name: str,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("spillway:control:HybridNodes", f"{name}-hybrid", None, opts)
        own = f"{name}-hybrid"
        role = Role(
            own,
            cluster=cluster_name,
            called=cluster.name.apply(lambda text: f"{text}-hybrid"),
            trust=trust_of("ssm.amazonaws.com"),
            description="On-prem machines as EKS hybrid nodes",
            parent=self,
        )
        granted = [
            *(
                role.attach(f"{own}-{policy}", f"arn:aws:iam::aws:policy/{policy}")
                for policy in ("AmazonSSMManagedInstanceCore", "AmazonEC2ContainerRegistryPullOnly")
            ),
            role.grant(own, "join", _rights_to_join(cluster)),
        ]
        role.close()
        aws.eks.AccessEntry(
            own,
            cluster_name=cluster.name,
            principal_arn=role.arn,
            type="HYBRID_LINUX",
            opts=pulumi.ResourceOptions(parent=self),
        )
        activation = aws.ssm.Activation(
            own,
            description=cluster.name.apply(lambda text: f"On-prem machines of {text}"),
            # As Systems Manager takes a role that has a path: with it, and without the first slash.
            iam_role=role.name.apply(lambda found: f"{path_of(cluster_name)}{found}".removeprefix("/")),
            registration_limit=settings.machines,
            expiration_date=settings.expires,
            opts=pulumi.ResourceOptions(parent=self, depends_on=granted, additional_secret_outputs=["activationCode"]),
        )
        self.role_arn, self.activation_id = role.arn, activation.id
        self.code = pulumi.Output.secret(activation.activation_code)
        self.register_outputs({"roleArn": role.arn, "activationId": activation.id})


def _rights_to_join(cluster: aws.eks.Cluster) -> pulumi.Output[str]:
    """The policy by which a machine finds the cluster, and leaves Systems Manager when it leaves the cluster."""
    rights: list[dict[str, Any]] = [
        {"Sid": "FindTheCluster", "Action": "eks:DescribeCluster", "Resource": cluster.arn},
        {"Sid": "LookAtItself", "Action": "ssm:DescribeInstanceInformation", "Resource": "*"},
        {
            "Sid": "DeregisterItself",
            "Action": "ssm:DeregisterManagedInstance",
            "Resource": "arn:*:ssm:*:*:managed-instance/*",
            # Machines have the tags of the activation that they came in by.
            "Condition": {"StringEquals": {f"ssm:resourceTag/{words.TAG_CLUSTER}": cluster.name}},
        },
    ]
    return pulumi.Output.json_dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **right} for right in rights]}
    )


def check_expires(settings: HybridSettings, *, stands: str, now: datetime) -> None:
    """Whether Systems Manager would take the day; ``stands`` is that of an activation that was made. ``BadInput``."""
    wanted = settings.expires
    if wanted is None or wanted == stands:  # which may well be over: who is in stays in
        return
    left = datetime.strptime(wanted, "%Y-%m-%dT%H:%M:%S%z") - now
    if not timedelta() < left <= _MOST:
        raise BadInput(
            f"spillway:control_plane.hybrid.expires = {wanted!r}: an activation of Systems Manager ends within "
            f"{_MOST.days} days: write a day from now to {now + _MOST:%Y-%m-%dT%H:%M:%SZ}, or leave it out"
        )
