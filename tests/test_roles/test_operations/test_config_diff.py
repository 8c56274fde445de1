"""Texts of configuration files compared as their readers take them, and differences that can be seen."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.operations.config_diff import Meaning, difference, same, visible

SUDOERS = "ada ALL=(ALL) NOPASSWD:ALL\n"
LAYOUT = "0 1g.5gb,1g.5gb\n1 off\n"
PIN = "Package: a\nPin: version 1\nPin-Priority: 1001\n\nPackage: b\nPin: version 2\nPin-Priority: 1001\n"
LIST = 'A::List {\n  "x";\n};\n'
UNSEEN = ("\r", "\ufeff", "\u200b", "\u00a0", "\u2028", "\x0b", "\x0c", "\x85", "\x1b", "\u202e", "\u00ad")
RULES = (
    "#1234 ALL=(ALL) NOPASSWD: ALL\n",
    "#include /etc/evil\n",
    "#includedir /evil\n",
    "@include x\n",
    "%#4 ALL=ALL\n",
)


@pytest.mark.parametrize(
    ("kind", "wanted", "current"),
    [
        ("apt.conf", LIST, '// by hand\nA::List {\n# more\n\n"x";\n};'),
        ("authorized_keys", "ssh-ed25519 AAAA ada\n", "# of ada\n\n  ssh-ed25519 AAAA ada"),
        ("chrony", "rtcsync\n", "! c\n# c\n% c\n; c\nrtcsync"),
        ("deb822", PIN, "# by hand\n\n" + PIN.replace("\n\n", "\n\n\n").replace("Pin: ", "Pin:  ")),
        ("hostname", "a\n", "# name\na"),
        ("ini", "[U]\nAfter=a b\n[S]\nExec=/x\n", "# c\n; c\n[U]\nAfter = a b\n\n[S]\nExec=/x"),
        ("json", '{"a": 1, "b": [true]}', '{"b": [true],\n "a": 1}'),
        ("limits", "* - nofile 9\n", "# c\n*\t-  nofile 9 # many"),
        ("logrotate", "/a {\n  daily\n}\n", "# c\n/a {\ndaily\n\n}"),
        ("mig-layout", LAYOUT, "# c\n0  1g.5gb,1g.5gb\n\n1\toff\n"),
        ("modprobe", "blacklist nouveau\n", "# c\n blacklist\tnouveau"),
        ("modules-load", "overlay\n", "; c\n# c\n overlay "),
        ("rsyslog", "global()\n", "# c\nglobal()"),
        ("sshd", "PasswordAuthentication no\n", "#PasswordAuthentication yes\nPasswordAuthentication no"),
        ("sudoers", SUDOERS, f"# by hand\n##\n#\n\n  {SUDOERS}"),
        ("sysctl", "net.ipv4.ip_forward = 1\n", "# on\n; on\nnet/ipv4/ip_forward=1"),
        ("sysctl", "net.ipv4.conf.eth0/1.rp_filter = 1\n", "net/ipv4/conf/eth0.1/rp_filter = 1\n"),
        ("toml", 'a = 1\n[b]\nc = "x"\n', '# by a tool\na=1\n\n[b]\n  c = "x"'),
    ],
)
def test_the_same_in_other_words(kind: Meaning, wanted: str, current: str) -> None:
    """What the reader of such a file passes over is no difference, but for what cannot be seen."""
    assert same(current, wanted, kind)
    for unseen in UNSEEN:
        assert not same(f"{unseen}{current}", wanted, kind)
        assert not same(f"{current}{unseen}", wanted, kind)
    assert not same(current.replace("\n", "\r\n"), wanted, kind)


def test_every_kind_is_tried() -> None:
    """No kind of file is without a case above."""
    (cases,) = (mark.args[1] for mark in test_the_same_in_other_words.pytestmark)  # type: ignore[attr-defined]
    assert {case[0] for case in cases} == {*get_args(Meaning)}


@pytest.mark.parametrize(
    ("kind", "wanted", "current"),
    [
        ("apt.conf", LIST, f"{LIST}#clear A::List;\n"),
        ("apt.conf", LIST, f"{LIST}#include x;\n"),
        ("apt.conf", LIST, f"/*\n{LIST}*/\n"),
        ("apt.conf", LIST, f"; x\n{LIST}"),
        ("authorized_keys", "ssh-ed25519 AAAA ada\n", "; x\nssh-ed25519 AAAA ada\n"),
        ("deb822", PIN, PIN.replace("\n\n", "\n")),  # one stanza
        ("deb822", PIN, PIN.replace("\n\n", "\n \n")),  # one stanza
        ("deb822", PIN, PIN.replace("version 1\n", "version 1\n 2\n")),
        ("deb822", PIN, PIN.replace("Pin:", " #Pin:")),
        ("hostname", "a\n", "b\na\n"),
        ("hostname", "a\n", ";b\na\n"),
        ("ini", "[S]\nExec=/x\n", "[S]\nExec=/x\n[S]\nExec=/y\n"),
        ("ini", "[S]\nExec=/x\n", "[S]\n# c \\\nExec=/y\nExec=/x\n"),  # a comment does not go on
        ("ini", "[S]\nExec=/x\n", "[S]\nnonsense\nExec=/x\n"),
        ("json", '{"a": true}', '{"a": 1}'),
        ("json", '{"a": {"b": 1}}', '{"a": {"c": 2}, "a": {"b": 1}}'),  # Go merges them
        ("limits", "* - nofile 9\n", "* - nofile 9\n; x\n"),
        ("limits", "* - nofile 9\n", "* - nofile #9\n"),
        ("logrotate", "/a {\n}\n", "/a {\n; x\n}\n"),
        ("mig-layout", LAYOUT, LAYOUT.removesuffix("\n")),  # the shell passes over the last line
        ("mig-layout", LAYOUT, f"{LAYOUT}; x\n"),
        ("modprobe", "blacklist nouveau\n", "# c \\\nblacklist nouveau\n"),  # the comment goes on
        ("modprobe", "blacklist nouveau\n", "blacklist nouveau\n;x\n"),
        ("modules-load", "a\nb\n", "b\na\n"),
        ("modules-load", "a\n", "# c \\\na\n"),
        ("rsyslog", "global()\n", "global()\n; x\n"),
        ("sshd", "PasswordAuthentication no\n", "; x\nPasswordAuthentication no\n"),
        ("sudoers", SUDOERS, f"# c \\\n{SUDOERS}"),
        ("sysctl", "a = 1\n", "a = 1\na = 1\n"),
        ("sysctl", "a = 2\na = 1\n", "a = 1\na = 2\n"),  # the later one wins
        ("sysctl", "a.b/c = 1\n", "a.b.c = 1\n"),
        ("toml", "a = 1\n", "a = 1\na = 2\n"),  # does not parse
        ("toml", "a = 1\n", "a = 1.0\n"),
        ("toml", "a = true\n", "a = 1\n"),
    ],
)
def test_what_means_something_else(kind: Meaning, wanted: str, current: str) -> None:
    """Doubles, order, broken files, and comments of another grammar are drift."""
    assert not same(current, wanted, kind)


@given(st.sampled_from((*UNSEEN, *RULES)), st.integers(0, len(SUDOERS)), st.sampled_from(("", "# by hand\n")))
def test_nothing_slips_into_a_sudoers_file(more: str, at: int, before: str) -> None:
    """A rule on a line of its own, a character that cannot be seen anywhere: a difference, and one that is seen."""
    at = at if more in UNSEEN else len(SUDOERS) * (at % 2)
    now = f"{before}{SUDOERS[:at]}{more}{SUDOERS[at:]}"
    assert not same(now, SUDOERS, "sudoers")
    assert is_seen(now, SUDOERS)


PIECES = (
    "a",
    "\n",
    "\r",
    "\t",
    " ",
    "\\",
    "r",
    "<",
    "U+000D>",
    "\u00a0",
    "\u2028",
    "\u0435",
    "\\ No newline at end of file",
)


@given(*[st.lists(st.sampled_from(PIECES)).map("".join)] * 2)
def test_a_difference_is_seen(now: str, wanted: str) -> None:
    """Texts that differ have a diff, in which no two lines look the same."""
    assert is_seen(now, wanted) == (now != wanted)


def test_what_a_diff_shows() -> None:
    """The carriage return, the mark of byte order, and the missing end of the last line."""
    shown = difference("/etc/x", "\ufeffa\r\nb", "a\nb\n").split("\n")
    assert shown[3:] == [r"-<U+FEFF>a\r", "+a", " b", r"-\ No newline at end of file"]
    assert visible("a\\b  c\t ") == r"a\b  c\t<U+0020>"


def is_seen(now: str, wanted: str) -> bool:
    """Whether the diff has lines that differ, on a terminal that shows plain ASCII and no blanks at a line's end."""
    lines = difference("x", now, wanted).split("\n")[2:]
    old, new = ([line[1:].rstrip() for line in lines if line[:1] in f" {sign}"] for sign in "-+")
    assert all(line.isascii() and line.isprintable() for line in lines)
    return old != new
