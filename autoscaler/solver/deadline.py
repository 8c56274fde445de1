"""How much of the time is over, by a clock that counts work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(slots=True)
class Work:
    """A clock that goes on only when work is counted: what is decided by it is the same on a slow machine.

    A unit is about what a core of 2024 does in a millisecond.
    """

    done: float = 0.0

    def __call__(self) -> float:
        """Returns the units counted so far."""
        return self.done


@dataclass(frozen=True, slots=True)
class Watch:
    """How much of the time is over."""

    clock: Work
    start: float = 0.0
    deadline: float = math.inf
    """Units of work after the start."""

    def spent(self) -> float:
        """Returns what is over as a part of all of it."""
        return (self.clock() - self.start) / self.deadline if self.deadline > 0 else 1.0

    def count(self, units: float) -> None:
        """Counts so much work as done."""
        self.clock.done += units

    def left(self) -> float:
        """Returns the units until the deadline."""
        return max(0.0, self.deadline - (self.clock() - self.start))

    def within(self, units: float) -> Watch:
        """Returns a watch that begins now and lasts so long."""
        return Watch(self.clock, self.clock(), units)

    def share(self, many: int) -> Watch:
        """The same, with a deadline that leaves as much time to each of the ``many - 1`` that come after."""
        if math.isinf(self.deadline):
            return self
        return Watch(self.clock, self.start, self.deadline - self.left() * (many - 1) / many)


@dataclass(frozen=True, slots=True)
class Units:
    """Counted work for each row of the problem: measured on openb (26 to 112 rows) as CPU milliseconds."""

    relaxation: float = 0.4
    kind: float = 0.043
    """One kind of node looked at."""
    kind_without_devices: float = 0.07
    """The same where no pod asks for devices: all that a node holds is put together anew. It takes about 0.12; counted
    as that, plans cost 0.3 % more."""
    few: float = 0.025
    """The same for some of the pods only."""
    master: float = 0.07
    """One solution of the master, from the last one."""
    table: float = 0.3
    """All kinds at once, without devices."""
    packed: float = 0.012
    """For each pod: one kind filled by packing alone."""
    enumerated: float = 0.13
    """All fillings of the kinds in short supply that have few."""
    whole: float = 0.18
    """From one point of the search for whole numbers to the next at which it is asked whether to go on."""


UNITS: Final = Units()
