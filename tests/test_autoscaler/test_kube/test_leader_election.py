"""One autoscaler acts at a time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.kube.client import Refused
from autoscaler.kube.leader_election import LASTS, RENEW_WITHIN, RETRY, Lease, holder_of
from autoscaler.model.errors import Unavailable


class Record:
    """The API server's record of the lease, with its rule that a write must name the version that it read."""

    url = "http://api"

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.is_gone = False
        self.before_write: Callable[[], None] = lambda: None

    def get(self, _path: str) -> bytes:
        """The record."""
        if self.is_gone:
            raise Unavailable("connection refused")
        if self.lease is None:
            raise Refused(404, "not found")
        return json.dumps(self.lease).encode()

    def send(self, method: str, _path: str, body: dict[str, Any]) -> bytes:
        """A write."""
        self.before_write()
        if self.is_gone:
            raise Unavailable("connection refused")
        if (method == "POST") == (self.lease is not None):
            raise Refused(409, "already exists")
        if self.lease is not None and body["metadata"]["resourceVersion"] != str(self.version):
            raise Refused(409, "the object has been modified")
        self.version += 1
        body = json.loads(json.dumps(body))
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return b""


class Clock:
    """Time that stands still until told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Now."""
        return self.now


@pytest.fixture
def record() -> Record:
    """Nobody holds it."""
    return Record()


def lease(record: Record, identity: str, clock: Clock) -> Lease:
    """One autoscaler's."""
    return Lease(record, namespace="spillway", identity=identity, clock=clock)  # type: ignore[arg-type]


def test_the_first_one_gets_it_and_keeps_it(record: Record) -> None:
    """The second is told who holds it."""
    clock = Clock()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    assert one.try_once() == "one"
    assert one.is_mine()
    assert other.try_once() == "one"
    assert not other.is_mine()


def test_a_holder_that_cannot_renew_stops_before_another_may_begin(record: Record) -> None:
    """Between the two nobody acts."""
    clock = Clock()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    one.try_once()
    other.try_once()
    clock.now += RENEW_WITHIN
    assert not one.is_mine()
    assert other.try_once() == "one"
    clock.now += LASTS - RENEW_WITHIN + 0.1
    assert other.try_once() == "other"
    assert one.try_once() == "other"


def test_a_renewal_begins_its_time_anew(record: Record) -> None:
    """For the holder and for those who watch it."""
    clock = Clock()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    one.try_once()
    for _ in range(10):
        clock.now += 2
        one.try_once()
        assert other.try_once() == "one"
    assert one.is_mine()


def test_a_successor_of_that_name_goes_on_at_once(record: Record) -> None:
    """A restart with the same identity need not wait."""
    clock = Clock()
    lease(record, "one", clock).try_once()
    assert lease(record, "one", clock).try_once() == "one"


def test_of_two_that_write_at_once_one_wins(record: Record) -> None:
    """The API server refuses the write that read an older version."""
    clock = Clock()
    one, other = lease(record, "one", clock), lease(record, "other", clock)

    def faster() -> None:
        record.before_write = lambda: None
        other.try_once()

    record.before_write = faster
    assert one.try_once() == "another autoscaler"
    assert not one.is_mine()
    assert other.is_mine()


def test_letting_go_lets_another_begin_at_once(record: Record) -> None:
    """No fifteen seconds of nobody."""
    clock = Clock()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    one.try_once()
    one.stop()
    assert not one.is_mine()
    assert other.try_once() == "other"


def test_it_is_kept_by_a_thread_that_ends_when_it_is_stopped(record: Record) -> None:
    """Nothing renews it after that, and a process that ends elsewhere is not held up by it."""
    told: list[str] = []
    acting = threading.Event()
    one = Lease(
        record,  # type: ignore[arg-type]
        namespace="spillway",
        identity="one",
        on_change=lambda line: (told.append(line), acting.set())[0],
    )
    one.start()
    try:
        assert acting.wait(20)
        (kept,) = [thread for thread in threading.enumerate() if thread.name == "lease"]
        assert kept.daemon
    finally:
        one.stop()
    kept.join(20)
    assert not kept.is_alive()
    assert told == ["acting as one, which holds the lease spillway/spillway-autoscaler"]
    assert holder_of(record, namespace="spillway")[0] == ""  # type: ignore[arg-type]


def test_which_one_acts_is_told_by_both(record: Record) -> None:
    """In the log of the one that waits, the holder's name is what an operator looks for."""
    clock = Clock()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    assert one._attempt().startswith("acting as one, ")
    assert other._attempt().startswith("waiting: one holds the lease spillway/")


def test_a_holder_that_could_not_renew_goes_on_when_it_has(record: Record) -> None:
    """The API server did not answer for longer than a lease lasts, and no other took it: that is waited for."""
    clock = Clock()
    one = lease(record, "one", clock)
    one.try_once()
    assert one.why_not_mine(within=300) == ""
    clock.now += LASTS + 5
    assert not one.is_mine()
    later = threading.Timer(0.2, one.try_once)
    later.start()
    assert one.why_not_mine(within=300) == ""
    later.join()


