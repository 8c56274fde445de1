"""The engine on this machine, in the patched process that it needs: what may happen, and what is left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests import ROOT


def test_what_turns_out_to_disrupt_more_than_is_allowed_waits(tmp_path: Path) -> None:
    """Found out while it runs, it is held like what was planned so; a resource that is left alone is not touched."""
    words = [sys.executable, "-m", "tests.test_roles.late_role", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    spared, first, second, third = json.loads(done.stdout)
    assert spared == {"planned": [], "applied": [], "held": [], "failed": ""}
    assert first == {"planned": ["file none"], "applied": ["file"], "held": ["boot reboot"], "failed": ""}
    assert second == {"planned": ["boot reboot"], "applied": [], "held": ["boot reboot"], "failed": ""}
    assert third == {"planned": ["boot reboot"], "applied": ["boot"], "held": [], "failed": ""}
    assert (tmp_path / "rebooted").exists()


def test_a_machine_that_booted_well_forgets_what_it_was_before(tmp_path: Path) -> None:
    """Kept while a boot fails; gone once one succeeds, or a later rollback would lead to the bare machine."""
    words = [sys.executable, "-m", "tests.test_roles.boot_role", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert first == {"failed": "a mirror answers: failed without a word", "kept": "bare\n"}
    assert second == {"failed": "", "kept": ""}
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new\n"
    assert not (tmp_path / "state/last-good").exists()


def test_global_arguments_are_those_that_pyinfra_works_out() -> None:
    """Named or not, in a deploy or outside, with arguments of the call, of the deploy, and of the machine's data."""
    words = [sys.executable, "-m", "tests.test_roles.global_arguments_role"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["failed"] == ""
    assert len(found["same"]) > 30
    assert all(found["same"])


def test_each_machine_and_each_operation_fails_alone(tmp_path: Path) -> None:
    """What cannot be planned is told by machine and operation; what comes after a failure is not begun."""
    words = [sys.executable, "-m", "tests.test_roles.fleet_role", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    refuses, breaks, alone, silent, for_ever, mistaken, wrongly_set, kinds, raises = found
    for one in found:
        assert "Unable to connect to port 1" in one["away"][0]
        assert one["away"][1] == one["away"][0]
        assert one["said"] == [False, "it is here"]
    assert refuses["refused"] == [["driver", "there is no such version", "driver"]]
    assert (refuses["applied"], (tmp_path / "after").exists()) == (["after"], True)
    assert breaks["planned"] == ["one", "two", "three"]
    assert (breaks["applied"], breaks["failed"]) == (["one", "two"], "two: it is full")
    assert ((tmp_path / "one").exists(), (tmp_path / "three").exists()) == (True, False)
    assert (alone["failed"], list(alone["alone"])) == ("", ["two"])
    assert (tmp_path / "alone-three").exists()
    assert list(silent["alone"].values()) == ["one: it is full"]
    assert silent["failed"] == "two: failed without a word", "not with the words of another"
    whys = [for_ever["why"], mistaken["why"], wrongly_set["why"]]
    assert whys[0] == "its roles ask for ever more facts"
    assert whys[1].startswith("ValueError: no such thing (fleet_role.py:")
    assert whys[2] == "dgx-01: gpu = 9"
    assert [one["failed"] for one in (for_ever, mistaken, wrongly_set)] == whys, (
        "nothing is done where nothing is known"
    )
    assert [one["applied"] for one in (for_ever, mistaken, wrongly_set)] == [[], [], []]
    assert kinds["disruptions"] == ["KUBELET_RESTART", "NONE", "KUBELET_RESTART"], "a mode is read by no service"
    written, called = tmp_path / "put", tmp_path / "called"
    commands = [f"put {written}", f"chmod 600 {written}", "FunctionCommand(touch, [], {})"]
    assert (kinds["commands"], kinds["applied"]) == (commands, ["put", "mode", "call"])
    assert kinds["ran"] == [[command, True] for command in commands], "for the journal, in turn"
    assert (written.stat().st_mode & 0o777, called.exists()) == (0o600, True)
    assert raises["ran"] == [[commands[2], False]]
    assert raises["failed"].startswith("call: ")
    assert "No such file or directory" in raises["failed"]
    assert (tmp_path / ".ssh/known_hosts").stat().st_mode & 0o777 == 0o600
