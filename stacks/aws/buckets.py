"""What every bucket of ours is under: nobody else reaches it, and nobody without TLS."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws

Statement = dict[str, Any]
"""Of a policy document."""


def close_to_the_public(
    store: aws.s3.Bucket,
    *,
    name: str,
    parent: pulumi.Resource,
    also: Callable[[str], Sequence[Statement]] = lambda _arn: (),
) -> aws.s3.BucketPolicy:
    """Block public access, and refuse what is not encrypted on its way; ``also``: more rules, by the bucket's ARN."""
    closed = aws.s3.BucketPublicAccessBlock(
        name,
        bucket=store.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=pulumi.ResourceOptions(parent=parent),
    )
    return aws.s3.BucketPolicy(
        name,
        bucket=store.bucket,
        policy=store.arn.apply(
            lambda arn: json.dumps({"Version": "2012-10-17", "Statement": [*also(arn), _only_by_tls(arn)]})
        ),
        # S3 takes one change of a bucket's access at a time.
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[closed]),
    )


def _only_by_tls(arn: str) -> Statement:
    """Refuse whoever comes without TLS."""
    return {
        "Sid": "OnlyByTls",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [arn, f"{arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
