"""What an inventory does not declare of accounts, groups, sudo and keys is told, and can be told no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from roles.checks.access import SCRIPT, access_findings
from roles.checks.findings import unreachable
from roles.settings.machine import MachineSettings, key_in
from tests.test_roles.sandbox import KEY, Sandbox

OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOkVFQMBm3KdfHdED88KlspCObjlgpANiOmFnnt0vaZm"
BY_HAND = f"""\
useradd -m bob; useradd -m -s /usr/sbin/nologin robot; groupadd -f docker; usermod -aG docker ada
useradd -o -u 0 -m toor; useradd -m -g docker carol
mkdir -p /etc/sudoers.d /root/.ssh; printf 'root ALL=(ALL:ALL) ALL\\n%%sudo ALL=(ALL:ALL) ALL\\n' > /etc/sudoers
printf '@includedir /etc/sudoers.d\\n#1001 ALL=(ALL) ALL\\n# words\\n' >> /etc/sudoers
echo 'bob ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/bob; echo 'x ALL=(ALL) ALL' > /etc/sudoers.d/passed.over
echo 'ada ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/spillway-ada
echo /opt/miner.so > /etc/ld.so.preload
printf '%s\\n' '{KEY}' 'from="10.0.0.1" {OTHER} theirs' '# a comment' > /root/.ssh/authorized_keys
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What a machine says on which all of this was done by hand."""
    with Sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox:
        plant = f"id ada >/dev/null 2>&1 || useradd -m ada\n{BY_HAND}(sh -c '{_quoted(SCRIPT)}') > /root/said"
        state = sandbox.run({"plant": plant, "place": [], "watch": ["/root/said"]})["after"]["/root/said"]
        yield ast.literal_eval(state[state.index(" b") + 1 :]).decode()


def _quoted(script: str) -> str:
    return script.replace("'", "'\\''")


def told(said: str, **settings: Any) -> dict[str, str]:
    """The findings by their checks."""
    given = {"name": "n", "address": "192.0.2.1", "users": [{"name": "ada", "keys": [KEY]}], **settings}
    found = access_findings("n", said, MachineSettings.model_validate(given), own_keys=[key_in(KEY)])
    assert {one.severity for one in found} <= {"warning"}
    return {one.check: one.found for one in found}


def test_a_library_that_every_program_loads_is_told() -> None:
    """As a miner of coins does it; none is there otherwise."""
    found = told("==spillway-access==\npreload /etc/ld.so.preload /opt/miner.so\n")
    assert found == {
        "preload": "libraries that every program loads, root's too: /etc/ld.so.preload names /opt/miner.so"
    }


def test_what_nobody_declared_is_told_by_name(said: str) -> None:
    """Accounts that can log in, groups that are as good as root, rules of sudo, and keys of root."""
    found = told(said)
    assert "bob (user id " in found["accounts"]
    assert "toor (user id 0)" in found["accounts"]
    assert not {"robot", "ada", "root"} & {*found["accounts"].split()}
    assert "ada is in docker" in found["groups"]
    assert "carol is in docker" in found["groups"]
    assert "/etc/sudoers.d/bob says 'bob ALL=(ALL) NOPASSWD: ALL'" in found["sudo"]
    assert "'#1001 ALL=(ALL) ALL'" in found["sudo"]
    assert "passed.over" not in found["sudo"]
    assert "%sudo" not in found["sudo"]
    assert "theirs" in found["root-keys"]
    assert found["root-keys"].count("lets in") == 1


def test_what_is_declared_is_not_told(said: str) -> None:
    """Nor anything where the switch is off, or where the inventory has no accounts at all."""
    users = [{"name": name, "keys": [KEY], "groups": ["docker"]} for name in ("ada", "bob", "carol")]
    found = told(said, users=users)
    assert not {"ada", "bob", "carol"} & {*found.get("groups", "").split()}
    assert "bob" not in found["accounts"]
    assert told(said, undeclared="ignored") == {}
    assert told(said, users=[]) == {}


def test_a_machine_whose_host_key_nobody_wrote_down_is_told_with_the_way() -> None:
    """As pyinfra says it."""
    found = unreachable("n", "StrictPolicy: No host key for 192.0.2.1 found in known_hosts")
    assert "ssh.host_key" in found.remedy
    assert "--accept-new-host-keys" in found.remedy


@pytest.mark.parametrize("line", ["!authenticate", ":bob ! env_reset", ' env_keep += "LD_PRELOAD"', " setenv"])
def test_defaults_that_make_root_of_whoever_is_not_are_told(line: str) -> None:
    """Wherever they stand; those that a distribution has are not."""
    assert "sudo" in told(f"==spillway-access==\nsudoers /etc/sudoers Defaults {line}\n")
    usual = "".join(f"sudoers /etc/sudoers Defaults {one}\n" for one in ("env_reset", "use_pty", 'secure_path="/bin"'))
    assert told(f"==spillway-access==\n{usual}") == {}
