"""What lies in an account's home as far as sshd reads it, looked at as that account (:mod:`roles.facts.as_account`)."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.as_account import as_account
from roles.facts.batched import About, Kind, Lines

HOME, FOLDER, KEYS, OTHER_KEYS = ".", ".ssh", ".ssh/authorized_keys", ".ssh/authorized_keys2"
"""Paths below the home: it itself, and what sshd reads there."""
_SECONDS: Final = 10
"""For one home: all are asked at once, and a look lasts longer than that."""
_LARGEST: Final = 2**17
"""Bytes of a file of keys that are read; a larger one has not the declared keys."""
_MOST: Final = 2 * _LARGEST
_SCRIPT: Final = f"""\
LC_ALL=C; export LC_ALL; cd /
if [ ! -x "${{HOME%/*}}/" ]; then echo "place|.|path that the account may not enter|0|root|1"
elif [ ! -d "$HOME" ]; then stat -c "place|.|%F|%a|%U|%h" -- "$HOME" 2>/dev/null; fi
for p in . .ssh .ssh/authorized_keys .ssh/authorized_keys2; do
  [ "$p" != .ssh/authorized_keys ] || [ ! -L "$HOME/.ssh" ] || break
  stat -c "place|$p|%F|%a|%U|%h" -- "$HOME/$p" 2>/dev/null || continue
  a=$(lsattr -d -- "$HOME/$p" 2>/dev/null); case ${{a%% *}} in *[ia]*) echo "locked|$p" ;; esac
done
k=$HOME/.ssh/authorized_keys
[ -L "$HOME/.ssh" ] || [ -L "$k" ] || [ ! -f "$k" ] || {{ echo text; head -c {_LARGEST + 1} -- "$k" | base64; }}"""


@dataclass(frozen=True, slots=True)
class Place:
    """What lies at one path. ``kind`` as `stat` says it; ``links`` is the number of its names."""

    kind: str
    mode: str
    user: str
    links: int = 1
    locked: bool = False
    """Immutable or append-only (chattr)."""


@dataclass(frozen=True, slots=True)
class Home:
    """What was found below the home of one account."""

    answered: bool = True
    """The account's own processes did not keep it from being looked at."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """By the path below the home; below a link nothing is looked at."""
    text: str | None = None
    """Of the file of keys, where it is a regular one of a sensible size."""


def _shell(users: Sequence[str]) -> str:
    """All homes at once. Root writes the account's name before each line: none speaks for another."""
    asked = [
        f"{{ {as_account(user, _SCRIPT, seconds=_SECONDS, most=_MOST)} </dev/null"
        f" | fold -w 200 | sed -u {shlex.quote(f's/^/{user} /')}; }} &"
        for user in users
    ]
    return "\n".join(('printf "%s\\n" "$(', *asked, 'wait)"'))


def _split(lines: Lines, users: Sequence[str]) -> dict[str, Lines]:
    return {user: [f"{user} asked", *(line for line in lines if line.startswith(f"{user} "))] for user in users}


HOMES: Final = Kind("homes", _shell, _split)


class AccountHome(FactBase[Home]):
    """The home of an account that there is."""

    @staticmethod
    def default() -> Home:
        """Returns the value for no output: a home that was not looked at."""
        return Home()

    def command(self, user: str) -> StringCommand:
        """One account of the question."""
        return About(HOMES, user)

    def process(self, output: list[str]) -> Home:
        """The lines of the script; what is none of them the account has said on its own, and counts for nothing."""
        lines = [line.partition(" ")[2] for line in output]  # behind the account's name
        if not any(line.startswith("status ") for line in lines):
            return Home(answered=False)
        places: dict[str, Place] = {}
        for line in lines:
            match line.split("|"):
                case ["place", path, kind, mode, user, links] if mode.isdigit() and links.isdigit():
                    places[path] = Place(kind, mode, user, int(links))
                case ["locked", path] if path in places:
                    one = places[path]
                    places[path] = Place(one.kind, one.mode, one.user, one.links, locked=True)
        if OTHER_KEYS in places and places[OTHER_KEYS].kind == "directory":
            del places[OTHER_KEYS]  # sshd reads none
        return Home(places=places, text=_text(lines))


def _text(lines: Lines) -> str | None:
    if "text" not in lines:
        return None
    coded = lines[lines.index("text") + 1 :]
    try:
        data = base64.b64decode("".join(line for line in coded if not line.startswith("status ")), validate=True)
        return data.decode() if len(data) <= _LARGEST else None
    except (binascii.Error, UnicodeDecodeError):
        return None
