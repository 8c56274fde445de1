"""A real reboot: the one operation that outlives the connection on which it began."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from typing import Any, Final

import gevent
from pyinfra.api.command import FunctionCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.engine.batched_facts import Looking
from roles.engine.disruption import Disruption, note
from roles.facts.kernel import RebootAsked
from roles.operations.files import Commands, told

_BOOT: Final = "cat /proc/sys/kernel/random/boot_id"
_POLL: Final = 2.0
"""Seconds between two tries to reach a machine that is booting."""


@operation()
def rebooted(because: Collection[str] = (), *, seconds: int, asked: bool = True) -> Commands:
    """Have the machine boot anew: for these reasons, and (``asked``) where it asks for it by itself.

    Fails where it is not back, with another boot id, within so many ``seconds``.
    """
    reasons = [*because, *(host.get_fact(RebootAsked) if asked else ())]
    if not reasons:
        host.noop("no reboot is owed")
        return
    note(Disruption.REBOOT)
    told(f"reboots: {'; '.join(reasons)}")
    yield FunctionCommand(reboot_and_wait, (), {"seconds": seconds})


def reboot_and_wait(state: Any, host: Any, seconds: int) -> bool:  # noqa: ARG001 - pyinfra gives both by name
    """Gives whether it came back; what it said is the last entry of the connector's record."""
    line: Looking = host.connector
    sudo = bool(host.data.get("_sudo", False))
    _, before = line.shell(_BOOT, seconds=10)
    with contextlib.suppress(TimeoutError, OSError, EOFError):  # it goes down before it can answer
        done, said = line.shell("systemctl reboot", seconds=60, sudo=sudo)
        if not done and said.strip():
            return False
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        gevent.sleep(_POLL)
        if _boot_of(line) not in ("", before):
            return True
    line.executed.append(("wait for another boot", False, f"it has not come back within {seconds} s of its reboot"))
    return False


def _boot_of(line: Looking) -> str:
    """Its boot id by a new connection; empty where it does not answer."""
    with contextlib.suppress(Exception):
        line.disconnect()
    try:
        line.connect()
        done, said = line.shell(_BOOT, seconds=10)
    except Exception:  # noqa: BLE001 - it is booting: whatever goes wrong is tried again until the time is over
        return ""
    return said if done else ""
