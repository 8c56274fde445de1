"""An OpenPGP key of the tests' own, made and used by the real gpg."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import pytest

from stacks.local.keeper import die_with_parent

needs_gpg = pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg (Debian package gnupg)")


class Signer:
    """One key in a folder of its own, for the length of a ``with`` block."""

    def __init__(self, name: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="gpg-"))  # short: the path of the agent's socket has 108 bytes
        self._sweeper = _sweeper(self.home)
        self._agent = _agent(self.home)
        self.gpg("--quick-generate-key", name, "rsa3072", "sign", "never")
        listed = self.gpg("--list-keys", "--with-colons").decode()
        self.fingerprint = re.findall(r"^fpr:+([0-9A-F]{40}):", listed, flags=re.MULTILINE)[0]
        self.public = self.gpg("--export", "--armor")

    def gpg(self, *words: str, given: bytes = b"") -> bytes:
        """What gpg says, with the keys and the agent of this folder."""
        done = subprocess.run(
            [
                *("gpg", "--homedir", str(self.home), "--no-autostart", "--batch", "--yes", "--quiet"),
                *("--pinentry-mode", "loopback", "--passphrase", "", *words),
            ],
            input=given,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def __enter__(self) -> Self:
        """The key was made already."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the agent, and whatever gpg itself started for this folder."""
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], check=False, capture_output=True)
        self._agent.kill()
        self._agent.wait()
        self._sweeper.communicate()


def _sweeper(home: Path) -> subprocess.Popen[bytes]:
    """A process that takes the folder away once its input ends: when we say so, or when we were killed.

    An agent that is ending may write there once more.
    """
    return subprocess.Popen(
        [
            "sh",
            "-c",
            'cat; until rm -rf "$0" && [ ! -e "$0" ]; do sleep 0.1; done',
            str(home),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _agent(home: Path) -> subprocess.Popen[bytes]:
    """The process that an agent lives with: one that gpg starts itself outlives a test process that is killed.

    gpg-agent goes into the background, and looks every few seconds whether the program that it was started with is
    there. That one is our child, and the kernel ends it with us.
    """
    agent = subprocess.Popen(
        ["gpg-agent", "--homedir", str(home), "--daemon", "sleep", "infinity"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it takes no lock in the child
    )
    asks = ["gpg-connect-agent", "--homedir", str(home), "--no-autostart", "/bye"]
    end = time.monotonic() + 20
    while subprocess.run(asks, check=False, capture_output=True, stdin=subprocess.DEVNULL).returncode:
        assert agent.poll() is None, "gpg-agent does not start"
        assert time.monotonic() < end, "gpg-agent does not answer"
        time.sleep(0.02)
    return agent
