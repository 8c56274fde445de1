"""Debian packages of a machine: dpkg's database, what apt may touch by itself, and where apt fetches from."""

from __future__ import annotations

import fnmatch
import re
import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import Plain

_HALF: Final = frozenset("UFHWt")
"""Letters of dpkg's status that stand between not installed and installed: unpacked, half configured, and so on."""

_LEFT_OUT: Final = tuple(f"/usr/share/{folder}/" for folder in ("doc", "info", "locale", "man"))
"""What small images keep dpkg from unpacking at all (``path-exclude``)."""


@dataclass(frozen=True, slots=True)
class Package:
    """One line of dpkg's database."""

    version: str
    installed: bool = True
    held: bool = False
    broken: bool = False
    """Unpacked or half configured: an installation was cut off."""

    def fits(self, wanted: str) -> bool:
        """Whether it is installed in that version; ``*`` in it stands for anything."""
        return self.installed and not self.broken and fnmatch.fnmatchcase(self.version, wanted)


class Packages(FactBase[dict[str, Package]]):
    """Every package that dpkg knows, by name without the architecture."""

    @staticmethod
    def default() -> dict[str, Package]:
        """Returns the value for no output: not known."""
        return {}

    def command(self) -> StringCommand:
        """Prints one line for each package."""
        return Plain("dpkg-query -W -f='${Package}\\t${Version}\\t${db:Status-Abbrev}\\n' 2>/dev/null || true")

    def process(self, output: list[str]) -> dict[str, Package]:
        """The same answer is read once: each role asks, and machines of a kind have the same packages."""
        return dict(_read(tuple(output)))


@lru_cache(maxsize=64)
def _read(lines: tuple[str, ...]) -> dict[str, Package]:
    """The status is three letters: wanted, is, error."""
    found = {}
    for line in lines:
        name, _, rest = line.partition("\t")
        version, _, status = rest.partition("\t")
        if status[1:2] in ("n", "c", ""):
            continue
        found[name] = Package(
            version=version,
            installed=status[1] == "i",
            held=status[0] == "h",
            broken=status[1] in _HALF or status[2:3] == "R",
        )
    return found


class AlteredFiles(FactBase[dict[str, str]]):
    """Files of packages that are missing or no longer as they were installed; configuration files do not count.

    Reads every file of them: ask for small packages only.
    """

    @staticmethod
    def default() -> dict[str, str]:
        """Returns the value for no output: not known."""
        return {}

    def command(self, packages: tuple[str, ...]) -> StringCommand:
        """The packages that are not installed are passed over."""
        return Plain(f'for p in {" ".join(map(shlex.quote, packages))}; do dpkg --verify "$p" 2>/dev/null; done; true')

    def process(self, output: list[str]) -> dict[str, str]:
        """Path to ``missing`` or ``altered``."""
        found = {}
        for line in output:
            flags, _, rest = line.partition(" ")
            kind, _, path = rest.strip().rpartition(" ")
            is_left_out = flags == "missing" and path.startswith(_LEFT_OUT)
            if path and kind.strip() != "c" and not is_left_out:
                found[path] = "missing" if flags == "missing" else "altered"
        return found


class Unusable(FactBase[list[str]]):
    """Paths of programs and libraries that are missing, empty, may not be run, or run with rights set.

    A program with the set-uid bit is root's for whoever starts it; none of these is packed with one.
    """

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: none."""
        return []

    def command(self, files: tuple[str, ...]) -> StringCommand:
        """No process, and no program is run. Libraries need not be executable."""
        plain = '[ ! -u "$p" ] && [ ! -g "$p" ]'
        usable = f'{plain} && [ -f "$p" ] && [ -s "$p" ] && case "$p" in *.so*) ;; *) [ -x "$p" ] ;; esac'
        return Plain(f'for p in {" ".join(map(shlex.quote, files))}; do {usable} || echo "$p"; done')

    def process(self, output: list[str]) -> list[str]:
        """Reads one path per line."""
        return [line for line in output if line]


class AptSettings(FactBase[dict[str, list[str]]]):
    """apt's configuration as all of its files together make it: key to values, lists with one value per entry."""

    @staticmethod
    def default() -> dict[str, list[str]]:
        """Returns the value for no output: not known."""
        return {}

    def command(self) -> StringCommand:
        """Prints the settings as apt itself reads them; what it cannot read it says itself, behind ``E:``."""
        return Plain("apt-config dump 2>&1 || true")

    def process(self, output: list[str]) -> dict[str, list[str]]:
        """``Key "value";`` and ``List:: "value";``."""
        found: dict[str, list[str]] = {}
        for line in output:
            key, _, value = line.partition(" ")
            found.setdefault(key.removesuffix("::"), []).append(value.strip().removesuffix(";").strip('"'))
        return found


class SourceFiles(FactBase[list[str]]):
    """Files that tell apt where to fetch from, where they name at least one place."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: not known."""
        return []

    def command(self) -> StringCommand:
        """Paths; a disabled deb822 entry still counts, for it can be enabled by one word."""
        return Plain(
            "grep -D skip -lE '^[[:space:]]*(deb|deb-src)[[:space:]]|^URIs:' /etc/apt/sources.list"
            " /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true"
        )

    def process(self, output: list[str]) -> list[str]:
        """Reads one path per line."""
        return [line for line in output if line]


class OsRelease(FactBase[str]):
    """The distribution and its release: ``debian-12``."""

    @staticmethod
    def default() -> str:
        """Returns the value for no output: not known."""
        return ""

    def command(self) -> str:
        """Prints the id and version of os-release(5)."""
        return '. /etc/os-release 2>/dev/null && echo "$ID-$VERSION_ID" || true'

    def process(self, output: list[str]) -> str:
        """Reads one line."""
        return "".join(output[:1])


_PINS: Final = """\
function told() { if (names) print file "\\t" priority "\\t" names; names = priority = "" }
FNR == 1 { told(); file = FILENAME }
/^[[:space:]]*$/ { told() }
sub(/^Package:/, "") { names = $0 }
/^Pin-Priority:/ { priority = $2 }
END { told() }"""


@dataclass(frozen=True, slots=True)
class Pin:
    """One entry of apt_preferences(5)."""

    file: str
    priority: int
    names: tuple[str, ...]
    """Of packages: names, patterns, /expressions/."""


class PinFiles(FactBase[list[Pin]]):
    """Every pin, ours and others'."""

    @staticmethod
    def default() -> list[Pin]:
        """Returns the value for no output: not known."""
        return []

    def command(self) -> StringCommand:
        """Reads regular files alone: a pipe has no end."""
        found = "for f in /etc/apt/preferences /etc/apt/preferences.d/*; do [ ! -f $f ] || echo $f; done"
        return Plain(f"awk {shlex.quote(_PINS)} $({found}) </dev/null; true")

    def process(self, output: list[str]) -> list[Pin]:
        """File, priority and names, with tabs between; where apt can read no priority there is none."""
        rows = [line.split("\t", 2) for line in output if line.count("\t") > 1]
        return [
            Pin(file, int(priority) if re.fullmatch("-?[0-9]+", priority) else 0, tuple(names.split()))
            for file, priority, names in rows
        ]
