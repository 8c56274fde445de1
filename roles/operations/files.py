"""Files written whole: beside their place, tried by whoever will read them, and then renamed into it.

A file is never half there: a connection that is cut, a disk that is full or a candidate that does not pass leaves the
old one untouched. The file as it was before the first change is kept under :func:`kept_at` until the node proved
healthy (:func:`forget_kept`), or is put back (:func:`restore_kept`).
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
import shlex
import textwrap
from collections.abc import Generator
from typing import Any, Final

from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.engine.disruption import Harmless
from roles.facts.files import FileState, FileText, FolderLines, FolderNames, Found, Strangers, strangers
from roles.operations import config_diff
from roles.operations.config_diff import Meaning

Commands = Generator[StringCommand | FunctionCommand, None, None]


def kept_at(data: Any) -> str:
    """The folder on a machine with this data where the files lie that a rollout has changed, as they were before."""
    return f"{data.get('state_directory', '/var/lib/spillway')}/last-good"


@operation()
def place(
    dest: str,
    content: str,
    *,
    mode: str = "644",
    user: str | None = "root",
    group: str | None = "root",
    validate: str | None = None,
    meaning: Meaning | None = None,
    secret: bool = False,
) -> Commands:
    """Have this text at ``dest``, a file of this mode and these owners (``None``: whoever writes it).

    ``validate`` is shell that reads the candidate at ``{path}`` and fails where it is no good, such as
    ``sshd -t -f {path}``. ``meaning``, the kind of file, leaves one alone that says the same in other words; without
    it every byte counts. The text of a ``secret`` file appears in no diff and no journal.

    Refused where another account than root may change the way there: it could lead root anywhere.
    """
    now: Found | None = host.get_fact(FileState, path=dest)
    yield from _guard(posixpath.dirname(dest), user)
    if now and not now.is_file and now.kind != "symbolic link":
        raise OperationError(f"{dest} is a {now.kind}, not a file: move it away by hand")
    ours = not host.get_fact(Strangers, folder=posixpath.dirname(dest)) and now is not None and user in (None, now.user)
    if now and ours and now.is_file and _says_the_same(dest, now, content, meaning):
        yield from _correct(dest, now, mode=mode, user=user, group=group)
        return
    _refuse_locked(dest, now)
    # What another account may have put there can be a name of any file of root's, or still be open for writing.
    _record_diff(dest, _text_of(dest, now) if ours else "", content, secret=secret)
    yield _write(dest, content, mode=mode, owners=_owners(user, group), validate=validate)


@operation()
def absent(dest: str) -> Commands:
    """Have nothing at ``dest``: neither file nor link nor folder."""
    now: Found | None = host.get_fact(FileState, path=dest)
    if now is None:
        host.noop(f"{dest} is absent")
        return
    refuse_strangers(posixpath.dirname(dest))
    _refuse_locked(dest, now)
    _record_diff(dest, _text_of(dest, now) if now.is_file else "", "", secret=not now.is_file)
    yield StringCommand(f"set -eu\n{_keep(dest)}\nrm -rf -- {shlex.quote(dest)}")


@operation()
def guarded(dest: str, *, mode: str, group: str = "root") -> Commands:
    """Have a socket or folder that others make be root's, of this mode and group; nothing where it is not there yet."""
    now: Found | None = host.get_fact(FileState, path=dest)
    if now is None:
        host.noop("not there yet")
        return
    refuse_strangers(posixpath.dirname(dest))
    if now.kind == "symbolic link":
        raise OperationError(f"{dest} is a link: see where it leads, and remove it by hand")
    yield from _correct(dest, now, mode=mode, user="root", group=group)


@operation()
def last_word(dest: str, *, about: str) -> Commands:
    """Have no file in the folder of ``dest`` that is read after it and says something ``about`` (a pattern) the same.

    Which of two writers is right only a person knows: refused.
    """
    for path, line in host.get_fact(FolderLines, path=dest):
        if posixpath.basename(path) > posixpath.basename(dest) and re.match(about, line):
            raise OperationError(f"{path} says {line!r} after {dest}: two writers. Remove that line")
    host.noop("nobody speaks after it")
    yield from ()


@operation()
def no_other_word(dest: str, *, also: str, about: str) -> Commands:
    """Have no other file, whenever it is read, in the folder of ``dest``, nor ``also``, that says something ``about``.

    For what counts by how exactly it says whom it means, and not by the order of files. ``also``: empty for none.
    """
    lines = [(path, line) for path, line in host.get_fact(FolderLines, path=dest) if path != dest]
    text = (host.get_fact(FileText, path=also) or "") if also else ""
    for path, line in (*lines, *((also, one.strip()) for one in text.split("\n"))):
        if re.match(about, line):
            raise OperationError(f"{path} says {line!r} beside {dest}: two writers. Remove that line")
    host.noop("nobody speaks beside it")
    yield from ()


