"""Accounts against the root that keeps them: whatever an account puts into its home, root's files stay root's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from roles.adopt import _PROBES
from roles.deploys.health import health_script
from roles.settings.machine import MachineSettings
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
TRAPS: Final = (
    "ln -sT /root/victim node-exporter",
    "mkdir node-exporter; ln -sT /root/victim/file node-exporter/$prom",
)
BOB: Final = "/home/bob/.ssh/authorized_keys"
DONE: Final = {"/home/ada/.ssh": "directory ada:ada 700", "/home/ada/.ssh/authorized_keys": "regular file ada:ada 600"}


ENDED: Final = "kill -KILL $(cat /root/started)"
RACES: Final = 30
"""What asks an account lives for some milliseconds; on a busy machine what is to stop it often comes too late."""


def _started(script: str) -> str:
    """Shell that has ada run this, until it is ENDED."""
    return f"setpriv --reuid=ada --regid=ada --clear-groups sh -c {shlex.quote(script)} & echo $! > /root/started"


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


def test_an_account_that_stops_what_asks_it_costs_no_other_account_anything(sandbox: Sandbox) -> None:
    """Its processes may stop those that root starts as it; the look goes on without it, and says so."""
    stopper = "while :; do for p in $(pgrep -u ada -f '[a]uthorized_keys'); do kill -STOP $p; done; done"
    plant = f"{FRESH} useradd -m -s /bin/bash bob 2>/dev/null || :; {_started(stopper)}"
    reasons: list[str] = []
    for _ in range(RACES):
        found = sandbox.run({"plant": plant, "users": [ADA, {"name": "bob", "keys": [KEY]}], "watch": [BOB]})
        sandbox.plant(ENDED)
        assert KEY in found["after"][BOB]
        assert (found["unknown"], found["failed"]) == ("", "")
        reasons += found["refused"].values()
        if reasons:
            break
    (reason,) = reasons
    assert reason.startswith("/home/ada did not answer in time, asked as ada")


DEAD: Final = "mount -i -t fuse -o fd=9,rootmode=40755,user_id=0,group_id=0,allow_other dead /home/ada"
DISK: Final = "truncate -s 8M /root/disk; mkfs.ext4 -q /root/disk; mount -o loop /root/disk /home/ada"
HANGS: Final = {
    "a file server that never answers": (
        f"exec 9<>/dev/fuse; {DEAD}; sleep infinity & echo $! > /root/started",
        f"{ENDED}; umount -l /home/ada",
    ),
    "a file server that went away": (
        f"sh -c 'exec 9<>/dev/fuse; {DEAD}'",
        "umount -l /home/ada",
    ),
    "a disk that takes no writes": (
        f"{DISK}; install -d -m 700 -o ada /home/ada/.ssh; chown ada /home/ada; fsfreeze -f /home/ada",
        "fsfreeze -u /home/ada; umount -l /home/ada",
    ),
}
"""What an account's home lies on: shell that mounts it, and shell that takes it away again."""


@pytest.mark.parametrize("kind", HANGS)
def test_a_home_that_does_not_answer_costs_its_own_step_and_is_named(sandbox: Sandbox, kind: str) -> None:
    """Its look, or its writes, wait without an end: the machine was unknown as a whole, and no path was told."""
    if not all(Path(device).exists() for device in ("/dev/fuse", "/dev/loop-control")):
        pytest.skip("needs FUSE and loop devices")
    mount, unmount = HANGS[kind]
    sandbox.plant(f"{FRESH} useradd -m -s /bin/bash bob 2>/dev/null || :; rm -f /home/bob/.ssh/*; {mount}")
    try:
        found = sandbox.run({"users": [ADA, {"name": "bob", "keys": [KEY]}], "watch": [BOB], "write_seconds": 3})
    finally:
        sandbox.plant(unmount)
    assert KEY in found["after"][BOB]
    assert (found["unknown"], found["failed"]) == ("", "")
    told = [*found["refused"].values(), *found["said"]]
    assert ["/home/ada" in one for one in told] == [True]
    assert found["seconds"] < 120


