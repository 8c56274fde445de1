"""The NVIDIA driver: one exact version, held, the same in the kernel, on the disk and in the library.

The module that runs, the module that the next boot would load, ``libnvidia-ml`` and the fabric manager must be of one
version: NVML ends every GPU program of a machine on which two of them differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.engine.disruption import Disruption, disrupts, note
from roles.facts.gpu import LIBRARIES, RUNNING, Driver, DriverState, OlderInitramfs
from roles.facts.packages import Packages
from roles.operations import files, kernel, packages, reboot
from roles.operations.files import Commands

NOUVEAU: Final = "/etc/modprobe.d/spillway-nouveau.conf"
FILES: Final = ("/usr/bin/nvidia-smi", f"{LIBRARIES}/libcuda.so.1", f"{LIBRARIES}/libnvidia-ml.so.1")
"""What the other roles, the health check and every container use."""
BY_HAND: Final = ("/usr/local/sbin/nvidia-smi", "/usr/local/bin/nvidia-smi")
_ALONG: Final = (
    "*nvidia*",
    "cuda-drivers*",
    "libcuda1",
    "libcudadebugger1",
    "libnvcuvid1",
    "libnvoptix1",
    "libxnvctrl*",
)
"""Names of what is built with the driver, and has its version."""
_UNLOAD: Final = "nvidia_uvm nvidia_drm nvidia_modeset nvidia_peermem nvidia"
_USERS: Final = "nvidia-persistenced nvidia-fabricmanager nvidia-dcgm"
"""Services of ours that keep the module busy."""
_RELOAD: Final = f"""\
mine=" $(for u in {_USERS}; do systemctl show -P MainPID $u; done 2>/dev/null | tr '\\n' ' ') "
who=$(for p in /proc/[0-9]*; do
  case "$mine" in *" ${{p#/proc/}} "*) continue ;; esac
  ls -l $p/fd 2>/dev/null | grep -q ' /dev/nvidia' && echo "$(cat $p/comm) (${{p#/proc/}})"
done; true)
[ -z "$who" ] || {{ echo "the nvidia module is in use by $who: end it, or drain the node, first" >&2; exit 1; }}
was=$(for u in {_USERS}; do systemctl -q is-active $u 2>/dev/null && echo $u; done; true)
[ -z "$was" ] || systemctl stop $was
for m in {_UNLOAD}; do
  modprobe -r $m 2>/dev/null || [ $m != nvidia ] || {{
    echo "the nvidia module is in use and cannot be unloaded" >&2; [ -z "$was" ] || systemctl start $was; exit 1
  }}
done
modprobe nvidia && modprobe nvidia_uvm && {{ [ -z "$was" ] || systemctl start $was; }}"""
"""Who holds a GPU is asked before anything is stopped: a fabric manager that goes takes every job's NVLinks along."""


@deploy("NVIDIA driver")
def nvidia_driver(
    *,
    version: str,
    wanted: Mapping[str, str],
    unwanted: tuple[str, ...] = (),
    signs_modules: bool = False,
    reboot_seconds: int = 0,
) -> None:
    """The packages ``wanted``, in place of ``unwanted`` (other kinds of modules, other branches), and modules loaded.

    ``signs_modules``: DKMS signs what it builds with a key that was enrolled in the machine's firmware.
    ``reboot_seconds``: how long a reboot may take that drives nouveau out; 0: there is none.
    """
    state: Driver = host.get_fact(DriverState)
    unsigned = why_unsigned_modules_would_not_load(state, signs_modules=signs_modules)
    if unsigned:
        packages.refused(name="Secure Boot lets the driver load", because=unsigned)
        return
    along = dict.fromkeys(_ALONG, next(iter(wanted.values())))
    packages.pinned(name="driver version pinned", pins_of="nvidia-driver", wanted=wanted, along=along)
    headers = {f"linux-headers-{kernel}": "*" for kernel in {state.kernel, state.newest_kernel} if kernel}
    packages.installed(name="headers of the kernels", wanted=headers, hold=False)
    _without_nouveau()
    files.place(
        name="modules are loaded at boot",
        dest="/etc/modules-load.d/spillway-nvidia.conf",
        content="nvidia\nnvidia_uvm\n",
        meaning="modules-load",
    )
    kernel.not_forbidden(names=("nvidia", "nvidia_uvm"), name="nobody forbids the modules")
    files.no_other_word(
        name="every account may use the GPUs",
        dest=NOUVEAU,
        also="",
        about=r"options\s+nvidia\s.*NVreg_(DeviceFile(Mode|UID|GID)=|ModifyDeviceFiles=0)",
    )
    with disrupts(Disruption.MODULE_RELOAD):
        packages.removed(name="no other kind of modules, and no other branch", names=unwanted)
        packages.installed(name="driver installed and held", wanted=wanted)
    packages.usable(name="the driver's program and libraries", paths=FILES)
    for path in BY_HAND:
        files.absent(dest=path, name=f"no second one is found first: {path}")
    modules_built(name="modules for every kernel", version=version)
    one_library(name="one library, of this version", version=version, packages_of_it=tuple(wanted))
    module_loaded(
        name="the module that is installed is the one that runs", version=version, reboot_seconds=reboot_seconds
    )


