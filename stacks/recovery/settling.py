"""How long AWS may still be at work on what a killed engine asked for, and when a look at it can be believed.

A call that AWS has taken goes on there though its caller is dead, and what it made is seen by a look some seconds later
still. So things are looked for until two looks in a row agree; and where a creation was begun and has left nothing yet,
for so long as such a call may take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from autoscaler.model.enumeration import few
from autoscaler.model.errors import Unavailable
from stacks.recovery.orphans import Orphan

WAIT: Final = timedelta(seconds=30)
"""For which a call may be on its way, and what it made unseen."""
_APART: Final = 5.0
"""Seconds between two looks."""
_AT_MOST: Final = 60.0
"""Seconds more for which the looks may differ."""
_SHOWN: Final = 5

Look = Callable[[], Sequence[Orphan]]


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to look again, on which clock."""

    wait: timedelta = WAIT
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep


def look_until_settled(
    look: Look, *, begun: Collection[str], patience: Patience, say: Callable[[str], object]
) -> Sequence[Orphan]:
    """What the last of the looks found; ``begun``: creations that may be on their way, as ``resource_of`` calls them.

    Raises ``Unavailable`` where the looks still differ a minute after all should be seen.
    """
    seconds = patience.wait.total_seconds()
    began = patience.clock()
    found = look()
    while True:
        missing = _missing(begun, found)
        if missing:
            say(_waiting(missing, passed=patience.clock() - began, seconds=seconds))
        patience.sleep(min(_APART, seconds))
        before, found = found, look()
        passed = patience.clock() - began
        if _whats(before) != _whats(found):
            if passed > seconds + _AT_MOST:
                raise Unavailable(f"AWS shows other things at each look, {passed:.0f} s long: run this again later")
        elif passed >= seconds or not _missing(begun, found):
            return found


def _missing(begun: Collection[str], found: Sequence[Orphan]) -> list[str]:
    return sorted(set(begun) - {one.resource for one in found})


def _whats(orphans: Sequence[Orphan]) -> set[tuple[str, str]]:
    return {(one.resource, one.what) for one in orphans}


def _waiting(missing: Sequence[str], *, passed: float, seconds: float) -> str:
    return (
        f"not seen so far: {few(missing, _SHOWN)}: AWS may still be at work on it, so it is looked for "
        f"again, {seconds - passed:.0f} s longer"
    )
