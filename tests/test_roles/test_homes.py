"""Accounts against the root that keeps them: whatever an account puts into its home, root's files stay root's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.test_roles.sandbox import Sandbox

KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS ada"
ADA: Final = {"name": "ada", "keys": [KEY]}
FRESH: Final = """\
chattr -R -f -i -a /home/ada /root/victim 2>/dev/null || :
rm -rf /home/ada /root/victim; useradd ada 2>/dev/null || :; install -d -o ada -g ada /home/ada; chmod 755 /root
install -d -m 700 /root/victim; echo secret > /root/victim/file; chmod 600 /root/victim/file
install -d -m 700 -o ada -g ada /home/ada/.ssh
"""
VICTIMS: Final = ("/root/victim", "/root/victim/file")
DONE: Final = {"/home/ada/.ssh": "directory ada:ada 700", "/home/ada/.ssh/authorized_keys": "regular file ada:ada 600"}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One for all tests here: each makes its accounts afresh."""
    with Sandbox(tmp_path_factory.mktemp("sandbox")) as made:
        yield made


def test_a_home_whose_folder_of_keys_is_a_link_hands_over_no_folder_of_roots(sandbox: Sandbox) -> None:
    """`install -d -o ada ~/.ssh` made root's folder ada's, with her keys in it."""
    plant = f"{FRESH} rmdir /home/ada/.ssh; ln -s /root/victim /home/ada/.ssh"
    found = sandbox.run({"plant": plant, "users": [ADA], "watch": [*VICTIMS, *DONE]})
    assert {path: found["after"][path] for path in VICTIMS} == {path: found["before"][path] for path in VICTIMS}
    assert [found["after"][path].startswith(state) for path, state in DONE.items()] == [True, True]
    assert (found["failed"], found["again"], found["still_refused"]) == ("", [], {})


def test_a_link_where_the_new_file_is_written_hands_over_no_file_of_roots(sandbox: Sandbox) -> None:
    """The new file had a name that was known before: root wrote through the link there, and gave the file to ada."""
    plant = f"""{FRESH} echo junk > /home/ada/.ssh/authorized_keys; chown ada: /home/ada/.ssh/authorized_keys
    ln -s /root/victim/file /home/ada/.ssh/.authorized_keys.spillway-new"""
    found = sandbox.run({"plant": plant, "users": [ADA], "watch": [*VICTIMS, *DONE]})
    assert {path: found["after"][path] for path in VICTIMS} == {path: found["before"][path] for path in VICTIMS}
    assert KEY in found["after"]["/home/ada/.ssh/authorized_keys"]
    assert (found["failed"], found["again"], found["still_refused"]) == ("", [], {})
