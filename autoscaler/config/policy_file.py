"""The policy file, followed while it is edited: looked at several times a second, by its text.

Text and not time stamps: editors write in place, rename over it or swap a link, and file systems round times. An edit
counts once two looks have found the same, so that half a file, or none while it is replaced, is not taken for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.config.documents import read_text
from autoscaler.model.errors import BadInput

EVERY: Final = 0.2
"""Seconds between two looks: an edit is known after at most twice as long."""


@dataclass(frozen=True, slots=True)
class Edition:
    """A policy as it was written last, right or wrong."""

    origin: str
    """Where it stands, for messages: a path, ``configmap:NAMESPACE/NAME``."""
    text: str = ""
    problem: str = ""
    """Why there is no text to read."""


class PolicyFile:
    """A file, looked at by a thread from :meth:`start` until :meth:`stop`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._newest = self.read()
        self._stopping = threading.Event()

    def read(self) -> Edition:
        """The file as it is at this moment."""
        try:
            return Edition(str(self._path), read_text(self._path, what="policy"))
        except BadInput as bad:
            return Edition(str(self._path), problem=str(bad))

    def newest(self) -> Edition:
        """What two looks have found."""
        return self._newest

    def look(self) -> bool:
        """One look; whether it makes an edit count."""
        before, self._seen = self._seen, self.read()
        if self._seen != before or self._seen == self._newest:
            return False
        self._newest = self._seen
        return True

    def start(self, wake: Callable[[], None]) -> None:
        """Look now and then; ``wake`` is called when an edit counts."""
        threading.Thread(target=self._keep, args=(wake,), name="policy file", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()

    def _keep(self, wake: Callable[[], None]) -> None:
        while not self._stopping.wait(EVERY):
            if self.look():
                wake()
