"""Reads a record: its decisions in order, past what a killed process has left half written."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Final

import msgspec

from autoscaler.model.errors import BadInput
from autoscaler.record.decisions import Decision, Reader
from autoscaler.record.writer import files_in

_CHUNK: Final = 1 << 20
_GZIP: Final = 31


def read_record(path: Path) -> Iterator[Decision | str]:
    """Each decision of a file, or of a folder of files, with what came of it; a text: what cannot be read, and why.

    Raises ``BadInput`` where there is no record.
    """
    for file in _files(path):
        yield from _decisions(file)


def decision_at(path: Path, at: datetime) -> Decision | None:
    """The last decision that was made by then; ``None`` where the record begins later. Raises ``BadInput``."""
    for file in reversed(_files(path)):
        found = None
        for one in _decisions(file):
            if isinstance(one, Decision) and one.cluster.seen_at <= at:
                found = one
        if found is not None:
            return found
    return None


def moment(text: str, now: datetime) -> datetime:
    """``14:02``, ``14:02:31`` or ``2026-11-23T14:02`` by the clocks of ``now``.

    A time of day that has not come is yesterday's. Raises ``ValueError`` naming the text.
    """
    try:
        if "-" in text:
            at = datetime.fromisoformat(text)
            return at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
        at = datetime.combine(now.date(), time.fromisoformat(text), now.tzinfo)
    except ValueError:
        raise ValueError(f"{text!r} is no time: write one such as 14:02 or 2026-11-23T14:02:31") from None
    return at if at <= now else at - timedelta(days=1)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = files_in(path)
    if not found:
        raise BadInput(
            f"{path}: there is no record: name the folder of `spillway autoscale run --record`, or a file of it"
        )
    return found


def _decisions(path: Path) -> Iterator[Decision | str]:
    reader, decided, number = Reader(), None, 0
    try:
        for line in _lines(path):
            number += 1
            read = reader.read(line)
            if isinstance(read, Decision):
                if decided is not None:
                    yield decided
                decided = read
            elif decided is not None:
                decided = replace(decided, outcomes=read)
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError) as error:
        if decided is not None:
            yield decided
        yield f"{path}: line {number} cannot be read ({error}): the rest of the file is left out"
        return
    except _Torn as torn:
        if decided is not None:
            yield decided
        yield f"{path}: {torn}"
        return
    if decided is not None:
        yield decided


class _Torn(Exception):  # noqa: N818 - says what the file is
    """The file ends in the midst of a line."""


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines. Raises ``_Torn`` after them where more was begun, ``BadInput`` where the file cannot be read."""
    unzip, rest = zlib.decompressobj(wbits=_GZIP), b""
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                *whole, rest = (rest + unzip.decompress(data)).split(b"\n")
                yield from whole
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except zlib.error as error:
        raise _Torn(f"what follows cannot be decompressed ({error}) and is left out") from None
    if rest:
        raise _Torn(f"the last entry was not written to its end: {len(rest)} bytes of it are left out")
