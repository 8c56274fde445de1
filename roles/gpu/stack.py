"""The GPU software of a machine, in the order in which it is laid: reads as a checklist.

What a machine wants of it stands in its inventory entry (:class:`GpuSoftware`); which versions, in the version matrix;
where they come from, in the package sources.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from roles.deploys.docker import docker
from roles.facts.gpu import DriverState
from roles.facts.packages import OsRelease, Package, Packages
from roles.gpu.container_toolkit import container_toolkit
from roles.gpu.driver import nvidia_driver
from roles.gpu.services import fabric_manager, mig_layout, persistence_daemon
from roles.operations import packages as package_operations
from roles.settings.gpu import GpuSoftware, has_nvswitch
from roles.settings.machine import settings
from roles.settings.version_matrix import Chosen, Matrix, choose, of_other_branches, packages, read_matrix


@deploy("GPUs")
def gpus() -> None:
    """The software that the machine's settings ask for; nothing where they leave it to the machine's image."""
    machine = settings()
    os = host.get_fact(OsRelease)
    if machine.gpu is None or not machine.gpu_count or not os:
        return
    matrix = read_matrix()
    gpu_software(
        software=machine.gpu,
        matrix=matrix,
        chosen=choose(matrix, machine.versions, machine=machine.name),
        distribution=os.partition("-")[0],
        product=machine.gpu_product,
        count=machine.gpu_count,
    )
    if machine.gpu.docker:
        runtime = machine.container_runtime
        docker(containerd=runtime.package, systemd_cgroup=runtime.cgroup_driver == "systemd")
    state = host.get_fact(DriverState)
    host.connector_data.setdefault("versions", {}).update(
        {"driver (running)": state.running, "driver (on disk)": state.on_disk, "libnvidia-ml": ", ".join(state.library)}
    )


@deploy("GPU software")
def gpu_software(
    software: GpuSoftware, *, matrix: Matrix, chosen: Chosen, distribution: str, product: str, count: int
) -> None:
    """Driver, fabric manager, persistence daemon, MIG layout, CUDA, container toolkit: in this order."""

    def of(part: str) -> Mapping[str, str]:
        return packages(matrix, chosen, part, distribution=distribution)

    have: dict[str, Package] = host.get_fact(Packages)
    versions = {name: package.version for name, package in have.items()}
    kernel = settings().kernel
    kinds = ("open", "proprietary") if chosen.driver_modules == "open" else ("proprietary", "open")
    if software.driver:
        nvidia_driver(
            version=chosen.driver,
            wanted={**of("driver"), **of(f"driver_{kinds[0]}")},
            unwanted=(*of(f"driver_{kinds[1]}"), *of_other_branches(versions, chosen.driver, wanted=of("driver"))),
            signs_modules=software.signs_modules,
            reboot_seconds=kernel.reboot_seconds if "nouveau" in kernel.reboot_for else 0,
        )
    if has_nvswitch(product, count) if software.fabric_manager is None else software.fabric_manager:
        fabric_manager(wanted=of("fabric_manager"))
    persistence_daemon(wanted=of("persistence"))
    if software.mig:
        mig_layout(layout=software.mig)
    if software.cuda:
        package_operations.installed(name="CUDA toolkit on the host", wanted=of("cuda"))
    container_toolkit(wanted=of("container_toolkit"), driver=chosen.driver)
