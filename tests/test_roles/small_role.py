"""A node in small, for tests of the engine: files of several meanings, a folder, a link, a restart that is owed."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api.deploy import deploy
from pyinfra.operations import files as stock

from roles.engine.disruption import Disruption, disrupts
from roles.operations import files
from roles.operations.services import restarts

CONTAINERD = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "runc"\n'


@deploy("base")
def base() -> None:
    """Settings that disrupt nothing."""
    root = host.data.get("root", "")
    files.place(f"{root}/etc/sysctl.d/90-test.conf", "vm.swappiness = 1\n", meaning="sysctl", name="Kernel settings")
    modules = f"{root}/etc/modules-load.d/test.conf"
    files.place(modules, "br_netfilter\noverlay\n", meaning="modules-load", name="Modules")
    files.place(f"{root}/etc/spillway-name", f"{host.name}\n", name="Name")
    stock.directory(f"{root}/var/lib/test-spool", mode="750", name="Spool")
    stock.link(f"{root}/etc/test-link", "/etc/hostname", name="Link")
    for number in range(int(host.data.get("more_files", 0))):
        files.place(f"{root}/etc/test.d/{number}.conf", f"number = {number}\n", name=f"File {number}")


@deploy("containerd")
def containerd() -> None:
    """A restart is owed after a change; there is no systemd on light machines, so nobody settles it."""
    with restarts("containerd"):
        path = f"{host.data.get('root', '')}/etc/containerd/config.toml"
        files.place(path, host.data.get("containerd", CONTAINERD), meaning="toml", name="Configuration")


@deploy("driver")
def driver() -> None:
    """Worse than a restart."""
    with disrupts(Disruption.MODULE_RELOAD):
        files.place(f"{host.data.get('root', '')}/etc/driver-version", host.data.get("driver", "1\n"), name="Version")


def prepare() -> None:
    """All of it."""
    base()
    containerd()
    driver()
