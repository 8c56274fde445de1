"""`spillway nodes approve` as a service: when it asks again, and what it says of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from autoscaler.model.errors import Unavailable
from roles.membership.approver import Round
from roles.membership.approver_loop import EVERY, LONGEST_WAIT, Teller, rounds
from roles.membership.bootstrap import Verdict


class Over(threading.Event):
    """Never set by itself: notes how long each wait is, and ends after so many."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._turns = turns

    def wait(self, timeout: float | None = None) -> bool:
        """At once."""
        assert timeout is not None
        self.waits.append(timeout)
        return len(self.waits) > self._turns


def test_a_party_that_is_away_is_asked_later_and_later_and_told_once() -> None:
    """Up to a minute; then as often as before, and that it answers again is told once, too."""
    said: list[str] = []
    over, turns = Over(8), iter(range(8))

    def round_() -> Round:
        if next(turns) < 6:
            raise Unavailable("AWS: no answer")
        return Round(told=["i-1 may join as a"])

    rounds(round_, teller=Teller(said.append), may=lambda: True, over=over)
    assert over.waits == [EVERY, 6, 12, 24, 48, LONGEST_WAIT, LONGEST_WAIT, EVERY, EVERY]
    assert said == [
        "nobody is let in: AWS: no answer",
        "all parties answer again",
        *["i-1 may join as a"] * 2,
    ]


def test_another_outage_is_told_of_its_own() -> None:
    """Its cause is another."""
    said: list[str] = []
    teller = Teller(said.append)
    for why in ("AWS: a", "AWS: a", "the API server: b"):
        teller.outage(why)
    assert said == ["nobody is let in: AWS: a", "nobody is let in: the API server: b"]


def test_of_several_the_one_that_may_not_does_nothing() -> None:
    """It looks again as soon as ever, also after an outage: the lease may have become its own."""
    may = iter([True, False, True])
    asked: list[int] = []

    def round_() -> Round:
        asked.append(1)
        raise Unavailable("AWS: no answer")

    over = Over(3)
    rounds(round_, teller=Teller(lambda _line: None), may=lambda: next(may), over=over)
    assert (len(asked), over.waits) == (2, [EVERY, 2 * EVERY, EVERY, 2 * EVERY])


def test_what_stays_the_same_is_told_once() -> None:
    """A refusal and a problem; one that went away and comes again is told again."""

    def told() -> Iterator[list[str]]:
        said: list[str] = []
        teller = Teller(said.append)
        refused = Verdict("csr-1", "a", "its token was used")
        for done in (
            Round(verdicts=[refused], problems={"i-1": "no rights"}),
            Round(verdicts=[refused], problems={"i-1": "no rights"}),
            Round(verdicts=[Verdict("csr-2", "a", "")], problems={"i-1": "throttled"}),
            Round(verdicts=[refused], problems={"i-1": "no rights"}),
        ):
            said.clear()
            teller.tell(done)
            yield list(said)

    both = ["a: certificate csr-1 is not approved: its token was used", "i-1: no rights"]
    assert list(told()) == [both, [], ["a: certificate csr-2 approved", "i-1: throttled"], both]
