"""sshd's files as it reads them: included ones, Match blocks, and every way to write a line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from roles.facts.sshd import KEYS_FROM, PASSWORDS, Line, SshdLines

INCLUDE = "Include {folder}/sshd_config.d/*.conf\n"


def lines(folder: Path, **files: str) -> list[Line]:
    """What the fact finds where these files lie: ``main``, and others beside it in sshd_config.d."""
    (folder / "sshd_config.d").mkdir()
    for name, text in files.items():
        place = folder / ("sshd_config" if name == "main" else f"sshd_config.d/{name}.conf")
        place.write_text(text.format(folder=folder), encoding="utf-8")
    shell = SshdLines().command().get_raw_value().replace("/etc/ssh/", f"{folder}/")
    said = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True, timeout=10)
    assert said.stderr == ""
    return SshdLines().process(said.stdout.splitlines())


def lax(found: list[Line]) -> list[tuple[str, str]]:
    """The lines by which passwords come in: the file's name, and the block."""
    return [(Path(one.path).name, one.block) for one in found if one.key in PASSWORDS and one.lets_in]


@pytest.mark.parametrize(
    "line",
    [
        "PasswordAuthentication yes",
        "  passwordauthentication=yes",
        '"PasswordAuthentication" "yes"',
        "PasswordAuthentication\tYES  # for a while",
        "KbdInteractiveAuthentication yes",
        "ChallengeResponseAuthentication = yes",
    ],
)
def test_a_password_that_a_match_block_lets_in_is_seen(tmp_path: Path, line: str) -> None:
    """`sshd -T` says nothing of it: it asks about nobody in particular."""
    found = lines(tmp_path, main=f"{INCLUDE}PasswordAuthentication no\nMatch User bob\n{line}\n")
    assert lax(found) == [("sshd_config", "Match User bob")]


def test_a_block_ends_with_its_file_and_goes_on_in_what_it_includes(tmp_path: Path) -> None:
    """As sshd has it: the next file of a folder begins outside of any block."""
    found = lines(
        tmp_path,
        main="Match Address 10.0.0.0/8\nInclude sshd_config.d/[ab].conf\nMatch all\nPasswordAuthentication yes\n",
        a="match group lab\nPasswordAuthentication yes\n",
        b="PasswordAuthentication yes\n",
        c="PasswordAuthentication yes\n",
    )
    assert lax(found) == [
        ("a.conf", "match group lab"),
        ("b.conf", "Match Address 10.0.0.0/8"),
        ("sshd_config", "Match all"),
    ]


def test_what_refuses_and_what_is_commented_out_is_not_told(tmp_path: Path) -> None:
    """A block may be stricter than the rest."""
    assert lax(lines(tmp_path, main='Match User a\nPasswordAuthentication "no"\n#PasswordAuthentication yes\n')) == []


def test_files_that_include_each_other_come_to_an_end(tmp_path: Path) -> None:
    """Sshd refuses them; the look goes on."""
    assert len(lines(tmp_path, main=INCLUDE, a=f"{INCLUDE}PasswordAuthentication yes\n")) < 10


def test_keys_from_elsewhere_are_seen_and_the_default_is_none(tmp_path: Path) -> None:
    """In so many words."""
    found = lines(
        tmp_path,
        main=f"{INCLUDE}AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys2\nAuthorizedKeysCommand none\n",
        a="Match User ada\nauthorizedkeysfile /etc/keys/%u\n",
    )
    (one,) = [line for line in found if line.key in KEYS_FROM and not line.is_default]
    assert str(one) == f"{tmp_path}/sshd_config.d/a.conf says 'authorizedkeysfile /etc/keys/%u' under 'Match User ada'"


@pytest.mark.parametrize(
    ("line", "kept_out"),
    [
        ("DenyUsers bob ad?@10.0.0.0/8", True),
        ("DenyUsers bob", False),
        ("AllowUsers root", True),
        ("AllowUsers root a*", False),
        ("AllowGroups wheel", True),
        ("AllowGroups wheel users", False),
        ("DenyGroups users", True),
        ("PubkeyAuthentication no", True),
        ("PubkeyAuthentication yes", False),
        ("AuthenticationMethods publickey,password", True),
        ("AuthenticationMethods publickey,password publickey", False),
    ],
)
def test_a_line_that_keeps_an_account_out_is_seen(tmp_path: Path, line: str, *, kept_out: bool) -> None:
    """By name, by group, or since no key is enough."""
    (found,) = lines(tmp_path, main=f"{line}\n")
    assert found.keeps_out("ada", {"ada", "users"}) is kept_out
