"""The keeper: what it starts it ends, however it is ended itself, and what fails is named."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.model.errors import Unavailable
from stacks.local.process.supervisor import (
    Held,
    Process,
    is_running,
    read_status,
    start_keeper,
    start_time,
    stop_keeper,
)

pytestmark = pytest.mark.live


def sleeper(directory: Path, name: str, **changes: object) -> Process:
    """A process that does nothing for a minute."""
    ordinary = {"argv": ("/bin/sleep", "60"), "log": str(directory / f"{name}.log")}
    return Process(name=name, **ordinary | changes)  # type: ignore[arg-type]


@contextlib.contextmanager
def kept(directory: Path, *processes: Process) -> Iterator[None]:
    """A keeper for the length of a ``with`` block."""
    keeper = start_keeper(processes, directory=directory, tie=False)
    try:
        yield
    finally:
        stop_keeper(directory)
        keeper.wait(timeout=20)


def held(directory: Path) -> tuple[Held, ...]:
    """What the keeper says of its processes."""
    status = read_status(directory)
    return status.held if status else ()


def failure(directory: Path) -> str:
    """What the keeper says went wrong."""
    status = read_status(directory)
    return status.failure if status else ""


def wait_until(holds: Callable[[], bool]) -> None:
    """Give it a moment."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def wait_until_ended(directory: Path) -> None:
    """Until every process that the keeper held is gone."""
    status = read_status(directory)
    assert status is not None
    end = time.monotonic() + 20
    while any(is_running(one.pid, one.started) for one in status.held):
        assert time.monotonic() < end, status
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_keeper(tmp_path: Path, number: signal.Signals) -> None:
    """Asked to stop, or killed: its processes end with it."""
    keeper = start_keeper([sleeper(tmp_path, "a"), sleeper(tmp_path, "b")], directory=tmp_path, tie=False)
    os.kill(keeper.pid, number)
    keeper.wait(timeout=20)
    wait_until_ended(tmp_path)


