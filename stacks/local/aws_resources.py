"""Every resource type and look-up that the stand-in for the aws plugin serves: one module for each service."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Final

from stacks.local import (
    aws_eks,
    aws_eks_lookups,
    aws_endpoints,
    aws_iam,
    aws_identities,
    aws_instances,
    aws_keys_and_logs,
    aws_load_balancers,
    aws_lookups,
    aws_network,
    aws_node_groups,
    aws_s3,
    aws_security_groups,
    aws_ssm,
    aws_vpc_lookups,
    aws_vpn,
)
from stacks.local.aws_kinds import Kind

_SERVICES: Final = (
    aws_network.KINDS,
    aws_security_groups.KINDS,
    aws_node_groups.KINDS,
    aws_iam.KINDS,
    aws_identities.KINDS,
    aws_eks.KINDS,
    aws_ssm.KINDS,
    aws_keys_and_logs.KINDS,
    aws_instances.KINDS,
    aws_load_balancers.KINDS,
    aws_endpoints.KINDS,
    aws_s3.KINDS,
    aws_vpn.KINDS,
)
KINDS: Final[Mapping[str, Kind]] = {kind.token: kind for kind in chain.from_iterable(_SERVICES)}
"""By token."""
LOOKUPS: Final = {**aws_lookups.LOOKUPS, **aws_eks_lookups.LOOKUPS, **aws_vpc_lookups.LOOKUPS}
