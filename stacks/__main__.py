"""What ``pulumi up`` runs."""

from __future__ import annotations

import pulumi
from pulumi.runtime import config

from autoscaler.failures import BadInput
from stacks.cloud import build, export, read_plans
from stacks.config import read_settings

try:
    plans = read_plans(read_settings(config.CONFIG.get(), stack=pulumi.get_stack()))
except BadInput as mistake:
    # Told without a stack trace; nothing has been touched yet.
    raise pulumi.RunError(f"bad input: {mistake}") from None
export(build(plans))
