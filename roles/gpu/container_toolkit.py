"""The NVIDIA container toolkit: the wrapper around runc, CDI specifications, and the unit that keeps them fresh.

Nothing here lets ``nvidia-ctk`` write containerd's files: it rewrites the main file with every run, and its drop-in
takes runc away in containerd 1.6. The nvidia runtime stands in the main file, which one role writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.deploys.containerd_check import unsound
from roles.facts.containerd import ContainerdDump, DropIns
from roles.facts.gpu import CDI, CdiState, OtherSpecifications
from roles.operations import files, packages, services
from roles.operations.files import Commands
from roles.settings.machine import settings

_RUNTIME: Final = """\
# The devices of a container are those of the CDI specification. In this mode they stand in the container's own
# configuration, where a daemon-reload of systemd does not take them away.
disable-require = false

[nvidia-container-cli]
ldconfig = "@/sbin/ldconfig"
load-kmods = true

[nvidia-container-runtime]
log-level = "info"
mode = "cdi"
runtimes = ["runc"]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]
"""
REFRESH: Final = "nvidia-cdi-refresh"


@deploy("NVIDIA container toolkit")
def container_toolkit(*, wanted: Mapping[str, str], driver: str) -> None:
    """The packages ``wanted``, and a CDI specification that is of this driver."""
    packages.pinned(name="toolkit version pinned", pins_of="nvidia-container-toolkit", wanted=wanted)
    packages.installed(name="toolkit installed and held", wanted=wanted)
    packages.unaltered(name="toolkit as packed", names=tuple(wanted))
    files.place(
        name="containers get their GPUs by CDI",
        dest="/etc/nvidia-container-runtime/config.toml",
        content=_RUNTIME,
        meaning="toml",
    )
    with services.restarts(services.DAEMON_RELOAD):
        services.only_drop_ins(name="the refresh unit is as packed", unit=f"{REFRESH}.service")
        services.only_drop_ins(name="so is what starts it", unit=f"{REFRESH}.path")
    services.daemon_reload(name="units read anew where they changed")
    services.running(name="the specification follows the driver", unit=f"{REFRESH}.path")
    for path in host.get_fact(OtherSpecifications):
        files.absent(name=f"no second specification of the same devices: {path}", dest=path)
    specification_fresh(name="the specification is of this driver", driver=driver)


@deploy("containerd can run pods with and without GPUs")
def containerd_sound() -> None:
    """Removes, after containerd's own role, other tools' drop-ins, and makes sure that no runtime is lost."""
    strangers = host.get_fact(DropIns)
    for path in strangers:
        with services.restarts("containerd"):
            files.absent(name=f"no second writer of containerd's configuration: {path}", dest=path)
    if strangers:
        services.running(name="containerd reads its own configuration alone", unit="containerd")
    machine = settings()
    sound(
        name="runc, nvidia and the default runtime are there",
        nvidia=machine.gpu_count > 0,
        systemd_cgroup=machine.container_runtime.cgroup_driver == "systemd",
    )


@operation()
def specification_fresh(driver: str) -> Commands:
    """Have a CDI specification whose libraries are of this driver and all there, and that gives nothing else away."""
    found = host.get_fact(CdiState)
    if found.exists and found.drivers == (driver,) and not found.missing and not found.foreign:
        host.noop("fresh")
        return
    if found.foreign:
        files.told(f"{CDI} gives containers {', '.join(found.foreign)}, which is not NVIDIA's")
    yield StringCommand(f"systemctl start {REFRESH}.service && test -s {CDI}")


@operation()
def sound(*, nvidia: bool, systemd_cgroup: bool) -> Commands:
    """Refuse a configuration that loses a runtime: the next restart of containerd would take the node away."""
    dump, drop_ins = host.get_fact(ContainerdDump), host.get_fact(DropIns)
    wrong = unsound(dump, nvidia=nvidia, systemd_cgroup=systemd_cgroup) if dump else []
    if wrong and not drop_ins:
        raise OperationError(f"containerd's configuration: {'; '.join(wrong)}")
    host.noop("sound, or so once the drop-ins are gone")
    yield from ()
