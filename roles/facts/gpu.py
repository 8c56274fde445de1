"""What a machine says of its GPUs' software: the driver that runs, the one on disk, CDI, MIG, Secure Boot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyinfra.api.facts import FactBase

LIBRARIES: Final = "/usr/lib/x86_64-linux-gnu"
CDI: Final = "/var/run/cdi/nvidia.yaml"
"""Where nvidia-cdi-refresh.service of the container toolkit writes."""
RUNNING: Final = r"sed -n 's/^NVRM version:.* \([0-9][0-9]*\.[0-9.]*\)  .*/\1/p' /proc/driver/nvidia/version"
"""Prints the version of the module that is loaded."""
_PROBES: Final = {
    "kernel": "uname -r",
    "running": RUNNING,
    "on_disk": "modinfo -F version nvidia",
    "license": "modinfo -F license nvidia",
    "signer": "modinfo -F signer nvidia",
    "library": f"ls {LIBRARIES} | sed -n 's/^libnvidia-ml\\.so\\.\\([0-9]*\\.[0-9.]*\\)$/\\1/p'",
    "headers": "test -e /lib/modules/$(uname -r)/build && echo yes",
    "newest_kernel": r"ls /boot | sed -n 's/^vmlinuz-//p' | sort -V | tail -n 1",
    "modules_for": "ls -d /lib/modules/*/*/nvidia.ko* /lib/modules/*/*/*/nvidia.ko* | cut -d/ -f4 | sort -u",
    "dkms": "dkms status | grep ^nvidia",
    "nouveau": "test -d /sys/module/nouveau && echo loaded",
    "secure_boot": "od -An -t u1 /sys/firmware/efi/efivars/SecureBoot-* | awk '{print $NF}'",
    "lockdown": r"sed -n 's/.*\[\(.*\)\].*/\1/p' /sys/kernel/security/lockdown",
}


@dataclass(frozen=True, slots=True)
class Driver:
    """Versions of one driver in its several places; empty where it is not there."""

    kernel: str = ""
    running: str = ""
    """Of the module that is loaded."""
    on_disk: str = ""
    """Of the module that the running kernel would load."""
    license: str = ""
    signer: str = ""
    library: tuple[str, ...] = ()
    """Of every ``libnvidia-ml.so`` there is."""
    headers: str = ""
    newest_kernel: str = ""
    modules_for: tuple[str, ...] = ()
    """Kernels for which a module lies on the disk."""
    dkms: tuple[str, ...] = ()
    nouveau: str = ""
    secure_boot: str = ""
    lockdown: str = ""

    @property
    def is_open(self) -> bool:
        """The open modules are under MIT and GPL, the others under NVIDIA's own licence."""
        return "MIT" in self.license

    @property
    def demands_signed_modules(self) -> bool:
        """Secure Boot is on, or the kernel is locked down."""
        return self.secure_boot == "1" or self.lockdown in ("integrity", "confidentiality")


class DriverState(FactBase[Driver]):
    """Every place at which a driver's version can be read."""

    @staticmethod
    def default() -> Driver:
        """None anywhere."""
        return Driver()

    def command(self) -> str:
        """One line ``name value`` for each line that a probe prints."""
        return "; ".join(f"{{ {probe}; }} 2>/dev/null | sed 's/^/{name} /'" for name, probe in _PROBES.items())

    def process(self, output: list[str]) -> Driver:
        """The lines by their names."""
        said: dict[str, list[str]] = {name: [] for name in _PROBES}
        for line in output:
            name, _, value = line.partition(" ")
            if name in said and value.strip():
                said[name].append(value.strip())
        many = ("library", "modules_for", "dkms")
        single = {name: "".join(values[:1]) for name, values in said.items() if name not in many}
        return Driver(
            **single,
            library=tuple(said["library"]),
            modules_for=tuple(said["modules_for"]),
            dkms=tuple(said["dkms"]),
        )


@dataclass(frozen=True, slots=True)
class Specification:
    """The CDI specification of the machine's GPUs."""

    exists: bool = False
    drivers: tuple[str, ...] = ()
    """Driver versions in the names of the libraries that it mounts."""
    missing: tuple[str, ...] = ()
    """Files of the host that it mounts and that are not there."""


class CdiState(FactBase[Specification]):
    """Whether the specification still says what lies on the disk."""

    @staticmethod
    def default() -> Specification:
        """None."""
        return Specification()

    def command(self) -> str:
        """The versions in it, and what it mounts and is not there."""
        return (
            f"if [ -s {CDI} ]; then echo exists;"
            f" grep -oE 'lib[a-z-]+\\.so\\.[0-9]+\\.[0-9.]+' {CDI} | sed 's/.*\\.so\\./driver /' | sort -u;"
            f" sed -n 's/^ *-* *hostPath: *//p' {CDI} | sort -u"
            ' | while read -r f; do [ -e "$f" ] || echo "missing $f"; done; fi'
        )

    def process(self, output: list[str]) -> Specification:
        """The lines by their first word."""
        words = [line.partition(" ")[::2] for line in output]
        return Specification(
            exists=("exists", "") in words,
            drivers=tuple(value for name, value in words if name == "driver"),
            missing=tuple(value for name, value in words if name == "missing"),
        )


class MigState(FactBase[dict[str, tuple[str, ...]]]):
    """The MIG profiles of each GPU by its index, as ``nvidia-smi`` lists them; nothing where MIG is off everywhere."""

    @staticmethod
    def default() -> dict[str, tuple[str, ...]]:
        """No GPU is divided."""
        return {}

    def command(self) -> str:
        """``nvidia-smi -L``: a line for each GPU, and below it one for each MIG device."""
        return "nvidia-smi -L 2>/dev/null || true"

    def process(self, output: list[str]) -> dict[str, tuple[str, ...]]:
        """``GPU 0: NVIDIA A100 (UUID: ...)`` and ``  MIG 3g.20gb     Device  0: (UUID: ...)``."""
        found: dict[str, tuple[str, ...]] = {}
        index = ""
        for line in output:
            words = line.split()
            if line.startswith("GPU ") and len(words) > 1:
                index = words[1].rstrip(":")
                found[index] = ()
            elif words[:1] == ["MIG"] and index:
                found[index] = (*found[index], words[1])
        return {gpu: tuple(sorted(profiles)) for gpu, profiles in found.items()}


class OlderInitramfs(FactBase[list[str]]):
    """Initramfs images that were made before the file at ``path`` was last changed."""

    @staticmethod
    def default() -> list[str]:
        """None."""
        return []

    def command(self, path: str) -> str:
        """Compared by time of change."""
        return f"find /boot -maxdepth 1 -name 'initrd.img-*' ! -newer {path} 2>/dev/null || true"

    def process(self, output: list[str]) -> list[str]:
        """One path per line."""
        return [line for line in output if line]
