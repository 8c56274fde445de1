"""Accounts of a machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase


@dataclass(frozen=True, slots=True)
class Account:
    """One line of the password file, with its groups."""

    home: str
    shell: str
    group: str
    locked: bool
    expired: bool
    groups: frozenset[str] = field(default_factory=frozenset)


class Accounts(FactBase[dict[str, Account]]):
    """Every local account by name, with the groups beside its own."""

    @staticmethod
    def default() -> dict[str, Account]:
        """None."""
        return {}

    def command(self) -> str:
        """Three files, each line with a letter of its own."""
        return (
            "sed 's/^/u:/' /etc/passwd; sed 's/^/g:/' /etc/group;"
            " cut -d: -f1,2,8 /etc/shadow 2>/dev/null | sed 's/:[!*][^:]*:/:locked:/;s/^/s:/'"
            " | sed 's/^\\(s:[^:]*\\):[^l][^:]*:/\\1:open:/'"
        )

    def process(self, output: list[str]) -> dict[str, Account]:
        """No password hash leaves the machine: only whether there is a usable one."""
        rows = [line.split(":") for line in output if line.count(":") >= 3]  # noqa: PLR2004 - the shortest kind
        shadow = {row[1]: row for row in rows if row[0] == "s"}
        groups = [row for row in rows if row[0] == "g"]
        names = {row[3]: row[1] for row in groups}
        found = {}
        for row in rows:
            if row[0] == "u" and len(row) >= 8:  # noqa: PLR2004 - fields of passwd(5), and the letter
                state = shadow.get(row[1], ["", "", "", ""])
                found[row[1]] = Account(
                    home=row[6],
                    shell=row[7],
                    group=names.get(row[4], row[4]),
                    locked=state[2] == "locked",
                    expired=bool(state[3]) and int(state[3]) <= 1,
                    groups=frozenset(one[1] for one in groups if row[1] in one[4].split(",")),
                )
        return found
