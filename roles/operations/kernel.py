"""Operations on the kernel: settings in force and at boot, modules now and at boot, swap, the machine's name."""

from __future__ import annotations

import difflib
import posixpath
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.engine.disruption import Disruption, note
from roles.facts.files import FileState, FileText
from roles.facts.kernel import (
    ClockOffset,
    ForbiddenModules,
    LiveHostname,
    ModuleState,
    SwapDevices,
    SwapUnits,
    SysctlFiles,
    SysctlNames,
    SysctlValue,
    setting_path,
)
from roles.operations import files
from roles.operations.files import Commands

SYSCTL_FILE: Final = "/etc/sysctl.d/99-zz-spillway.conf"
"""Late in the order in which files are read, so that a distribution's own settings do not come after it."""
_SWITCH: Final = "/etc/nsswitch.conf"
MODULES_FILE: Final = "/etc/modules-load.d/spillway.conf"


@operation()
def sysctl(values: Mapping[str, str], *, brought_by: Collection[str] = ()) -> Commands:
    """Have these settings in force, and at the next boot; some of them come with the modules that bring them.

    A file that is read later and says otherwise is refused: which of two writers is right only a person knows.
    """
    wanted = {key: " ".join(value.split()) for key, value in sorted(values.items())}
    _refuse_what_the_kernel_has_not(wanted, brought_by=brought_by)
    assigned = host.get_fact(SysctlFiles)
    ours = next((place for place, one in reversed(list(enumerate(assigned))) if one[0] == SYSCTL_FILE), None)
    named = {setting_path(key): key for key in wanted}
    others = [
        f"{path} sets {named[key]} = {value} after {SYSCTL_FILE}, which sets {wanted[named[key]]}"
        for path, key, value in (assigned[ours + 1 :] if ours is not None else ())
        if key in named and wanted[named[key]] != value
    ]
    if others:
        raise OperationError(
            f"{'; '.join(others)}: two writers. Remove such a line, or write the value that is right into the machine's"
            " settings (kernel.sysctl)"
        )
    text = "".join(f"{key} = {value}\n" for key, value in wanted.items())
    yield from files.place._inner(SYSCTL_FILE, text, meaning="sysctl")  # noqa: SLF001 - pyinfra's way to nest
    for key, value in wanted.items():
        if host.get_fact(SysctlValue, key=key) != value:
            yield StringCommand(f"sysctl -q -w {shlex.quote(f'{key}={value}')}")


def _refuse_what_the_kernel_has_not(wanted: Mapping[str, str], *, brought_by: Collection[str]) -> None:
    """Refuses names that the kernel does not know: at boot they are passed over without a message."""
    unknown = [key for key in wanted if host.get_fact(SysctlValue, key=key) is None]
    if not unknown or any(host.get_fact(ModuleState, module=name) != "loaded" for name in brought_by):
        return  # before these are loaded nothing can be said
    known = host.get_fact(SysctlNames)
    missing = [key for key in unknown if setting_path(key) not in known]  # one that is empty is there
    if missing:
        near = difflib.get_close_matches(missing[0], [path.replace("/", ".") for path in known if "." not in path], n=1)
        raise OperationError(
            f"the kernel of this machine has no setting {', '.join(missing)}: "
            f"{f'did you mean {near[0]}? Else ' if near else ''}name the module that brings it (kernel.modules), or"
            " leave it out (kernel.sysctl)"
        )


@operation()
def modules(names: Collection[str]) -> Commands:
    """Have these modules loaded now, and at boot. One that is part of the kernel is loaded for good.

    A file that forbids one of them is refused: it may be there for a reason that only a person knows.
    """
    yield from not_forbidden._inner(names)  # noqa: SLF001 - as above
    text = "".join(f"{name}\n" for name in sorted(names))
    yield from files.place._inner(MODULES_FILE, text, meaning="modules-load")  # noqa: SLF001 - as above
    for name in sorted(names):
        if host.get_fact(ModuleState, module=name) != "loaded":
            yield StringCommand(f"modprobe {shlex.quote(name)}")


