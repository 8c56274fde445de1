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
