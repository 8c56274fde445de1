"""apt's own settings: what upgrades leave alone, whom it believes, and where it looks."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.files import FolderLines
from roles.facts.packages import AptSettings, Packages
from roles.operations import files
from roles.operations.files import Commands


@operation()
def spared_by_unattended_upgrades(patterns: Collection[str]) -> Commands:
    """Have unattended-upgrades leave packages alone whose names begin so, and reboot nothing."""
    settings = _settings()
    effective = settings.get("Unattended-Upgrade::Package-Blacklist", [])
    lines = "".join(f'  "{pattern}";\n' for pattern in sorted(patterns))
    text = f'Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n{_NO_REBOOT} "false";\n'
    path = "/etc/apt/apt.conf.d/99zz-spillway-unattended-upgrades"  # late: a #clear in an earlier file does not count
    placed = list(files.place._inner(path, text, meaning="apt.conf"))  # noqa: SLF001 - as above
    yield from placed
    missing = [pattern for pattern in sorted(patterns) if pattern not in effective]
    if missing and not placed:
        raise OperationError(
            f"{path} spares {', '.join(missing)} from unattended upgrades, but apt-config dump does not say so: a file"
            " that comes later in /etc/apt/apt.conf.d clears the list. Remove its #clear"
        )
    if not placed and settings.get(_NO_REBOOT, ["false"])[-1].lower() in _TRUE:
        raise OperationError(
            f"a file that comes after {path} in /etc/apt/apt.conf.d sets {_NO_REBOOT}: the machine would reboot under"
            " running jobs. Remove that line"
        )


@operation()
def signed_only() -> Commands:
    """Have apt take nothing that is not signed. Whoever allowed it knows which package came in that way: refused."""
    settings = _settings()
    lax = [key for key in _LAX if settings.get(key, [""])[-1].lower() in _TRUE]
    if lax:
        raise OperationError(
            f"apt takes packages that nobody signed: {', '.join(lax)} is set. Find out who needed that, and remove it"
            " from /etc/apt/apt.conf and /etc/apt/apt.conf.d"
        )
    host.noop("signed ones alone")
    yield from ()


@operation()
def usual_places() -> Commands:
    """Have apt read its sources and pins where everybody looks for them, these roles too."""
    settings = _settings()
    moved = {key: found[-1] for key, usual in _PLACES.items() if (found := settings.get(key)) and found[-1] != usual}
    if release := settings.get("APT::Default-Release", [""])[-1]:
        raise OperationError(
            f'APT::Default-Release "{release}" has apt prefer that release for whatever is not pinned: two writers.'
            " Remove that from /etc/apt/apt.conf and /etc/apt/apt.conf.d"
        )
    if moved:
        told = " and ".join(f'{key} "{place}"' for key, place in moved.items())
        raise OperationError(
            f"apt is told to look elsewhere: {told}. Remove that from /etc/apt/apt.conf and /etc/apt/apt.conf.d"
        )
    host.noop("where everybody looks")
    yield from ()


@operation()
def restarts_left_to_us(units: Collection[str]) -> Commands:
    """Have needrestart, where it is there, restart none of these services by itself after an upgrade."""
    if "needrestart" not in host.get_fact(Packages):
        host.noop("needrestart is not there")
        return
    lines = "".join(f"$nrconf{{override_rc}}{{qr(^{re.escape(unit)})}} = 0;\n" for unit in sorted(units))
    yield from files.place._inner(_NEEDRESTART, lines, validate="perl -c {path} 2>/dev/null")  # noqa: SLF001 - as above
    for path, line in host.get_fact(FolderLines, path=_NEEDRESTART):
        if path > _NEEDRESTART and "override_rc" in line:
            raise OperationError(f"{path} says {line!r} after {_NEEDRESTART}: two writers. Remove that line")


def _settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = host.get_fact(AptSettings)
    if wrong := found.get("E:"):
        raise OperationError(f"apt cannot read its configuration, and installs nothing: {wrong[0]}. Mend that file")
    return found


_NO_REBOOT: Final = "Unattended-Upgrade::Automatic-Reboot"
_NEEDRESTART: Final = "/etc/needrestart/conf.d/zz-spillway.conf"
_PLACES: Final = {
    "Dir::Etc": "etc/apt",
    "Dir::Etc::sourcelist": "sources.list",
    "Dir::Etc::sourceparts": "sources.list.d",
    "Dir::Etc::preferences": "preferences",
    "Dir::Etc::preferencesparts": "preferences.d",
}
_LAX: Final = (
    "APT::Get::AllowUnauthenticated",
    "Acquire::AllowInsecureRepositories",
    "Acquire::AllowDowngradeToInsecureRepositories",
    "Acquire::AllowWeakRepositories",
)
_TRUE: Final = ("1", "true", "yes", "on", "with", "enable")
"""As apt reads a yes."""
