"""Files written whole: what is left when a candidate is no good, what is kept, what counts as the same."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import OperationError
from pyinfra.api.facts import FactBase
from pyinfra.api.inventory import Inventory
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops
from pyinfra.api.state import State, StateStage

from roles.facts.files import FileState, FolderLines
from roles.facts.packages import Unusable
from roles.operations import files, users
from tests.test_roles.sandbox import Sandbox

Run = Callable[..., bool]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run one operation on this machine, in a folder; gives whether it changed something."""

    def once(operation: object, *args: object, **kwargs: object) -> bool:
        inventory = Inventory((["@local"], {"state_directory": str(tmp_path / "state")}))
        state = State(inventory, Config(), check_for_changes=False)
        connect_all(state)
        done = add_op(state, operation, *args, **kwargs)
        state.set_stage(StateStage.Execute)
        state.is_executing = True
        try:
            run_ops(state)
        finally:
            state.is_executing = False
        (meta,) = done.values()
        return bool(meta.did_change())

    return once


OWNERS = {"user": None, "group": None}


def test_a_file_is_placed_once(run: Run, tmp_path: Path) -> None:
    """The second run finds it as it should be; nothing is left beside it."""
    path = tmp_path / "etc" / "thing.conf"
    assert run(files.place, str(path), "a = 1", mode="640", **OWNERS)
    assert path.read_text(encoding="utf-8") == "a = 1"
    assert path.stat().st_mode & 0o777 == 0o640
    assert not run(files.place, str(path), "a = 1", mode="640", **OWNERS)
    assert [one.name for one in path.parent.iterdir()] == ["thing.conf"]


def test_only_the_mode_is_mended_where_only_it_differs(run: Run, tmp_path: Path) -> None:
    """The file itself is not written anew."""
    path = tmp_path / "thing.conf"
    path.write_text("a = 1", encoding="utf-8")
    path.chmod(0o666)
    before = path.stat().st_ino
    assert run(files.place, str(path), "a = 1", **OWNERS)
    assert (path.stat().st_mode & 0o777, path.stat().st_ino) == (0o644, before)


def test_a_candidate_that_does_not_pass_leaves_the_old_file(run: Run, tmp_path: Path) -> None:
    """Whoever reads the file tries the candidate first."""
    path = tmp_path / "list.json"
    path.write_text("[1]", encoding="utf-8")
    with pytest.raises(Exception, match="No hosts remaining"):
        run(files.place, str(path), "[2", validate="python3 -m json.tool {path}", **OWNERS)
    assert path.read_text(encoding="utf-8") == "[1]"
    assert [one.name for one in tmp_path.iterdir()] == ["list.json"]


def test_a_link_is_replaced_and_what_it_points_to_is_not(run: Run, tmp_path: Path) -> None:
    """A link in place of a configuration file is drift; writing through it would hit a stranger's file."""
    stranger, path = tmp_path / "stranger", tmp_path / "thing.conf"
    stranger.write_text("mine", encoding="utf-8")
    path.symlink_to(stranger)
    assert run(files.place, str(path), "a = 1", **OWNERS)
    assert not path.is_symlink()
    assert stranger.read_text(encoding="utf-8") == "mine"


def test_the_files_before_the_first_change_come_back(run: Run, tmp_path: Path) -> None:
    """What was there comes back, what was not goes, however often each was changed since."""
    old, new = tmp_path / "etc" / "old.conf", tmp_path / "etc" / "new.conf"
    old.parent.mkdir()
    old.write_text("good", encoding="utf-8")
    old.chmod(0o600)
    for text in ("bad", "worse"):
        run(files.place, str(old), text, **OWNERS)
        run(files.place, str(new), text, **OWNERS)
    script = files.restore_kept(str(tmp_path / "state" / "last-good"))
    said = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True).stdout
    assert said.split() == [str(old), str(new)]
    assert (old.read_text(encoding="utf-8"), old.stat().st_mode & 0o777) == ("good", 0o600)
    assert not new.exists()


def test_absent_removes_and_can_be_undone(run: Run, tmp_path: Path) -> None:
    """A second time there is nothing to do."""
    path = tmp_path / "rogue.conf"
    path.write_text("x", encoding="utf-8")
    assert run(files.absent, str(path))
    assert not path.exists()
    assert not run(files.absent, str(path))
    subprocess.run(["sh", "-c", files.restore_kept(str(tmp_path / "state" / "last-good"))], check=True)
    assert path.read_text(encoding="utf-8") == "x"


def test_a_file_that_says_the_same_is_left_alone(run: Run, tmp_path: Path) -> None:
    """Where the kind of the file is known; otherwise every byte counts."""
    path = tmp_path / "file"
    path.write_text("# swap\ntank\n", encoding="utf-8")
    assert not run(files.place, str(path), "tank\n", meaning="modules-load", **OWNERS)
    assert run(files.place, str(path), "tank\n", **OWNERS)


@pytest.mark.parametrize("more", ["\r", "\ufeff", "#1234 ALL=(ALL) NOPASSWD: ALL\n", "#include /etc/evil\n"])
def test_a_rule_that_looks_like_nothing_is_taken_out(run: Run, tmp_path: Path, more: str) -> None:
    """Sudo reads it."""
    path = tmp_path / "spillway-ada"
    path.write_text(f"{more}ada ALL=(ALL) NOPASSWD:ALL\n", encoding="utf-8", newline="")
    assert run(files.place, str(path), "ada ALL=(ALL) NOPASSWD:ALL\n", meaning="sudoers", **OWNERS)
    assert path.read_bytes() == b"ada ALL=(ALL) NOPASSWD:ALL\n"


