"""A stand-in for the interpreter that runs Pulumi's programs and plugins: it has imported their packages, and forks.

They would spend most of their CPU time on imports, at each ``pulumi up`` again. What runs is the program as it is, in a
process of its own with the caller's arguments, environment, folder and files, and it ends with the caller. Only
Pulumi's debug messages are not sent. This project's own modules are not imported beforehand: a program may be of
another checkout. The demo and the local ground call Python itself.
"""

from __future__ import annotations

import gc
import importlib
import marshal
import os
import random
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

import pulumi

from stacks.local.process.supervisor import die_with_parent
from tests.aws_descriptions import read_once

_CALLER: Final = Path(__file__).with_name("call_forked_python.py")
_IMPORTED: Final = (
    *("pulumi", "pulumi.runtime", "pulumi.runtime.proto.analyzer_pb2_grpc", "pydantic", "yaml", "kubernetes.client"),
    *(f"pulumi_aws.{name}" for name in ("autoscaling", "cloudwatch", "ebs", "ec2", "iam", "kms", "lb", "s3", "ssm")),
    *(f"pulumi_aws.{name}" for name in ("sqs", "vpc")),
    *(f"pulumi_kubernetes.{name}.v1" for name in ("admissionregistration", "apps", "core", "policy", "rbac")),
)
_OURS: Final = ("autoscaler", "stacks", "tests")
"""What this module itself imports."""
_SERVERS: Final[list[subprocess.Popen[bytes]]] = []
"""Of this process: one at most."""
_ASKED_OF_AWS: Final = ("autoscaling", "ec2", "elbv2", "iam", "ssm", "sts")
"""By most plugins."""


@cache
def forked_python() -> Path:
    """The program to call in place of Python; it works as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="forked-python-"))
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder / "socket")],
        stdin=subprocess.PIPE,  # and ends when it is closed, as by this process's end
        stdout=subprocess.PIPE,
    )
    _SERVERS.append(server)
    assert server.stdout
    assert server.stdout.readline(), "it did not start"
    program = folder / "python"
    words = (sys.executable, "-I", "-S", str(_CALLER), str(folder / "socket"))
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def main(address: str) -> None:
    """Fork for each caller, until standard input ends."""
    for name in _IMPORTED:
        getattr(importlib.import_module(name), "__all__", None)  # some load themselves when they are first looked at
    pulumi.log.debug = lambda *_, **__: None  # four of five calls to the engine, which drops them
    read_once(*_ASKED_OF_AWS)
    for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that end leave nothing
    end_with_me = die_with_parent()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(64)
        print("ready", flush=True)
        while server in select.select([server, sys.stdin], [], [])[0]:
            caller, _ = server.accept()
            if os.fork() == 0:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                end_with_me()
                _answer(caller)
            caller.close()
    shutil.rmtree(Path(address).parent)


def _answer(caller: socket.socket) -> NoReturn:
    """In a child: have another be what the caller was called as, and tell how it ended. Never comes back."""
    try:
        head, files, _, _ = socket.recv_fds(caller, 4, 3)
        with caller.makefile("rb") as rest:
            words, folder, environment = marshal.loads(rest.read(int.from_bytes(head, "little")))  # noqa: S302 - ours
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        end_with_me = die_with_parent()
        program = os.fork()
        if program == 0:
            caller.close()
            end_with_me()
            random.seed()
            os._exit(_run(words, folder))
        ended = _end_of(program, caller)
        with suppress(BrokenPipeError):  # the caller was killed, and what it ran with it
            caller.send(bytes([ended]))
    except BaseException:  # noqa: BLE001 - it would go on as a server
        traceback.print_exc()
    finally:
        os._exit(1)


def _end_of(program: int, caller: socket.socket) -> int:
    """The status, as a shell gives it, with which it ended; it gets the caller's signals, and ends with the caller."""
    over = os.pidfd_open(program)
    while over not in select.select([over, caller], [], [])[0]:
        told = caller.recv(1)
        os.kill(program, told[0] if told else signal.SIGKILL)
        if not told:
            break
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    return status if status >= 0 else 128 - status


def _run(words: list[str], folder: str) -> int:
    """The exit status of ``python WORDS`` in that folder."""
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    try:
        if words[0] == "-m":
            sys.argv, sys.path[0] = words[1:], folder
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            place = Path(words[0])
            sys.argv, sys.path[0] = words, str(place if place.is_dir() else place.parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter does it
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    main(sys.argv[1])
