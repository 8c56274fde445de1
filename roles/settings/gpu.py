"""What a machine is to run of NVIDIA's software, as its inventory entry says it under ``settings.gpu``."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, field_validator

from autoscaler.config.documents import Document
from autoscaler.model import labels as words
from roles.settings.mig import PROFILE

NVSWITCH: Final = ("A100-SXM", "A800-SXM", "H100-80GB-HBM3", "H200", "H800", "H20", "B200", "B300", "V100-SXM3")
"""Products that hang on NVSwitches where a machine has eight of them or more."""


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
            if not re.fullmatch("0|[1-9][0-9]*", str(index)):
                raise ValueError(f"names GPU {index!r}: write its index, 0 for the first")
        return {str(index): profiles for index, profiles in given.items()}

    @field_validator("mig")
    @classmethod
    def _profiles_are_some(cls, mig: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for profiles in mig.values():
            for profile in profiles:
                if not re.fullmatch(PROFILE, profile):
                    raise ValueError(f"holds {profile!r}: write a profile such as 1g.10gb or 3g.40gb")
        return mig


def has_nvswitch(product: str, count: int) -> bool:
    """Whether a machine with so many of these GPUs needs the fabric manager, as far as its product tells."""
    return count >= 8 and any(name in product.replace(" ", "-") for name in NVSWITCH)  # noqa: PLR2004 - an HGX board


def gpu_labels(software: GpuSoftware | None, driver: str, modules: str) -> dict[str, str]:
    """Labels of a node with GPUs about their software, beside those of the inventory (product, count, memory).

    What the machine's image brings (``software`` is absent, or has ``driver: false``) is not vouched for.
    """
    found = {words.GPU_PRESENT: "true"}
    if software and software.driver:
        major, minor = driver.split(".")[:2]
        found |= {
            "nvidia.com/cuda.driver-version.full": driver,
            "nvidia.com/cuda.driver-version.major": major,
            "nvidia.com/cuda.driver-version.minor": minor,
            f"{words.PREFIX}/driver-modules": modules,
        }
    if software and any(software.mig.values()):
        found["nvidia.com/mig.strategy"] = "mixed"
    return found
