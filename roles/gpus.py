"""The GPU software of a machine, in the order in which it is laid: reads as a checklist.

What a machine wants of it stands in its inventory entry (:class:`GpuSoftware`); which versions, in the version matrix;
where they come from, in the package sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyinfra.api.deploy import deploy

from autoscaler import labels as words
from roles.container_toolkit import container_toolkit
from roles.driver import nvidia_driver
from roles.gpu_services import fabric_manager, mig_layout, persistence_daemon
from roles.gpu_settings import GpuSoftware, has_nvswitch
from roles.operations import packages as package_operations
from roles.versions import Chosen, Matrix, packages

SPARED: Final = ("nvidia", "libnvidia", "libcuda", "cuda", "linux-image", "linux-headers", "linux-modules")
"""Packages that no unattended upgrade may touch: a library that changes under running programs ends them, and a kernel
that comes by night has no module in the morning. (The NVIDIA packages are held as well.)"""


def labels(software: GpuSoftware, chosen: Chosen) -> dict[str, str]:
    """Labels of the node about its GPU software, beside those of the inventory (product, count, memory)."""
    major, minor, *_ = (*chosen.driver.split("."), "0")
    found = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/cuda.driver-version.full": chosen.driver,
        "nvidia.com/cuda.driver-version.major": major,
        "nvidia.com/cuda.driver-version.minor": minor,
        f"{words.PREFIX}/driver-modules": chosen.driver_modules,
    }
    if any(software.mig.values()):
        found["nvidia.com/mig.strategy"] = "mixed"
    return found


@deploy("GPU software")
def gpu_software(
    software: GpuSoftware, *, matrix: Matrix, chosen: Chosen, distribution: str, product: str, count: int
) -> None:
    """Driver, fabric manager, persistence daemon, MIG layout, CUDA, container toolkit: in this order."""

    def of(part: str) -> Mapping[str, str]:
        return packages(matrix, chosen, part, distribution=distribution)

    kinds = ("open", "proprietary") if chosen.driver_modules == "open" else ("proprietary", "open")
    package_operations.spared_by_unattended_upgrades(name="no upgrade by night", patterns=SPARED)
    if software.driver:
        nvidia_driver(
            version=chosen.driver,
            wanted={**of("driver"), **of(f"driver_{kinds[0]}")},
            unwanted=tuple(of(f"driver_{kinds[1]}")),
            signs_modules=software.signs_modules,
        )
    if has_nvswitch(product, count) if software.fabric_manager is None else software.fabric_manager:
        fabric_manager(wanted=of("fabric_manager"))
    persistence_daemon(wanted=of("persistence"))
    if software.mig:
        mig_layout(layout=software.mig)
    if software.cuda:
        package_operations.installed(name="CUDA toolkit on the host", wanted=of("cuda"))
    container_toolkit(wanted=of("container_toolkit"), driver=chosen.driver)
