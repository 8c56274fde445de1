"""On-prem machines as hybrid nodes of EKS: who they are on AWS, and how they come to be it."""

from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from autoscaler import labels as words
from stacks.control_plane_settings import HybridSettings
from stacks.trust import trust_of


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
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("spillway:control:HybridNodes", f"{name}-hybrid", None, opts)
        child = pulumi.ResourceOptions(parent=self)
        own = f"{name}-hybrid"
        role = aws.iam.Role(
            own,
            name=cluster.name.apply(lambda text: f"{text}-hybrid"),
            assume_role_policy=json.dumps(trust_of("ssm.amazonaws.com")),
            description="On-prem machines as EKS hybrid nodes",
            opts=child,
        )
        attached = [
            aws.iam.RolePolicyAttachment(
                f"{own}-{policy}", role=role.name, policy_arn=f"arn:aws:iam::aws:policy/{policy}", opts=child
            )
            for policy in ("AmazonSSMManagedInstanceCore", "AmazonEC2ContainerRegistryPullOnly")
        ]
        rights = aws.iam.RolePolicy(
            own,
            name="join",
            role=role.id,
            policy=pulumi.Output.json_dumps(
                {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Sid": "FindTheCluster",
                            "Effect": "Allow",
                            "Action": "eks:DescribeCluster",
                            "Resource": cluster.arn,
                        },
                        {
                            "Sid": "LookAtItself",
                            "Effect": "Allow",
                            "Action": "ssm:DescribeInstanceInformation",
                            "Resource": "*",
                        },
                        {
                            "Sid": "DeregisterItself",
                            "Effect": "Allow",
                            "Action": "ssm:DeregisterManagedInstance",
                            "Resource": "arn:*:ssm:*:*:managed-instance/*",
                            # Machines have the tags of the activation that they came in by.
                            "Condition": {"StringEquals": {f"ssm:resourceTag/{words.TAG_CLUSTER}": cluster.name}},
                        },
                    ],
                }
            ),
            opts=child,
        )
        aws.eks.AccessEntry(own, cluster_name=cluster.name, principal_arn=role.arn, type="HYBRID_LINUX", opts=child)
        activation = aws.ssm.Activation(
            own,
            description=cluster.name.apply(lambda text: f"On-prem machines of {text}"),
            iam_role=role.name,
            registration_limit=settings.machines,
            expiration_date=settings.expires,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*attached, rights],
                additional_secret_outputs=["activationCode"],
            ),
        )
        self.role_arn, self.activation_id = role.arn, activation.id
        self.code = pulumi.Output.secret(activation.activation_code)
        self.register_outputs({"roleArn": role.arn, "activationId": activation.id})
