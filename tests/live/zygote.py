"""Starts live autoscalers without the seconds that imports take: a process that has imported all of it, and forks.

``python -m tests.live.zygote``: each line of JSON on standard input is one to start; its process id is the answer.
What is started is the command as it is, in a process of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import spillway
from stacks.local.process.supervisor import die_with_parent

_IMPORTED: Final = ("autoscaler.service", "autoscaler.metrics", "kubernetes.config", "kubernetes.client", "boto3")


class Zygote:
    """One such process; what it starts ends with it."""

    def __init__(self, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env=os.environ | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def start(self, *argv: str, log: Path) -> Child:
        """`spillway ARGV`, which appends to the log."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"argv": argv, "log": str(log)}) + "\n")
        return Child(int(self._process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Child:
    """A process that another one has started."""

    def __init__(self, pid: int) -> None:
        self._pidfd = os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        """Nothing happens where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def wait(self) -> None:
        """Until it has ended."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.poll()


def main() -> None:
    """Fork for each line, until there are no more."""
    for name in _IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end leave nothing
    end_with_me = die_with_parent()
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            end_with_me()
            _run(asked["argv"], asked["log"])
        print(pid, flush=True)


def _run(argv: list[str], log: str) -> None:
    """In the child: never comes back."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(out, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        spillway.cli(argv, prog_name="spillway")
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