@pytest.mark.parametrize("gives_back", [False, True])
def test_a_holder_from_which_another_took_it_does_not_go_on(record: Record, gives_back: bool) -> None:  # noqa: FBT001
    """Nor where that one has let go meanwhile: what it did is not known to the first one's plan."""
    clock = Clock()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    one.try_once()
    other.try_once()
    clock.now += LASTS + 0.1
    assert other.try_once() == "other"
    if gives_back:
        other.stop()
    assert one.try_once() == ("one" if gives_back else "other")
    assert one.is_mine() == gives_back
    said = "another run" if gives_back else "other"
    assert one.why_not_mine(within=300) == f"{said} has taken the lease spillway/spillway-autoscaler"


def test_a_holder_that_cannot_renew_for_long_says_so(record: Record) -> None:
    """And does not wait for ever."""
    clock = Clock()
    one = lease(record, "one", clock)
    one.try_once()
    clock.now += RENEW_WITHIN
    assert one.why_not_mine(within=0) == "the lease spillway/spillway-autoscaler could not be renewed for 0 s"


def test_an_outsider_is_told_the_holder_and_its_last_renewal(record: Record) -> None:
    """None where none was ever made, and none where it was let go."""
    outside = partial(holder_of, record, namespace="spillway")  # type: ignore[arg-type]
    assert outside()[:2] == ("", None)
    one = lease(record, "one", Clock())
    one.try_once()
    holder, renewed, _ = outside()
    assert (holder, renewed and abs(datetime.now(UTC) - renewed) < timedelta(hours=1)) == ("one", True)
    one.stop()
    assert outside()[0] == ""


def test_one_that_does_not_hold_it_takes_nothing_from_the_holder_when_it_stops(record: Record) -> None:
    """A replica that waits is ended: the one that acts goes on."""
    clock = Clock()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    one.try_once()
    other.try_once()
    other.stop()
    assert one.is_mine()
    assert other.try_once() == "one"


def test_an_api_server_that_is_gone_is_not_a_lease(record: Record) -> None:
    """It is said in words while nothing can be done, and not while the lease still holds."""
    clock = Clock()
    one = lease(record, "one", clock)
    record.is_gone = True
    assert "is out of reach" in one._attempt()
    record.is_gone = False
    one.try_once()
    record.is_gone = True
    assert one._attempt() == ""
    one.stop()


def test_a_namespace_that_is_missing_names_what_makes_it(record: Record) -> None:
    """The lease lives beside the autoscaler's account."""

    def missing() -> None:
        raise Refused(404, 'namespaces "spillway" not found')

    record.before_write = missing
    said = lease(record, "one", Clock())._attempt()
    assert said.endswith('namespaces "spillway" not found: apply autoscaler/rbac.yaml')


@given(killed=st.floats(20, 60), phase=st.floats(0, RETRY))
def test_after_a_kill_another_acts_within_what_a_lease_lasts_and_one_retry(killed: float, phase: float) -> None:
    """Wherever the two stand in their turns; and never while the first one could still act."""
    clock, record = Clock(), Record()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    turns = {one: clock.now, other: clock.now + phase}
    end = clock.now + killed
    while not other.is_mine():
        whose = min(turns, key=lambda each: turns[each])
        clock.now = turns[whose]
        if whose is one and clock.now >= end:
            del turns[one]
            continue
        whose.try_once()
        turns[whose] = clock.now + whose.pause()
        assert clock.now < end + 60
    assert not one.is_mine()
    assert clock.now - end <= LASTS + RETRY + 0.1 < 12


def test_an_attempt_that_fails_is_not_made_again_at_once() -> None:
    """A record that has run out, and an API server that does not answer, are no reason to hammer it."""
    clock, record = Clock(), Record()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    one.try_once()
    other.try_once()
    clock.now += LASTS + 5
    record.is_gone = True
    with pytest.raises(Unavailable):
        other.try_once()
    assert other.pause() == RETRY


@pytest.mark.parametrize(
    ("passes", "pause"), [(0.0, RETRY), (LASTS - 1.5, RETRY), (LASTS - 0.5, 0.51), (LASTS + 0.01, RETRY)]
)
def test_the_next_attempt_is_made_just_when_a_record_runs_out(passes: float, pause: float) -> None:
    """Not before the usual time otherwise; the holder itself keeps to the usual time."""
    clock, record = Clock(), Record()
    one, other = lease(record, "one", clock), lease(record, "other", clock)
    one.try_once()
    other.try_once()
    clock.now += passes
    assert other.pause() == pytest.approx(pause)
    clock.now -= passes
    assert one.pause() == RETRY
