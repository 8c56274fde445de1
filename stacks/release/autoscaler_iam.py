"""IAM rights of the autoscaler: calls of ``autoscaler/cloud``, changes only to its own cluster.

Imports no Pulumi.
"""

from __future__ import annotations

from typing import Any, Final

from autoscaler.config.policy import interruption_queue
from autoscaler.model import labels as words

READS: Final = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeSpotPriceHistory",
    "pricing:GetProducts",
    "servicequotas:GetServiceQuota",
)
"""None of these can be narrowed to a resource."""
WRITES: Final = (
    "autoscaling:CompleteLifecycleAction",
    "autoscaling:LaunchInstances",
    "autoscaling:SetDesiredCapacity",
    "autoscaling:TerminateInstanceInAutoScalingGroup",
)

LISTENS: Final = ("sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage")
"""To what EC2 is about to take back."""

OF_LAUNCHES: Final = ("ec2:CreateFleet", "ec2:DescribeLaunchTemplateVersions")
"""What Auto Scaling does for ``LaunchInstances`` in its caller's name. Without ``ec2:RunInstances`` no fleet launches.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/launching-instances-synchronous-provisioning.html
"""


def autoscaler_rights(*, cluster: str, region: str) -> dict[str, Any]:
    """The policy document of the autoscaler of one cluster."""
    groups = f"arn:*:autoscaling:{region}:*:autoScalingGroup:*:autoScalingGroupName/{cluster}-*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Sid": "Look", "Effect": "Allow", "Action": list(READS), "Resource": "*"},
            {
                "Sid": "ResizeItsOwnGroups",
                "Effect": "Allow",
                "Action": list(WRITES),
                "Resource": groups,
                "Condition": {"StringEquals": {f"autoscaling:ResourceTag/{words.TAG_CLUSTER}": cluster}},
            },
            {
                "Sid": "LaunchAtOnce",
                "Effect": "Allow",
                "Action": list(OF_LAUNCHES),
                "Resource": "*",
                "Condition": {"StringEquals": {"aws:RequestedRegion": region}},
            },
            {
                "Sid": "Listen",
                "Effect": "Allow",
                "Action": list(LISTENS),
                "Resource": f"arn:*:sqs:{region}:*:{interruption_queue(cluster)}",
            },
        ],
    }
