"""Files of a machine: their kind, mode, owners and digest, and the text of those that differ."""

from __future__ import annotations

import base64
import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import About, Kind, Lines, Plain

_LARGEST: Final = 2**20
"""Bytes: a configuration file beyond this is not compared by meaning."""


@dataclass(frozen=True, slots=True)
class Found:
    """What lies at a path. ``kind`` as `stat` says it, ``sha256`` empty for what is no regular file."""

    kind: str
    mode: str
    user: str
    group: str
    sha256: str = ""
    locked: bool = False
    """Immutable or append-only (chattr)."""

    @property
    def is_file(self) -> bool:
        """A regular file, not a link to one."""
        return self.kind.startswith("regular")


def _shell(paths: Sequence[str]) -> str:
    """Said in one go: `sha256sum` writes a line at a time, and each would travel alone.

    What is no regular file is not read: a pipe has no beginning, and /dev/zero no end.
    """
    quoted = " ".join(map(shlex.quote, paths))
    regular = f'set --; for f in {quoted}; do [ ! -f "$f" ] || set -- "$@" "$f"; done'
    digests = f'{regular}; [ "$#" = 0 ] || sha256sum -- "$@" 2>/dev/null'
    locked = f"lsattr -d -- {quoted} 2>/dev/null | sed -n 's/^[^ ]*[ia][^ ]* /locked  /p'"
    both = f"LC_ALL=C stat -c '%F|%a|%U|%G|%n' -- {quoted} 2>/dev/null; {locked}; {digests}"
    return f'printf "%s\\n" "$({both})"'


def _split(lines: Lines, paths: Sequence[str]) -> dict[str, Lines]:
    found: dict[str, Lines] = {path: [] for path in paths}
    for line in lines:
        digest, _, path = line.partition("  ")
        if len(digest) == 64 and path in found:  # noqa: PLR2004 - hexadecimal digits of a SHA-256
            found[path].append(digest)
        elif digest == "locked" and path in found:
            found[path].append(line)
        elif line.count("|") >= 4 and (path := line.split("|", 4)[4]) in found:  # noqa: PLR2004 - fields of _shell
            found[path].insert(0, line)
    return found


FILES: Final = Kind("files", _shell, _split)


