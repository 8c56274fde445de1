"""What nodes cost, added up look by look: by day, group, namespace and owner."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.cluster import CapacityBlock, Cluster
from autoscaler.model.ledger import IDLE, UNKNOWN, Account, Holder, Ledger, counted
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
    shares = {account.holder.namespace: (cost.usd, cost.hours) for account, cost in ledger.costs.items()}
    assert shares == {
        "vision": pytest.approx((PRICE / 2, 0.5)),
        "speech": pytest.approx((PRICE / 4, 0.25)),
        IDLE: pytest.approx((PRICE / 4, 0.25)),
    }
    assert ledger.usd(since=TODAY) == pytest.approx(PRICE)
    assert ledger.usd(since=TODAY, entry="gpu-a10g") == pytest.approx(PRICE)
    assert ledger.usd(since=TODAY, entry="cpu") == 0
    assert ledger.usd(since=TODAY + timedelta(days=1)) == 0


def test_an_owner_counts_for_what_its_pods_ask_in_whatever_namespace() -> None:
    """What nobody is named for is the namespace's alone."""
    ada = {"labels": {words.OWNER: "ada"}}
    pods = (
        a_pod("a", gpus=2, namespace="vision", **ada),
        a_pod("b", gpus=1, namespace="speech", **ada),
        a_pod("c", gpus=1, namespace="speech"),
    )
    ledger = after(look(NOW, *pods), look(later(minutes=6), *pods))
    assert {account.holder for account, cost in ledger.costs.items() if cost.usd} == {
        Holder("vision", "ada"),
        Holder("speech", "ada"),
        Holder("speech"),
    }
    asked: tuple[dict[str, str], ...] = (
        {"owner": "ada"},
        {"owner": "ada", "namespace": "speech"},
        {"namespace": "speech"},
        {"owner": "bob"},
    )
    parts = [ledger.usd(since=TODAY, **whose) / (PRICE / 10) for whose in asked]
    assert parts == pytest.approx([0.75, 0.25, 0.5, 0.0])


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
    assert ledger.costs == {Account(TODAY, "gpu-a10g", Holder(UNKNOWN)): pytest.approx((2 * PRICE, 2.0))}


def test_an_instance_that_has_not_joined_costs_as_well() -> None:
    """No pod uses it."""
    cluster = replace(look(later(minutes=6)), nodes=())
    ledger = after(look(NOW), cluster)
    assert {account.holder.namespace for account in ledger.costs} == {IDLE}
    assert ledger.usd(since=TODAY) == pytest.approx(PRICE / 10)


def test_what_a_block_cost_beforehand_is_spread_over_its_time() -> None:
    """Of 240 $ for two instances and a day 10 $ an hour: by what runs there; what nothing runs in is idle."""
    block = CapacityBlock(later(hours=-1), later(hours=23), instances=2)

    def within(at: datetime) -> Cluster:
        seen = look(at, a_pod("a", gpus=2, namespace="vision"))
        return replace(seen, groups=tuple(replace(one, block=block, usd_per_hour=0.0) for one in seen.groups))

    def ledger(*looks: datetime) -> Ledger:
        found = Ledger()
        for at in looks:
            found = counted(found, within(at), upfront={"gpu-a10g": 240.0})
        return found

    hour = ledger(*minutes(60))
    assert {account.holder.namespace: (cost.usd, cost.hours) for account, cost in hour.costs.items()} == {
        "vision": pytest.approx((2.5, 0.5)),
        IDLE: pytest.approx((7.5, 0.5)),
    }
    assert hour.usd(since=TODAY, entry="gpu-a10g") == pytest.approx(10.0)
    end = ledger(later(hours=22, minutes=58), *(later(hours=22, minutes=58 + n) for n in range(9)))
    assert end.usd(since=TODAY) == pytest.approx(10.0 * 2 / 60)
    unseen = ledger(NOW, later(hours=1))
    assert {account.holder.namespace: cost.usd for account, cost in unseen.costs.items()} == {
        UNKNOWN: pytest.approx(10.0)
    }
    assert counted(Ledger({}, NOW), within(later(minutes=9))).usd(since=TODAY) == 0.0


def test_a_block_of_unknown_size_is_what_runs_in_it() -> None:
    """Or all idle, where nothing does."""
    for joined, idle in ((1, 0.5), (0, 1.0)):
        seen = look(later(minutes=6), *([a_pod("a", gpus=2)] * joined), joined=max(joined, 1))
        block = CapacityBlock(NOW, later(hours=1))
        groups = tuple(replace(one, block=block, instances=one.instances[:joined]) for one in seen.groups)
        found = counted(Ledger({}, NOW), replace(seen, groups=groups), upfront={"gpu-a10g": 10.0})
        paid = {account.holder.namespace: cost.usd - cost.hours * PRICE for account, cost in found.costs.items()}
        assert paid[IDLE] == pytest.approx(idle)
        assert sum(paid.values()) == pytest.approx(1.0)