def test_a_tied_keeper_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    """As after a crash halfway: no handler of ours runs in the process that dies."""
    program = (
        "import sys, time; from pathlib import Path; from stacks.local.process.supervisor import Process, start_keeper;"
        "d = Path(sys.argv[1]); start_keeper([Process(name='a', argv=('/bin/sleep', '60'), log=str(d / 'a.log'))],"
        " directory=d, tie=True); print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        starter.kill()
    wait_until_ended(tmp_path)


def test_a_process_that_fails_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    """And the others are taken down."""
    broken = sleeper(tmp_path, "broken", argv=("/bin/sh", "-c", "echo address already in use >&2; exit 3"))
    late = sleeper(tmp_path, "late", after=("never",))
    with pytest.raises(Unavailable, match=r"broken ended by itself \(with status 3\).*\n.*address already in use"):
        start_keeper([sleeper(tmp_path, "good"), broken, late], directory=tmp_path, tie=True)
    wait_until_ended(tmp_path)


def test_of_a_log_that_ends_in_a_panic_the_reason_is_told(tmp_path: Path) -> None:
    """Not where in its sources Go was: etcd on a disk that is full says nothing else."""
    says = "echo starting; echo panic: no space left on device; seq 30; exit 2"
    with pytest.raises(Unavailable, match="its log ends with:\n    panic: no space left on device\n    1\n"):
        start_keeper([sleeper(tmp_path, "etcd", argv=("/bin/sh", "-c", says))], directory=tmp_path, tie=True)


def test_a_port_that_is_taken_is_told_by_the_process_that_wanted_it(tmp_path: Path) -> None:
    """In its own words, and the rest is taken down."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = sleeper(tmp_path, "server", argv=(sys.executable, "-m", "http.server", "-b", "127.0.0.1", str(port)))
        with pytest.raises(Unavailable, match=r"server ended by itself .*(\n.*)*Address already in use"):
            start_keeper([replace(server, ready_url=f"http://127.0.0.1:{port}/")], directory=tmp_path, tie=True)
    wait_until_ended(tmp_path)


def test_a_process_that_fails_on_its_arguments_is_told_though_nobody_can_ask_it(tmp_path: Path) -> None:
    """Having been started is not being there."""
    wrong = sleeper(tmp_path, "wrong", argv=("/bin/sh", "-c", "sleep 0.1; echo unknown flag >&2; exit 1"))
    with pytest.raises(Unavailable, match=r"wrong ended by itself \(with status 1\).*\n.*unknown flag"):
        start_keeper([wrong], directory=tmp_path, tie=True)


def test_one_that_dies_later_is_named_and_the_others_are_held(tmp_path: Path) -> None:
    """A cluster without its scheduler is still worth a look."""
    with kept(tmp_path, sleeper(tmp_path, "a"), sleeper(tmp_path, "b")):
        first, second = held(tmp_path)
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: "a ended by itself (by signal SIGKILL)" in failure(tmp_path))
        assert [one.state for one in held(tmp_path)] == ["ended", "ready"]
        assert is_running(second.pid, second.started)


def test_one_that_others_need_ends_after_them(tmp_path: Path) -> None:
    """A scheduler that loses its API server first would only complain."""
    say = "trap 'echo {0} >>{1}; exit' TERM; while :; do sleep 0.05; done"
    processes = [
        sleeper(tmp_path, name, argv=("/bin/sh", "-c", say.format(name, tmp_path / "order")), after=after)
        for name, after in (("last", ()), ("middle", ("last",)), ("first", ("middle",)))
    ]
    with kept(tmp_path, *processes):
        pass
    assert (tmp_path / "order").read_text(encoding="utf-8").split() == ["first", "middle", "last"]


def test_a_start_that_is_interrupted_leaves_no_keeper(tmp_path: Path) -> None:
    """Ctrl-C while the control plane comes up, and nobody to end it later."""
    program = (
        "import sys; from pathlib import Path; from stacks.local.process.supervisor import Process, start_keeper;"
        "d = Path(sys.argv[1]); start_keeper([Process(name='a', argv=('/bin/sleep', '60'), log=str(d / 'a.log'),"
        " ready_url='http://127.0.0.1:9/')], directory=d, tie=False)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.PIPE) as starter:
        wait_until(lambda: bool(held(tmp_path)))
        starter.send_signal(signal.SIGINT)
        starter.communicate(timeout=20)
    wait_until_ended(tmp_path)
    status = read_status(tmp_path)
    assert status is not None
    assert not is_running(status.pid, status.started)


def test_a_process_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    """In words that name it."""
    deaf = sleeper(tmp_path, "deaf", ready_url="http://127.0.0.1:9/", patience=0.3)
    with pytest.raises(Unavailable, match="deaf was not ready after 0 s"):
        start_keeper([deaf], directory=tmp_path, tie=True)
    wait_until_ended(tmp_path)


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    """Not a stack trace in a log that nobody reads."""
    with pytest.raises(Unavailable, match=r"ghost could not be started: .*No such file"):
        start_keeper([sleeper(tmp_path, "ghost", argv=("/nowhere/ghost",))], directory=tmp_path, tie=True)


def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    """The second time there is nothing to stop, and a later process of the same pid would be left alone."""
    keeper = start_keeper([sleeper(tmp_path, "a")], directory=tmp_path, tie=False)
    assert stop_keeper(tmp_path)
    keeper.wait(timeout=20)
    assert not stop_keeper(tmp_path)


def test_a_zombie_has_ended() -> None:
    """It has a number still, and its start; nothing of it runs."""
    child = os.fork()
    if not child:
        os._exit(0)
    end = time.monotonic() + 30
    while Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end
        time.sleep(0.01)
    assert start_time(child) == 0
    os.waitpid(child, 0)
    assert start_time(child) == 0
    assert start_time(os.getpid()) > 0
