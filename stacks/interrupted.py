"""How a program ends that the engine interrupts: a resource has failed, of which the engine itself tells."""

from __future__ import annotations

import os
import signal
from typing import Final

_HAS_BEEN_TOLD: Final = 32
"""Exit status of a program of whose end the user has been told, as Pulumi's Python host has it: it adds nothing."""


def end_without_a_trace() -> None:
    """Lets SIGINT end this process at once: Python's stack trace would stand beside the reason, or hide it."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(_HAS_BEEN_TOLD))
