"""A scripted day of work: gangs and services that arrive, end and fail, drawn from a seed.

Sizes are those of the openb trace (its pods in proportion). More arrives by day than by night: the rate is a sine with
its top at noon. Half of the pods come in gangs of 2 to 16, the rest in services of 1 to 6 replicas.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GANGS: Final = 0.5
"""Share of pods that come in gangs."""
FAILING: Final = 0.1
"""Share of gangs of which one pod fails: all of the gang is deleted, and submitted once more."""
NIGHT: Final = 0.2
"""The rate at night over that at noon."""
MEDIAN, LONGEST, SPREAD = 900.0, 7200.0, 1.0
"""Seconds that work lasts: log-normal."""
_DAY: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Size:
    """What one pod asks for."""

    cpu_milli: int
    memory_mib: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Work:
    """A gang, or a service."""

    name: str
    at: float
    """Seconds after the day's beginning."""
    lasts: float
    """Seconds, from when all its pods run for a gang, from its arrival for a service."""
    pods: int
    size: Size
    is_gang: bool
    fails: bool = False


def sizes_of(table: Path) -> list[Size]:
    """What the pods of the trace ask for."""
    with table.open(encoding="utf-8") as rows:
        return [
            Size(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"])) for row in csv.DictReader(rows)
        ]


def draw(seed: int, sizes: Sequence[Size], *, hours: float, pods_per_hour: float) -> list[Work]:
    """``hours`` around noon, with so many pods an hour at the top; the same seed gives the same day.

    Nothing arrives in the last tenth, so that all can still begin.
    """
    dice = random.Random(seed)  # noqa: S311 - drawn to be drawn again
    begin, end = _DAY / 2 - hours * 1800, _DAY / 2 + hours * 1800
    found: list[Work] = []
    at = begin
    while True:
        is_gang = dice.random() < GANGS
        pods = dice.randint(2, 16) if is_gang else dice.randint(1, 6)
        rate = pods_per_hour / 3600 * (NIGHT + (1 - NIGHT) * (1 - math.cos(2 * math.pi * at / _DAY)) / 2)
        at += dice.expovariate(rate / pods)
        if at >= end - (end - begin) / 10:
            return found
        found.append(
            Work(
                name=f"{'gang' if is_gang else 'service'}-{len(found):04d}",
                at=at - begin,
                lasts=min(LONGEST, dice.lognormvariate(math.log(MEDIAN), SPREAD)),
                pods=pods,
                size=dice.choice(sizes),
                is_gang=is_gang,
                fails=is_gang and dice.random() < FAILING,
            )
        )
