"""What a machine is to run of NVIDIA's software, as its inventory entry says it under ``settings.gpu``."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, field_validator

from autoscaler import labels as words
from autoscaler.documents import Document

NVSWITCH: Final = ("A100-SXM", "A800-SXM", "H100-80GB-HBM3", "H200", "H800", "H20", "B200", "B300", "V100-SXM3")
"""Products that hang on NVSwitches where a machine has eight of them or more."""
WHOLE: Final = (
    *("M60", "P4", "P40", "P100", "V100", "T4", "A2", "A10", "A10G", "A16", "A40", "A4000", "A5000", "A6000"),
    *("L4", "L20", "L40", "L40S", "6000", "8000"),
)
"""Words of the names of products that cannot be divided. MIG came with the A100, and not for every later one."""
SLICES: Final = 7
"""Of compute, in every GPU that can be divided."""
MIG_PROFILE: Final = r"\d+g\.\d+gb(\+\w+)?"


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


def why_not_divided(software: GpuSoftware, *, product: str, count: int) -> str:
    """Why these GPUs cannot be divided as a MIG layout says; empty where it fits, as far as their names tell."""
    divided = {index: profiles for index, profiles in software.mig.items() if profiles}
    if divided and {*WHOLE} & {*product.replace(" ", "-").split("-")} and "PRO" not in product:
        return f"gpu.mig divides GPU {min(divided, key=int)}, but {product} knows no MIG: leave gpu.mig out"
    for index, profiles in divided.items():
        slices = sum(int(profile.partition("g.")[0]) for profile in profiles)
        if slices > SLICES:
            return f"gpu.mig.{index} takes {slices} slices ({', '.join(profiles)}), and a GPU has {SLICES}"
    missing = sorted((index for index in software.mig if int(index) >= count), key=int)
    if not missing:
        return ""
    have = "GPU 0" if count == 1 else f"GPUs 0 to {count - 1}"
    return f"gpu.mig names GPU {', '.join(missing)}, and the machine has {have}"


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
