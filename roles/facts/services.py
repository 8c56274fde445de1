"""systemd's units as they are, and the restarts that are owed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import About, Kind, Lines, Plain


class DefaultTarget(FactBase[str]):
    """What the machine boots into, such as ``graphical.target``; empty where there is no systemd."""

    @staticmethod
    def default() -> str:
        """Returns the value for no output: not known."""
        return ""

    def command(self) -> StringCommand:
        """Systemd's own word: a link, or what its program was built with."""
        return Plain("systemctl get-default 2>/dev/null; true")

    def process(self, output: list[str]) -> str:
        """Reads one line."""
        return output[0].strip() if output else ""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit in systemd's own words."""

    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    file_state: str = ""
    needs_daemon_reload: bool = False
    drop_ins: tuple[str, ...] = ()
    fragment: str = ""
    main_pid: int = 0

    @property
    def is_running(self) -> bool:
        """Up, or on its way."""
        return self.active in ("active", "activating", "reloading")

    @property
    def is_enabled(self) -> bool:
        """Comes back after a reboot by itself, or cannot be enabled because others pull it in."""
        return self.file_state in ("enabled", "static", "indirect", "generated", "alias")

    @property
    def is_masked(self) -> bool:
        """Says that the unit cannot be started."""
        return self.load == "masked" or self.file_state.startswith("masked")


_FIELDS: Final = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "NeedDaemonReload",
    "DropInPaths",
    "FragmentPath",
    "MainPID",
)


def _shell(units: Sequence[str]) -> str:
    return f"systemctl show -p {','.join(_FIELDS)} -- {' '.join(map(shlex.quote, units))} 2>/dev/null; true"


def _split(lines: Lines, units: Sequence[str]) -> dict[str, Lines]:
    """Split the answer: systemd keeps to the order asked, with an empty line between two units."""
    blocks: list[Lines] = [[]]
    for line in lines:
        if line:
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    blocks += [[]] * (len(units) - len(blocks))
    return dict(zip(units, blocks, strict=False))


UNITS: Final = Kind("units", _shell, _split)


class UnitState(FactBase[Unit]):
    """The unit, ``not-found`` where systemd does not know it or does not run."""

    default = staticmethod(Unit)

    def command(self, unit: str) -> StringCommand:
        """One unit of the question."""
        return About(UNITS, unit)

    def process(self, output: list[str]) -> Unit:
        """The properties of `systemctl show`."""
        said = dict(line.partition("=")[::2] for line in output if line)
        return Unit(
            load=said.get("LoadState", "not-found"),
            active=said.get("ActiveState", "inactive"),
            sub=said.get("SubState", "dead"),
            file_state=said.get("UnitFileState", ""),
            needs_daemon_reload=said.get("NeedDaemonReload") == "yes",
            drop_ins=tuple(said.get("DropInPaths", "").split()),
            fragment=said.get("FragmentPath", ""),
            main_pid=int(said.get("MainPID") or 0),
        )


class OwningPackage(FactBase[str]):
    """The package that a file came with; empty where it came with none. Debian records either of /lib and /usr/lib."""

    @staticmethod
    def default() -> str:
        """Returns the value for no output: a file of no package."""
        return ""

    def command(self, path: str) -> StringCommand:
        """Asks dpkg which package owns the path."""
        twin = path.removeprefix("/usr") if path.startswith("/usr/lib/") else f"/usr{path}"
        both = f"{shlex.quote(path)} {shlex.quote(twin)}"
        return Plain(f"LC_ALL=C dpkg -S {both} 2>/dev/null | grep -v ^diversion | cut -d: -f1 | head -n 1; true")

    def process(self, output: list[str]) -> str:
        """Reads one line."""
        return output[0].strip() if output else ""


class Owed(FactBase[frozenset[str]]):
    """The units that are still to be restarted: one empty file for each."""

    @staticmethod
    def default() -> frozenset[str]:
        """Returns the value for no output: no mark."""
        return frozenset()

    def command(self, folder: str) -> StringCommand:
        """Lists the marks in ``folder``."""
        return Plain(f"ls -1 {shlex.quote(folder)} 2>/dev/null || true")

    def process(self, output: list[str]) -> frozenset[str]:
        """Reads one name per line."""
        return frozenset(line for line in output if line)
