"""A record of the connections in a VPC: in CloudWatch Logs, or in a bucket."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from stacks.aws.buckets import Statement, close_to_the_public
from stacks.aws.identities import Role
from stacks.aws.trust import trust_of
from stacks.settings.network import FlowLogSettings

_DELIVERY: Final = "delivery.logs.amazonaws.com"


@dataclass(frozen=True, kw_only=True)
class FlowLogsArgs:
    """What a flow log is made from."""

    name: str
    """Of the network."""
    vpc_id: pulumi.Input[str]
    settings: FlowLogSettings
    protect: bool = False


class FlowLogs(pulumi.ComponentResource):
    """The flow log, where it is kept, and the right to write there."""

    def __init__(self, name: str, args: FlowLogsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:network:FlowLogs", name, None, opts)
        self._name = name
        self._args = args
        kept, rights = self._in_cloudwatch() if args.settings.to == "cloudwatch" else self._in_a_bucket()
        aws.ec2.FlowLog(
            name,
            vpc_id=args.vpc_id,
            traffic_type=args.settings.traffic,
            tags={"Name": name},
            # EC2 begins to deliver at once, and gives up on what it may not write.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[rights]),
            **kept,
        )
        self.register_outputs({})

    @property
    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self)

    def _in_cloudwatch(self) -> tuple[dict[str, Any], pulumi.Resource]:
        group = aws.cloudwatch.LogGroup(
            self._name,
            name=f"/spillway/{self._args.name}/flow-logs",
            retention_in_days=self._args.settings.keep_days,
            opts=pulumi.ResourceOptions(parent=self, protect=self._args.protect),
        )
        role = Role(
            self._name,
            cluster=self._args.name,
            called=f"{self._args.name}-flow-logs",
            trust=trust_of("vpc-flow-logs.amazonaws.com"),
            description="Writes the flow logs of the VPC, and nothing else",
            parent=self,
        )
        rights = role.grant(self._name, "write", group.arn.apply(_may_write))
        role.close()
        kept = {
            "log_destination_type": "cloud-watch-logs",
            "log_destination": group.arn,
            "iam_role_arn": role.arn,
        }
        return kept, rights

    def _in_a_bucket(self) -> tuple[dict[str, Any], pulumi.Resource]:
        bucket = aws.s3.Bucket(
            self._name,
            force_destroy=not self._args.protect,  # records go with the VPC that they are of
            tags={"Name": self._name},
            opts=pulumi.ResourceOptions(parent=self, protect=self._args.protect),
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            self._name,
            bucket=bucket.id,
            rules=[{"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}],
            opts=self._child,
        )
        aws.s3.BucketLifecycleConfiguration(
            self._name,
            bucket=bucket.id,
            rules=[
                {
                    "id": "expire",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "expiration": {"days": self._args.settings.keep_days},
                }
            ],
            opts=self._child,
        )
        policy = close_to_the_public(bucket, name=self._name, parent=self, also=_delivery_may_write)
        # With the policy there, the delivery service adds none of its own.
        return {"log_destination_type": "s3", "log_destination": bucket.arn}, policy


def _may_write(arn: str) -> str:
    """Rights of the role: streams and records of the one group. EC2 makes no group, since it is there."""
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
                    "Resource": [arn, f"{arn}:*"],
                },
            ],
        }
    )


def _delivery_may_write(arn: str) -> list[Statement]:
    """https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs-s3-permissions.html."""
    service = {"Service": _DELIVERY}
    return [
        {
            "Sid": "Write",
            "Effect": "Allow",
            "Principal": service,
            "Action": "s3:PutObject",
            "Resource": f"{arn}/AWSLogs/*",
            "Condition": {"StringEquals": {"s3:x-amz-acl": "bucket-owner-full-control"}},
        },
        {
            "Sid": "Look",
            "Effect": "Allow",
            "Principal": service,
            "Action": "s3:GetBucketAcl",
            "Resource": arn,
        },
    ]
