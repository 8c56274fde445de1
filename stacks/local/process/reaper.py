"""Holds a program and everything that it starts: ``python -m stacks.local.process.reaper OWNER PROGRAM ARGUMENTS...``.

The Pulumi engine starts plugins in process groups of their own, and one of them outlives an engine that is killed. The
leash adopts what it leaves behind (``PR_SET_CHILD_SUBREAPER``, prctl(2)) and kills that when the program has ended,
or when whoever started the leash, process ``OWNER``, is gone. It asks for the latter by itself: a ``preexec_fn`` would
run Python after the fork, and a Ctrl-C that falls in there is lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def leashed(command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` on a leash held by this process, from the thread that starts it.

    Told to end (SIGTERM, SIGHUP), it ends all; SIGINT is passed on to the program.
    """
    return [sys.executable, "-m", __name__, str(os.getpid()), *command]


def hold(command: Sequence[str], *, owner: int) -> int:
    """Run the program; its exit status, once nothing of it is left."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != owner:  # it ended before we asked
        return 128 + signal.SIGTERM
    try:
        program = subprocess.Popen(command)
        signal.signal(signal.SIGINT, lambda number, _: program.send_signal(number))
        return program.wait()
    except OSError as error:
        print(f"{command[0]} could not be started: {error.strerror}", file=sys.stderr)
        return 127
    finally:
        _end_all_below()


def _end_all_below() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while below := _below(os.getpid()):
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _below(ancestor: int) -> list[int]:
    """Every process that descends from it."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    found = [ancestor]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


if __name__ == "__main__":
    sys.exit(hold(sys.argv[2:], owner=int(sys.argv[1])))
