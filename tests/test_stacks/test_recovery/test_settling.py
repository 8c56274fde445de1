"""How often `spillway recover` looks: a call that AWS was still at work on when the engine died is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.recovery.orphans import Orphan, OrphanFinder
from stacks.recovery.settling import Patience, look_until_settled
from tests.test_stacks.stand_in import StandIn, client, stand_in

BUCKET = "aws:s3/bucket:Bucket"


class Time:
    """A clock that only sleeping moves; at a moment of it something may happen."""

    def __init__(self, *, at: float = 0.0, happens: Callable[[], object] = lambda: None) -> None:
        self.now = 500.0
        self.slept: list[float] = []
        self._at, self._happens = 500.0 + at, happens

    def sleep(self, seconds: float) -> None:
        """Let it pass."""
        before, self.now = self.now, self.now + seconds
        self.slept.append(seconds)
        if before < self._at <= self.now:
            self._happens()

    def patience(self, seconds: float = 30.0) -> Patience:
        """By this clock."""
        return Patience(wait=timedelta(seconds=seconds), clock=lambda: self.now, sleep=self.sleep)

    @property
    def passed(self) -> float:
        """Seconds, since it began."""
        return self.now - 500.0


def orphan(name: str, kind: str = "Vpc") -> Orphan:
    """One that nobody takes away here."""
    return Orphan(name=name, what=f"{kind} vpc-1", remove=lambda: None)


def looks(*found: Sequence[Orphan]) -> Callable[[], Sequence[Orphan]]:
    """Each look finds the next of these; the last of them again and again."""
    left = list(found)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """A stand-in for AWS."""
    with stand_in() as made:
        yield made


@pytest.mark.parametrize("seconds", [1, 12, 29])
def test_what_aws_makes_after_the_engine_died_is_found(
    here: StandIn, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """A bucket, whose making AWS ends so many seconds after the first look."""
    for name, value in (("ENDPOINT_URL", here.url), ("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local")):
        monkeypatch.setenv(f"AWS_{name}", value)
    bucket, s3 = f"lab-late-{seconds:07x}", client(here.url, "s3")

    def make() -> None:
        s3.create_bucket(Bucket=bucket)
        s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": words.TAG_CLUSTER, "Value": "lab"}]})

    finder = OrphanFinder(region="us-east-1", cluster="lab", recorded=frozenset())
    time, said = Time(at=seconds, happens=make), list[str]()
    found = look_until_settled(
        lambda: finder.find(BUCKET, "lab-late", {"bucket": bucket}),
        begun={"Bucket (lab-late)"},
        patience=time.patience(),
        say=said.append,
    )
    assert [one.what for one in found] == [f"Bucket {bucket}"]
    assert said[0].startswith("not seen so far: Bucket (lab-late): AWS may still be at work on it")
    assert "30 s longer" in said[0]


def test_two_looks_that_agree_are_enough_where_all_is_found() -> None:
    """Some seconds apart."""
    time, said = Time(), list[str]()
    found = look_until_settled(looks([orphan("a")]), begun={"Vpc (a)"}, patience=time.patience(), say=said.append)
    assert [one.name for one in found] == ["a"]
    assert time.slept == [5.0]
    assert said == []


def test_what_never_reached_aws_is_waited_for_no_longer_than_it_may_take() -> None:
    """Its request was never sent."""
    time = Time()
    assert look_until_settled(looks([]), begun={"Vpc (a)"}, patience=time.patience(), say=lambda _: None) == []
    assert time.passed == 30.0


def test_what_is_still_changing_is_looked_at_again() -> None:
    """A second one of a call that was sent twice."""
    time = Time()
    found = look_until_settled(
        looks([], [orphan("a")], [orphan("a"), orphan("a", "Subnet")]),
        begun={"Vpc (a)"},
        patience=time.patience(),
        say=lambda _: None,
    )
    assert len(found) == 2
    assert time.passed == 15.0


def test_what_never_agrees_is_told() -> None:
    """A minute after all should be seen."""
    time, numbers = Time(), iter(range(1000))
    with pytest.raises(Unavailable, match="other things at each look"):
        look_until_settled(
            lambda: [orphan(f"a-{next(numbers)}")], begun=set(), patience=time.patience(), say=lambda _: None
        )
    assert time.passed == 95.0


def test_looks_that_take_long_are_two_all_the_same() -> None:
    """Where AWS throttles, one look may take longer than all the waiting."""
    time = Time()

    def slow() -> Sequence[Orphan]:
        time.now += 200.0
        return [orphan("a")] if time.passed > 300.0 else []

    found = look_until_settled(slow, begun={"Vpc (a)"}, patience=time.patience(400.0), say=lambda _: None)
    assert [one.name for one in found] == ["a"]


def test_many_that_are_missing_are_told_in_a_line() -> None:
    """The first five of them, and how many more."""
    said: list[str] = []
    begun = {f"Vpc ({number})" for number in range(7)}
    look_until_settled(looks([]), begun=begun, patience=Time().patience(), say=said.append)
    assert said[0].startswith("not seen so far: Vpc (0), Vpc (1), Vpc (2), Vpc (3), Vpc (4) and 2 more: ")
