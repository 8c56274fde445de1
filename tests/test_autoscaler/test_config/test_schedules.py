"""Schedules: in force by the clocks of their time zone, whatever these are put to; what holds meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autoscaler.config.documents import parse_document
from autoscaler.config.policy import Policy
from autoscaler.config.policy_changes import changes
from autoscaler.config.schedules import Schedule
from autoscaler.model.errors import BadInput
from tests.test_autoscaler.test_config.test_policy import GOOD

NIGHTS = "schedules: [{name: nights, from: 20:00, to: 7:00, time_zone: Europe/Berlin, limits: {usd_per_hour: 30}}]\n"
WEEKEND = """\
schedules:
  - {name: nights, from: 20:00, to: 07:00, time_zone: UTC, limits: {usd_per_hour: 30, gpus: 8}}
  - name: weekend
    days: [sat, sun]
    time_zone: UTC
    limits: {usd_per_hour: 10}
    groups: {gpu-a10g: {max: 1, headroom: 1, idle_after: 2m}}
"""


def policy(more: str) -> Policy:
    """The good one, with schedules."""
    return parse_document(GOOD + more, Policy, what="policy", source="policy.yaml")


def schedule(**given: Any) -> Schedule:
    """Nights in Berlin."""
    return Schedule.model_validate({"name": "n", "from": "20:00", "to": "07:00", "time_zone": "Europe/Berlin"} | given)


def at(text: str) -> datetime:
    """A moment in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "holds"),
    [
        ("2026-01-15T18:59", False),  # 19:59 in Berlin
        ("2026-01-15T19:00", True),
        ("2026-01-16T05:59", True),
        ("2026-01-16T06:00", False),
        ("2026-07-15T17:59", False),  # an hour earlier in summer
        ("2026-07-15T18:00", True),
        ("2026-07-16T04:59", True),
        ("2026-07-16T05:00", False),
    ],
)
def test_it_holds_by_the_clocks_on_the_wall(moment: str, *, holds: bool) -> None:
    """In winter and in summer, over midnight."""
    assert schedule().holds_at(at(moment)) is holds


@pytest.mark.parametrize(
    ("begin", "end", "night", "hours"),
    [
        ("20:00", "07:00", "2026-03-28T12:00", 10),  # clocks are put forward: the night has an hour less
        ("20:00", "07:00", "2026-10-24T12:00", 12),  # and back: one more
        ("20:00", "07:00", "2026-10-20T12:00", 11),
        ("02:30", "04:00", "2026-03-28T12:00", 0.5),  # begins at a time that there is not: after the gap
        ("02:30", "04:00", "2026-10-24T12:00", 2.5),  # and at one that there is twice: the first time
        ("02:00", "03:00", "2026-10-24T12:00", 2),  # a time that there is twice
        ("02:00", "03:00", "2026-03-28T12:00", 0),  # one that there is not
    ],
)
def test_on_the_days_on_which_clocks_are_put_it_is_as_long_as_the_clocks_say(
    begin: str, end: str, night: str, hours: float
) -> None:
    """Counted over a day, six times an hour."""
    one = schedule(**{"from": begin, "to": end})
    moments = [at(night) + timedelta(minutes=minute) for minute in range(0, 24 * 60, 10)]
    assert sum(map(one.holds_at, moments)) == hours * 6


@pytest.mark.parametrize("begin", ["20:00", "00:00", "02:30", "12:00"])
@pytest.mark.parametrize("end", ["07:00", "24:00", "02:30", "13:00"])
@pytest.mark.parametrize("start", ["2026-03-27T00:00", "2026-10-23T00:00", "2026-12-30T00:00"])
def test_between_two_turns_nothing_changes(begin: str, end: str, start: str) -> None:
    """Whatever clocks are put to meanwhile."""
    one = schedule(**{"from": begin, "to": end, "days": ["fri", "sun", "mon"]})
    now = at(start)
    while now < at(start) + timedelta(days=5):
        turn, held = min(one.turns_after(now)), one.holds_at(now)
        moments = (now + timedelta(minutes=minute) for minute in range(0, int((turn - now) / timedelta(minutes=1)), 10))
        assert all(one.holds_at(moment) == held for moment in moments)
        now = turn


def test_days_are_those_on_which_it_begins() -> None:
    """Friday's night goes on into Saturday; Saturday's own does not begin."""
    one = schedule(days=["fri"], time_zone="UTC")
    assert one.holds_at(at("2026-11-20T20:00"))
    assert one.holds_at(at("2026-11-21T06:59"))
    assert not one.holds_at(at("2026-11-21T20:00"))
    assert not one.holds_at(at("2026-11-20T06:59"))


def test_what_it_says_holds_meanwhile_and_the_rest_stays() -> None:
    """Of two in force the last one wins, key by key."""
    both = policy(WEEKEND)
    night = at("2026-11-21T22:00")  # a Saturday
    assert (both.at(night).limits.usd_per_hour, both.at(night).limits.gpus) == (10, 8)
    entry = both.at(night).groups[0]
    assert (entry.max, entry.headroom, both.at(night).idle_after("gpu-a10g")) == (1, 1, timedelta(minutes=2))
    assert entry.instance_type == "g5.12xlarge"
    assert both.at(at("2026-11-20T12:00")) == both
    assert both.at(at("2026-11-20T22:00")).limits.usd_per_hour == 30
    assert both.next_turn(at("2026-11-20T12:00")) == at("2026-11-20T20:00")
    assert policy("").next_turn(night) is None


def test_an_edit_of_a_schedule_is_live_and_told_whole() -> None:
    """One that comes, and one that changes."""
    (comes,) = changes(policy(""), policy(NIGHTS))
    assert (comes.path, comes.effect) == ("schedules[nights]", "live")
    assert comes.words == (
        "none -> {name: nights, from: 20:00, to: 07:00, time_zone: Europe/Berlin, limits: {usd_per_hour: 30}}"
    )
    (changed,) = changes(policy(NIGHTS), policy(NIGHTS.replace("30", "20")))
    assert changed.words.endswith("limits: {usd_per_hour: 20}}")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("20:00", "25:00"), "schedules[0] (nights).from = '25:00': must be a time of day such as 07:00 or 20:30"),
        (("20:00", "700"), "schedules[0] (nights).from = 700: must be a time of day such as 07:00 or 20:30"),
        (("Europe/Berlin", "Berlin"), "time_zone 'Berlin' is not known: write one such as Europe/Berlin, or UTC"),
        (("Europe/Berlin", "Europe"), "time_zone 'Europe' is not known"),
        (("Europe/Berlin", "../etc/passwd"), "time_zone '../etc/passwd' is not known"),
        (("limits: {usd_per_hour: 30}", "limits: {usd_per_hour: 0}"), "usd_per_hour = 0: input should be greater"),
        (("limits:", "days: [monday], limits:"), "schedules[0] (nights).days[0] = 'monday': input should be 'mon'"),
        (
            ("limits: {usd_per_hour: 30}", "groups: {gpu: {max: 1}}"),
            "schedule 'nights' names group 'gpu', which the policy has not: gpu-a10g",
        ),
    ],
)
def test_a_wrong_schedule_is_told(change: tuple[str, str], told: str) -> None:
    """With place, value and what would be right."""
    assert change[0] in NIGHTS
    with pytest.raises(BadInput) as refused:
        policy(NIGHTS.replace(*change))
    assert told in str(refused.value)