@operation()
def first_word(dest: str, *, endings: tuple[str, ...]) -> Commands:
    """Have no file with such an ending in the folder of ``dest`` whose name comes before: it would be read instead."""
    folder, name = posixpath.split(dest)
    before = [one for one in host.get_fact(FolderNames, folder=folder) if one < name and one.endswith(endings)]
    if before:
        raise OperationError(f"{folder}/{before[0]} is read instead of {dest}: two writers. Move it away")
    host.noop("it is the first")
    yield from ()


@operation()
def included(by: str, *, line: str) -> Commands:
    """Have this line in the file ``by``, through which what is ours has an effect. Who took it out had a reason."""
    text = host.get_fact(FileText, path=by)
    said = [re.sub("[ \t]+", " ", one).strip(" ") for one in (text or "").split("\n")]
    if text is not None and line not in said:
        near = next(
            (f" (it has {config_diff.visible(one)})" for one in said if re.findall("[!-~]+", one) == line.split()), ""
        )
        raise OperationError(
            f"{by} has no line {line!r}{near}: without it what is written there means nothing. Put it back"
        )
    host.noop("it is read")
    yield from ()


def restore_kept(kept: str) -> str:
    """Shell that puts every kept file back, removes what was not there before, and prints the paths.

    A file to which another account than root may change the way by now stays as it is.
    """
    return f"set -eu; k={shlex.quote(kept)}\n{_ROOTS}\n{_RESTORE}"


def forget_kept(kept: str) -> str:
    """Shell for when the node proved healthy: what is there now is the last good."""
    return f"rm -rf -- {shlex.quote(kept)}"


def _guard(folder: str, user: str | None) -> Commands:
    """Have no other account write where a file of this user's lies: it could put another one into its place."""
    now: Found | None = host.get_fact(FileState, path=folder)
    refuse_strangers(folder, but_itself=user is not None and folder not in _EVERYBODYS)
    if user is None or now is None or now.kind != "directory":
        return
    bits = int(now.mode, 8)
    if now.user not in ("root", user):
        yield Harmless(f"chown root -- {shlex.quote(folder)}")
    if bits & 0o022:
        yield Harmless(f"chmod go-w -- {shlex.quote(folder)}")


def refuse_strangers(folder: str, *, but_itself: bool = False) -> None:
    """Raise ``OperationError`` where another account than root may change the way to a folder.

    ``but_itself``: who may change what lies in the folder is mended by the caller.
    """
    for one in host.get_fact(Strangers, folder=folder):
        if not (but_itself and one.is_the_folder):
            raise OperationError(
                f"{folder}: other accounts can change {one.name!r} on the way there ({one.mode}, of {one.user}), and"
                " lead root to any file by it: have it be root's (chown root), and writable for root alone (chmod go-w)"
            )


def on_roots_ground(dest: str, command: str) -> str:
    """The shell command about ``dest``, which fails where another account than root may change the way there."""
    return f"{_ROOTS}\nroots {shlex.quote(dest)} && {command}"


def _refuse_locked(dest: str, now: Found | None) -> None:
    """An immutable file or folder fails every change; it costs this step and no other."""
    folder = posixpath.dirname(dest)
    around: Found | None = host.get_fact(FileState, path=folder)
    for path, one in ((dest, now), (folder, around)):
        if one and one.locked:
            remedy = f"find out who wanted that, and chattr -i -a {shlex.quote(path)}"
            raise OperationError(f"{path} is immutable or append-only, a change is not permitted: {remedy}")


def _says_the_same(dest: str, now: Found, content: str, meaning: Meaning | None) -> bool:
    if now.sha256 == hashlib.sha256(_bytes(content)).hexdigest():
        return True
    if meaning is None:
        return False
    text = host.get_fact(FileText, path=dest)
    return text is not None and config_diff.same(text, content, meaning)


def _correct(dest: str, now: Found, *, mode: str, user: str | None, group: str | None) -> Commands:
    """Yields commands that change mode and owners only."""
    quoted, owners = shlex.quote(dest), _owners(user, group)
    found = _owners(now.user if user else None, now.group if group else None)
    if now.locked and (owners != found or now.mode != mode.lstrip("0")):
        _refuse_locked(dest, now)
    if owners != found:
        yield Harmless(f"chown {owners} -- {quoted}")
    if now.mode != mode.lstrip("0") or owners != found:  # chown clears the set-user-id bit
        yield Harmless(f"chmod {mode} -- {quoted}")
    if owners == found and now.mode == mode.lstrip("0"):
        host.noop(f"{dest} is as it should be")