@pytest.mark.parametrize("ending", ["\r\n", "\u00a0\n", "\x0b\n"])
def test_a_line_with_more_than_can_be_seen_is_another_one(run: Run, tmp_path: Path, ending: str) -> None:
    """Its reader takes the name of the file with what stands behind it."""
    path = tmp_path / "logrotate.conf"
    path.write_text("  include \t/etc/logrotate.d\n", encoding="utf-8")
    run(files.included, str(path), line="include /etc/logrotate.d")
    path.write_text(f"include /etc/logrotate.d{ending}", encoding="utf-8", newline="")
    with pytest.raises(OperationError, match=r"it has include /etc/logrotate\.d"):
        run(files.included, str(path), line="include /etc/logrotate.d")


def test_a_later_file_that_clears_a_setting_of_apt_is_refused(run: Run, tmp_path: Path) -> None:
    """To apt ``#clear`` is no comment."""
    about, later = r"(#clear\s+)?DPkg::Lock::Timeout\b", tmp_path / "zz"
    later.write_text("# DPkg::Lock::Timeout\n#\n## x\n", encoding="ascii")
    run(files.last_word, str(tmp_path / "lock"), about=about)
    later.write_text("#clear DPkg::Lock::Timeout;\n", encoding="ascii")
    with pytest.raises(OperationError, match="says '#clear DPkg"):
        run(files.last_word, str(tmp_path / "lock"), about=about)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of sudo are root's")
def test_a_later_rule_by_an_accounts_number_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sudo takes ``#0`` for root; of several rules the last one counts."""
    monkeypatch.setattr(users, "_SUDOERS", f"{tmp_path}/sudoers")
    folder = tmp_path / "sudoers.d"
    folder.mkdir()
    (folder / "spillway-root").write_text("root ALL=(ALL) NOPASSWD:ALL\n", encoding="ascii")
    (folder / "spillway-root").chmod(0o440)
    (folder / "zz").write_text("# 0 is root\n#01 ALL=(ALL) ALL\n", encoding="ascii")
    shell = pwd.getpwnam("root").pw_shell
    run(users.present, "root", shell=shell, sudo=True)
    (folder / "zz").write_text("#0 ALL=(ALL) /bin/true\n", encoding="ascii")
    with pytest.raises(OperationError, match="says '#0 ALL"):
        run(users.present, "root", shell=shell, sudo=True)


def test_what_is_no_regular_file_is_seen_and_not_read(tmp_path: Path) -> None:
    """A pipe has no beginning, and a link to /dev/zero no end: one of them would have cost the whole look."""
    os.mkfifo(tmp_path / "a.conf")
    (tmp_path / "b.conf").symlink_to("/dev/zero")
    (tmp_path / "c.conf").write_text("x = 1\n", encoding="ascii")
    paths = [str(tmp_path / name) for name in ("a.conf", "b.conf", "c.conf", "none.conf")]
    said = {path: answer(FileState(), path=path) for path in paths}
    kinds = [found.kind if (found := FileState().process(lines)) else None for lines in said.values()]
    assert kinds == ["fifo", "symbolic link", "regular file", None]
    assert [sum("|" not in line for line in lines) for lines in said.values()] == [0, 0, 1, 0]
    assert FolderLines().process(answer(FolderLines(), path=paths[0])) == [(paths[2], "x = 1")]


def test_programs_and_libraries_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """Missing, empty, not executable; a library need not be."""
    for name, mode in (("runs", 0o755), ("locked", 0o644), ("libx.so.1", 0o644)):
        (tmp_path / name).write_text("x", encoding="ascii")
        (tmp_path / name).chmod(mode)
    (tmp_path / "empty").touch(0o755)
    paths = tuple(str(tmp_path / name) for name in ("runs", "locked", "libx.so.1", "empty", "gone"))
    assert answer(Unusable(), files=paths) == [paths[1], paths[3], paths[4]]


def answer(fact: FactBase[Any], **asked: Any) -> list[str]:
    """What this machine answers to a fact's command, within seconds."""
    command = fact.command(**asked).get_raw_value()
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=10, check=False)
    return [line for line in done.stdout.splitlines() if line]


def test_a_path_that_hangs_costs_its_own_step_and_is_named(tmp_path: Path) -> None:
    """As a dead mount does. The whole machine was unknown, and the message named the beginning of a command."""
    paths = [f"/srv/files/{name}" for name in ("a", "hung", "z")]
    hangs = '#!/bin/sh\\ncase " $* " in *hung*) exec sleep 600 ;; esac\\nexec /usr/bin/stat.real "$@"\\n'  # a stand-in
    plant = f"mkdir -p /srv/files; cp /usr/bin/stat /usr/bin/stat.real; printf '{hangs}' > /root/s; chmod 755 /root/s"
    with Sandbox(tmp_path / "sandbox") as sandbox:
        found = sandbox.run({"plant": f"{plant}; mv /root/s /usr/bin/stat", "place": paths, "look_seconds": 3})
    assert found["unknown"] == ""
    assert len(found["changes"]) == 2
    (reason,) = found["refused"].values()
    assert reason.startswith("/srv/files/hung does not answer")
    assert (found["failed"], found["again"]) == ("", [])
