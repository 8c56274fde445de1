"""Live replicas killed at their doors, in days of all weathers: ``python -m tests.bench faults --points 200 --seed 1``.

Deaths are dealt to days, ten each: every kind of call, before and after its effect, then calls that write by their
number, then any. A point that did not come in its day is told and counts for nothing. ``--first 40`` goes on where
another run stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from autoscaler.model.errors import Unavailable
from stacks.local.ground.control_plane import BINARIES, apply_manifests, control_plane, wait_for_namespace
from stacks.local.ground.lifecycle import RBAC
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.ports import free_ports
from stacks.local.toolchain.tools import ensure_tools
from tests.bench.figure import Figure
from tests.live.conftest import Plane
from tests.live.door_faults import Day, Point, Weather, live
from tests.live.doors import AFTER, BEFORE
from tests.live.hybrid import kept
from tests.live.weather import (
    api_server_is_away,
    aws_fails,
    by_capacity,
    clock_library,
    clocks_jump,
    etcd_is_slow,
    leader_freezes,
    watches_break,
)

CALLS: Final = {
    **dict.fromkeys(("LaunchInstances", "GET acting-policy", "PUT acting-policy", "GET memory", "GET ledger"), 1),
    **dict.fromkeys(("GetQueueUrl", "GetServiceQuota", "POST events", "POST leases", "DELETE nodes"), 1),
    **dict.fromkeys(("list jobs", "list daemonsets", "list nodes", "list pods", "watch jobs", "watch daemonsets"), 2),
    **dict.fromkeys(("watch nodes", "watch pods", "DescribeAutoScalingGroups", "DescribeInstances"), 2),
    **dict.fromkeys(("POST configmaps", "PUT ledger", "DescribeScalingActivities", "POST pods/eviction"), 1),
    "TerminateInstanceInAutoScalingGroup": 4,
    "PUT leases": 5,
    "GET leases": 12,
    "GET nodes": 8,
    "PUT memory": 10,
    "PATCH pods": 9,
    "PATCH nodes": 10,
}
"""Calls of a day without faults, and how often there are, at least."""
A_DAY: Final = 10
"""Deaths."""
AWAY: Final = 120.0
"""Seconds."""


def faults(many: int, *, first: int, seed: int) -> Iterator[Figure]:
    """So many deaths, and what was harmed."""
    chance = random.Random(f"{seed} {first}")  # noqa: S311 - reproducible
    died, harm, unmet, days = Counter[str](), list[str](), list[Point](), 0
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as place, ground(Path(place)) as (plane, weathers):
        clock, deck = clock_library(Path(place)), dealt(first + many, random.Random(seed))[first:]  # noqa: S311
        while deck:
            name, weather = weathers[(first // A_DAY + days) % len(weathers)]
            hand, deck = deck[:A_DAY], deck[A_DAY:]
            began, folder, days = time.monotonic(), Path(place) / f"day-{days}", days + 1
            day = live(plane, folder, deaths=hand, weather=weather, chance=chance, moves=0.3, clock=clock)
            died.update(f"{when} {kind}" for kind, when, _ in day.died)
            unmet += day.unmet
            harm += [f"{name}: {line}" for line in day.harm]
            print(f"  {name}: {len(day.died)} died in {time.monotonic() - began:.0f} s, harm: {day.harm}", flush=True)
            if day.harm:
                _tell_how(day, folder)
    for point, count in sorted(died.items()):
        print(f"  {count:3} {point}")
    print(f"  never came in their day: {unmet}")
    yield Figure(f"{died.total()} deaths at {len(died)} kinds of points in {days} days: harm done", len(harm), "", 0)


def _tell_how(day: Day, folder: Path) -> None:
    print(f"    at {day.died}")
    for log in folder.glob("*.log"):
        print(f"    {log.name}:\n{log.read_text(encoding='utf-8')[-6000:]}", flush=True)


def dealt(many: int, chance: random.Random) -> list[Point]:
    """Every kind before and after, in any order; then calls by their number, those that write three times as often.

    No call of a number twice in a day: at one that its caller did not live to see answered none dies again. A longer
    deck begins as a shorter one does.
    """
    kinds: list[Point] = [(kind, when, 1) for kind in CALLS for when in (BEFORE, AFTER)]
    chance.shuffle(kinds)
    weights = [count * (3 if writes_something(kind) else 1) for kind, count in CALLS.items()]
    deck: list[Point] = []
    while len(deck) < many:
        today = {(kind, number) for kind, _, number in deck[len(deck) // A_DAY * A_DAY :]}
        point = next((one for one in kinds if (one[0], one[2]) not in today), None)
        if point is not None:
            kinds.remove(point)
        else:
            ((kind, count),) = chance.choices(list(CALLS.items()), weights)
            point = kind, chance.choice((BEFORE, AFTER)), chance.randint(1, count)
        if (point[0], point[2]) not in today:
            deck.append(point)
    return deck


def writes_something(kind: str) -> bool:
    """Of calls of the API server the method says so, of calls of AWS the name."""
    return not kind.startswith(("GET", "list", "watch", "Describe", "Get"))


@contextlib.contextmanager
def ground(folder: Path) -> Iterator[tuple[Plane, list[tuple[str, Weather | None]]]]:
    """A control plane whose API server can be started anew, and weathers."""
    tools = ensure_tools(BINARIES, progress=lambda line: print(f"  {line}", flush=True))
    ports = free_ports(3)
    made = control_plane(folder / "plane", tools=tools, ports=(ports[0], ports[1], ports[2]))
    by_name = {one.name: dataclasses.replace(one, after=()) for one in made.processes}
    etcd, server = by_name.pop("etcd"), by_name.pop("kube-apiserver")
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as served:
        stack.enter_context(kept([etcd], directory=_made(folder / "keeper-etcd")))
        keeper = _made(folder / "keeper-server")
        served.enter_context(kept([server], directory=keeper))
        kube = _Patient(made.kubeconfig)
        wait_for_namespace(kube)
        apply_manifests(kube, RBAC.read_text(encoding="utf-8"))
        stack.enter_context(kept(list(by_name.values()), directory=_made(folder / "keeper-rest")))

        def restart() -> None:
            served.close()
            served.enter_context(kept([server], directory=keeper))

        plane = Plane.of(made, kube, folder)
        yield (
            plane,
            [
                ("nothing else", None),
                ("a leader frozen for 30 s, twice", leader_freezes),
                ("AWS fails 30 % of its calls", aws_fails),
                ("bought by desired capacity", by_capacity),
                ("etcd slow", etcd_is_slow(folder / "plane" / "etcd")),
                ("watches cut", watches_break),
                ("clocks that jump", clocks_jump),
                (f"API server away for {AWAY:.0f} s, its history gone", api_server_is_away(restart, AWAY)),
            ],
        )


class _Patient(KubeHttp):
    """The day's own requests wait while the API server is started anew."""

    def send(self, method: str, path: str, body: object = None, *, content: str = "application/json") -> Any:
        end = time.monotonic() + AWAY
        while True:
            try:
                return super().send(method, path, body, content=content)
            except Unavailable:
                if time.monotonic() > end:
                    raise
            time.sleep(0.3)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
