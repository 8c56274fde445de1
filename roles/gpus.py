"""The GPU software of a machine, in the order in which it is laid: reads as a checklist.

What a machine wants of it stands in its inventory entry (:class:`GpuSoftware`); which versions, in the version matrix;
where they come from, in the package sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic import Field, field_validator
from pyinfra.api.deploy import deploy

from autoscaler import labels as words
from autoscaler.documents import Document
from roles.container_toolkit import container_toolkit
from roles.driver import nvidia_driver
from roles.gpu_services import fabric_manager, mig_layout, persistence_daemon
from roles.operations import packages as package_operations
from roles.versions import Chosen, Matrix, packages

NVSWITCH: Final = ("A100-SXM", "A800-SXM", "H100-80GB-HBM3", "H200", "H800", "H20", "B200", "B300", "V100-SXM3")
"""Products that hang on NVSwitches where a machine has eight of them or more."""
MIG_PROFILE: Final = r"\d+g\.\d+gb(\+\w+)?"
SPARED: Final = ("nvidia", "libnvidia", "libcuda", "cuda", "linux-image", "linux-headers", "linux-modules")
"""Packages that no unattended upgrade may touch: a library that changes under running programs ends them, and a kernel
that comes by night has no module in the morning. (The NVIDIA packages are held as well.)"""


class GpuSoftware(Document):
    """What a machine with GPUs is to run of NVIDIA's software."""

    driver: bool = Field(default=True, description="false: the machine's image brings its driver, leave it alone")
    signs_modules: bool = Field(default=False, description="true: DKMS signs with a key enrolled in the firmware")
    fabric_manager: bool | None = Field(default=None, description="true or false; left out: by product and count")
    mig: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="GPU index to MIG profiles, e.g. {0: [3g.40gb, 3g.40gb], 1: []}"
    )
    cuda: bool = Field(default=False, description="true: the CUDA toolkit on the host, for builds outside containers")
    docker: bool = Field(default=False, description="true: Docker with the nvidia runtime, too")

    @field_validator("mig", mode="before")
    @classmethod
    def _indices_are_numbers(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        for index in given:
            if not str(index).isdigit():
                raise ValueError(f"names GPU {index!r}: write its index, 0 for the first")
        return {str(index): profiles for index, profiles in given.items()}

    @field_validator("mig")
    @classmethod
    def _profiles_are_some(cls, mig: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for profiles in mig.values():
            for profile in profiles:
                if not re.fullmatch(MIG_PROFILE, profile):
                    raise ValueError(f"holds {profile!r}: write a profile such as 1g.10gb or 3g.40gb")
        return mig


def has_nvswitch(product: str, count: int) -> bool:
    """Whether a machine with so many of these GPUs needs the fabric manager, as far as its product tells."""
    return count >= 8 and any(name in product.replace(" ", "-") for name in NVSWITCH)  # noqa: PLR2004 - an HGX board


def spoken_for(software: GpuSoftware, *, count: int) -> list[str]:
    """What a MIG layout says of GPUs that the machine does not have; nothing where it fits."""
    return [f"mig names GPU {index}, and there are {count}" for index in software.mig if int(index) >= count]


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
