"""Accounts of a machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import Plain


@dataclass(frozen=True, slots=True)
class Account:
    """One line of the password file, with its groups."""

    home: str
    shell: str
    group: str
    locked: bool
    expired: bool
    """Its day has come: nothing lets it in."""
    groups: frozenset[str] = field(default_factory=frozenset)
    number: str = ""
    """User id: 0 is root, whatever the name."""
    has_no_password: bool = False
    """An empty one: whoever is on the machine can become it."""
    must_change: bool = False
    """Its password is too old, or to be changed at the next login: with a key alone there is no way past that."""


class Accounts(FactBase[dict[str, Account]]):
    """Every local account by name, with the groups beside its own."""

    @staticmethod
    def default() -> dict[str, Account]:
        """Returns the value for no output: none."""
        return {}

    def command(self) -> StringCommand:
        """Three files, each line with a letter of its own."""
        return Plain(
            'awk -F: -v now="$(($(date +%s) / 86400))" \''
            'FILENAME == "/etc/passwd" { print "u:" $0 } '
            'FILENAME == "/etc/group" { print "g:" $0 } '
            'FILENAME == "/etc/shadow" { print "s:" $1 ":" ($2 ~ /^[!*]/ ? "locked" : $2 == "" ? "empty" : "open") ":"'
            ' ($8 != "" && $8 <= now ? "expired" : "") ":"'
            ' ($3 == "0" || ($3 != "" && $5 != "" && $3 + $5 < now) ? "old" : "") }'
            "' /etc/passwd /etc/group /etc/shadow 2>/dev/null; true"
        )

    def process(self, output: list[str]) -> dict[str, Account]:
        """No password hash leaves the machine: only whether there is a usable one."""
        rows = [line.split(":") for line in output if line.count(":") >= 3]  # noqa: PLR2004 - the shortest kind
        shadow = {row[1]: row for row in rows if row[0] == "s"}  # name, password, expiry, age
        groups = [row for row in rows if row[0] == "g"]
        names = {row[3]: row[1] for row in groups}
        found = {}
        for row in rows:
            if row[0] == "u" and len(row) >= 8:  # noqa: PLR2004 - fields of passwd(5), and the letter
                state = shadow.get(row[1], [""] * 5)
                found[row[1]] = Account(
                    home=row[6],
                    shell=row[7],
                    group=names.get(row[4], row[4]),
                    locked=state[2] == "locked",
                    has_no_password=state[2] == "empty",
                    expired=state[3] == "expired",
                    must_change=state[4] == "old",
                    number=row[3],
                    groups=frozenset(one[1] for one in groups if row[1] in one[4].split(",")),
                )
        return found
