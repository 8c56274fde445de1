"""The queue in which the autoscaler reads what EC2 is about to take back, and the EventBridge rule that fills it.

Spot interruption warnings, rebalance recommendations and scheduled changes of AWS Health, of every instance of the
region: events name no Auto Scaling group. The autoscaler leaves those of others alone.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from autoscaler.config.policy import interruption_queue

PATTERN: Final[dict[str, Any]] = {
    "source": ["aws.ec2", "aws.health"],
    "detail-type": [
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "AWS Health Event",
    ],
}
"""https://docs.aws.amazon.com/eventbridge/latest/ref/events-ref-ec2.html"""
_KEPT: Final = 3600
"""Seconds: what nothing reads for so long is of no use any more."""


class InterruptionQueue(pulumi.ComponentResource):
    """Queue, rule and target, each with the queue's name: nothing but the rule may send to it."""

    def __init__(self, name: str, *, cluster: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("spillway:nodes:InterruptionQueue", name, None, opts)
        child, called = pulumi.ResourceOptions(parent=self), interruption_queue(cluster)
        queue = aws.sqs.Queue(
            name, name=called, message_retention_seconds=_KEPT, sqs_managed_sse_enabled=True, opts=child
        )
        rule = aws.cloudwatch.EventRule(
            name,
            name=called,
            description=f"What EC2 is about to take back, for the autoscaler of {cluster}",
            event_pattern=json.dumps(PATTERN),
            opts=child,
        )
        policy = pulumi.Output.all(queue=queue.arn, rule=rule.arn).apply(
            lambda arns: json.dumps(queue_policy(queue=arns["queue"], rule=arns["rule"]))
        )
        sender = aws.sqs.QueuePolicy(name, queue_url=queue.url, policy=policy, opts=child)
        aws.cloudwatch.EventTarget(
            name,
            rule=rule.name,
            arn=queue.arn,
            target_id="autoscaler",
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(depends_on=[sender])),
        )
        self.register_outputs({})


def queue_policy(*, queue: str, rule: str) -> dict[str, Any]:
    """Lets EventBridge send for this one rule; ``queue`` and ``rule`` are ARNs."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "EventBridge",
                "Effect": "Allow",
                "Principal": {"Service": "events.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": queue,
                "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
            }
        ],
    }