@operation()
def not_forbidden(names: Collection[str]) -> Commands:
    """Have no file in modprobe.d that keeps one of these modules from being loaded at the next boot."""
    forbidden = host.get_fact(ForbiddenModules)
    for name in sorted(names):
        if path := forbidden.get(name.replace("-", "_")):
            raise OperationError(f"{path} forbids {name}, which this machine needs from its next boot on: remove that")
    host.noop("none is forbidden")
    yield from ()


@operation()
def no_swap() -> Commands:
    """Have nothing to swap to, now and at boot: kubelet accounts for memory that is there."""
    table = _table("/etc/fstab", "")
    without = "".join(line for line in table.splitlines(keepends=True) if not _is_swap(line))
    if without != table:
        yield from files.place._inner("/etc/fstab", without)  # noqa: SLF001 - as above
    if host.get_fact(SwapDevices):
        yield StringCommand("swapoff -a")


@operation()
def no_swap_units() -> Commands:
    """Have no unit that brings swap at the next boot: the kubelet would not start. Whose it is, a person knows."""
    units: list[str] = host.get_fact(SwapUnits)
    if units:
        names = " ".join(posixpath.basename(one) for one in units)
        raise OperationError(
            f"{', '.join(units)} brings swap at the next boot, with which no kubelet starts: systemctl disable --now"
            f" {names}, and remove it"
        )
    host.noop("none")
    yield from ()


@operation()
def hostname(wanted: str, *, address: str) -> Commands:
    """Have the machine go by this name, and find itself under it without asking anyone."""
    yield from files.place._inner("/etc/hostname", f"{wanted}\n", meaning="hostname")  # noqa: SLF001 - as above
    table = _table("/etc/hosts", "127.0.0.1 localhost\n")
    if not finds_itself(table, wanted, address=address):
        others = "".join(_without(line, wanted) for line in table.splitlines(keepends=True)).rstrip()
        table = f"{others}\n{address} {wanted}\n"
    yield from files.place._inner("/etc/hosts", table)  # noqa: SLF001 - as above
    switch = re.search(r"^hosts:(.*)$", host.get_fact(FileText, path=_SWITCH) or "", flags=re.MULTILINE)
    if switch and "files" not in switch[1].split():
        raise OperationError(
            f"{_SWITCH} says {switch[0]!r}: names are not looked up in /etc/hosts. Have files in there"
        )
    if host.get_fact(LiveHostname) != wanted:
        yield StringCommand(f"printf %s {shlex.quote(wanted)} > /proc/sys/kernel/hostname")


def _table(path: str, default: str) -> str:
    """The text of a file that others write too; the default where there is none, or an empty one."""
    text: str | None = host.get_fact(FileText, path=path)
    if text is None and host.get_fact(FileState, path=path):
        raise OperationError(
            f"{path} is there, and is no file of at most a mebibyte: see what it is, and mend it by hand"
        )
    return text or default


def finds_itself(table: str, name: str, *, address: str) -> bool:
    """Whether hosts(5) gives the name as this machine's own: the first line that has it counts."""
    rows = (re.findall(r"[^ \t\r\f\v]+", line.partition("#")[0]) for line in table.split("\n"))  # as the C library does
    found = next((row[0] for row in rows if name in row[1:]), "")
    is_number = set(address) <= set("0123456789.") or ":" in address
    return found == address or found.startswith("127.") or found == "::1" or bool(found and not is_number)


def _without(line: str, name: str) -> str:
    """A line of hosts(5) that no longer has the name."""
    entry = line.partition("#")[0].split()
    left = [word for word in entry if word != name]
    if name not in entry[1:]:
        return line
    return f"{' '.join(left)}\n" if left[1:] else ""


def _is_swap(line: str) -> bool:
    columns = line.partition("#")[0].split()
    return len(columns) > 2 and columns[2] == "swap"  # noqa: PLR2004 - the type's column of fstab(5)


@operation()
def clock_set(within: float = 1.0) -> Commands:
    """Have the clock within so many seconds of the time servers'. chrony itself slews: hours for each second.

    A step makes time jump for every program of the machine: it waits for a drained node.
    """
    offset: float = host.get_fact(ClockOffset)
    if abs(offset) < within:
        host.noop("the clock is right")
        return
    note(Disruption.KUBELET_RESTART)
    files.told(f"the clock is {abs(offset):.1f} s {'behind' if offset > 0 else 'ahead'}: it is set in one step")
    yield StringCommand("chronyc -a makestep")
