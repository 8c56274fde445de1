"""Accounts: who is there, which keys they come in with, and who may become root."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.files import FileState, FileText, FolderLines
from roles.facts.sshd import KEYS_FROM, MAIN, PASSWORDS, LetsPasswordsIn, SshdLines
from roles.facts.users import Account, Accounts
from roles.operations import files
from roles.operations.files import Commands

_SUDOERS: Final = "/etc/sudoers"
_SUDO: Final = "/usr/bin/sudo"
_CLOSED: Final = "/etc/nologin"


@operation()
def present(user: str, *, groups: Collection[str] = (), shell: str = "/bin/bash", sudo: bool = False) -> Commands:
    """Have this account, in (at least) these groups, with the rights of root or without."""
    accounts: dict[str, Account] = host.get_fact(Accounts)
    now, quoted = accounts.get(user), shlex.quote(user)
    refuse_shared_number(user, accounts)
    if now is None:
        yield StringCommand(f"useradd -m -s {shlex.quote(shell)} {quoted}")
    elif now.shell != shell:
        yield StringCommand(f"usermod -s {shlex.quote(shell)} {quoted}")
    if now and now.expired:
        yield StringCommand(f"usermod -e '' {quoted}")
    if now and now.has_no_password:
        yield StringCommand(f"usermod -p '!' {quoted}")
    if now and now.must_change:
        yield StringCommand(f"chage -d -1 -M -1 {quoted}")
    for group in sorted({*groups} - (now.groups if now else frozenset())):
        group_ = shlex.quote(group)
        yield StringCommand(
            f"{{ getent group {group_} >/dev/null || groupadd {group_}; }} && usermod -aG {group_} {quoted}"
        )
    yield from _rights(user, now.number if now else "", sudo=sudo)


@operation()
def own_keys_alone() -> Commands:
    """Have sshd look for keys in the accounts' own files: declared keys mean nothing where it asks somebody else."""
    for line in host.get_fact(SshdLines):
        if line.key in KEYS_FROM and not line.is_default:
            raise OperationError(
                f"{line}: keys that the inventory does not declare let people in. Remove that line, or leave this"
                " alone where keys are kept centrally (left_alone)"
            )
    host.noop("their own files")
    yield from ()


@operation()
def nobody_kept_out(users: Collection[str]) -> Commands:
    """Have these accounts let in: whoever closed the machine, or sshd, to them knows why, and is asked."""
    if host.get_fact(FileState, path=_CLOSED):
        raise OperationError(f"{_CLOSED} lets nobody but root in: remove it, if whoever put it there is done")
    accounts: dict[str, Account] = host.get_fact(Accounts)
    groups = {user: {accounts[user].group, *accounts[user].groups} for user in users if user in accounts}
    for line in host.get_fact(SshdLines):
        kept_out = sorted(user for user in groups if not line.block and line.keeps_out(user, groups[user]))
        if kept_out:
            raise OperationError(f"{line}: sshd does not let {', '.join(kept_out)} in by a key. Take that line away")
    host.noop("let in")
    yield from ()


@operation()
def no_passwords(ours: str) -> Commands:
    """Have sshd let no password in, whatever is read before ``ours`` or in a Match block.

    Which account needs one is known to a person only: refused.
    """
    of_all = host.get_fact(LetsPasswordsIn)
    if host.get_fact(FileState, path=ours):  # before it is there, passwords come in by default
        for line in host.get_fact(SshdLines):
            if line.key in PASSWORDS and line.lets_in and (line.block or of_all):
                why = "a Match block counts before all else" if line.block else "it takes the first line that it reads"
                raise OperationError(
                    f"{line}, and sshd lets passwords in: {why}. Remove that one, or write ssh_passwords: as-is"
                )
        if of_all:
            raise OperationError(
                f"{MAIN} has no line 'Include {posixpath.dirname(ours)}/*.conf': {ours} is not read, and sshd lets"
                " passwords in. Put it back"
            )
    host.noop("keys only")
    yield from ()


@operation()
def gone(user: str) -> Commands:
    """Have the account locked and without rights; its files stay."""
    now: Account | None = host.get_fact(Accounts).get(user)
    if now is None:
        host.noop(f"there is no {user}")
        return
    if not now.expired:
        yield StringCommand(f"usermod -L -e 1 {shlex.quote(user)}")
    yield from _rights(user, now.number, sudo=False)


def refuse_shared_number(user: str, accounts: Mapping[str, Account]) -> None:
    """Raise ``OperationError`` for an account that is another one, or root, by its number."""
    now = accounts.get(user)
    twins = [name for name, one in accounts.items() if now and one.number == now.number and name != user]
    if now and twins and now.number != "0":
        raise OperationError(
            f"{', '.join(twins)} has the number of {user} (user id {now.number}): to files and to sudo they are one."
            " Find out who made it so, and give it a number of its own, or take it away (userdel)"
        )
    if now and now.number == "0" and user != "root":
        raise OperationError(
            f"{user} is root by its number (user id 0): find out who made it so, and give it one of its own in"
            f" /etc/passwd (vipw; usermod refuses while root runs anything), and its home with chown -R {user}"
        )


def _rights(user: str, number: str, *, sudo: bool) -> Commands:
    path = f"{_SUDOERS}.d/spillway-{user}"
    if not sudo:
        yield from files.absent._inner(path)  # noqa: SLF001 - pyinfra's way to nest
        return
    program = host.get_fact(FileState, path=_SUDO)
    if program and not int(program.mode, 8) & 0o4000:
        raise OperationError(
            f"{_SUDO} is not set-uid: it makes nobody root. chmod u+s {_SUDO}, if whoever did it is done"
        )
    table = host.get_fact(FileText, path=_SUDOERS)
    if table is not None and not re.search(rf"^[#@]includedir\s+{_SUDOERS}\.d\s*$", table, flags=re.MULTILINE):
        raise OperationError(
            f"{_SUDOERS} has no line '@includedir {_SUDOERS}.d': what lies there is not read. Put it back"
        )
    names = rf"{re.escape(user)}|#{number}" if number else re.escape(user)
    for later, line in host.get_fact(FolderLines, path=path):
        if later > path and re.match(rf"({names})[ \t]", line):  # of several rules the last counts
            raise OperationError(f"{later} says {line!r} after {path}: two writers. Remove that line")
    text = f"{user} ALL=(ALL) NOPASSWD:ALL\n"
    yield from files.place._inner(path, text, mode="440", validate="visudo -cf {path}", meaning="sudoers")  # noqa: SLF001
