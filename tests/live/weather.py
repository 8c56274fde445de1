"""What may go wrong around two live replicas for a whole day, beside their deaths."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.live.door_faults import Replica, Sky, Weather
from tests.live.doors import BEFORE, LostError, When
from tests.live.test_refusals import DENIED

SHARE: Final = 0.3
"""Of the calls of AWS that fail."""
FROZEN: Final = 30.0
"""Seconds for which the leader stands still."""
JUMPS: Final = (-300, -60, 60, 300)
"""Seconds by which a clock is wrong: less than the boot timeout, which AWS's times are held against."""


@contextlib.contextmanager
def by_capacity(sky: Sky) -> Iterator[None]:
    """The account may not launch at once: nodes are bought by desired capacity."""
    sky.aws.put_faults(DENIED)
    yield


@contextlib.contextmanager
def aws_fails(sky: Sky) -> Iterator[None]:
    """A share of the calls is lost, half of them before they have their effect and half of them after it."""

    def at(kind: str, _when: When) -> None:
        if kind[0].isupper() and " " not in kind and sky.chance.random() < SHARE / 2:
            raise LostError

    sky.points.also = at
    try:
        yield
    finally:
        sky.points.also = lambda _kind, _when: None


@contextlib.contextmanager
def watches_break(sky: Sky) -> Iterator[None]:
    """Every three seconds all of them do."""

    def cut() -> None:
        for replica in sky.replicas:
            replica.kube.cut_watches()

    with _every(3.0, cut):
        yield


@contextlib.contextmanager
def clocks_jump(sky: Sky) -> Iterator[None]:
    """Each replica's own, every four seconds; they are right in the end."""

    def jump() -> None:
        sky.chance.choice(sky.replicas).set_clock(sky.chance.choice(JUMPS))

    with _every(4.0, jump):
        yield
    for replica in sky.replicas:
        replica.set_clock(0)


@contextlib.contextmanager
def leader_freezes(sky: Sky) -> Iterator[None]:
    """With an order on its way to AWS, and at a write of a Node; it goes on when the other one has acted for long."""

    def freeze(replica: Replica) -> bool:
        replica.freeze(FROZEN)
        return False

    sky.points.arm("LaunchInstances", BEFORE, 1, freeze)
    sky.points.arm("PATCH nodes", BEFORE, 6, freeze)
    yield


def etcd_is_slow(data: Path) -> Weather:
    """It stands still for half of the time; ``data``: its folder."""
    [pid] = [
        int(place.name)
        for place in Path("/proc").iterdir()
        if place.name.isdigit() and f"--data-dir={data}" in _line_of(place)
    ]

    @contextlib.contextmanager
    def weather(_sky: Sky) -> Iterator[None]:
        signals = itertools.cycle((signal.SIGSTOP, signal.SIGCONT))
        try:
            with _every(0.7, lambda: os.kill(pid, next(signals))):
                yield
        finally:
            os.kill(pid, signal.SIGCONT)

    return weather


def api_server_is_away(
    restart: Callable[[], None], seconds: float
) -> Callable[[Sky], contextlib.AbstractContextManager[None]]:
    """Early in the day, for so long; what comes back knows nothing of the past."""

    @contextlib.contextmanager
    def weather(sky: Sky) -> Iterator[None]:
        def outage(over: threading.Event) -> None:
            over.wait(8)
            for replica in sky.replicas:
                replica.kube.go_away(away=True)
            restart()
            over.wait(seconds)
            for replica in sky.replicas:
                replica.kube.go_away(away=False)

        with _beside(outage):
            yield

    return weather


def clock_library(folder: Path) -> Path:
    """Compile what moves a process's wall clock."""
    made = folder / "clock_shift.so"
    source = Path(__file__).with_name("clock_shift.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", made, source, "-ldl"], check=True)
    return made


@contextlib.contextmanager
def _every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    def go_on(over: threading.Event) -> None:
        while not over.wait(seconds):
            act()

    with _beside(go_on):
        yield


@contextlib.contextmanager
def _beside(go_on: Callable[[threading.Event], None]) -> Iterator[None]:
    """In a thread of its own, which ends soon after the event is set."""
    over = threading.Event()
    thread = threading.Thread(target=go_on, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _line_of(place: Path) -> str:
    try:
        return (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