def reload_module() -> str:
    """Shell that has the module run that is on the disk, where another one does: after packages went back."""
    return (
        f"on_disk=$(modinfo -F version nvidia 2>/dev/null); running=$({RUNNING} 2>/dev/null)\n"
        f'if [ -n "$on_disk" ] && [ -n "$running" ] && [ "$on_disk" != "$running" ]; then\n( {_RELOAD}\n)\nfi'
    )


def why_unsigned_modules_would_not_load(state: Driver, *, signs_modules: bool) -> str:
    """The reason with its remedy; empty where they load, or are signed."""
    if not state.demands_signed_modules or state.signer or signs_modules:
        return ""
    cause = "Secure Boot is on" if state.secure_boot == "1" else f"the kernel is locked down ({state.lockdown})"
    return (
        f"{cause} and the nvidia module is not signed by a key that the firmware knows: it would not load. Enrol the"
        " key that DKMS signs with (mokutil --import /var/lib/dkms/mok.pub, reboot, confirm at the console) and set"
        " gpu.signs_modules: true, or turn Secure Boot off"
    )


@operation()
def modules_built(version: str) -> Commands:
    """Have DKMS build the modules for the running kernel and for the one that the next boot takes."""
    state: Driver = host.get_fact(DriverState)
    kernels = list(dict.fromkeys(kernel for kernel in (state.kernel, state.newest_kernel) if kernel))
    wrong = [kernel for kernel in kernels if kernel not in state.modules_for]
    if state.on_disk and state.on_disk != version and state.kernel not in wrong:
        wrong.append(state.kernel)
    if not wrong:
        host.noop("built")
        return
    for missing in wrong:
        yield StringCommand(f"dkms install --force -m nvidia -v {version} -k {missing} && depmod {missing}")


@operation()
def one_library(version: str, packages_of_it: Collection[str]) -> Commands:
    """Refuse a second ``libnvidia-ml``: none of these packages put it there, and the loader may choose it."""
    state: Driver = host.get_fact(DriverState)
    have = host.get_fact(Packages)
    packed = {have[name].version.rpartition("-")[0] for name in packages_of_it if name in have}
    strangers = [found for found in state.library if found not in {version, *packed}]
    if strangers:
        paths = ", ".join(f"{LIBRARIES}/libnvidia-ml.so.{found}" for found in strangers)
        raise OperationError(
            f"{paths} lies beside the library of {version}: what a .run installer put there is taken away by"
            " nvidia-uninstall, a single file by hand; then the driver is as its packages say"
        )
    if state.found_first and not state.found_first.startswith((LIBRARIES, LIBRARIES.removeprefix("/usr"))):
        raise OperationError(
            f"{state.found_first} is what programs load in place of the library in {LIBRARIES}: take its folder out of"
            " /etc/ld.so.conf.d, and run ldconfig"
        )
    host.noop("one library")
    yield from ()


@operation()
def module_loaded(version: str, *, reboot_seconds: int = 0) -> Commands:
    """Have this version's module in the kernel. Where another one runs, all that uses GPUs must have ended.

    nouveau lets go of them at a reboot only (``reboot_seconds``: 0 where there may be none).
    """
    state: Driver = host.get_fact(DriverState)
    if state.running == version:
        host.noop(f"{version} runs")
    elif state.nouveau and not reboot_seconds:
        note(Disruption.REBOOT)
        raise OperationError("nouveau drives the GPUs and does not let go: it is forbidden now, reboot the machine")
    elif state.nouveau:
        reasons = ("nouveau drives the GPUs and does not let go",)
        yield from reboot.rebooted._inner(reasons, seconds=reboot_seconds, asked=False)  # noqa: SLF001 - pyinfra's way to nest operations
        yield StringCommand("modprobe nvidia && modprobe nvidia_uvm")
    elif state.running:
        note(Disruption.MODULE_RELOAD)
        yield StringCommand(_RELOAD)
    else:
        yield StringCommand("modprobe nvidia && modprobe nvidia_uvm")


@operation()
def initramfs_follows(path: str) -> Commands:
    """Have no initramfs that is older than the file: what it says of modules must be known there too."""
    stale = host.get_fact(OlderInitramfs, path=path)
    if not stale:
        host.noop("follows")
        return
    yield StringCommand("update-initramfs -u -k all >/dev/null")


def _without_nouveau() -> None:
    """Keeps nouveau off for good: also in the initramfs, which is where it would be loaded first."""
    files.place(
        name="nouveau is not loaded",
        dest=NOUVEAU,
        content="blacklist nouveau\noptions nouveau modeset=0\n",
        meaning="modprobe",
    )
    initramfs_follows(name="nor from the initramfs", path=NOUVEAU)
