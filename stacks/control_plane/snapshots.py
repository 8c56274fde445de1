"""Where snapshots of etcd are kept: a bucket that is private, encrypted, versioned, and emptied by age."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from stacks.aws.buckets import close_to_the_public
from stacks.settings.control_plane import Snapshots


class SnapshotStore(pulumi.ComponentResource):
    """One bucket, and the rules that it is under."""

    bucket: pulumi.Output[str]
    bucket_arn: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: Snapshots,
        *,
        key_arn: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("spillway:control:SnapshotStore", f"{name}-etcd-snapshots", None, opts)
        own, child = f"{name}-etcd-snapshots", pulumi.ResourceOptions(parent=self)
        store = aws.s3.Bucket(
            own,
            force_destroy=not settings.outlive_the_cluster,
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=settings.outlive_the_cluster),
        )
        aws.s3.BucketVersioning(own, bucket=store.bucket, versioning_configuration={"status": "Enabled"}, opts=child)
        aws.s3.BucketServerSideEncryptionConfiguration(
            own,
            bucket=store.bucket,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms",
                        "kms_master_key_id": key_arn,
                    },
                    "bucket_key_enabled": True,
                }
            ],
            opts=child,
        )
        aws.s3.BucketLifecycleConfiguration(
            own,
            bucket=store.bucket,
            rules=[
                {
                    "id": "old-snapshots",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "expiration": {"days": settings.keep_days},
                    "noncurrent_version_expiration": {"noncurrent_days": settings.keep_days},
                    "abort_incomplete_multipart_upload": {"days_after_initiation": 1},
                }
            ],
            opts=child,
        )
        close_to_the_public(store, name=own, parent=self)
        self.bucket, self.bucket_arn = store.bucket, store.arn
        self.register_outputs({"bucket": store.bucket})
