"""Whether two texts of a configuration file mean the same to the program that reads it, and how they differ.

Each kind of file has a reader of its own: what is a comment in one is a rule in another. Where a reader is in doubt it
keeps the line, so that a doubtful file is a difference. A character that cannot be seen is a difference in every kind.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

from roles.facts.kernel import setting_path

Meaning: TypeAlias = Literal[
    "apt.conf",
    "authorized_keys",
    "chrony",
    "deb822",
    "hostname",
    "ini",
    "json",
    "limits",
    "logrotate",
    "mig-layout",
    "modprobe",
    "modules-load",
    "rsyslog",
    "sshd",
    "sudoers",
    "sysctl",
    "toml",
]
"""The kinds of files that may say the same in other words. A file of any other kind is compared byte for byte."""


def same(current: str, wanted: str, meaning: Meaning) -> bool:
    """Whether ``current`` means what ``wanted`` says. A current text that does not parse means something else.

    Raises ``ValueError`` where ``wanted`` itself does not parse: that is a mistake in the role.
    """
    read = _READERS[meaning]
    target = read(wanted)
    if _unseen(current) != _unseen(wanted):
        return False
    try:
        return bool(read(current) == target)
    except ValueError:
        return False


def difference(dest: str, before: str, after: str) -> str:
    """Both texts as `diff -u` shows them, without a character that cannot be seen: no two lines look the same."""
    lines = difflib.unified_diff(_shown(before), _shown(after), f"{dest} (now)", dest, lineterm="")
    return "\n".join(lines)


def visible(line: str) -> str:
    r"""A line with ``\r``, ``\t`` and, as in ``<U+FEFF>``, whatever else is not plainly to be seen; ASCII alone.

    A byte that is no UTF-8 is one such, as in ``<byte E9>``.
    """
    return _NOT_PLAIN.sub(lambda found: _NAMES.get(found[0]) or _named(found[0]), line)


def _named(one: str) -> str:
    number = ord(one)
    return f"<byte {number - 0xDC00:02X}>" if 0xDC80 <= number <= 0xDCFF else f"<U+{number:04X}>"  # noqa: PLR2004 - surrogateescape


def _shown(text: str) -> list[str]:
    lines = [visible(line) for line in text.split("\n")]
    return [*lines[:-1], *([lines[-1], r"\ No newline at end of file"] if lines[-1] else [])]


_NOT_PLAIN: Final = re.compile(r"[^ -~]|^\\|\\(?=[rt])|<(?=U\+|byte )| (?= *$)")
"""Also what would look like one of the signs that stand for such a character."""
_NAMES: Final = {"\r": r"\r", "\t": r"\t"}


def _unseen(text: str) -> list[str]:
    """The control, format and separating characters but for newline, tab and blank, in order."""
    return [one for one in text if one not in "\n\t " and unicodedata.category(one)[0] in "CZ"]


def _said(text: str, comment: str) -> list[str]:
    """The lines that say something, where a comment is a whole line that the pattern matches from its first word on.

    A line that ends in a backslash may go on in the next one, whatever the two are: both are kept.
    """
    found, goes_on = [], False
    for line in text.split("\n"):
        bare = line.strip(" \t")
        kept = goes_on or (bare and not re.match(comment, bare)) or bare.endswith("\\")
        found += [line.lstrip(" \t") if bare.endswith("\\") else bare] if kept else []
        goes_on = bare.endswith("\\")
    return found


def _lines(comment: str) -> Callable[[str], list[str]]:
    return lambda text: _said(text, comment)


def _words(comment: str) -> Callable[[str], list[list[str]]]:
    return lambda text: [line.split() for line in _said(text, comment)]


def _limits(text: str) -> list[list[str]]:
    """limits.conf(5): a comment may follow on the same line."""
    return [words for line in _said(text, "#") if (words := line.partition("#")[0].split())]


def _mig_layout(text: str) -> list[list[str]]:
    """The shell's ``read`` passes over a last line that has no end."""
    if text and not text.endswith("\n"):
        raise ValueError("the last line has no end")
    return _words("#")(text)


def _deb822(text: str) -> list[list[str]]:
    """Stanzas of fields: an empty line parts them, and a line with a blank before it goes on with the one above."""
    lines = [line.rstrip(" \t") or line for line in text.split("\n") if not line.startswith("#")]
    fields = [re.sub(r"^([^\s:]+:)[ \t]*", r"\1 ", line) for line in lines]
    stanzas = [one.strip("\n").split("\n") for one in "\n".join(fields).split("\n\n")]
    return [one for one in stanzas if one != [""]]


def _sysctl(text: str) -> list[tuple[str, str]]:
    """Every assignment, so that a line written twice is seen. A later one wins: order counts per key."""
    named = [(setting_path(key.strip().lstrip("-").strip()), " ".join(value.split())) for key, value in _assigned(text)]
    return sorted(named, key=lambda pair: pair[0])


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    for line in _said(text, "[#;]"):
        key, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"no assignment: {line!r}")
        yield key, value


def _ini(text: str) -> list[tuple[str, str]]:
    """Sections and assignments in order: systemd lets a key stand more than once, and an empty one resets."""
    section, found = "", []
    for line in "\n".join(_said(text, "[#;]")).replace("\\\n", " ").split("\n"):
        if line.startswith("[") and line.endswith("]"):
            section = line
            continue
        key, equals, value = line.partition("=")
        if line and not equals:
            raise ValueError(f"no assignment: {line!r}")
        found.append((f"{section}{key.strip()}", value.strip()))
    return found


def _json(text: str) -> str:
    """``true`` is not 1. Of a name that is said twice some readers take the last, and some merge both: an error."""
    return _typed(json.loads(text, object_pairs_hook=_once))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is said twice")
    return dict(pairs)


def _toml(text: str) -> str:
    return _typed(tomllib.loads(text))


def _typed(value: Any) -> str:
    """Python holds ``true``, 1 and 1.0 for the same, and no program that reads a configuration does."""
    return json.dumps(value, sort_keys=True, default=repr)


_READERS: Final[dict[Meaning, Callable[[str], Any]]] = {
    "apt.conf": _lines(r"//|#(\s|$)"),  # "#clear" and "#include" are none
    "authorized_keys": _lines("#"),
    "chrony": _lines("[#;!%]"),
    "deb822": _deb822,
    "hostname": _lines("#"),
    "ini": _ini,
    "json": _json,
    "limits": _limits,
    "logrotate": _lines("#"),
    "mig-layout": _mig_layout,
    "modprobe": _words("#"),
    "modules-load": _lines("[#;]"),
    "rsyslog": _lines("#"),
    "sshd": _lines("#"),
    "sudoers": _lines(r"#(\s|#|$)"),  # "#1234 ALL=(ALL) ALL" is a rule, "#include" a directive
    "sysctl": _sysctl,
    "toml": _toml,
}
