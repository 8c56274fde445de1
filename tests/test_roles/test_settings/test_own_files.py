"""Files of the controller in folders of other accounts: no link of theirs is followed, no other file is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.model.errors import Unavailable
from roles.rollout import report
from roles.rollout.journal import Journal
from roles.rollout.lock import only_run
from roles.settings.own_files import PUBLIC, write_whole

Plant = Callable[[Path, Path], None]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of somebody's, which no test may change."""
    path = tmp_path / "victim"
    path.write_text("secret\n", encoding="ascii")
    return path


@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_a_lock_that_is_a_name_of_another_file_is_refused(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """It was emptied for the number of the process."""
    folder = tmp_path / "state"
    folder.mkdir()
    plant(victim, folder / "lock")
    with pytest.raises(Unavailable, match="lock: cannot be locked"), only_run(folder, None):
        pass
    assert victim.read_text(encoding="ascii") == "secret\n"


@pytest.mark.parametrize("plant", [os.symlink, os.link])
def test_a_journal_that_is_a_name_of_another_file_is_refused(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """Entries would be added to it, and half a line at its end cut off."""
    plant(victim, tmp_path / "journal.jsonl")
    with pytest.raises(Unavailable, match="cannot be written"):
        Journal(tmp_path / "journal.jsonl").write("run")
    assert victim.read_text(encoding="ascii") == "secret\n"


def test_a_journal_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    """It would be waited for without an end."""
    os.mkfifo(tmp_path / "journal.jsonl")
    with pytest.raises(Unavailable, match="cannot be written"):
        Journal(tmp_path / "journal.jsonl").write("run")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_a_run_keeps_is_for_its_account_alone(tmp_path: Path, umask: int) -> None:
    """Commands and diffs of all machines; also where an earlier version has left them for all to read."""
    before = os.umask(umask)
    try:
        (tmp_path / "journal.jsonl").touch(mode=0o644)
        (tmp_path / "journal.jsonl").chmod(0o644)
        Journal(tmp_path / "journal.jsonl").write("run")
        Journal(tmp_path / "new.jsonl").write("run")
        report.keep({"at": "2026-01-02T02:30:00+00:00", "counts": {}}, tmp_path)
        write_whole(tmp_path / "report.html", "<p>")
        write_whole(tmp_path / "nodes.prom", "up 1\n", mode=PUBLIC)
        with only_run(tmp_path, None):
            pass
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert modes.pop("nodes.prom") == 0o644  # for its collector
    assert len(modes) == 5
    assert {*modes.values()} == {0o600}


def test_metrics_are_written_through_no_link(tmp_path: Path, victim: Path) -> None:
    """Neither at their own name nor at the one that a new file had before."""
    path = tmp_path / "nodes.prom"
    path.symlink_to(victim)
    (tmp_path / ".nodes.prom.new").symlink_to(victim)
    write_whole(path, "up 1\n")
    assert (victim.read_text(encoding="ascii"), path.read_text(encoding="ascii")) == ("secret\n", "up 1\n")
    assert sorted(one.name for one in tmp_path.iterdir()) == [".nodes.prom.new", "nodes.prom", "victim"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the link is another account's")
def test_a_folder_that_another_account_has_made_a_link_is_not_entered(tmp_path: Path) -> None:
    """A link of one's own is."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "folder"
    link.symlink_to("elsewhere")
    write_whole(link / "report.json", "{}")
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(NotADirectoryError):
        write_whole(link / "other.json", "{}")
    assert [one.name for one in (tmp_path / "elsewhere").iterdir()] == ["report.json"]
