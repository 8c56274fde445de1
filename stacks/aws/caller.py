"""The caller's identity at AWS: tried before all else, so that missing or ended credentials are named as such."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from autoscaler.model.errors import Unavailable


def check_caller(*, region: str, provider: aws.Provider) -> None:
    """Whether AWS knows us. Raises ``Unavailable``."""
    try:
        aws.get_caller_identity(opts=pulumi.InvokeOptions(provider=provider))
    except Exception as error:  # noqa: BLE001 - a failed look-up has no type of its own
        raise Unavailable(
            f"AWS does not let us in, in {region} (the policy's region): {error}: `aws sts get-caller-identity "
            f"--region {region}` must answer in this very shell, by AWS_PROFILE, AWS_ACCESS_KEY_ID or whatever else "
            "the AWS CLI goes by"
        ) from None
