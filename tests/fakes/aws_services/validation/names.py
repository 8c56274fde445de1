"""What S3, Elastic Load Balancing and KMS refuse of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from stacks.local.wire.aws_protocol import Call, Refused

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ADDRESS: Final = re.compile(r"\d+\.\d+\.\d+\.\d+")
_BALANCER: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?")
_ALIAS: Final = re.compile(r"alias/[a-zA-Z0-9/_-]{1,250}")


def check_names(call: Call) -> None:
    """Raise ``Refused`` for a name that the service would refuse."""
    check = _CHECKS.get((call.service, call.action))
    if check is not None:
        check(call.parameters)
    if call.service == "s3" and re.fullmatch(r"PUT /[^/]+/?", call.action):
        _bucket(call.action.removeprefix("PUT /").rstrip("/"))


def _bucket(name: str) -> None:
    if not _BUCKET.fullmatch(name) or ".." in name or _ADDRESS.fullmatch(name) or name.startswith("xn--"):
        raise Refused("InvalidBucketName", "The specified bucket is not valid.")


def _balancer(asked: Mapping[str, Any]) -> None:
    name = str(asked.get("Name", ""))
    if not _BALANCER.fullmatch(name) or name.startswith("internal-"):
        raise Refused(
            "ValidationError",
            f"The load balancer name '{name}' must have at most 32 letters, digits and dashes, not begin or end with a "
            "dash, nor begin with internal-",
        )


def _alias(asked: Mapping[str, Any]) -> None:
    name = str(asked.get("AliasName", ""))
    if not _ALIAS.fullmatch(name) or name.startswith("alias/aws/"):
        raise Refused("InvalidAliasNameException", f"The alias name {name!r} is invalid.")


_CHECKS: Final[Mapping[tuple[str, str], Callable[[Mapping[str, Any]], None]]] = {
    ("elasticloadbalancing", "CreateLoadBalancer"): _balancer,
    ("elasticloadbalancing", "CreateTargetGroup"): _balancer,
    ("kms", "CreateAlias"): _alias,
}
