"""Stock pyinfra's question about a path (`File`, `Directory`, `Link`, `Socket`), asked about many paths at once.

On its own it takes four processes for each path.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.facts.files import LINUX_STAT_COMMAND, File

from roles.facts.batched import About, Kind, Lines

_PATH: Final = re.compile(r"! \(test -e (.+?) \|\| test -L ")


def _shell(paths: Sequence[str]) -> str:
    said = LINUX_STAT_COMMAND.removesuffix("'") + "|%n'"
    return f"{said} -- {' '.join(map(shlex.quote, paths))} 2>/dev/null; true"


def _split(lines: Lines, paths: Sequence[str]) -> dict[str, Lines]:
    """A path stands behind the last bar of its line; one with a bar in it ends the line all the same."""
    found: dict[str, Lines] = {path: [] for path in paths}
    for line in lines:
        path = line.rpartition("|")[2]
        known = path if path in found else next((one for one in paths if line.endswith(f"|{one}")), None)
        if known is not None:
            found[known] = [line.removesuffix(f"|{known}")]
    return found


PATHS: Final = Kind("stock paths", _shell, _split)


def asked_together(command: StringCommand) -> StringCommand:
    """The same question as one of many, where it is exactly what the fact about a path asks; else the command."""
    if isinstance(command, About) or (found := _PATH.match(command.get_raw_value())) is None:
        return command
    words = shlex.split(found[1])
    same = len(words) == 1 and File().command(words[0]).get_raw_value() == command.get_raw_value()
    return About(PATHS, words[0]) if same else command
