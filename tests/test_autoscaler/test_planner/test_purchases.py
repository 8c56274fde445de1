"""Orders from the planner through the hands and the real door to a stand-in for AWS, and back: one convention."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from autoscaler.cloud.autoscaling_groups import Changed, Ec2
from autoscaler.config.policy import Policy
from autoscaler.executor import Hands
from autoscaler.kube.cache import Store
from autoscaler.kube.writes import Writes
from autoscaler.model.actions import Cancel, Grow, Memory, Remove, Step, describe
from autoscaler.model.cluster import Cluster, Group, Pod
from autoscaler.planner.plan import plan
from tests.builders import NOW, TYPES, a_gang, a_group, a_policy, an_entry, later
from tests.cloud import Cloud

P4D = TYPES["p4d.24xlarge"][1]


class Buyer:
    """A planner, hands, the door to AWS, and AWS; no pod or node is ever written."""

    def __init__(self, *groups: Group, pods: Sequence[Pod], limits: dict[str, Any] | None = None, **cloud: Any) -> None:
        entries = {one.entry: an_entry(one.entry, usd_per_hour=one.usd_per_hour) for one in groups}
        self.policy: Policy = a_policy(*entries.values(), limits=limits or {})
        chance = random.Random(1)  # noqa: S311 - reproducible on purpose
        self.cloud = Cloud.of(list(groups), cluster="local", now=NOW, chance=chance, **cloud)
        self.door = Ec2(self.policy, self.cloud.clients(), warn=pytest.fail, now=lambda: self.cloud.now)
        self.store = Store()
        self.pods = pods
        self.hands = Hands(kube=cast("Writes", None), ec2=self.door, store=self.store)

    def decide(self) -> tuple[Step, ...]:
        """What to do, as AWS is now."""
        groups = self.door.groups()
        for group in groups:
            self.store.wrote_group(group)
        return plan(Cluster(seen_at=self.cloud.now, pods=tuple(self.pods), groups=groups), self.policy, Memory()).steps

    def turn(self) -> tuple[Step, ...]:
        """Decide and act; whatever a door refuses is raised."""
        steps = self.decide()
        for step in steps:
            self.hands.take(step)
        return steps

    def after(self, seconds: float) -> None:
        """So much later."""
        self.cloud.advance(self.cloud.now + timedelta(seconds=seconds))

    def desired(self) -> list[int]:
        """Of each group."""
        return [group.desired for group in self.cloud.groups.values()]


def test_what_ec2_refused_is_cancelled_at_aws_before_another_zone_is_bought_in() -> None:
    """With money for one node: the refused order is gone when the next one is made."""
    here, there = a_group(), a_group(zone="us-east-1b")
    made = Buyer(here, there, pods=a_gang(pods=1, gpus=8), limits={"usd_per_hour": 30.0}, refuses=1.0)
    assert [type(step) for step in made.turn()] == [Grow]
    assert made.desired() == [1, 0]
    made.after(1)
    made.cloud.refuses = 0.0
    assert [type(step) for step in made.turn()] == [Cancel, Grow]
    assert made.desired() == [0, 1]
    made.after(60)
    assert made.cloud.usd_per_hour == P4D


def test_what_was_refused_is_not_ordered_again_before_its_time() -> None:
    """Neither when the order is cancelled and nothing is missing, nor by another process."""
    made = Buyer(a_group(), pods=a_gang(pods=1, gpus=8), refuses=1.0)
    made.turn()
    made.after(1)
    assert [type(step) for step in made.turn()] == [Cancel]
    pause = made.policy.scale_up.refusal_backoff.total_seconds()
    for _ in range(2):
        made.after(pause / 3)
        assert made.decide() == ()
        made.door = Ec2(made.policy, made.cloud.clients(), now=lambda: made.cloud.now)
    made.after(pause / 3)
    assert [type(step) for step in made.turn()] == [Grow]


def test_an_order_is_not_cancelled_for_a_refusal_of_an_earlier_one() -> None:
    """The first node was refused once and came then: the second one waits for the end of that back-off, or goes on."""
    made = Buyer(a_group(), pods=a_gang(pods=1, gpus=8), refuses=1.0)
    made.turn()
    made.after(1)
    made.cloud.refuses = 0.0
    made.after(60)
    made.pods = a_gang(pods=2, gpus=8)
    made.decide()
    assert made.decide() == ()
    made.after(made.policy.scale_up.refusal_backoff.total_seconds())
    assert [type(step) for step in made.turn()] == [Grow]
    assert made.decide() == ()


def test_of_several_nodes_those_that_were_refused_are_cancelled() -> None:
    """Those that came are kept."""
    made = Buyer(a_group(), pods=a_gang(pods=3, gpus=8))
    made.turn()
    made.after(1)
    [group] = made.cloud.groups.values()
    group.instances.popitem()
    made.cloud.refuses = 1.0
    made.after(1)
    [cancel] = [step for step in made.decide() if isinstance(step, Cancel)]
    assert describe(cancel) == f"cancel the order of 1 node in {group.shown.name}: back to 2 nodes"
    made.hands.take(cancel)
    assert made.desired() == [2]


def test_an_instance_that_came_after_all_is_not_cancelled() -> None:
    """The refusal is old: Auto Scaling has tried again since. The next plan knows."""
    made = Buyer(a_group(), pods=a_gang(pods=1, gpus=8), refuses=1.0)
    made.turn()
    made.after(1)
    [cancel, *_] = made.decide()
    made.cloud.refuses = 0.0
    made.after(60)
    with pytest.raises(Changed, match="has 1 node by now: EC2 delivered what it had refused"):
        made.hands.take(cancel)
    assert made.desired() == [1]
    assert [len(group.instances) for group in made.store.cluster(NOW).groups] == [1]


def test_a_launch_that_begins_as_its_order_is_cancelled_is_paid_for() -> None:
    """Its instance may come: until that is known, its money is not spent on another."""
    here, there = a_group(), a_group(zone="us-east-1b")
    limits = {"usd_per_hour": 30.0}
    made = Buyer(here, there, pods=a_gang(pods=1, gpus=8), limits=limits, refuses=1.0)
    made.turn()
    made.after(1)
    cancel, grow = made.decide()
    made.cloud.refuses, made.cloud.late = 0.0, (40.0, 40.0)
    made.cloud.begin(made.cloud.groups[here.name])
    with pytest.raises(Changed, match="is launching a node after all"):
        made.hands.take(cancel)
    assert isinstance(grow, Grow)
    assert made.desired() == [0, 0]
    assert made.turn() == ()
    made.after(50)
    assert made.cloud.usd_per_hour == P4D


def test_a_purchase_beside_an_instance_that_came_uncalled_for_starts_from_what_aws_desires() -> None:
    """One more than there is, though less was desired than there is."""
    group = replace(a_group(joined=1), desired=0)
    made = Buyer(group, pods=a_gang(pods=2, gpus=8))
    steps = made.turn()
    assert [(step.was, step.to) for step in steps if isinstance(step, Grow)] == [(0, 2)]
    assert made.desired() == [2]


def test_an_instance_that_never_joined_is_given_back_and_another_bought_in_one_turn() -> None:
    """The order starts from what the removal leaves."""
    made = Buyer(a_group(), a_group(zone="us-east-1b"), pods=a_gang(pods=1, gpus=8))
    made.turn()
    made.after(1)
    made.after(made.policy.scale_up.boot_timeout.total_seconds())
    assert [type(step) for step in made.turn()] == [Remove, Grow]
    assert made.desired() == [0, 1]
    assert made.cloud.now > later()
