"""What every bucket of ours is under: nobody else reaches it, and nobody without TLS."""

from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws


def close_to_the_public(store: aws.s3.Bucket, *, name: str, parent: pulumi.Resource) -> None:
    """Block public access, and refuse what is not encrypted on its way."""
    closed = aws.s3.BucketPublicAccessBlock(
        name,
        bucket=store.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        opts=pulumi.ResourceOptions(parent=parent),
    )
    aws.s3.BucketPolicy(
        name,
        bucket=store.bucket,
        policy=store.arn.apply(lambda arn: json.dumps(only_encrypted_ways(arn))),
        # S3 takes one change of a bucket's access at a time.
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[closed]),
    )


def only_encrypted_ways(arn: str) -> dict[str, object]:
    """Refuse whoever comes without TLS."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "OnlyTls",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [arn, f"{arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }
