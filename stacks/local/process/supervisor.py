"""The keeper: one process that starts the processes of a local ground, holds them, and leaves none behind.

``python -m stacks.local.process.supervisor FILE`` reads a list of ``Process`` as JSON, starts each when those it comes
after are ready, and writes what stands where into ``status.json`` beside that file. It ends them in reverse order on
SIGTERM, and, with ``--tie``, when its standard input closes: when whoever started it is gone, however it went. Should
the keeper itself be killed, the kernel ends its children (``PR_SET_PDEATHSIG``, prctl(2)).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from autoscaler.config.signals import on_first_of
from autoscaler.model.errors import Unavailable
from stacks import ROOT

_STOP_PATIENCE = 8.0
_SETTLES = 0.3
"""Seconds after which a process that cannot be asked has not failed on its arguments."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Process:
    """One process to hold. It is ready when ``ready_url`` answers 2xx; without one, when it has not ended at once."""

    name: str
    argv: tuple[str, ...]
    log: str
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the keeper's own."""
    after: tuple[str, ...] = ()
    ready_url: str = ""
    authority: str = ""
    """CA file for an https ``ready_url``."""
    patience: float = 60.0
    """Seconds until it must be ready."""


@dataclass(frozen=True, slots=True)
class Held:
    """A process as the status file tells it. ``started`` (ticks since boot) tells it from a later one of that pid."""

    name: str
    pid: int
    started: int
    state: str
    """``starting``, ``ready`` or ``ended``."""


@dataclass(frozen=True, slots=True)
class Status:
    """The status file. ``failure``: what went wrong, in words; empty while nothing did."""

    pid: int
    started: int
    ready: bool
    failure: str
    held: tuple[Held, ...]


def start_keeper(processes: Sequence[Process], *, directory: Path, tie: bool) -> subprocess.Popen[bytes]:
    """Start a keeper for ``processes``; with ``tie`` it lives no longer than the caller. Raises ``Unavailable``."""
    plan = directory / "processes.json"
    plan.write_text(json.dumps([asdict(process) for process in processes]), encoding="utf-8")
    with (directory / "keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, str(plan), *(["--tie"] if tie else [])],
            stdin=subprocess.PIPE if tie else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=ROOT,
            start_new_session=True,  # a Ctrl-C at the terminal reaches the caller, which ends the keeper in order
        )
    try:
        _wait_until_ready(keeper, directory)
    except BaseException:  # of Ctrl-C too: nothing else knows of this keeper
        keeper.terminate()
        try:
            keeper.wait(timeout=3 * _STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            keeper.kill()  # what it holds dies with it
            keeper.wait()
        if keeper.stdin:
            keeper.stdin.close()
        raise
    return keeper


def stop_keeper(directory: Path) -> bool:
    """End the keeper of ``directory`` and all that it holds; ``False`` where none was running."""
    status = read_status(directory)
    if status is None:
        return False
    was_running = is_running(status.pid, status.started)
    if was_running:
        os.kill(status.pid, signal.SIGTERM)
        _wait_until_gone([(status.pid, status.started)], patience=3 * _STOP_PATIENCE)
    left = [(one.pid, one.started) for one in status.held] + [(status.pid, status.started)]
    for pid, started in left:
        if is_running(pid, started):
            os.kill(pid, signal.SIGKILL)
    _wait_until_gone(left, patience=_STOP_PATIENCE)
    return was_running


def read_status(directory: Path) -> Status | None:
    """What the keeper of ``directory`` said last; ``None`` before it said anything."""
    try:
        raw = json.loads((directory / "status.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Status(**raw | {"held": tuple(Held(**one) for one in raw["held"])})


def is_running(pid: int, started: int) -> bool:
    """Whether the process is still the one that started then, and not a later one that was given its pid."""
    return started != 0 and start_time(pid) == started


def start_time(pid: int) -> int:
    """Ticks from boot to the start of the process (field 22 of /proc/PID/stat); 0 where it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def die_with_parent() -> Callable[[], None]:
    """A ``preexec_fn`` that has the kernel kill the new process when the thread that starts it ends.

    The C library is looked up here, before the fork: after it, another thread's lock on the loader would never open.
    """
    libc, parent = ctypes.CDLL(None), os.getpid()

    def ask_the_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended between the fork and the request
            os.kill(os.getpid(), signal.SIGKILL)

    return ask_the_kernel


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log, indented, for a message."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return "    (no log)"
    said = text.splitlines()
    panics = [place for place, line in enumerate(said) if line.startswith(("panic: ", "fatal error: "))]
    said = said[panics[-1] :][:lines] if panics else said[-lines:]  # not where Go was, but why it ended
    return "\n".join(f"    {line[:300]}" for line in said) or "    (its log is empty)"


def _wait_until_ready(keeper: subprocess.Popen[bytes], directory: Path) -> None:
    while True:
        status = read_status(directory)
        mine = status is not None and status.pid == keeper.pid
        if status and mine and status.failure:
            raise Unavailable(status.failure)
        if status and mine and status.ready:
            return
        if keeper.poll() is not None:
            raise Unavailable(f"the keeper of the local ground ended at once:\n{tail(directory / 'keeper.log')}")
        time.sleep(0.02)


def _wait_until_gone(processes: Sequence[tuple[int, int]], *, patience: float) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end and any(is_running(pid, started) for pid, started in processes):
        time.sleep(0.02)


class _Keeper:
    """Runs in the keeper process. All forks happen in its main thread, which PDEATHSIG is bound to."""

    def __init__(self, processes: Sequence[Process], *, directory: Path) -> None:
        self._processes = {process.name: process for process in processes}
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._begun: dict[str, float] = {}
        self._ready: set[str] = set()
        self._ended: set[str] = set()
        self._failure = ""
        self._stop = threading.Event()

    def run(self, *, tie: bool) -> int:
        """Hold everything until asked to stop, or until something fails."""
        on_first_of((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), self._stop.set)
        if tie:
            threading.Thread(target=self._wait_for_end_of_input, daemon=True).start()
        try:
            while not self._stop.is_set() and not (self._failure and self._is_starting()):
                changed = self._start_what_can() | self._see_what_ended() | self._see_what_is_ready()
                if changed:
                    self._tell()
                self._stop.wait(0.03 if self._is_starting() else 0.5)
        finally:
            self._end_all()
            self._tell()
        return 1 if self._failure else 0

    def _is_starting(self) -> bool:
        """Says whether one that fails ends them all: until all are ready; later the others are held."""
        return len(self._ready) < len(self._processes)

    def _start_what_can(self) -> bool:
        waiting = [one for name, one in self._processes.items() if name not in self._running]
        can = [one for one in waiting if self._ready.issuperset(one.after)]
        for process in can:
            with Path(process.log).open("ab") as log:
                try:
                    self._running[process.name] = subprocess.Popen(
                        process.argv,
                        env=os.environ | process.env,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        cwd=self._directory if process.argv[0] != sys.executable else None,
                        start_new_session=True,
                        preexec_fn=die_with_parent(),  # noqa: PLW1509 - it takes no lock in the child
                    )
                except OSError as error:
                    self._failure = f"{process.name} could not be started: {error}"
                    return True
            self._begun[process.name] = time.monotonic()
        return bool(can)

    def _see_what_is_ready(self) -> bool:
        starting = [self._processes[name] for name in self._running.keys() - self._ready]
        for process in starting:
            age = time.monotonic() - self._begun[process.name]
            if answers(process.ready_url, process.authority) if process.ready_url else age > _SETTLES:
                self._ready.add(process.name)
            elif age > process.patience:
                said = tail(Path(process.log))
                self._failure = (
                    f"{process.name} was not ready after {process.patience:.0f} s; its log ends with:\n{said}"
                )
        return bool(self._failure) or not self._ready.isdisjoint(process.name for process in starting)

    def _see_what_ended(self) -> bool:
        ended = {name for name, running in self._running.items() if running.poll() is not None} - self._ended
        for name in ended if not self._stop.is_set() else ():
            code = self._running[name].returncode
            how = f"with status {code}" if code >= 0 else f"by signal {signal.Signals(-code).name}"
            said = tail(Path(self._processes[name].log))
            self._failure = self._failure or f"{name} ended by itself ({how}); its log ends with:\n{said}"
        self._ended |= ended
        return bool(ended)

    def _tell(self) -> None:
        status = Status(
            pid=os.getpid(),
            started=start_time(os.getpid()),
            ready=len(self._ready) == len(self._processes),
            failure=self._failure,
            held=tuple(
                Held(name=name, pid=one.pid, started=start_time(one.pid), state=self._state(name, one))
                for name, one in self._running.items()
            ),
        )
        fresh = self._directory / "status.json.new"
        try:
            fresh.write_text(json.dumps(asdict(status)), encoding="utf-8")
            fresh.rename(self._directory / "status.json")
        except FileNotFoundError:
            pass  # the ground's folder was taken away: nothing is left to tell

    def _state(self, name: str, process: subprocess.Popen[bytes]) -> str:
        if process.poll() is not None:
            return "ended"
        return "ready" if name in self._ready else "starting"

    def _end_all(self) -> None:
        """Each when nothing that came after it is left; those beside one another at once."""
        left = dict(self._running)
        while left:
            needed = {name for one in left for name in self._processes[one].after}
            last = [left.pop(name) for name in left.keys() - needed]
            for process in last:
                process.terminate()
            end = time.monotonic() + _STOP_PATIENCE
            for process in last:
                try:
                    process.wait(timeout=max(0.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _wait_for_end_of_input(self) -> None:
        while sys.stdin.buffer.read(1):
            pass
        self._stop.set()


def answers(url: str, authority: str = "") -> bool:
    """Whether a server answers there without an error. ``authority``: file of the certificate that signs its own."""
    context = ssl.create_default_context(cafile=authority) if authority else None
    try:
        with urllib.request.urlopen(url, timeout=1, context=context):  # noqa: S310 - our own address on loopback
            return True
    except (urllib.error.URLError, OSError, ValueError):
        return False


def main() -> int:
    """Starts, holds and ends the processes of a plan."""
    parser = argparse.ArgumentParser(description="Start, hold and end the processes of a local ground.")
    parser.add_argument("plan", type=Path)
    parser.add_argument("--tie", action="store_true", help="end when standard input closes")
    asked = parser.parse_args()
    listed = json.loads(asked.plan.read_text(encoding="utf-8"))
    processes = [Process(**one | {"argv": tuple(one["argv"]), "after": tuple(one["after"])}) for one in listed]
    return _Keeper(processes, directory=asked.plan.parent).run(tie=asked.tie)


if __name__ == "__main__":
    sys.exit(main())
