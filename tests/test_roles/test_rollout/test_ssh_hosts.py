"""The machines' side of a rolling change, on this machine, in the patched process that the engine needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests import ROOT

POD = "spillway-nodes-smoke-a"
"""It is made once, waited for, and gone when it has ended either way."""


def test_a_machine_is_taken_changed_put_back_changed_and_settled(tmp_path: Path) -> None:
    """What is kept for a rollback goes when the machine is settled, and another controller waits until it is left."""
    words = [sys.executable, "-m", "tests.test_roles.hosts_role", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "plan": [["file"], "old\n", False],
        "take": ["", "old\n", False],
        "another takes": ["ours", "old\n", False],
        "we take again": ["", "old\n", False],
        "apply": [["file"], "new\n", True],
        "restore": [["", ""], "old\n", False],
        "apply again": [["file"], "new\n", True],
        "settle": [None, "new\n", False],
        "restore after it": ["", "new\n", False],
        "another leaves": [None, "new\n", False],
        "another still waits": ["ours", "new\n", False],
        "we leave": [None, "new\n", False],
        "another gets it": ["", "new\n", False],
        "we wait": ["another", "new\n", False],
        "without a name": ["", "new\n", False],
        "smoke": [
            [f"the smoke pod {POD} has not ended yet", [f"default/{POD}?", f"+{POD} a lab/smoke"]],
            [f"the smoke pod {POD} has not ended yet", [f"default/{POD}?"]],
            ["", [f"default/{POD}?", f"-default/{POD}"]],
            [f"the smoke pod {POD} failed", [f"default/{POD}?", f"-default/{POD}"]],
        ],
        "no smoke": ["", []],
    }
