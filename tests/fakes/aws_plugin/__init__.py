"""Types and look-ups of the aws plugin that only stacks of the tests ask for."""

from __future__ import annotations

from typing import Final

from tests.fakes.aws_plugin import (
    eks,
    eks_lookups,
    flow_logs,
    iam_identities,
    instances,
    kms_logs,
    load_balancers,
    s3,
    ssm,
    vpc_lookups,
    vpn,
)

SERVICES: Final = tuple(
    module.KINDS for module in (eks, flow_logs, iam_identities, instances, kms_logs, load_balancers, s3, ssm, vpn)
)
LOOKUPS: Final = {**eks_lookups.LOOKUPS, **vpc_lookups.LOOKUPS}
