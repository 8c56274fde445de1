"""Whatever lies in the way at a path that the roles touch: root's other files stay as they are, and nothing hangs.

The roles run for real, as root, in a copy of this machine (:mod:`tests.test_roles.sandbox`), against links, hard links,
pipes, devices, folders and immutable bits. The paths of the machine are those that a real plan of a node asks about.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roles.facts import homes
from tests import examples
from tests.test_roles.sandbox import KEY, Sandbox, whole_node

HOME: Final = "/srv/open/ada"
"""Below a folder that others may write."""
AT_HOME: Final = (
    *(posixpath.normpath(f"{HOME}/{path}") for path in (homes.HOME, homes.FOLDER, homes.KEYS, homes.OTHER_KEYS)),
    f"{HOME}/.ssh/.authorized_keys.spillway-new",
    f"{HOME}/.ssh/authorized_keys.spillway-back",
)
OBSTACLES: Final = {
    "nothing": ":",
    "a file": "echo junk > {at}; chown ada: {at}",
    "a link to root's file": "ln -sT /root/victim/file {at}; chown -h ada: {at}",
    "a link to root's folder": "ln -sT /root/victim {at}; chown -h ada: {at}",
    "a link to nothing": "ln -sT /root/victim/new {at}; chown -h ada: {at}",
    "a link to itself": "ln -sT {at} {at}; chown -h ada: {at}",
    "a name of root's file": "ln -T /root/victim/file {at}",
    "a pipe": "mkfifo {at}; chown ada: {at}",
    "a device": "mknod {at} c 1 8; chown ada: {at}",
    "a folder": "mkdir {at}; touch {at}/within; chown -R ada: {at}",
    "a folder of root's": "mkdir -m 700 {at}; touch {at}/within",
    "an immutable file": "echo junk > {at}; chown ada: {at}; chattr +i {at}",
    "an immutable folder": "mkdir {at}; chown ada: {at}; chattr +i {at}",
}
BESIDE: Final = (
    *("{folder}/{name}", "{folder}/.{name}.spillway-new.0123456789"),
    *("{folder}/.{name}.part", "{folder}/{name}.spillway-back"),
)
"""A path, and where a new file has been, or could be, on its way there."""
GROUNDS: Final = {
    "root's": ":",
    "another account's": "chown ada {folder}",
    "everybody's": "chmod 777 {folder}",
    "sticky": "chmod 1777 {folder}",
    "below another account's": "chown ada {above}",
    "immutable": "chattr +i {folder}",
}
VICTIM: Final = """\
chattr -i /root/victim/file 2>/dev/null || :; rm -rf /root/victim; install -d -m 700 /root/victim /var/lib/spillway
echo secret > /root/victim/file; chmod 600 /root/victim/file
id ada >/dev/null 2>&1 || useradd -M -s /bin/bash -d /srv/open/ada ada
"""


@dataclass(frozen=True)
class Copy:
    """A copy of this machine, and the paths of it that a plan of a node is about."""

    sandbox: Sandbox = field(repr=False)
    paths: tuple[str, ...] = field(repr=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """One for all tests here, which clears away what it planted."""
    folder = tmp_path_factory.mktemp("obstacles")
    node = whole_node(folder)
    with Sandbox(folder / "sandbox") as sandbox:
        asked = sandbox.run({"node": node})["paths"]
        files = (one for one in asked if not any(other.startswith(f"{one}/") for other in asked))
        yield Copy(sandbox, tuple(one for one in files if not one.startswith("/run/")))  # of its own for each test


def test_the_paths_are_those_of_a_whole_node(copy: Copy) -> None:
    """They come from a plan: of packages, kernel, accounts, containers, GPUs, network, logs, health and kubelet."""
    assert len(copy.paths) > 40
    known = ("/etc/sudoers.d/spillway-ada", "/etc/containerd/config.toml", "/usr/local/sbin/spillway-node-health")
    assert {*known} <= {*copy.paths}


@settings(max_examples=examples(40))
@given(planted=st.dictionaries(st.sampled_from(AT_HOME), st.sampled_from(sorted(OBSTACLES)), min_size=1, max_size=3))
def test_an_account_cannot_lead_root_out_of_its_home(copy: Copy, planted: Mapping[str, str]) -> None:
    """Its keys become the declared ones, or the plan says what is in the way; either costs no other step."""
    copy.sandbox.plant("\n".join((*_fresh_home(), *(_obstacle(at, planted[at]) for at in AT_HOME if at in planted))))
    before = copy.sandbox.written(f"{HOME}/")
    found = copy.sandbox.run({"users": [{"name": "ada", "keys": [KEY]}], "watch": [f"{HOME}/.ssh/authorized_keys"]})
    assert copy.sandbox.written(f"{HOME}/") == before
    assert "secret" not in repr([found["diffs"], found["said"], found["refused"]])
    assert (found["unknown"], found["failed"], found["again"]) == ("", "", [])
    (state,) = found["after"].values()
    assert KEY in state or any("/srv/open" in reason for reason in found["still_refused"].values())


@settings(max_examples=examples(60))
@given(
    number=st.integers(0, 999),
    ground=st.sampled_from(sorted(GROUNDS)),
    kinds=st.dictionaries(st.sampled_from(BESIDE), st.sampled_from(sorted(OBSTACLES)), max_size=2),
)
@example(number=0, ground="another account's", kinds={"{folder}/{name}": "a name of root's file"})
@example(number=0, ground="another account's", kinds={"{folder}/.{name}.spillway-new.0123456789": "an immutable file"})
@example(number=0, ground="below another account's", kinds={})
def test_what_lies_at_a_path_of_the_machine_leads_root_nowhere(
    copy: Copy, number: int, ground: str, kinds: Mapping[str, str]
) -> None:
    """The file is root's and as it should be, or the plan says why it is not; nothing beside it changed."""
    path = copy.paths[number % len(copy.paths)]
    folder, name = posixpath.split(path)
    beside = [one.format(folder=folder, name=name) for one in BESIDE]
    planted = {one.format(folder=folder, name=name): kind for one, kind in kinds.items()}
    words = {"folder": shlex.quote(folder), "above": shlex.quote(posixpath.dirname(folder))}
    here = [f"mkdir -p {words['folder']}", *(_obstacle(at, planted.get(at, "nothing")) for at in beside)]
    copy.sandbox.plant("\n".join((VICTIM, *here, GROUNDS[ground].format(**words))))
    own = (*(f"{one}/" for one in beside), "/var/lib/spillway/")
    before = copy.sandbox.written(*own)
    found = copy.sandbox.run({"place": [path], "watch": [path, beside[1]]})
    after = copy.sandbox.written(*own)
    copy.sandbox.plant("\n".join(_cleared(folder, beside)))
    assert {**after, folder: ""} == {**before, folder: ""}
    assert (found["unknown"], found["failed"], found["again"]) == ("", "", [])
    assert "secret" not in repr([found["diffs"], found["said"], found["refused"]])
    is_ours = found["after"][path] == "regular file root:root 644 b'ours\\n'"
    assert is_ours or any(path in reason or folder in reason for reason in found["still_refused"].values())


def _cleared(folder: str, beside: Sequence[str]) -> Iterator[str]:
    for one in map(shlex.quote, (folder, *beside)):
        yield f"chattr -i {one} 2>/dev/null || :"
    for one in map(shlex.quote, (folder, posixpath.dirname(folder))):
        yield f"chown root {one}; chmod 755 {one}"
    yield f"rm -rf {' '.join(map(shlex.quote, beside))}"


def _fresh_home() -> Iterator[str]:
    yield VICTIM
    yield f"chattr -R -f -i {HOME} || :; rm -rf {HOME}; mkdir -p /srv/open; chmod 777 /srv/open"
    yield f"install -d -o ada -g ada {HOME}; install -d -m 700 -o ada -g ada {HOME}/.ssh"


def _obstacle(at: str, kind: str) -> str:
    """Planted where its folder can still be written."""
    quoted = shlex.quote(at)
    plant = OBSTACLES[kind].format(at=quoted)
    return f"chattr -i {quoted} 2>/dev/null || :; (set -e; rm -rf {quoted}; {plant}) 2>/dev/null || :"
