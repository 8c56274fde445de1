"""What nodes cost, added up look by look: by day, group and namespace."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from autoscaler.model.cluster import Cluster
from autoscaler.model.ledger import IDLE, UNKNOWN, Account, Ledger, counted
from tests.builders import NOW, a_cluster, a_group, a_pod, later, nodes_of

TODAY = NOW.date()
PRICE = 5.672


def look(at: datetime, *pods: Any, joined: int = 1, launched: datetime = NOW) -> Cluster:
    """One node of four GPUs with these pods."""
    group = a_group("gpu-a10g", joined=joined)
    group = replace(group, instances=tuple(replace(one, launched=launched) for one in group.instances))
    nodes = nodes_of(group)
    placed = [replace(pod, node=nodes[0].name, phase="Running") for pod in pods]
    return a_cluster(seen_at=at, pods=placed, nodes=nodes, groups=(group,))


def after(*looks: Cluster) -> Ledger:
    """The ledger of one that begins at the first of them."""
    ledger = Ledger()
    for one in looks:
        ledger = counted(ledger, one)
    return ledger


def minutes(number: int) -> list[datetime]:
    """So many looks, a minute apart, and the first."""
    return [later(minutes=minute) for minute in range(number + 1)]


def test_an_hour_of_a_node_costs_its_price_by_what_ran_there() -> None:
    """By the GPUs that each namespace asks; the rest is idle."""
    pods = (a_pod("a", gpus=2, namespace="vision"), a_pod("b", gpus=1, namespace="speech"))
    ledger = after(*(look(at, *pods) for at in minutes(60)))
    shares = {account.namespace: (cost.usd, cost.hours) for account, cost in ledger.costs.items()}
    assert shares == {
        "vision": pytest.approx((PRICE / 2, 0.5)),
        "speech": pytest.approx((PRICE / 4, 0.25)),
        IDLE: pytest.approx((PRICE / 4, 0.25)),
    }
    assert ledger.usd(since=TODAY) == pytest.approx(PRICE)
    assert ledger.usd(since=TODAY, entry="gpu-a10g") == pytest.approx(PRICE)
    assert ledger.usd(since=TODAY, entry="cpu") == 0
    assert ledger.usd(since=TODAY + timedelta(days=1)) == 0


def test_counting_more_often_counts_no_more() -> None:
    """The same look twice adds nothing, nor does one from before."""
    whole = after(look(NOW), look(later(minutes=9)))
    often = after(*(look(later(seconds=n)) for n in range(0, 541, 7)), look(later(minutes=9)), look(later(minutes=9)))
    assert often.usd(since=TODAY) == pytest.approx(whole.usd(since=TODAY))
    assert counted(whole, look(later(minutes=8))) == whole


def test_a_new_instance_counts_from_its_launch() -> None:
    """Not from the last look."""
    ledger = after(look(NOW, joined=0), look(later(minutes=6), launched=later(minutes=5)))
    assert ledger.usd(since=TODAY) == pytest.approx(PRICE / 60)


def test_the_first_look_counts_nothing_of_before() -> None:
    """The ledger begins when it begins."""
    assert after(look(NOW, launched=NOW - timedelta(days=9))) == Ledger({}, NOW)


def test_midnight_parts_days() -> None:
    """Of UTC."""
    night = datetime.fromisoformat("2026-11-21T23:57:00+00:00")
    ledger = after(look(night), look(night + timedelta(minutes=9)))
    days = {account.day: round(cost.hours * 60) for account, cost in ledger.costs.items()}
    assert days == {date(2026, 11, 21): 3, date(2026, 11, 22): 6}


def test_after_a_time_without_an_autoscaler_nodes_are_counted_and_namespaces_are_not_guessed() -> None:
    """What still runs was paid for meanwhile."""
    ledger = after(look(NOW), look(later(hours=2), a_pod("a", gpus=4)))
    assert ledger.costs == {Account(TODAY, "gpu-a10g", UNKNOWN): pytest.approx((2 * PRICE, 2.0))}


def test_an_instance_that_has_not_joined_costs_as_well() -> None:
    """No pod uses it."""
    cluster = replace(look(later(minutes=6)), nodes=())
    ledger = after(look(NOW), cluster)
    assert {account.namespace for account in ledger.costs} == {IDLE}
    assert ledger.usd(since=TODAY) == pytest.approx(PRICE / 10)
