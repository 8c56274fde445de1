"""Writes decisions to files of compressed lines in a folder, in a thread of its own.

The loop hands a decision over and goes on: a disk that is slow or full loses decisions of the record, which is told,
and delays none. The folder never holds more than its bound: the oldest files go first.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from autoscaler.record.decisions import Decision, Scribe

SUFFIX: Final = ".jsonl.gz"
_PARTS: Final = 8
"""A file ends at this part of the bound: it begins with a whole decision, which is large."""
_WAITING: Final = 64
"""Decisions that may wait for the disk: they hold the looks in memory."""
_TRY_AGAIN: Final = 10.0
"""Seconds after a failure until the disk is tried again."""
_GZIP: Final = 31
"""zlib's number for a gzip file, which `zcat` reads."""

Tell = Callable[[str, str], None]


class Recorder:
    """The record of one autoscaler. Its methods neither wait nor raise."""

    def __init__(
        self,
        folder: Path,
        *,
        at_most: int,
        identity: str = "",
        tell: Tell = lambda _party, _why: None,
        written: Callable[[datetime], None] = lambda _at: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``at_most``: bytes. ``tell`` is told why nothing can be written, and with no words when it can again.

        ``written`` is told when the decision was made that was written last.
        """
        self._folder = folder
        self._share = at_most // _PARTS
        self._identity = re.sub(r"[^A-Za-z0-9.-]", "-", identity)
        self._party = f"the record ({folder})"
        self._tell = tell
        self._written = written
        self._clock = clock
        self._lost = 0
        self._closed_until = float("-inf")
        self._file: _File | None = None
        self._letters: queue.Queue[Decision | tuple[str, ...] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._keep, name="record", daemon=True)
        self._thread.start()

    def decided(self, decision: Decision) -> None:
        """Write a decision, before its steps are taken."""
        self._hand_over(decision)

    def came_of(self, outcomes: tuple[str, ...]) -> None:
        """Write what came of the steps of the decision that was handed over last."""
        self._hand_over(outcomes)

    def stop(self) -> None:
        """Write what was handed over, then end."""
        with contextlib.suppress(queue.Full):
            self._letters.put(None, timeout=1)
            self._thread.join(timeout=5)

    def _hand_over(self, letter: Decision | tuple[str, ...]) -> None:
        try:
            self._letters.put_nowait(letter)
        except queue.Full:
            self._lose("the disk is too slow")

    def _lose(self, why: str) -> None:
        self._lost += 1
        self._tell(self._party, f"{why}: decisions are missing in the record; deciding goes on")

    def _keep(self) -> None:
        while (letter := self._letters.get()) is not None:
            if self._clock() < self._closed_until:
                continue
            try:
                self._write(letter)
            except OSError as error:
                self._give_up(error.strerror or str(error))
            except Exception as error:  # noqa: BLE001 - a decision that cannot be written must not end what decides
                self._give_up(f"{type(error).__name__}: {error}")
        self._close()

    def _write(self, letter: Decision | tuple[str, ...]) -> None:
        if isinstance(letter, tuple):
            if self._file is not None:
                self._file.write(self._file.scribe.came_of(letter))
            return
        if self._file is None or self._file.size > self._share:
            self._close()
            self._make_room()
            self._file = _File(self._path())
        self._file.write(self._file.scribe.decided(letter))
        self._tell(self._party, "")
        self._written(letter.cluster.seen_at)

    def _give_up(self, why: str) -> None:
        self._closed_until = self._clock() + _TRY_AGAIN
        self._close()
        self._lose(why)

    def _path(self) -> Path:
        now = datetime.now(UTC)
        return self._folder / f"decisions-{now:%Y%m%dT%H%M%S.%f}Z-{self._identity}{SUFFIX}"

    def _make_room(self) -> None:
        """Makes room for two more files: one may come to be as large as its last line makes it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        files = files_in(self._folder)
        sizes = {path: _size(path) for path in files}
        while files and sum(sizes[path] for path in files) > (_PARTS - 2) * self._share:
            files.pop(0).unlink(missing_ok=True)

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


class _File:
    """One file that is being written: after each line it can be read up to there, whatever ends the process."""

    def __init__(self, path: Path) -> None:
        self.scribe = Scribe()
        self.size = 0
        self._out: IO[bytes] = path.open("xb", buffering=0)
        self._zip = zlib.compressobj(wbits=_GZIP)

    def write(self, line: bytes) -> None:
        """Append a line. Raises ``OSError``."""
        self._put(self._zip.compress(line) + self._zip.flush(zlib.Z_SYNC_FLUSH))

    def close(self) -> None:
        """End it as a gzip file ends. Raises ``OSError``."""
        try:
            self._put(self._zip.flush())
        finally:
            self._out.close()

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._out.write(left) :]
        self.size += len(data)


def files_in(folder: Path) -> list[Path]:
    """The files of a record, the oldest first: their names begin with when they did."""
    return sorted(folder.glob(f"decisions-*{SUFFIX}"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
