"""What ``pulumi up`` runs."""

from __future__ import annotations

import os
import signal

import pulumi
from pulumi.runtime import config

from autoscaler.failures import BadInput, Unavailable
from stacks.cloud import build, check, export, read_plans
from stacks.config import read_settings

_HAS_BEEN_TOLD = 32
"""Exit status of a program for whose end the user has been given the reason, as Pulumi's Python host has it."""

# The engine interrupts the program where a resource has failed, and tells of that: a stack trace would hide it.
signal.signal(signal.SIGINT, lambda *_: os._exit(_HAS_BEEN_TOLD))
try:
    plans = read_plans(read_settings(config.CONFIG.get(), stack=pulumi.get_stack()))
    check(plans)
    export(build(plans))
except BadInput as mistake:
    # Told without a stack trace; nothing has been touched yet.
    raise pulumi.RunError(f"bad input: {mistake}") from None
except Unavailable as outage:
    raise pulumi.RunError(str(outage)) from None
