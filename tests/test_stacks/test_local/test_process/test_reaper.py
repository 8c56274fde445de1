"""The leash: nothing of a program outlives it, or whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stacks.local.process.reaper import leashed

pytestmark = pytest.mark.live

STRAY = "setsid sh -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 60' & "
"""Starts a process in a session of its own and tells its pid: what no process group reaches."""


def start(program: str) -> subprocess.Popen[bytes]:
    """A shell on a leash."""
    return subprocess.Popen(
        leashed(["/bin/sh", "-c", program]),
        stdout=subprocess.PIPE,
    )


def wait_for(file: Path) -> int:
    """The pid that it tells."""
    end = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    return int(file.read_text(encoding="utf-8"))


def wait_until_gone(pid: int) -> None:
    """Give it a moment."""
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_the_program_says_and_how_it_ends_comes_through() -> None:
    """As if there were no leash."""
    with start("echo hello; exit 3") as program:
        said, _ = program.communicate(timeout=20)
    assert (said, program.returncode) == (b"hello\n", 3)


def test_a_program_that_leaves_another_behind(tmp_path: Path) -> None:
    """The other one ends with it."""
    with start(f"{STRAY.format(tmp_path / 'pid')} until test -e {tmp_path / 'pid'}; do sleep 0.02; done") as program:
        program.wait(timeout=20)
    assert not Path(f"/proc/{wait_for(tmp_path / 'pid')}").exists()


def test_an_interrupt_is_passed_on(tmp_path: Path) -> None:
    """The engine uses it to write down what it has done."""
    ready = tmp_path / "pid"
    with start(f"trap 'echo noted; exit 5' INT; echo $$ >{ready}.new; mv {ready}.new {ready}; sleep 60 & wait") as one:
        wait_for(ready)
        one.send_signal(signal.SIGINT)
        said, _ = one.communicate(timeout=20)
    assert (said, one.returncode) == (b"noted\n", 5)


def test_all_end_when_the_one_that_holds_the_leash_is_killed(tmp_path: Path) -> None:
    """As a demo that crashes halfway through `pulumi up`."""
    owner = (
        "import subprocess, sys\n"
        "from stacks.local.process.reaper import leashed\n"
        "subprocess.run(leashed(['/bin/sh', '-c', sys.argv[1]]))"
    )
    own = tmp_path / "own"
    program = f"{STRAY.format(tmp_path / 'stray')} echo $$ >{own}.new; mv {own}.new {own}; sleep 60"
    with subprocess.Popen([sys.executable, "-c", owner, program]) as holder:
        pids = [wait_for(tmp_path / "stray"), wait_for(own)]
        os.kill(holder.pid, signal.SIGKILL)
    for pid in pids:
        wait_until_gone(pid)


def test_a_program_that_is_not_there_is_told() -> None:
    """As a shell would."""
    done = subprocess.run(leashed(["/nowhere/pulumi"]), capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 127
    assert done.stderr == "/nowhere/pulumi could not be started: No such file or directory\n"