class FileState(FactBase[Found | None]):
    """What lies at ``path``; ``None`` where nothing does."""

    def command(self, path: str) -> StringCommand:
        """One path of the question."""
        return About(FILES, path)

    def process(self, output: list[str]) -> Found | None:
        """The lines of `stat` and of `sha256sum`."""
        stat = next((line for line in output if "|" in line), None)
        if stat is None:
            return None
        kind, mode, user, group = stat.split("|")[:4]
        locked = any(line.startswith("locked  ") for line in output)
        digest = next(
            (word for line in output if (word := line.partition("  ")[0]) != "locked" and "|" not in line), ""
        )
        is_file = kind.startswith("regular")
        return Found(kind=kind, mode=mode, user=user, group=group, sha256=digest if is_file else "", locked=locked)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A part of the way to a folder in whose place another account than root may put something else."""

    name: str
    user: str
    mode: str
    """As ls(1) shows it."""
    is_the_folder: bool
    """The folder itself, where no link led to it."""


_STRANGERS: Final = """\
function told(at_end) {
  if (bad && (at_end || bad != "sticky")) print way "|" (at_end && !linked ? "last" : "on") "|" said
  bad = ""
}
/^f: / { told(1); way = substr($0, 4); linked = 0; next }
$1 !~ /^[-dlbcps][-r][-w][-xsS][-r][-w][-xsS][-r][-w][-xtT]$/ { next }
{
  told(0); kind = substr($1, 1, 1); written = substr($1, 6, 1) == "w" || substr($1, 9, 1) == "w"
  if (kind == "l") linked = 1
  if ($2 != "root" && $2 != me) bad = "owner"
  else if (kind == "d" && written) bad = $1 ~ /[tT]$/ ? "sticky" : "open"
  said = $2 "|" $1 "|"; name = $0; sub(/^ *[^ ]+ +[^ ]+ +[^ ]+ +/, "", name); said = said name
}
END { told(1) }"""


def strangers(folders: Sequence[str]) -> str:
    """Shell that prints which parts of the ways to these folders, links and all, are not root's or the caller's alone.

    In a folder with the sticky bit what is there stays what it is, and new names are anybody's: it may stand on the
    way, not at its end. Where nothing is printed, no other account can change the way between this question and
    any act.
    """
    quoted = " ".join(map(shlex.quote, folders))
    return f'LC_ALL=C namei -l -- {quoted} 2>/dev/null | awk -v me="$(id -un)" {shlex.quote(_STRANGERS)}'


def _split_ways(lines: Lines, folders: Sequence[str]) -> dict[str, Lines]:
    return {
        folder: [line for line in lines if line.startswith((f"{folder}|last|", f"{folder}|on|"))] for folder in folders
    }


WAYS: Final = Kind("ways", strangers, _split_ways)


class Strangers(FactBase[list[Stranger]]):
    """The parts of the way to a folder, from the root on, that others than root may change."""

    @staticmethod
    def default() -> list[Stranger]:
        """Returns that only root may write there."""
        return []

    def command(self, folder: str) -> StringCommand:
        """One folder of the question."""
        return About(WAYS, folder)

    def process(self, output: list[str]) -> list[Stranger]:
        """Reads the lines that :func:`strangers` prints."""
        parts = [line.rsplit("|", 4)[1:] for line in output if line.count("|") >= 4]  # noqa: PLR2004 - its fields
        return [Stranger(name, user, mode, is_the_folder=at == "last") for at, user, mode, name in parts]


class FolderLines(FactBase[list[tuple[str, str]]]):
    """What the files of a folder say whose names have the ending of ``path``: path and line.

    Plain comments are left out; what stands close behind a ``#``, such as apt's ``#clear``, may say something.
    """

    @staticmethod
    def default() -> list[tuple[str, str]]:
        """Returns the value for no output: no lines."""
        return []

    def command(self, path: str) -> StringCommand:
        """The file at ``path`` is among them. systemd reads a second folder, which a reboot empties."""
        folder, name = posixpath.split(path)
        ending = shlex.quote(posixpath.splitext(name)[1])
        folders = [folder, *([f"/run{folder.removeprefix('/etc')}"] if folder.startswith("/etc/systemd/") else [])]
        files = " ".join(f"{shlex.quote(one)}/*{ending}" for one in folders)
        return Plain(f"grep -D skip -sHE '^[[:space:]]*([^#;[:space:]]|#[^#[:space:]])' {files}; true")

    def process(self, output: list[str]) -> list[tuple[str, str]]:
        """Reads lines ``path:line``."""
        return [(path, text.strip()) for path, _, text in (line.partition(":") for line in output)]


class FolderNames(FactBase[list[str]]):
    """The names of what lies in a folder, in the order of their bytes."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: an empty folder."""
        return []

    def command(self, folder: str) -> StringCommand:
        """Lists the folder; nothing where there is none."""
        return Plain(f"LC_ALL=C ls -1 -- {shlex.quote(folder)} 2>/dev/null; true")

    def process(self, output: list[str]) -> list[str]:
        """Reads one name per line."""
        return sorted(line for line in output if line)


class FileText(FactBase[str | None]):
    """The text at ``path``; ``None`` where there is no file, or one that is larger than a mebibyte.

    A byte that is no UTF-8 stays what it is (``surrogateescape``): what others wrote is not lost where we add a line.
    """

    def command(self, path: str) -> StringCommand:
        """Base 64, so that no byte of it is lost on the way."""
        quoted = shlex.quote(path)
        return Plain(f"[ ! -f {quoted} ] || {{ echo file; head -c {_LARGEST + 1} {quoted} | base64; }}")

    def process(self, output: list[str]) -> str | None:
        """Decodes the text; ``None`` for what is no file, or too long."""
        data = base64.b64decode("".join(output[1:]))
        if output[:1] != ["file"] or len(data) > _LARGEST:
            return None
        return data.decode(errors="surrogateescape")
