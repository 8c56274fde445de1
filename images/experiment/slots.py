"""How many trials of a search run at once, and which begin and end now: a function of what is seen of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from autoscaler.model.errors import BadInput

Word = Literal["waiting", "running", "stopping", "returned", "raised", "stopped", "cancelled", "lost"]
"""Of a trial. stopped: as one of the worst; lost: its task ended without a result."""
ENDED: frozenset[Word] = frozenset({"returned", "raised", "stopped", "cancelled", "lost"})


@dataclass(frozen=True, slots=True)
class Slots:
    """How many trials run at once: ``least`` in any case, up to ``most`` as there is room."""

    least: int
    most: int

    @classmethod
    def parse(cls, given: object) -> Slots:
        """Parses a number, or a range such as ``1..8``. Raises ``BadInput``."""
        if isinstance(given, Slots):
            return given
        least, dots, most = str(given).partition("..")
        try:
            found = cls(int(least), int(most if dots else least))
        except ValueError:
            found = cls(0, 0)
        if not 1 <= found.least <= found.most:
            raise BadInput(f"slots = {given!r}: write how many trials may run at once: 4, or 1..8")
        return found

    def __str__(self) -> str:
        """Writes the slots as they are parsed: ``2..8``."""
        return f"{self.least}..{self.most}"


@dataclass(frozen=True, slots=True)
class Moves:
    """What is to be done now."""

    start: tuple[int, ...] = ()
    """Trials, each with whether it is one of the least in ``guaranteed``."""
    guaranteed: frozenset[int] = frozenset()
    """Of those that start: what may be bought for, the others take what is free."""
    stop: tuple[int, ...] = ()


def moves(
    trials: Sequence[Word], *, slots: Slots, room: int | None, losers: Collection[int] = (), guaranteed: int = 0
) -> Moves:
    """What begins and ends, given each trial's state by number.

    ``room``: for how many more there is room, ``None``: that is found out elsewhere. ``guaranteed``: how many of those
    that run are of the least. A trial that runs goes on when there are fewer slots; one that is being stopped holds its
    slot until it has ended.
    """
    held = sum(word in ("running", "stopping") for word in trials)
    free = max(0, slots.most - held)
    start = [number for number, word in enumerate(trials) if word == "waiting"]
    start = start[: free if room is None else min(free, room)]
    return Moves(
        start=tuple(start),
        guaranteed=frozenset(start[: max(0, slots.least - guaranteed)]),
        stop=tuple(number for number, word in enumerate(trials) if word == "running" and number in losers),
    )
