"""The demo as a user runs it: it keeps its word, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stacks.local.process.paths import cache_root
from stacks.local.process.supervisor import is_running, read_status
from stacks.local.wire.extension import FAKES
from tests import ROOT

pytestmark = [pytest.mark.live, pytest.mark.long]


@dataclass(frozen=True, slots=True)
class User:
    """A user with an empty home, an empty temporary folder, and a cache that holds the built tools alone."""

    home: Path

    def env(self) -> dict[str, str]:
        """What the demo runs with."""
        own = {name: value for name, value in os.environ.items() if name != FAKES}  # the wheel has none of them
        return own | {
            "HOME": str(self.home / "home"),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "TMPDIR": str(self.home / "tmp"),
            # As in `make demo`, whose environment keeps what is compiled: pulumi_aws takes ten seconds.
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX")
            or str(self.home / "cache" / "spillway" / "pycache"),
        }

    def demo(self) -> subprocess.Popen[str]:
        """Start it."""
        return subprocess.Popen(
            [sys.executable, "-m", "spillway", "demo"],
            cwd=ROOT,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def processes(self) -> list[tuple[int, int]]:
        """(pid, start) of everything that a keeper of this user holds."""
        found = []
        for directory in (self.home / "cache" / "spillway" / "grounds").glob("*"):
            status = read_status(directory)
            if status:
                found += [(status.pid, status.started), *((one.pid, one.started) for one in status.held)]
        return found

    def files(self) -> list[str]:
        """What lies about: anything outside the cache, and grounds inside it."""
        cache = self.home / "cache"
        outside = [path for path in self.home.rglob("*") if cache not in (path, *path.parents) and not path.is_dir()]
        return [str(path) for path in (*outside, *(cache / "spillway").glob("grounds/*"))]


@pytest.fixture
def user(tools: dict[str, Path], tmp_path: Path) -> Iterator[User]:
    """A new user on a machine that has the tools."""
    for folder in ("home", "tmp", "cache/spillway"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "cache" / "spillway" / "tools").symlink_to(cache_root() / "tools")
    return User(tmp_path)


def new_files() -> set[str]:
    """What lies in the checkout beside what is under version control."""
    listed = ["git", "status", "--porcelain", "--ignored", "--untracked-files=all"]
    said = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line for line in said.splitlines() if line[:2] in ("??", "!!")}


def test_every_claim_holds_and_nothing_is_left(user: User) -> None:
    """From nothing to a morning of jobs and back to nothing."""
    before = new_files()
    with user.demo() as demo:
        said, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, said
    assert said.count("  held   ") == 11
    assert "FAILED" not in said
    assert "instances launched, left    1, none" in said
    assert user.files() == []
    assert new_files() == before


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_ends_halfway_leaves_no_process(user: User, how: signal.Signals) -> None:
    """Ctrl-C, a kill, a crash: while the ground comes up, everything ends with it."""
    with user.demo() as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "pulumi up of the stack" in line:
                break
        time.sleep(1)
        running = user.processes()
        assert len([one for one in running if is_running(*one)]) >= 7
        demo.send_signal(how)
        rest = demo.stdout.read()
        demo.wait(timeout=60)
    end = time.monotonic() + 30
    while any(is_running(*one) for one in running):
        assert time.monotonic() < end, running
        time.sleep(0.1)
    assert "Traceback" not in rest
    if how != signal.SIGKILL:
        assert "interrupted; taking everything down" in rest
        assert demo.returncode == 130
        assert user.files() == []
