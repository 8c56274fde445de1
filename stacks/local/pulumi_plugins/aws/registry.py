"""Every resource type and look-up that the stand-in for the aws plugin serves: one module for each service.

These are the ones of the stack ``local``. The package that ``SPILLWAY_FAKES`` names adds more (``extension.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from stacks.local.pulumi_plugins.aws import auto_scaling, events, iam, lookups, security_groups, vpc
from stacks.local.pulumi_plugins.aws.kinds import Kind
from stacks.local.wire.extension import extension

_MORE: Final[Any] = extension("aws_plugin")
_SERVICES: Final = (
    *(vpc.KINDS, security_groups.KINDS, auto_scaling.KINDS, iam.KINDS, events.KINDS),
    *(_MORE.SERVICES if _MORE else ()),
)
KINDS: Final[Mapping[str, Kind]] = {kind.token: kind for kind in chain.from_iterable(_SERVICES)}
"""By token."""
LOOKUPS: Final = {**lookups.LOOKUPS, **(_MORE.LOOKUPS if _MORE else {})}
