"""What sshd's files say of keys, passwords and those it lets in, each line with the Match block in which it stands."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import Plain

MAIN: Final = "/etc/ssh/sshd_config"
KEYS_FROM: Final = ("authorizedkeysfile", "authorizedkeyscommand", "authorizedprincipalscommand", "trustedusercakeys")
PASSWORDS: Final = ("passwordauthentication", "kbdinteractiveauthentication", "challengeresponseauthentication")
DOORS: Final = ("allowusers", "denyusers", "allowgroups", "denygroups", "pubkeyauthentication", "authenticationmethods")
_DEFAULT: Final = {".ssh/authorized_keys", ".ssh/authorized_keys2", "%h/.ssh/authorized_keys"}
_DEEPEST: Final = 4
"""Files that include files that include files. sshd itself goes down to 16."""
_LINE: Final = re.compile(r'\s*"?([A-Za-z]+)"?(?:\s*=\s*|\s+)(.*)')
_ASKED: Final = f'^[[:space:]]*"?(match|include|{"|".join((*KEYS_FROM, *PASSWORDS, *DOORS))})["[:space:]=]'
_SCRIPT: Final = f"""\
spillway_sshd() {{
  local depth=$1 f l; shift
  for f; do
    [ -f "$f" ] || continue
    printf '%s\\t%s\\t\\n' "$depth" "$f"
    grep -isE {shlex.quote(_ASKED)} -- "$f" |
    while IFS= read -r l; do
      printf '%s\\t%s\\t%s\\n' "$depth" "$f" "$l"
      [ "$depth" -lt {_DEEPEST} ] || continue
      set -- $(printf '%s\\n' "$l" | sed -nE 's/^[[:space:]]*"?include"?[[:space:]=]+//Ip' | tr -d '"' |
        sed -E 's,(^|[[:space:]])([^/[:space:]]),\\1/etc/ssh/\\2,g')
      [ "$#" = 0 ] || spillway_sshd $((depth + 1)) "$@"
    done
  done
}}
spillway_sshd 0 {MAIN}; true"""


@dataclass(frozen=True, slots=True)
class Line:
    """One setting. ``key`` is in lower case; ``block`` is the Match line above it, empty where it is for all."""

    path: str
    text: str
    key: str
    value: str
    block: str = ""

    @property
    def is_default(self) -> bool:
        """Says whether a line about keys names the accounts' own files, in so many words."""
        words = self.value.replace('"', " ").split()
        return words == ["none"] or {*words} <= _DEFAULT

    @property
    def lets_in(self) -> bool:
        """Says whether the line, as one about passwords, does not refuse them."""
        return self.value.split()[:1] not in (["no"], ['"no"'])

    def keeps_out(self, user: str, groups: Collection[str]) -> bool:
        """Whether this account, of these groups, is kept from coming in by a key. A pattern may name a host as well."""
        words = [word.partition("@")[0] for word in self.value.replace('"', " ").split()]
        named = {user} if self.key.endswith("users") else {*groups}
        is_named = any(fnmatch.fnmatchcase(one, word) for one in named for word in words)
        match self.key:
            case "denyusers" | "denygroups":
                return is_named
            case "allowusers" | "allowgroups":
                return not is_named
            case "pubkeyauthentication":
                return words[:1] == ["no"]
            case "authenticationmethods":
                return not {"any", "publickey"} & {*words}
        return False

    def __str__(self) -> str:
        """Writes the line as a message quotes it."""
        return f"{self.path} says {self.text!r}{f' under {self.block!r}' if self.block else ''}"


class SshdLines(FactBase[list[Line]]):
    """The lines about these in sshd's main file and in all that it includes, in the order of reading."""

    @staticmethod
    def default() -> list[Line]:
        """Returns the value for no output: none."""
        return []

    def command(self) -> StringCommand:
        """Depth, path and line, with tabs between; a line without text begins a file."""
        return Plain(_SCRIPT)

    def process(self, output: list[str]) -> list[Line]:
        """A Match block ends with its file; what is included below one is of that block."""
        blocks, found = [""], []
        for depth, path, text in (line.split("\t", 2) for line in output if line.count("\t") > 1):
            at = int(depth)
            if not text:
                blocks[at:] = [blocks[at - 1] if at else ""]
            elif match := _LINE.match(text):
                key, value = match[1].lower(), match[2].partition("#")[0].strip().lower()
                if key == "match":
                    blocks[at] = text.strip()
                elif key != "include":
                    found.append(Line(path, text.strip(), key, value, blocks[at]))
        return found


class LetsPasswordsIn(FactBase[bool]):
    """Whether sshd lets passwords in, as it says itself of all that is in no Match block."""

    @staticmethod
    def default() -> bool:
        """Returns the value for no output: passwords are refused."""
        return False

    def command(self) -> StringCommand:
        """Asks for what counts: of two lines the first, wherever it stands."""
        return Plain(f"! sshd -T 2>/dev/null | grep -qE '^({'|'.join(PASSWORDS)}) yes' || echo yes")

    def process(self, output: list[str]) -> bool:
        """Reads one word."""
        return output[:1] == ["yes"]
