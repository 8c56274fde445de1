"""What is forked from a process with all imports behaves as what is started anew."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from stacks.local.process.ports import free_ports
from tests.live.zygote import AWS, SPILLWAY, zygote

pytestmark = pytest.mark.live


def test_it_ends_with_its_own_status_and_says_what_it_says(tmp_path: Path) -> None:
    """Of two at a time each has its own, in whatever order they are asked."""
    wrong, right = (
        zygote(SPILLWAY).start(*words, log=tmp_path / words[0])
        for words in (("policy", "check", str(tmp_path / "nowhere")), ("autoscale", "--help"))
    )
    assert right.wait(60) == 0
    assert wrong.wait(60) == 2
    assert wrong.poll() == wrong.wait() == 2
    assert "nowhere" in (tmp_path / "policy").read_text(encoding="utf-8")
    assert (tmp_path / "autoscale").read_text(encoding="utf-8").startswith("Usage: spillway autoscale")


def test_what_it_prints_is_apart_from_what_it_complains_of(tmp_path: Path) -> None:
    """A command that ends by itself."""
    done = zygote(SPILLWAY).run("policy", "check", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere" in done.stderr
    assert zygote(SPILLWAY).run("autoscale", "--help").stdout.startswith("Usage: spillway autoscale")


def test_a_signal_ends_it_and_is_its_status(tmp_path: Path) -> None:
    """Until then it runs; a signal to a process that has ended does nothing."""
    server = zygote(AWS).start("--port", str(free_ports(1)[0]), log=tmp_path / "log")
    assert server.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(0.05)
    server.kill()
    assert server.wait(60) == -signal.SIGKILL
    server.send_signal(signal.SIGTERM)
    assert server.poll() == -signal.SIGKILL
