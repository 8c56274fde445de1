"""An append-only record of every command on every machine, each line holding the digest of the one before.

A line that is changed, left out or put in later breaks the chain from there on (:func:`why_broken`). An account
that can rewrite the whole file can rewrite the chain: send the last digest, which every report shows, to where that
account cannot write.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from autoscaler.model.errors import BadInput, Unavailable
from roles.settings.own_files import open_alone

FIRST: Final = "0" * 64
"""What stands in place of a digest before the first line."""
_TAIL: Final = 2**20
"""Bytes at the end of the file that are read at first."""


class Journal:
    """One file of JSON lines, which several processes may write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, kind: str, **fields: Any) -> str:
        """Append one entry, on disk when this comes back; gives its digest. Raises ``Unavailable``."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(open_alone(self.path), "a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                entry = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "kind": kind, **fields}
                line = _sealed(_mend(file), entry)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Unavailable(
                f"the journal {self.path} cannot be written ({error.strerror}): nothing is done"
            ) from None
        return str(json.loads(line)["digest"])

    def entries(self) -> Iterator[dict[str, Any]]:
        """Every entry, from the first."""
        if self.path.exists():
            with self.path.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):
                        yield json.loads(line)

    def last_commands(self, host: str, *, most: int = 3) -> list[str]:
        """The last commands on a machine that failed, else the last ones, each with the end of what it said."""
        commands = [entry for entry in self._lately(host) if entry["kind"] == "command"]
        chosen = [entry for entry in commands if not entry["succeeded"]] or commands
        return [_in_a_line(entry) for entry in chosen[-most:]]

    def last_reason(self, host: str) -> str:
        """Why the last change of a machine failed; empty where none is known."""
        return next((str(entry["reason"]) for entry in reversed(self._lately(host)) if entry["kind"] == "failed"), "")

    def last_outcomes(self) -> dict[str, str]:
        """How the last change of each machine ended: ``done``, or the outcome with the identity of the plan."""
        ended = [entry for entry in self._lately() if entry["kind"] == "finished" and entry.get("host")]
        return {entry["host"]: str(entry.get("outcome", "")) for entry in ended}

    def _lately(self, host: str = "") -> list[dict[str, Any]]:
        """The entries about a machine, else all, in the last part of the file."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
            file.seek(start)
            lines = file.read().split(b"\n")[1 if start else 0 : -1]
        entries = [_entry(line) for line in lines]
        return [entry for entry in entries if entry and (not host or entry.get("host") == host)]


_SHOWN: Final = 160
"""Letters of a command, and of the end of what it said."""


def _entry(line: bytes) -> dict[str, Any]:
    """Empty for what is no entry: that the chain is broken there, :func:`why_broken` says."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "kind" in found else {}


def _in_a_line(entry: dict[str, Any]) -> str:
    command, said = " ".join(str(entry["command"]).split()), " ".join(str(entry["said"]).split())
    ended = "" if entry["succeeded"] else " failed"
    return f"{command[:_SHOWN]}{ended}" + (f": {said[-_SHOWN:]}" if said else "")


def why_broken(path: Path) -> str:
    """Where the chain breaks, in words; empty where it holds. Raises ``BadInput`` where there is no journal."""
    if not path.exists():
        raise BadInput(f"{path}: there is no journal")
    before = FIRST
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
            digest = entry.pop("digest")
        except (ValueError, KeyError, AttributeError, TypeError):
            return f"{path}: line {number} is no entry of a journal"
        if entry.get("before") != before:
            return f"{path}: line {number} does not follow line {number - 1}: one was changed, left out or put in"
        if digest != _digest(entry):
            return f"{path}: line {number} was changed after it was written"
        before = digest
    return ""


def _sealed(before: str, entry: dict[str, Any]) -> bytes:
    entry = entry | {"before": before}
    return json.dumps(entry | {"digest": _digest(entry)}).encode() + b"\n"


def _digest(entry: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()


def _mend(file: Any) -> str:
    """The digest of the last whole line; half a line, left by a crash or a full disk, is cut off."""
    size = file.seek(0, os.SEEK_END)
    whole, half = _end(file, size, _TAIL)
    if half:
        file.truncate(size - len(half))
    if not whole:
        return FIRST
    try:
        return str(json.loads(whole.rpartition(b"\n")[2])["digest"])
    except (ValueError, KeyError, TypeError):
        raise OSError(0, "its last line is no entry of a journal") from None


def _end(file: Any, size: int, most: int) -> tuple[bytes, bytes]:
    """The last whole line at least, and half a line behind it; so many bytes are read where that is enough."""
    start = file.seek(max(0, size - most))
    whole, _, half = file.read().rpartition(b"\n")
    return (whole, half) if not start or b"\n" in whole else _end(file, size, 2 * most)
