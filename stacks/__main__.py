"""What ``pulumi up`` runs."""

from __future__ import annotations

import pulumi
from pulumi.runtime import config

from autoscaler.failures import BadInput, Unavailable
from stacks.cloud import build, check, export, read_plans
from stacks.config import read_settings
from stacks.interrupted import end_without_a_trace

end_without_a_trace()
try:
    plans = read_plans(read_settings(config.CONFIG.get(), stack=pulumi.get_stack()))
    check(plans)
    export(build(plans))
except BadInput as mistake:
    # Told without a stack trace; nothing has been touched yet.
    raise pulumi.RunError(f"bad input: {mistake}") from None
except Unavailable as outage:
    raise pulumi.RunError(str(outage)) from None
