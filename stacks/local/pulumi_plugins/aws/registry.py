"""Every resource type and look-up that the stand-in for the aws plugin serves: one module for each service."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

from stacks.local.pulumi_plugins.aws import (
    auto_scaling,
    eks,
    eks_lookups,
    endpoints,
    iam,
    iam_identities,
    instances,
    kms_logs,
    load_balancers,
    lookups,
    s3,
    security_groups,
    ssm,
    vpc,
    vpc_lookups,
    vpn,
)
from stacks.local.pulumi_plugins.aws.kinds import Kind

_SERVICES: Final = (
    vpc.KINDS,
    security_groups.KINDS,
    auto_scaling.KINDS,
    iam.KINDS,
    iam_identities.KINDS,
    eks.KINDS,
    ssm.KINDS,
    kms_logs.KINDS,
    instances.KINDS,
    load_balancers.KINDS,
    endpoints.KINDS,
    s3.KINDS,
    vpn.KINDS,
)
KINDS: Final[Mapping[str, Kind]] = {kind.token: kind for kind in chain.from_iterable(_SERVICES)}
"""By token."""
LOOKUPS: Final = {**lookups.LOOKUPS, **eks_lookups.LOOKUPS, **vpc_lookups.LOOKUPS}
