"""Whether apt can get a package in a version: asked of the sources that a machine will have, where it lacks that."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import About, Kind, Lines

KEYRINGS: Final = "/etc/apt/keyrings"
_SECONDS: Final = 20
"""How long a machine may take to fetch the lists of its sources: a plan waits for it."""
_SHELL: Final = """\
( known() {{ apt-cache madison {names} 2>/dev/null | sed 's/ *| */ /g'; }}
missing() {{
  for s in {subjects}; do
    found=; while read -r name version _; do
      [ "$name" != "${{s%%=*}}" ] || case $version in ${{s#*=}}) found=yes ;; esac
    done <<END
$1
END
    [ -n "$found" ] || echo "$s"
  done
}}
have=$(dpkg-query -W -f='${{db:Status-Status}} ${{Package}} ${{Version}}\\n' {names} | sed -n 's/^installed //p')
[ -n "$(missing "$have")" ] || exit 0
[ -n "$(missing "$have
$(known)")" ] || exit 0
d=$(mktemp -d) && trap 'rm -rf "$d"' EXIT && cd "$d" || exit 0
mkdir -p lists/partial archives/partial parts keys || exit 0
: >"$d/list"
{others}
{ours}
sed -i "s,{keyrings}/,$d/keys/," "$d"/parts/*
{{ apt-config dump | grep -E '^(Acquire|APT::Architecture)' | grep -v '^Acquire::IndexTargets'
printf '%s "%s";\\n' Dir::Etc::Main /dev/null Dir::Etc::Parts /dev/null Dir::Etc::SourceList "$d/list" \\
  Dir::Etc::SourceParts "$d/parts" Dir::State::Lists "$d/lists" Dir::Cache "$d" APT::Sandbox::User root \\
  Acquire::Languages none Acquire::Retries 0 APT::Update::Error-Mode any; }} >"$d/conf"
export APT_CONFIG="$d/conf"
timeout {seconds} apt-get -q update >/dev/null 2>&1 || exit 0
now=$(known)
missing "$have
$now" | while read -r subject; do
  echo "! $subject"; echo "$now" | awk -v name="${{subject%%=*}}" '$1 == name {{ print $2 }}'
done
) 2>/dev/null || true"""
"""Nothing is written but in a folder that goes again. No hook of others runs; the way out, such as a proxy, is as ever.

apt's lists as they lie are enough to know that a version is there; that it is not, the sources themselves must say.
"""
_OTHERS: Final = """\
cp /etc/apt/sources.list "$d/list"; cp /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources "$d/parts"
rm -f "$d"/parts/spillway-*"""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a machine will fetch from."""

    entries: tuple[tuple[str, str, str], ...] = ()
    """Path, deb822 text and key of each that the roles write."""
    exclusive: bool = False
    """And from nowhere else."""


class Offered(FactBase[list[str] | None]):
    """The versions that a machine's sources have of a package, where they have not the wanted one.

    ``None``: they have it, the machine has it, or it cannot be known now.
    """

    @staticmethod
    def default() -> list[str] | None:
        """Returns that nothing speaks against the packages."""
        return None

    def command(self, package: str, version: str, sources: Sources) -> StringCommand:
        """``version`` is a pattern of a shell. All packages of a machine are asked for in one go."""
        return About(_kind(sources), f"{package}={version}")

    def process(self, output: list[str]) -> list[str] | None:
        """Behind the line that says that they were asked."""
        return output[1:]


def _kind(sources: Sources) -> Kind:
    digest = hashlib.sha256(repr(sources).encode()).hexdigest()

    def shell(subjects: Sequence[str]) -> str:
        ours = [
            _written(place, text) for path, entry, key in sources.entries for place, text in _places(path, entry, key)
        ]
        return _SHELL.format(
            names=" ".join(shlex.quote(subject.partition("=")[0]) for subject in subjects),
            subjects=" ".join(map(shlex.quote, subjects)),
            others="" if sources.exclusive else _OTHERS,
            ours="\n".join(ours),
            keyrings=KEYRINGS,
            seconds=_SECONDS,
        )

    return Kind(f"offered {digest}", shell, _split)


def _places(path: str, entry: str, key: str) -> list[tuple[str, str]]:
    name = PurePosixPath(path)
    return [(f"parts/{name.name}", entry), *([(f"keys/{name.stem}.asc", key)] if key else [])]


def _written(place: str, text: str) -> str:
    return f'printf %s {shlex.quote(text)} >"$d"/{shlex.quote(place)}'


def _split(lines: Lines, subjects: Sequence[str]) -> dict[str, Lines]:
    found: dict[str, Lines] = {subject: [] for subject in subjects}
    here: Lines = []
    for line in lines:
        if line.startswith("! "):
            here = found.setdefault(line.removeprefix("! "), [])
        here.append(line)
    return found
