"""An OpenPGP key of the tests' own, made and used by the real gpg."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import pytest

needs_gpg = pytest.mark.skipif(not shutil.which("gpg"), reason="needs gpg (Debian package gnupg)")


class Signer:
    """One key in a folder of its own, for the length of a ``with`` block."""

    def __init__(self, name: str) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="gpg-"))  # short: the path of the agent's socket has 108 bytes
        self.gpg("--quick-generate-key", name, "rsa3072", "sign", "never")
        listed = self.gpg("--list-keys", "--with-colons").decode()
        self.fingerprint = re.findall(r"^fpr:+([0-9A-F]{40}):", listed, flags=re.MULTILINE)[0]
        self.public = self.gpg("--export", "--armor")

    def gpg(self, *words: str, given: bytes = b"") -> bytes:
        """What gpg says. It starts no agent that would outlive it."""
        done = subprocess.run(
            [
                *("gpg", "--homedir", str(self._home), "--batch", "--yes", "--quiet"),
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
        """End the agent that gpg started for this folder."""
        subprocess.run(["gpgconf", "--homedir", str(self._home), "--kill", "all"], check=False, capture_output=True)
        shutil.rmtree(self._home, ignore_errors=True)
