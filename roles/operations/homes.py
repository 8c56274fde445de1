"""The keys of accounts: a file in a folder that somebody else may write, so it is written as the account itself."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import shlex
import textwrap
from collections.abc import Collection, Iterator
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.as_account import SUCCEEDED, as_account
from roles.facts.homes import FOLDER, HOME, KEYS, OTHER_KEYS, AccountHome, Home, Place
from roles.facts.users import Account, Accounts
from roles.operations import config_diff, files
from roles.operations.files import Commands, fails_alone
from roles.operations.users import refuse_shared_number

_SECONDS: Final = 60
_MOST: Final = 4096
"""Bytes of an account's own words that reach a journal."""
_REMOVE: Final = """\
cd -- "$HOME/.ssh"
for f in authorized_keys authorized_keys2; do [ -d "$f" ] && [ ! -L "$f" ] || rm -f -- "$f"; done"""
_WRITE: Final = """\
cd -- "$HOME/.ssh"
[ -d authorized_keys2 ] && [ ! -L authorized_keys2 ] || rm -f -- authorized_keys2
t=$(mktemp .authorized_keys.XXXXXXXXXX); trap 'rm -f -- "$t"' EXIT
cat > "$t"; [ "$(sha256sum < "$t")" = "{sha256}  -" ]
chmod 600 -- "$t"; sync -- "$t"; mv -fT -- "$t" authorized_keys"""


@operation()
def keys(user: str, *, keys: Collection[str]) -> Commands:
    """Have the account let in by exactly these keys, none: by no key at all.

    Done as the account, whose home and keys these are: root follows no link there, and what the account has put in the
    way costs this step and none of the others. What was there before is not put back by a rollback: keys decide
    nothing of a machine's health, and those that were taken away would let in again.
    """
    accounts: dict[str, Account] = host.get_fact(Accounts)
    refuse_shared_number(user, accounts)
    if user not in accounts and not keys:
        host.noop(f"there is no {user}")
        return
    fails_alone()
    home = accounts[user].home if user in accounts else f"/home/{user}"
    text = "".join(f"{key.strip()}\n" for key in keys)
    found: Home = host.get_fact(AccountHome, user=user) if user in accounts else Home()
    steps = list(_steps(user, found, text))
    if found.answered and not steps:
        host.noop("exactly these")
        return
    if why := _in_the_way(user, home, found, wanted=bool(keys)):
        raise OperationError(why)
    if user in accounts and HOME not in found.places:
        files.refuse_strangers(posixpath.dirname(home))
        at = shlex.quote(home)
        make = f'install -d -m 755 -o {user} -g "$(id -g {user})" -- {at}'
        yield StringCommand(files.on_roots_ground(home, f"{{ [ -e {at} ] || [ -L {at} ] || {make}; }}"))
    files.told(config_diff.difference(f"{home}/{KEYS}", found.text or "", text))
    yield _run(user, home, steps, text)


def _in_the_way(user: str, home: str, found: Home, *, wanted: bool) -> str:
    """What keeps the account itself from having its keys there, with the remedy; empty where nothing does."""
    if not found.answered:
        return (
            f"{home} did not answer in time, asked as {user}: is it on a file server that is away? Look there by hand"
        )
    for path, place in found.places.items():
        where = home if path == HOME else f"{home}/{path}"
        if place.locked:
            return f"{where} is immutable or append-only, a change is not permitted: chattr -i -a {shlex.quote(where)}"
        if path in (HOME, FOLDER) and not _is_own_folder(path, place, user) and wanted:
            return f"{where} is {_a(place)} of {place.user}, not a folder of {user}: see what it is, and move it away"
        if path == KEYS and place.kind != "symbolic link" and not place.kind.startswith("regular") and wanted:
            return f"{where} is {_a(place)}, not a file: move it away by hand"
    return ""


def _is_own_folder(path: str, place: Place, user: str) -> bool:
    """Or, where it can be mended, a link in its place; a home may be root's."""
    if place.kind == "symbolic link":
        return path == FOLDER
    owners = (user, "root") if path == HOME and not int(place.mode, 8) & 0o022 else (user,)
    return place.kind == "directory" and place.user in owners


def _a(place: Place) -> str:
    return f"{'an' if place.kind[0] in 'aeiou' else 'a'} {place.kind}"


def _steps(user: str, found: Home, text: str) -> Iterator[str]:
    """Shell for the account, in its home."""
    here = found.places
    if not text:
        if FOLDER in here and here[FOLDER].kind == "symbolic link":
            yield "rm -- .ssh"
        elif OTHER_KEYS in here or (KEYS in here and here[KEYS].kind != "directory"):
            yield _REMOVE
        return
    if HOME in here and int(here[HOME].mode, 8) & 0o022:
        yield "chmod go-w ."
    folder = here.get(FOLDER)
    if folder is None or (folder.kind, folder.mode) != ("directory", "700"):
        yield "[ ! -L .ssh ] || rm -- .ssh\n[ -d .ssh ] || mkdir -- .ssh\nchmod 00700 .ssh"  # 700 keeps a set-group-id
    keys = here.get(KEYS)
    whole = keys and (keys.kind, keys.mode, keys.user, keys.links) == ("regular file", "600", user, 1)
    same = found.text is not None and config_diff.same(found.text, text, "authorized_keys")
    if not (whole and same) or OTHER_KEYS in here:
        yield _WRITE.format(sha256=hashlib.sha256(text.encode()).hexdigest())


def _run(user: str, home: str, steps: Collection[str], text: str) -> StringCommand:
    """One command; the text comes on standard input, through a pipe of the account's own. What fails names the home."""
    script = "\n".join(("set -eu; umask 077; LC_ALL=C; export LC_ALL", 'cd -- "$HOME"', *steps))
    at = shlex.quote(home)
    slow = f"{home} took no change within {_SECONDS} s: see whether what it lies on answers (findmnt -T {at}, dmesg)"
    command = (
        f"said=$(base64 -d | {as_account(user, script, seconds=_SECONDS, most=_MOST)})\n"
        f'case $said in *"{SUCCEEDED}") exit 0 ;; *status*) why="in "{at}": ${{said%status*}}" ;;'
        f' *) why={shlex.quote(slow)} ;; esac\nprintf "as {user}, %s\\n" "$why" >&2; exit 1'
    )
    lines = textwrap.wrap(base64.b64encode(text.encode()).decode(), 4096) or [""]
    return StringCommand(command, _stdin=lines)
