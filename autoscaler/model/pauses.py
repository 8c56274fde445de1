"""Pauses: what an operator has told the autoscaler to leave alone, why, and until when."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

ALL: Final = "all"
BUYING: Final = "buying"
BUDGET: Final = "budget"
"""Of buying, by a budget that is spent."""
BLOCK: Final = "block"
"""Of buying, outside the time of a Capacity Block."""
_NAMESPACE: Final = "namespace/"
"""Before the name of a namespace in a scope; no policy entry has a slash in its name."""
_OWNER: Final = "owner/"
"""Likewise of an owner."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which nothing is bought or terminated, everywhere or in one group; or nothing is bought."""

    scope: str
    """``all``, or ``group.NAME`` of an entry; of buying alone ``buying`` or ``budget``, each maybe with ``.NAME``.

    ``budget.namespace/NAME`` and ``budget.owner/NAME``: of buying for the pods of a namespace, or of an owner.
    ``block.NAME``: of buying, by a Capacity Block.
    """
    because: str = ""
    by: str = ""
    since: datetime | None = None
    until: datetime | None = None
    """``None``: until it is resumed."""

    @property
    def what(self) -> str:
        """What is paused, in words."""
        what = "buying" if self.scope.startswith((BUYING, BUDGET, BLOCK)) else "buying and terminating"
        if self.namespace:
            return f"{what} for namespace {self.namespace}"
        if self.owner:
            return f"{what} for owner {self.owner}"
        return f"{what} in group {self.group}" if self.group else what

    @property
    def ends_if(self) -> str:
        """What ends it, for an operator."""
        if self.scope.startswith(BUDGET):
            return "the budget is raised, or that time has come"
        if self.scope.startswith(BLOCK):
            return (
                f"the time comes: {self.because}" if self.until else "its entry names a Capacity Block with time left"
            )
        return "it is resumed (spillway autoscale resume)"

    @property
    def group(self) -> str:
        """The policy entry; empty where it is not one alone."""
        return "" if self.namespace or self.owner else self.scope.partition(".")[2]

    @property
    def namespace(self) -> str:
        """The namespace for whose pods nothing is bought; empty where it is not one alone."""
        name = self.scope.partition(".")[2]
        return name.removeprefix(_NAMESPACE) if name.startswith(_NAMESPACE) else ""

    @property
    def owner(self) -> str:
        """The owner for whose pods nothing is bought; empty where it is not one alone."""
        name = self.scope.partition(".")[2]
        return name.removeprefix(_OWNER) if name.startswith(_OWNER) else ""

    def __str__(self) -> str:
        """Says what is paused, until when, by whose command and why, in one line."""
        by = f" by {self.by}" if self.by else ""
        if self.scope.startswith(BLOCK):
            return f"{self.what} waits: {self.because}"
        until = f"until {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else "until it is resumed"
        return f"{self.what} is paused {until}{by}: {self.because or 'no reason was given'}"

    def stops_buying(self, entry: str) -> bool:
        """Whether nothing is bought in the entry's groups, for any pod."""
        return not self.namespace and not self.owner and self.group in ("", entry)

    def stops_terminating(self, entry: str) -> bool:
        """Whether no node of the entry's groups is cordoned or terminated."""
        return self.scope in (ALL, f"group.{entry}")

    def is_over(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.until is not None and self.until <= now


def budget_of(*, entry: str = "", namespace: str = "", owner: str = "") -> str:
    """The scope of a spent budget: of all, of a policy entry, of a namespace, or of an owner."""
    name = f"{_NAMESPACE}{namespace}" if namespace else f"{_OWNER}{owner}" if owner else entry
    return f"{BUDGET}.{name}" if name else BUDGET


def stop_buying(pauses: Iterable[Pause], entry: str) -> tuple[Pause, ...]:
    """Those by which nothing is bought in the entry's groups: each of them has to end first."""
    return tuple(one for one in pauses if one.stops_buying(entry))


def spent_for(pauses: Iterable[Pause], *, namespace: str, owners: Collection[str]) -> Pause | None:
    """The budget by which nothing is bought for pods of the namespace and of these owners; the namespace's first."""
    found = [one for one in pauses if one.namespace == namespace != "" or (one.owner and one.owner in owners)]
    return min(found, key=lambda one: (not one.namespace, one.owner), default=None)


def in_force(pauses: Iterable[Pause], now: datetime) -> tuple[Pause, ...]:
    """Those whose time is not over, in order of scope."""
    return tuple(sorted((one for one in pauses if not one.is_over(now)), key=lambda one: one.scope))
