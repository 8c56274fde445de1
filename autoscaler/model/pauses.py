"""Pauses: what an operator has told the autoscaler to leave alone, why, and until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

ALL: Final = "all"
BUYING: Final = "buying"
BUDGET: Final = "budget"
"""Of buying, by a budget that is spent."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is bought or terminated, everywhere or in one group; or nothing is bought."""

    scope: str
    """``all``, or ``group.NAME`` of an entry; of buying alone ``buying`` or ``budget``, each maybe with ``.NAME``."""
    because: str = ""
    by: str = ""
    since: datetime | None = None
    until: datetime | None = None
    """``None``: until it is resumed."""

    @property
    def what(self) -> str:
        """What is paused, in words."""
        what = "buying" if self.scope.startswith((BUYING, BUDGET)) else "buying and terminating"
        return f"{what} in group {self.group}" if self.group else what

    @property
    def ends_if(self) -> str:
        """What ends it, for an operator."""
        if self.scope.startswith(BUDGET):
            return "the budget is raised, or that time has come"
        return "it is resumed (spillway autoscale resume)"

    @property
    def group(self) -> str:
        """The policy entry; empty where it is not one alone."""
        return self.scope.partition(".")[2]

    def __str__(self) -> str:
        """In one line."""
        by = f" by {self.by}" if self.by else ""
        until = f"until {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else "until it is resumed"
        return f"{self.what} is paused {until}{by}: {self.because or 'no reason was given'}"

    def stops_buying(self, entry: str) -> bool:
        """Whether nothing is bought in the entry's groups."""
        return not self.group or self.group == entry

    def stops_terminating(self, entry: str) -> bool:
        """Whether no node of the entry's groups is cordoned or terminated."""
        return self.scope in (ALL, f"group.{entry}")

    def is_over(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.until is not None and self.until <= now


def in_force(pauses: Iterable[Pause], now: datetime) -> tuple[Pause, ...]:
    """Those whose time is not over, in order of scope."""
    return tuple(sorted((one for one in pauses if not one.is_over(now)), key=lambda one: one.scope))
