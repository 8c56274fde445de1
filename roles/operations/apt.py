"""apt's own settings: what upgrades leave alone, whom it believes, and where it looks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.packages import AptSettings
from roles.operations import files
from roles.operations.files import Commands


@operation()
def spared_by_unattended_upgrades(patterns: Collection[str]) -> Commands:
    """Have unattended-upgrades leave packages alone whose names begin so, whatever other files say."""
    settings: dict[str, list[str]] = host.get_fact(AptSettings)
    effective = settings.get("Unattended-Upgrade::Package-Blacklist", [])
    lines = "".join(f'  "{pattern}";\n' for pattern in sorted(patterns))
    text = f"Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
    path = "/etc/apt/apt.conf.d/99zz-spillway-unattended-upgrades"  # late: a #clear in an earlier file does not count
    placed = list(files.place._inner(path, text, meaning="apt.conf"))  # noqa: SLF001 - as above
    yield from placed
    missing = [pattern for pattern in sorted(patterns) if pattern not in effective]
    if missing and not placed:
        raise OperationError(
            f"{path} spares {', '.join(missing)} from unattended upgrades, but apt-config dump does not say so: a file"
            " that comes later in /etc/apt/apt.conf.d clears the list. Remove its #clear"
        )


@operation()
def signed_only() -> Commands:
    """Have apt take nothing that is not signed. Whoever allowed it knows which package came in that way: refused."""
    settings: dict[str, list[str]] = host.get_fact(AptSettings)
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
    settings: dict[str, list[str]] = host.get_fact(AptSettings)
    moved = {key: found[-1] for key, usual in _PLACES.items() if (found := settings.get(key)) and found[-1] != usual}
    if moved:
        told = " and ".join(f'{key} "{place}"' for key, place in moved.items())
        raise OperationError(
            f"apt is told to look elsewhere: {told}. Remove that from /etc/apt/apt.conf and /etc/apt/apt.conf.d"
        )
    host.noop("where everybody looks")
    yield from ()


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
