"""What a machine says of its GPUs' software: the driver that runs, the one on disk, CDI, MIG, Secure Boot."""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import Plain

LIBRARIES: Final = "/usr/lib/x86_64-linux-gnu"
CDI: Final = "/var/run/cdi/nvidia.yaml"
"""Where nvidia-cdi-refresh.service of the container toolkit writes."""
RUNNING: Final = r"sed -n 's/^NVRM version:.* \([0-9][0-9]*\.[0-9.]*\)  .*/\1/p' /proc/driver/nvidia/version"
"""Prints the version of the module that is loaded."""
_PROBE: Final = f"""\
read -r k < /proc/sys/kernel/osrelease; echo "kernel $k"
[ ! -e /proc/driver/nvidia/version ] || {{ {RUNNING} | sed 's/^/running /'; }}
if [ -e /lib/modules/$k/modules.dep ]; then
  modinfo nvidia | sed -n 's/^version: */on_disk /p;s/^license: */license /p;s/^signer: */signer /p'
fi
for f in {LIBRARIES}/libnvidia-ml.so.*; do
  v=${{f##*.so.}}; case $v in *[!0-9.]*) ;; [0-9]*.*) echo "library $v" ;; esac
done
[ ! -e /etc/ld.so.cache ] || [ ! -e "$f" ] ||
  /sbin/ldconfig -p | sed -n '/libnvidia-ml[.]so[.]1 (libc6,x86-64/ {{s/.*=> /found_first /p;q}}'
[ ! -e /lib/modules/$k/build ] || echo "headers yes"
set -- /boot/vmlinuz-*; [ ! -e "$1" ] || printf '%s\\n' "$@" | sort -V | sed -n '$s/^.*vmlinuz-/newest_kernel /p'
for f in /lib/modules/*/*/nvidia.ko* /lib/modules/*/*/*/nvidia.ko*; do
  f=${{f#/lib/modules/}}; case $f in '*'*) ;; *) echo "modules_for ${{f%%/*}}" ;; esac
done
! command -v dkms >/dev/null || dkms status | sed -n 's/^nvidia/dkms nvidia/p'
[ ! -d /sys/module/nouveau ] || echo "nouveau loaded"
for f in /sys/firmware/efi/efivars/SecureBoot-*; do
  [ ! -e "$f" ] || od -An -t u1 "$f" | awk '{{print "secure_boot " $NF}}'
done
if [ -e /sys/kernel/security/lockdown ]; then
  read -r l < /sys/kernel/security/lockdown; l=${{l#*[}}; echo "lockdown ${{l%%]*}}"
fi
true"""
"""With what the shell itself has, as far as that goes: every machine is asked this in every look."""


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
    found_first: str = ""
    """The ``libnvidia-ml.so.1`` that the loader takes."""
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
        """Returns the value for no output: no driver."""
        return Driver()

    def command(self) -> StringCommand:
        """Lines of a name and a value."""
        return Plain(_PROBE)

    def process(self, output: list[str]) -> Driver:
        """The lines by their names."""
        said: dict[str, list[str]] = defaultdict(list)
        for line in output:
            name, _, value = line.partition(" ")
            if name in Driver.__slots__ and value.strip():
                said[name].append(value.strip())
        many = ("library", "modules_for", "dkms")
        single = {name: values[0] for name, values in said.items() if name not in many}
        library, modules_for, dkms = (tuple(sorted({*said[name]})) for name in many)
        return Driver(**single, library=library, modules_for=modules_for, dkms=dkms)


@dataclass(frozen=True, slots=True)
class Specification:
    """The CDI specification of the machine's GPUs."""

    exists: bool = False
    drivers: tuple[str, ...] = ()
    """Driver versions in the names of the libraries that it mounts."""
    missing: tuple[str, ...] = ()
    """Files of the host that it mounts and that are not there."""
    foreign: tuple[str, ...] = ()
    """Paths of the host in it that are neither NVIDIA's nor a device for pictures."""


_SPECIFICATION: Final = rf"""
if [ -s {CDI} ]; then
  echo exists
  grep -oE 'lib[a-z-]+\.so\.[0-9]{{3,}}\.[0-9.]+' {CDI} | sed 's/.*\.so\./driver /' | sort -u
  sed -n 's/^ *-* *hostPath: *//p' {CDI} | sort -u | while read -r f; do [ -e "$f" ] || echo "missing $f"; done
  tr ',{{}}' '\n\n\n' < {CDI} | sed -nE 's/^[[:space:]]*(- *)*"?(hostPath|path)"?: *"?([^" ]*).*/foreign \3/p' |
    sort -u | awk '!/nvidia|\/libcuda|\/libnv|^foreign \/dev\/dri(\/|$)/ || /\.\./'
fi
true"""
"""Foreign is what has none of the names that `nvidia-ctk cdi generate` puts into containers, or steps upwards."""


class CdiState(FactBase[Specification]):
    """Whether the specification still says what lies on the disk."""

    @staticmethod
    def default() -> Specification:
        """Returns the value for no output: no specification."""
        return Specification()

    def command(self) -> StringCommand:
        """The versions in it, and what it mounts and is not there."""
        return Plain(_SPECIFICATION)

    def process(self, output: list[str]) -> Specification:
        """The lines by their first word."""
        words = [line.partition(" ")[::2] for line in output]
        return Specification(
            exists=("exists", "") in words,
            drivers=tuple(value for name, value in words if name == "driver"),
            missing=tuple(value for name, value in words if name == "missing"),
            foreign=tuple(value for name, value in words if name == "foreign"),
        )


class OtherSpecifications(FactBase[list[str]]):
    """CDI specifications of the same devices beside the one that is kept fresh: two of one folder undo each other."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: none."""
        return []

    def command(self) -> StringCommand:
        """Searches all folders that container runtimes read. What others generate for themselves is of another kind."""
        kind = r"""kind"?:[[:space:]]*["']?nvidia\.com/gpu["']?[[:space:]]*,?[[:space:]]*$"""
        folders = "/etc/cdi /run/cdi"
        return Plain(f"grep -rlE -- {shlex.quote(kind)} {folders} 2>/dev/null | grep -vxF /run/cdi/nvidia.yaml; true")

    def process(self, output: list[str]) -> list[str]:
        """Reads one path per line."""
        return sorted(line for line in output if line)


class MigState(FactBase[dict[str, tuple[str, ...]]]):
    """The MIG profiles of each GPU by its index, as ``nvidia-smi`` lists them; nothing where MIG is off everywhere."""

    @staticmethod
    def default() -> dict[str, tuple[str, ...]]:
        """Returns the value for no output: no divided GPU."""
        return {}

    def command(self) -> StringCommand:
        """``nvidia-smi -L``: a line for each GPU, and below it one for each MIG device."""
        return Plain("nvidia-smi -L 2>/dev/null || true")

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
        """Returns the value for no output: none."""
        return []

    def command(self, path: str) -> StringCommand:
        """Compared by time of change."""
        return Plain(f"find /boot -maxdepth 1 -name 'initrd.img-*' ! -newer {path} 2>/dev/null || true")

    def process(self, output: list[str]) -> list[str]:
        """Reads one path per line."""
        return [line for line in output if line]
