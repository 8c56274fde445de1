"""moto's buckets with the gap closed that matters here: it looks at no condition of a bucket's policy."""

from __future__ import annotations

import json
from typing import Any

from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.s3.models import FakeBucket


def permission(bucket: FakeBucket, action: str, resource: str) -> Any:
    """What the policy says of a call, as if that had come by TLS, which this stand-in does not speak.

    moto would take "deny what comes without TLS" for "deny".
    """
    if bucket.policy is None:
        return PermissionResult.NEUTRAL
    policy = json.loads(bucket.policy)
    policy["Statement"] = [one for one in policy["Statement"] if not _is_about_plain_http(one)]
    return IAMPolicy(json.dumps(policy)).is_action_permitted(action, resource)


def _is_about_plain_http(statement: dict[str, Any]) -> bool:
    return statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
