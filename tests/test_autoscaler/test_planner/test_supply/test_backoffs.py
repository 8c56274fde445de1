"""Back-offs are learnt by group: longer each time, ended by a success or by themselves, the account's for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from autoscaler.kube.memory_configmap import as_memory, as_text
from autoscaler.model.actions import Backoff, Memory
from autoscaler.model.cluster import Group, Instance, Refusal
from autoscaler.planner.supply.backoffs import learnt
from tests.builders import NOW, a_cluster, a_group, a_policy

MINUTE = timedelta(minutes=1)
FULL, QUOTA = "InsufficientInstanceCapacity", "VcpuLimitExceeded"
HERE, THERE = a_group(), a_group(zone="us-east-1b")


def after(
    minutes: float, *groups: Group, known: Mapping[str, Backoff] | None = None, lost: tuple[str, ...] = ()
) -> dict[str, Backoff]:
    """What is known so many minutes later; with back-offs of 3 minutes at first, as another process reads it."""
    cluster = replace(a_cluster(groups=groups), seen_at=NOW + minutes * MINUTE)
    found = learnt(cluster, a_policy(), lost, known or {})
    return dict(as_memory(as_text(Memory(backoffs=found))).backoffs)


def refused(group: Group, *minutes: float, code: str = FULL) -> Group:
    """Refused so many minutes from now."""
    return replace(group, refusals=tuple(Refusal(NOW + one * MINUTE, code) for one in sorted(minutes, reverse=True)))


def until(found: Mapping[str, Backoff], group: Group = HERE) -> float:
    """Minutes from now."""
    ends: datetime = found[group.name].until
    return (ends - NOW) / MINUTE


def test_each_failure_after_a_back_off_makes_it_twice_as_long_up_to_ten_times() -> None:
    """3, 6, 12, 24, 30 and 30 minutes."""
    known: dict[str, Backoff] = {}
    spans = []
    at = 0.0
    for _ in range(6):
        known = after(at, refused(HERE, at), known=known)
        spans.append(until(known) - at)
        at = until(known) + 1
    assert spans == pytest.approx([3, 6, 12, 24, 30, 30])


def test_what_is_seen_twice_is_one_failure_and_so_are_tries_within_a_back_off() -> None:
    """Auto Scaling tries again by itself while an order stands: that is no lesson."""
    known = after(0, refused(HERE, 0))
    assert after(1, refused(HERE, 0), known=known) == known
    again = after(2, refused(HERE, 0, 2), known=known)
    assert (again[HERE.name].tries, until(again)) == (1, 5)


def test_an_instance_that_is_launched_begins_anew() -> None:
    """The next failure has the first back-off."""
    known = {HERE.name: Backoff(NOW, 4, NOW - 24 * MINUTE, FULL)}
    came = replace(HERE, instances=(Instance("i-1", HERE.zone, launched=NOW + MINUTE),))
    assert after(2, came, known=known) == {}
    assert until(after(5, refused(came, 5), known=known)) == 8
    assert until(after(5, refused(HERE, 5), known=known)) == 5 + 30


def test_a_group_without_failures_is_forgotten_after_the_longest_back_off() -> None:
    """It ends by itself."""
    known = after(0, refused(HERE, 0))
    assert after(32, HERE, known=known) == known
    assert after(33, HERE, known=known) == {}


def test_an_instance_that_never_joined_is_a_failure_of_its_group() -> None:
    """It counts once, for as long as it is not gone."""
    known = after(0, HERE, THERE, lost=(HERE.name,))
    assert [(one.tries, one.code) for one in known.values()] == [(1, "an instance did not join")]
    assert after(1, HERE, known=known, lost=(HERE.name,))[HERE.name].tries == 1


@pytest.mark.parametrize(
    ("code", "quota", "vcpus", "closed"),
    [
        (QUOTA, "L-417A185B", 96, True),
        (QUOTA, "L-417A185B", 192, True),
        (QUOTA, "L-417A185B", 48, False),
        (QUOTA, "L-DB2E81BA", 96, False),
        (QUOTA, "", 96, False),
        (FULL, "L-417A185B", 96, False),
    ],
)
def test_a_refusal_by_a_quota_is_one_of_all_that_draw_on_it(code: str, quota: str, vcpus: int, *, closed: bool) -> None:
    """With nodes at least as large; missing capacity is one of its pool only."""
    full = replace(refused(HERE, 0, code=code), quota="L-417A185B", vcpus=96)
    found = after(0, full, replace(THERE, quota=quota, vcpus=vcpus))
    assert set(found) == {HERE.name, *([THERE.name] if closed else [])}
