"""moto's buckets with the gaps closed that matter here: of a policy it looks at no condition, nor at its form."""

from __future__ import annotations

import json
from typing import Any

from moto.ec2.models import ec2_backends
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.s3.exceptions import S3ClientError
from moto.s3.models import FakeBucket, S3Backend

from stacks.local.wire.aws_protocol import Refused
from tests.fakes.aws_services.stock import Inventory
from tests.fakes.aws_services.validation.iam import check_resource_policy


def permission(bucket: FakeBucket, action: str, resource: str) -> Any:
    """What the policy says of a call, as if that had come by TLS, which this stand-in does not speak.

    moto would take "deny what comes without TLS" for "deny".
    """
    if bucket.policy is None:
        return PermissionResult.NEUTRAL
    policy = json.loads(bucket.policy)
    policy["Statement"] = [one for one in policy["Statement"] if not _is_about_plain_http(one)]
    return IAMPolicy(json.dumps(policy)).is_action_permitted(action, resource)


def put_policy(backend: S3Backend, bucket_name: str, policy: bytes) -> None:
    """Keep the policy where S3 would."""
    try:
        known = Inventory(ec2_backends[backend.account_id]["us-east-1"])
        check_resource_policy(policy.decode(), known, code="MalformedPolicy")
    except Refused as wrong:
        raise S3ClientError(wrong.code, str(wrong)) from None
    backend.get_bucket(bucket_name).policy = policy


def _is_about_plain_http(statement: dict[str, Any]) -> bool:
    return statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
