"""Starts Python programs without the seconds that imports take: a process that has imported all of one, and forks.

``python -m tests.live.zygote PROGRAM``: each line of JSON on standard input is one to start, of which the process id is
the answer, or one that has ended, of which the exit status is. What is started is the program as it is, in a process of
its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn

import spillway
from stacks.local.process.supervisor import die_with_parent
from tests.aws_descriptions import read_once

SPILLWAY: Final = "spillway"
AWS: Final = "stacks.local.fake_aws.server"
_IMPORTED: Final = {
    SPILLWAY: ("autoscaler.service", "autoscaler.reporting.metrics", "kubernetes.config", "kubernetes.client", "boto3"),
    AWS: (AWS, "moto.ec2.responses", "moto.autoscaling.responses"),
}
_SERVICES: Final = {
    SPILLWAY: ("ec2", "autoscaling", "pricing", "service-quotas", "sqs"),
    AWS: ("ec2", "autoscaling", "iam", "sts"),
}
"""Those of AWS that each asks, or is asked for in each test."""


class Zygote:
    """One such process; what it starts ends with it."""

    def __init__(self, program: str, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, program],
            env=os.environ | (env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._lock = threading.Lock()

    def start(self, *argv: str, log: Path, errors: Path | None = None, env: Mapping[str, str] | None = None) -> Child:
        """The program with these arguments, and more of an environment.

        It appends to the log, with standard error where this has no file of its own.
        """
        files = log, errors or log
        for file in files:
            file.touch()
        return Child(self, self.ask(argv=argv, files=list(map(str, files)), env=dict(env or {})))

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """The same until it ends; it has a minute."""
        with tempfile.TemporaryDirectory() as folder:
            out, errors = Path(folder, "out"), Path(folder, "errors")
            child = self.start(*argv, log=out, errors=errors, env=env)
            try:
                status = child.wait(60)
            finally:
                child.kill()
            said = [file.read_text(encoding="utf-8") for file in (out, errors)]
            return subprocess.CompletedProcess(argv, status, *said)

    def ask(self, **line: object) -> int:
        """Its answer."""
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            self._process.stdin.write(json.dumps(line) + "\n")
            return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


@cache
def zygote(program: str) -> Zygote:
    """One for all of a test process; it ends with it."""
    return Zygote(program)


class Child:
    """A process that another one has started: as :class:`subprocess.Popen`."""

    def __init__(self, parent: Zygote, pid: int) -> None:
        self._parent, self.pid = parent, pid
        self._pidfd = os.pidfd_open(pid)  # an ended process keeps its number until its status is asked for
        self._status: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Its exit status, below zero the signal that ended it; ``None`` while it runs."""
        return self._status if self._has_ended(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """The same when it has ended. ``subprocess.TimeoutExpired``: so many seconds were not enough."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self._status is not None
        return self._status

    def send_signal(self, number: int) -> None:
        """Nothing happens where it has ended."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._status is None:
                signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        """As the kernel would."""
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout: float | None) -> bool:
        if self._status is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1e3):
                return False
        with self._lock:
            if self._status is None:
                self._status = self._parent.ask(ended=self.pid)
                os.close(self._pidfd)
        return True


def main(program: str) -> None:
    """Fork for each line, until there are no more."""
    for name in _IMPORTED[program]:
        importlib.import_module(name)
    read_once(*_SERVICES[program])
    if program == AWS:
        _read_what_aws_serves()
    gc.collect()
    gc.freeze()
    end_with_me = die_with_parent()
    for line in sys.stdin:
        asked = json.loads(line)
        if "ended" in asked:
            _, status = os.waitpid(asked["ended"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            end_with_me()
            _run(program, asked["argv"], asked["files"], asked["env"])
        print(pid, flush=True)


def _read_what_aws_serves() -> None:
    """What moto reads at the first call of each service, and makes at the first of all."""
    utils: Any = importlib.import_module("moto.core.utils")
    for service in _SERVICES[AWS]:
        utils.get_service_model(service)
    server: Any = importlib.import_module(AWS)
    server.made_policies(server.ACCOUNT, "aws")


def _run(program: str, argv: list[str], files: list[str], env: Mapping[str, str]) -> NoReturn:
    """In the child: never comes back, and ends as the program does."""
    os.environ.update(env)
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if program == AWS:
        _draw_other_names()
        sys.exit(importlib.import_module(AWS).main(argv))
    sys.argv[1:] = argv
    spillway.main()


def _draw_other_names() -> None:
    """Those of two that were forked from one would be the same: instances, subnets, images."""
    random.seed()
    drawn: Any = importlib.import_module("moto.moto_api._internal")
    drawn.mock_random.seed(random.getrandbits(64))


if __name__ == "__main__":
    main(sys.argv[1])