def _owners(user: str | None, group: str | None) -> str:
    return f"{user or ''}:{group}" if group else user or ""


def _write(dest: str, content: str, *, mode: str, owners: str, validate: str | None) -> StringCommand:
    """One command. The text comes on standard input: no argument list that others can read holds it."""
    folder, name = posixpath.split(dest)
    begins, tried = shlex.quote(f"/.{name}.spillway-new."), validate and validate.format(path='"$t"')
    steps = [
        "set -eu; umask 022",
        f'd={shlex.quote(folder)}; [ -d "$d" ] || [ ! -L "$d" ] || rm -- "$d"; mkdir -p -- "$d"',
        f'rm -f -- "$d"{begins}* 2>/dev/null || true',  # of a run that was cut off
        f'umask 077; t=$(mktemp -- "$d"{begins}XXXXXXXXXX); trap \'rm -f -- "$t"\' EXIT',
        'base64 -d > "$t"',
        f'chown {owners} -- "$t"' if owners else "",
        f'chmod {mode} -- "$t"',
        f"{{ {tried}\n}} </dev/null >/dev/null" if tried else "",
        _keep(dest),
        'sync -- "$t"',
        f'mv -fT -- "$t" {shlex.quote(dest)}',
    ]
    lines = textwrap.wrap(base64.b64encode(_bytes(content)).decode(), 4096) or [""]
    return StringCommand("\n".join(step for step in steps if step), _stdin=lines)


def _bytes(content: str) -> bytes:
    """Encodes also what is no UTF-8, as :class:`FileText` reads it."""
    return content.encode(errors="surrogateescape")


def _keep(dest: str) -> str:
    """Copy what lies there now, unless an earlier change of the same rollout has kept it."""
    return textwrap.dedent(f"""\
        k={shlex.quote(kept_at(host.data))}; f={shlex.quote(dest)}
        mkdir -p -m 700 "$k"; touch "$k/absent"
        if [ ! -e "$f" ] && [ ! -L "$f" ]; then grep -qxF -- "$f" "$k/absent" || echo "$f" >> "$k/absent"
        elif [ ! -e "$k/files$f" ] && [ ! -L "$k/files$f" ] && ! grep -qxF -- "$f" "$k/absent"; then
          mkdir -p -- "$(dirname -- "$k/files$f")"
          cp -a -- "$f" "$k/files$f.part"; mv -T -- "$k/files$f.part" "$k/files$f"
        fi""")


def _text_of(dest: str, now: Found | None) -> str:
    if now is None or not now.is_file:
        return ""
    text = host.get_fact(FileText, path=dest)
    return "(larger than a mebibyte)\n" if text is None else text


_EVERYBODYS: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - where no file of a role belongs
_WAY: Final = strangers(["$d"]).replace("'$d'", '"$d"')
"""Of the folder in the shell's variable ``d``."""
STAYS: Final = "stays as it is:"
"""Behind the name of a file that is not put back."""
_ROOTS: Final = f"""\
roots() {{
  d=$(dirname -- "$1"); s=$({_WAY})
  [ -z "$s" ] || {{ echo "$1 {STAYS} others than root may change the way there: $s" >&2; false; }}
}}"""
_RESTORE: Final = """\
[ -d $k ] || exit 0
if [ -d $k/files ]; then
  cd $k/files
  find . ! -type d | sed 's/^\\.//' | while IFS= read -r f; do
    roots "$f" || continue
    mkdir -p "$(dirname "$f")"; rm -rf -- "$f.spillway-back"
    cp -a "$k/files$f" "$f.spillway-back"; mv -fT "$f.spillway-back" "$f"; echo "$f"
  done
fi
if [ -f $k/absent ]; then
  while IFS= read -r f; do ! roots "$f" || { rm -rf -- "$f"; echo "$f"; }; done < $k/absent
fi
rm -rf $k/files $k/absent; rmdir $k 2>/dev/null || true"""


def fails_alone() -> None:
    """Have the failure of the current operation end nothing but itself: what failed is another account's alone."""
    host.connector_data.setdefault("alone", set()).add(host.current_op_hash)


def told(text: str) -> None:
    """Leave what an operation changes, in words or as a diff, where the plan finds it: with it, on the host."""
    host.connector_data.setdefault("diffs", {})[host.current_op_hash] = text


def _record_diff(dest: str, before: str, after: str, *, secret: bool) -> None:
    told(f"{dest}: (not shown: secret)" if secret else config_diff.difference(dest, before, after))
