"""Resident memory of a process, from /proc."""

from __future__ import annotations

from pathlib import Path


def resident_mib(pid: int | str, *, peak: bool = False) -> float:
    """Now, or at its highest."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) / 1024
    raise LookupError(wanted)
