"""Role: a machine that owes a reboot gets one, when its node is drained."""

from __future__ import annotations

import re
from typing import Final

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from roles.facts.gpu import Driver, DriverState
from roles.operations import reboot
from roles.settings.machine import settings

_FLAVOUR: Final = re.compile(r"-[a-z][a-z0-9-]*$")


@deploy("Reboot")
def reboots() -> None:
    """The last role of all: what the others have changed is booted with."""
    kernel = settings().kernel
    if not kernel.reboot_for:
        return
    reboot.rebooted(
        name="no reboot is owed",
        because=why_the_kernel(host.get_fact(DriverState)) if "kernel" in kernel.reboot_for else (),
        seconds=kernel.reboot_seconds,
        asked="request" in kernel.reboot_for,
    )


def why_the_kernel(state: Driver) -> tuple[str, ...]:
    """Debian itself asks for a reboot after some packages only: the kernel that runs against the one that boots.

    One of another flavour (cloud-amd64 beside amd64) is not for this boot.
    """
    running, newest = _FLAVOUR.search(state.kernel), _FLAVOUR.search(state.newest_kernel)
    if not (running and newest) or running[0] != newest[0] or state.kernel == state.newest_kernel:
        return ()
    return (f"{state.kernel} runs, and {state.newest_kernel} is installed",)