def test_an_account_that_has_no_room_for_its_keys_costs_no_other_account_anything(sandbox: Sandbox) -> None:
    """Only the act itself can tell: it fails alone, and the next plan wants it again."""
    plant = f"{FRESH} useradd -m -s /bin/bash bob 2>/dev/null || :; mount -t tmpfs -o size=4k,mode=755 tmpfs /home/ada"
    full = "chown ada /home/ada; head -c 9999 /dev/zero > /home/ada/full 2>/dev/null || :; rm -f /home/bob/.ssh/*"
    users = [ADA, {"name": "bob", "keys": [KEY]}]
    found = sandbox.run({"plant": f"{plant}; {full}", "users": users, "watch": [BOB]})
    sandbox.plant("umount /home/ada")
    assert KEY in found["after"][BOB]
    assert (found["unknown"], found["failed"]) == ("", "")
    assert [name.rpartition(" | ")[2] for name in found["again"]] == ["the keys of account ada"]
    assert any(said.startswith("as ada, in /home/ada: ") and "No space left" in said for said in found["said"])


def test_an_account_that_changes_what_lies_there_all_the_time_leads_root_nowhere(sandbox: Sandbox) -> None:
    """Between any look and any act its folder of keys becomes a link to root's, and back."""
    swap = "mv -T .ssh own; ln -sT /root/victim .ssh; rm .ssh; mkdir own; mv -T own .ssh; rmdir own"
    plant = f"{FRESH} {_started(f'cd /home/ada; while :; do {swap}; done 2>/dev/null')}"
    found = [sandbox.run({"plant": first, "users": [ADA], "watch": [*VICTIMS]}) for first in (plant, *[":"] * 7)]
    sandbox.plant(ENDED)
    assert [one["after"] for one in found] == [found[0]["before"]] * len(found)
    assert [(one["unknown"], one["failed"]) for one in found] == [("", "")] * len(found)


@pytest.mark.parametrize("trap", ["ln -s /root/victim/file", "mkfifo"])
def test_adopting_a_machine_reads_no_file_of_roots_for_an_account(sandbox: Sandbox, trap: str) -> None:
    """Keys were read as root, through a link into the inventory, and a pipe was waited for without an end."""
    plant = f"""{FRESH} {trap} /home/ada/.ssh/authorized_keys; useradd -m -s /bin/bash bob 2>/dev/null || :
    install -d -o bob /home/bob/.ssh; echo '{KEY}' > /home/bob/.ssh/authorized_keys
    timeout 30 sh -c {shlex.quote(_PROBES["users"])} > /root/said"""
    (said,) = sandbox.run({"plant": plant, "watch": ["/root/said"]})["after"].values()
    assert f"bob /bin/bash {KEY}" in said
    assert "secret" not in said


@pytest.mark.parametrize("trap", TRAPS)
def test_metrics_of_health_are_led_nowhere_by_the_collectors_account(sandbox: Sandbox, trap: str) -> None:
    """Its folder may be its own: a link there had root write a file into any folder."""
    script = shlex.quote(health_script(MachineSettings(name="here", address="192.0.2.1")))
    folder = "/var/lib/prometheus"
    plant = f"""{FRESH} rm -rf {folder}; install -d -o ada {folder}; cd {folder}; prom=spillway_health.prom
    {trap}; chown -hR ada {folder}
    sh -c {script} >&2 || :"""
    found = sandbox.run({"plant": plant, "watch": [*VICTIMS, f"{folder}/node-exporter/spillway_health.prom"]})
    assert found["after"]["/root/victim"] == "directory root:root 700 ['file']"
    own = found["after"][f"{folder}/node-exporter/spillway_health.prom"]
    assert "spillway_node_healthy" in own or trap == "ln -sT /root/victim node-exporter"


def test_a_link_where_the_new_file_is_written_hands_over_no_file_of_roots(sandbox: Sandbox) -> None:
    """The new file had a name that was known before: root wrote through the link there, and gave the file to ada."""
    plant = f"""{FRESH} echo junk > /home/ada/.ssh/authorized_keys; chown ada: /home/ada/.ssh/authorized_keys
    ln -s /root/victim/file /home/ada/.ssh/.authorized_keys.spillway-new"""
    found = sandbox.run({"plant": plant, "users": [ADA], "watch": [*VICTIMS, *DONE]})
    assert {path: found["after"][path] for path in VICTIMS} == {path: found["before"][path] for path in VICTIMS}
    assert KEY in found["after"]["/home/ada/.ssh/authorized_keys"]
    assert (found["failed"], found["again"], found["still_refused"]) == ("", [], {})
