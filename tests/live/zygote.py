"""Starts Python programs without the seconds that imports take: a process that has imported all of one, and forks.

``python -m tests.live.zygote PROGRAM``: each line of JSON on standard input is one to start; its process id is the
answer. What is started is the program as it is, in a process of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import spillway
from stacks.local.process.supervisor import die_with_parent

SPILLWAY: Final = "spillway"
AWS: Final = "stacks.local.fake_aws.server"
_IMPORTED: Final = {
    SPILLWAY: ("autoscaler.service", "autoscaler.reporting.metrics", "kubernetes.config", "kubernetes.client", "boto3"),
    AWS: (AWS, "moto.ec2.responses", "moto.autoscaling.responses"),
}
_ASKED_OF_AWS: Final = ("ec2", "autoscaling", "iam", "sts")
"""Services whose description each test reads; that of EC2 takes half a second."""


class Zygote:
    """One such process; what it starts ends with it."""

    def __init__(self, program: str, env: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, program],
            env=os.environ | (env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def start(self, *argv: str, log: Path) -> Child:
        """The program with these arguments; it appends to the log."""
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

    def wait(self, timeout: float | None = None) -> bool:
        """Until it has ended, or so many seconds: whether it has."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1e3))

    def close(self) -> None:
        """Nothing is asked of it any more; killed where it has not ended."""
        self.send_signal(signal.SIGKILL)
        self.wait()
        os.close(self._pidfd)


def main(program: str) -> None:
    """Fork for each line, until there are no more."""
    for name in _IMPORTED[program]:
        importlib.import_module(name)
    if program == AWS:
        _read_what_aws_offers()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end leave nothing
    end_with_me = die_with_parent()
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            end_with_me()
            _run(program, asked["argv"], asked["log"])
        print(pid, flush=True)


def _read_what_aws_offers() -> None:
    """What moto reads at the first call of each service."""
    utils: Any = importlib.import_module("moto.core.utils")
    for service in _ASKED_OF_AWS:
        utils.get_service_model(service)


def _run(program: str, argv: list[str], log: str) -> None:
    """In the child: never comes back."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(out, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    status = 1
    try:
        if program == AWS:
            _draw_other_names()
            status = importlib.import_module(AWS).main(argv)
        else:
            spillway.cli(argv, prog_name="spillway")
    finally:
        os._exit(status)


def _draw_other_names() -> None:
    """Those of two that were forked from one would be the same: instances, subnets, images."""
    random.seed()
    drawn: Any = importlib.import_module("moto.moto_api._internal")
    drawn.mock_random.seed(random.getrandbits(64))


if __name__ == "__main__":
    main(sys.argv[1])
