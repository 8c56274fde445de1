"""Whether GPUs can be divided as a MIG layout says, as far as their names tell.

On the machine nvidia-smi would refuse it only after the driver was changed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

PROFILE: Final = r"\d+g\.\d+gb(\+[a-z]+(\.[a-z]+)?|-[a-z]+)?"
_WHOLE: Final = (
    *("M60", "P4", "P40", "P100", "V100", "T4", "A2", "A10", "A10G", "A16", "A40", "A4000", "A5000", "A6000"),
    *("L4", "L20", "L40", "L40S", "6000", "8000"),
)
"""Words of the names of products that cannot be divided. MIG came with the A100, and not for every later one."""
_80: Final = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
_96: Final = ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb")
_PROFILES: Final = {
    ("A30",): ("1g.6gb", "2g.12gb", "4g.24gb"),
    ("A100", "40GB"): ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    ("A100", "80GB"): _80,
    ("H100", "80GB"): _80,
    ("H100", "PCIe"): _80,
    ("H100", "NVL"): ("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    ("H20",): _96,
    ("H200",): ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    ("B200",): ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
}
"""Words of a product's name, and its profiles; ``+me`` and its like go beside these.

docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html. A product that is not here is not judged.
"""
_SLICES: Final = 7
"""Of compute, in every GPU that can be divided."""
_EIGHTHS: Final = 8
"""Of memory."""


def why_not_divided(layout: Mapping[str, Sequence[str]], *, product: str, count: int) -> str:
    """Why ``count`` of these GPUs cannot be divided so (GPU index to profiles); empty where nothing speaks against."""
    divided = {index: profiles for index, profiles in layout.items() if profiles}
    words = product.replace(" ", "-").split("-")
    if divided and {*_WHOLE} & {*words} and "PRO" not in product:
        return f"gpu.mig divides GPU {min(divided, key=int)}, but {product} knows no MIG: leave gpu.mig out"
    known = next((profiles for name, profiles in _PROFILES.items() if {*name} <= {*words}), ())
    for index, profiles in divided.items():
        if why := _why_no_layout(profiles, known, product=product):
            return f"gpu.mig.{index} {why}"
    missing = sorted((index for index in layout if int(index) >= count), key=int)
    if not missing:
        return ""
    have = "GPU 0" if count == 1 else f"GPUs 0 to {count - 1}"
    return f"gpu.mig names GPU {', '.join(missing)}, and the machine has {have}"


def _why_no_layout(profiles: Sequence[str], known: Sequence[str], *, product: str) -> str:
    plain = [profile.partition("+")[0].partition("-")[0] for profile in profiles]
    strange = next((one for one, bare in zip(profiles, plain, strict=True) if known and bare not in known), "")
    if strange:
        return f"has {strange}, which {product} does not know; it has {', '.join(known)}"
    shown = ", ".join(profiles)
    slices = sum(_compute(profile) for profile in plain)
    if slices > _SLICES:
        return f"takes {slices} slices ({shown}), and a GPU has {_SLICES}"
    whole = max((_memory(profile) for profile in known), default=0)
    eighths = sum(round(_memory(profile) * _EIGHTHS / whole) for profile in plain) if whole else 0
    return f"takes {eighths} eighths of the memory ({shown}), and a GPU has {_EIGHTHS}" if eighths > _EIGHTHS else ""


def _compute(profile: str) -> int:
    return int(profile.partition("g.")[0])


def _memory(profile: str) -> int:
    """Returns the memory of a MIG profile in GB."""
    return int(profile.partition("g.")[2].removesuffix("gb"))
