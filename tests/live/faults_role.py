"""A node in small that faults can strike: a package, a file of it, a service; ``WANTED`` says of which version.

The service's package of version 3 comes with a containerd whose configuration nobody can read: it fails the gate.
"""

from __future__ import annotations

import os

from pyinfra.api.deploy import deploy

from roles.engine.disruption import Disruption, disrupts
from roles.operations import files, packages, reboot, services
from roles.operations.services import restarts

for _name in ("_UPDATE", "_INSTALL", "_WHOLE", "_FINISH"):  # a lock that is never given up is told within seconds
    setattr(packages, _name, getattr(packages, _name).replace("Lock::Timeout=300", "Lock::Timeout=3"))


@deploy("lab daemon")
def lab_daemon() -> None:
    """Package, configuration, service."""
    version = os.environ["WANTED"]
    with disrupts(Disruption.CONTAINERD_RESTART), restarts("lab-daemon"):
        packages.pinned(name="pinned", pins_of="lab", wanted={"lab-daemon": version})
        packages.installed(name="installed", wanted={"lab-daemon": version})
        files.place(name="configured", dest="/etc/lab-daemon.conf", content=f"version = {version}\n", meaning="ini")
    services.running(name="runs", unit="lab-daemon")


def prepare() -> None:
    """All of it."""
    lab_daemon()
    reboot.rebooted(name="no reboot is owed", seconds=60)
