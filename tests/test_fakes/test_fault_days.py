"""How faults are dealt to days, and how what must not happen meanwhile is watched."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bench.faults import A_DAY, CALLS, dealt
from tests.live.deaths import PROTECTED, Watched, follow
from tests.live.doors import AFTER, BEFORE

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize("seed", range(20))
def test_no_call_is_dealt_twice_to_a_day_and_a_longer_deck_goes_on_where_a_shorter_one_stopped(seed: int) -> None:
    """Of a call before which one died, none could die afterwards."""
    deck = dealt(220, random.Random(seed))  # noqa: S311 - reproducible
    days = [deck[start : start + A_DAY] for start in range(0, len(deck), A_DAY)]
    for day in days:
        assert len({(kind, number) for kind, _, number in day}) == len(day)
    assert dealt(90, random.Random(seed)) == deck[:90]  # noqa: S311
    assert {(kind, when) for kind, when, _ in deck[: 2 * len(CALLS) + A_DAY]} == {
        (kind, when) for kind in CALLS for when in (BEFORE, AFTER)
    }


class Forgetful:
    """An API server whose watch is too old at once, while a pod goes; then it ends what it is asked."""

    def __init__(self, over: threading.Event) -> None:
        self.over = over
        self.lists = 0

    def get(self, _path: str) -> dict[str, Any]:
        """Both pods, and then one."""
        self.lists += 1
        names = list(PROTECTED)[: 3 - self.lists]
        return {"items": [{"metadata": {"name": name}} for name in names], "metadata": {"resourceVersion": "7"}}

    def stream(self, _path: str) -> Iterator[dict[str, Any]]:
        """What it says of a version that is too old."""
        if self.lists > 1:
            self.over.set()
        yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


def test_what_went_while_a_watch_was_broken_off_is_seen_by_the_next_list() -> None:
    """A thread that died of it would have seen no harm any more."""
    seen, over = Watched(), threading.Event()
    server: Any = Forgetful(over)
    follow(server, PODS, seen, over)
    assert server.lists == 2
    assert seen.harm == [f"{list(PROTECTED)[1]} was evicted"]
