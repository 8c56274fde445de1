"""Orders from the planner through the executor and the real door to a stand-in for AWS, and back: one convention."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from botocore.exceptions import ReadTimeoutError

from autoscaler.cloud.autoscaling_groups import Changed, Ec2
from autoscaler.cloud.errors import NoAnswer, Refused
from autoscaler.cloud.purchases import token_of
from autoscaler.config.policy import Policy
from autoscaler.executor import Executor
from autoscaler.kube.cache import Store
from autoscaler.kube.memory_configmap import as_memory, as_text
from autoscaler.kube.writes import Writes
from autoscaler.model.actions import Backoff, Cancel, Grow, Memory, Remove, Step
from autoscaler.model.cluster import Cluster, Group, Pod
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.orders import ORDERS_LAST
from autoscaler.planner.plan import plan
from tests.builders import NOW, TYPES, a_cluster, a_gang, a_group, a_pod, a_policy, an_entry, later
from tests.cloud import FULL, QUOTA, Cloud

P4D = TYPES["p4d.24xlarge"][1]


class Buyer:
    """A planner, executor, the door to AWS, and AWS; no pod or node is ever written."""

    def __init__(self, *groups: Group, pods: Sequence[Pod], limits: dict[str, Any] | None = None, **cloud: Any) -> None:
        entries = {one.entry: an_entry(one.entry, usd_per_hour=one.usd_per_hour) for one in groups}
        self.policy: Policy = a_policy(*entries.values(), limits=limits or {})
        chance = random.Random(1)  # noqa: S311 - reproducible on purpose
        self.cloud = Cloud.of(list(groups), cluster="local", now=NOW, chance=chance, **cloud)
        self.told: list[str] = []
        self.door = Ec2(self.policy, self.cloud.clients(), warn=self.told.append, now=lambda: self.cloud.now)
        self.store = Store()
        self.pods = pods
        self.memory = Memory()
        """What the last plan wrote down."""
        self.failed: list[str] = []
        """Steps of the last turn that AWS refused, in words."""

    def process(self) -> None:
        """Another process takes over; it knows what was written down."""
        self.door = Ec2(self.policy, self.cloud.clients(), now=lambda: self.cloud.now)

    @property
    def executor(self) -> Executor:
        """Of the process."""
        return Executor(kube=cast("Writes", None), ec2=self.door, store=self.store)

    def decide(self, memory: Memory | None = None) -> tuple[Step, ...]:
        """What to do, as AWS is now; with nothing remembered, or what is given."""
        groups = self.door.groups()
        for group in groups:
            self.store.wrote_group(group)
        cluster = Cluster(seen_at=self.cloud.now, pods=tuple(self.pods), groups=groups)
        decided = plan(cluster, self.policy, memory or Memory())
        self.memory = as_memory(as_text(decided.memory))
        return decided.steps

    def turn(self, memory: Memory | None = None) -> tuple[Step, ...]:
        """Decide and act as the loop does: after a step that failed nothing is bought."""
        steps = self.decide(memory)
        self.failed.clear()
        for step in steps:
            if self.failed and isinstance(step, Grow):
                continue
            [failure] = self.executor.take([step])
            if failure is not None:
                assert isinstance(failure, Refused | NoAnswer | Changed)
                self.failed.append(str(failure))
        return steps

    def after(self, seconds: float) -> None:
        """So much later."""
        self.cloud.advance(self.cloud.now + timedelta(seconds=seconds))

    def desired(self) -> list[int]:
        """Of each group."""
        return [group.desired for group in self.cloud.groups.values()]


NO_CAPACITY = (("InsufficientInstanceCapacity", FULL),)
BOTH = pytest.mark.parametrize("at_once", [True, False], ids=["at once", "by the desired capacity"])
"""The two ways to buy: what holds of the one holds of the other."""


@BOTH
def test_what_ec2_refuses_in_one_zone_is_bought_in_another(at_once: bool) -> None:  # noqa: FBT001 - a parameter
    """With money for one node, which never is exceeded; nothing stays ordered where it was refused."""
    here, there = a_group(), a_group(zone="us-east-1b")
    limits = {"usd_per_hour": 30.0}
    made = Buyer(
        here, there, pods=a_gang(pods=1, gpus=8), limits=limits, refuses=1.0, at_once=at_once, says=NO_CAPACITY
    )
    bills: list[float] = []
    made.cloud.watch = lambda: bills.append(made.cloud.usd_per_hour)
    made.turn()
    made.after(1)
    made.cloud.refuses = 0.0
    made.turn()
    made.after(60)
    assert made.desired() == [0, 1]
    assert max(bills) == made.cloud.usd_per_hour == P4D


@BOTH
def test_the_preferred_pool_is_bought_in_again_when_its_back_off_ends(at_once: bool) -> None:  # noqa: FBT001
    """Longer from one failure to the next, as another process knows too; meanwhile the dearer one serves."""
    here, there = a_group(), replace(a_group("gpu-dear"), usd_per_hour=2 * P4D)
    made = Buyer(here, there, pods=a_gang("first", pods=1, gpus=8), at_once=at_once, says=NO_CAPACITY)
    for number in range(2):
        made.cloud.refuses = 1.0
        made.turn(made.memory)
        made.after(1)
        made.cloud.refuses = 0.0
        made.turn(made.memory)
        assert made.desired() == [0, number + 1]
        made.process()
        backoff = made.memory.backoffs[here.name]
        assert (backoff.tries, backoff.until - backoff.failed) == (number + 1, timedelta(minutes=3 * 2**number))
        made.after((backoff.until - made.cloud.now).total_seconds())
        made.pods = [*made.pods, *a_gang(f"more-{number}", pods=1, gpus=8)]
    made.turn(made.memory)
    assert made.desired() == [1, 2]


@pytest.mark.parametrize("pods", [1, 200], ids=["alone", "together"])
def test_of_pools_that_cost_the_same_the_one_that_failed_last_comes_last(pods: int) -> None:
    """Also when its back-off is over, for as long as that is remembered; by name again where nothing is."""
    groups = [a_group(zone=f"us-east-1{zone}", maximum=999) for zone in "abc"]
    policy = a_policy(an_entry(max=999))
    ago = [timedelta(minutes=minutes) for minutes in (9, 12, 6)]

    def bought(*failed: timedelta) -> set[str]:
        backoffs = {
            group.name: Backoff(NOW - since + timedelta(minutes=3), 1, NOW - since, "InsufficientInstanceCapacity")
            for group, since in zip(groups, failed, strict=False)
        }
        cluster = Cluster(seen_at=NOW, pods=a_gang(pods=pods, gpus=8, created=NOW - timedelta(hours=1)), groups=groups)
        steps = plan(cluster, policy, Memory(backoffs=backoffs)).steps
        return {step.group for step in steps if isinstance(step, Grow)}

    assert bought() == {groups[0].name}
    assert bought(*ago[:1]) == {groups[1].name}
    assert bought(*ago[:2]) == {groups[2].name}
    assert bought(*ago) == {groups[1].name}
    assert bought(*(since + timedelta(hours=1) for since in ago)) == {groups[0].name}


@BOTH
def test_a_quota_of_the_account_is_not_tried_in_another_zone(at_once: bool) -> None:  # noqa: FBT001
    """It would refuse there too; another family has a quota of its own, and serves at once."""
    here, there, other = a_group(), a_group(zone="us-east-1b"), replace(a_group("gpu-a10g"), usd_per_hour=99.0)
    quota = (("VcpuLimitExceeded", QUOTA),)
    made = Buyer(here, there, other, pods=a_gang(pods=1, gpus=4), at_once=at_once, says=quota, refuses=1.0)
    made.turn()
    made.after(1)
    made.cloud.refuses = 0.0
    made.turn(made.memory)
    assert made.desired() == [0, 0, 1]
    assert {one.code for one in made.memory.backoffs.values()} == {"VcpuLimitExceeded"}


@BOTH
def test_a_quota_that_is_known_is_never_asked_to_be_exceeded(at_once: bool) -> None:  # noqa: FBT001
    """Nor by a plan that did not know it: the door counts what was bought since it was read. A person is told."""
    here, there = a_group(maximum=5), a_group("gpu-a10g", maximum=5)
    made = Buyer(here, there, pods=a_gang(pods=2, gpus=8), at_once=at_once, quota=2)
    made.turn()
    made.after(1)
    assert made.desired() == [2, 0]
    assert any("2 of 2 vCPUs are in use" in line for line in made.told)
    made.pods = [*made.pods, *a_gang("more", pods=1, gpus=8)]
    asked: list[str] = []
    made.cloud.touch = asked.append
    assert made.turn() == ()
    [failure] = made.executor.take([Grow(here.name, 2, 3, P4D, (), "a plan of before", at=NOW)])
    assert isinstance(failure, Refused)
    assert re.search(r"VcpuLimitExceeded: quota .*: 2 of 2 vCPUs are in use, and 1 node would be 1", str(failure))
    assert asked == []


def test_orders_beside_each_other_draw_on_one_quota_one_after_the_other() -> None:
    """The second of two is refused what the first takes, before AWS is asked; a third fits in what is left."""
    here, there, third = (a_group(zone=f"us-east-1{zone}") for zone in "abc")
    made = Buyer(here, there, third, pods=(), quota=3)
    made.decide()
    asked: list[str] = []
    made.cloud.touch = asked.append
    sizes = {here.name: 2, there.name: 2, third.name: 1}
    came = made.executor.take([Grow(name, 0, to, P4D, (), "r", at=NOW) for name, to in sizes.items()])
    assert [type(one) for one in came] == [type(None), Refused, type(None)]
    assert "0 of 3 vCPUs are in use, 2 more are being bought, and 2 nodes would be 2 more" in str(came[1])
    assert made.desired() == [2, 0, 1]
    assert sorted(asked) == sorted(
        f"{when} launching in {one.name}" for one in (here, third) for when in ("before", "after")
    )


def test_an_instance_is_known_from_its_birth() -> None:
    """By its id, before anything was asked again; a refusal too, with its code."""
    made = Buyer(a_group(), pods=a_gang(pods=2, gpus=8))
    made.turn()
    [group] = made.store.cluster(NOW).groups
    assert (group.desired, [one.id for one in group.instances]) == (2, list(made.cloud.launched))
    assert {one.state for one in group.instances} == {"pending"}
    assert made.told == []
    full = Buyer(a_group(), pods=a_gang(pods=2, gpus=8), refuses=1.0)
    full.turn()
    [group] = full.store.cluster(NOW).groups
    assert (group.desired, group.instances, len(group.refusals)) == (0, (), 1)
    assert full.failed == [f"{group.refusals[0].code}: {group.refusals[0].message}"]
    assert full.decide() == ()


def test_that_nothing_may_be_launched_at_once_is_learnt_and_told_once() -> None:
    """The order is made in the same turn by the desired capacity."""
    made = Buyer(a_group(), pods=a_gang(pods=1, gpus=8), at_once=False)
    asked: list[str] = []
    made.cloud.touch = asked.append
    made.turn()
    made.pods = a_gang(pods=2, gpus=8)
    made.turn()
    assert made.desired() == [2]
    assert len([one for one in asked if one.startswith("before launching")]) == 1
    [line] = made.told
    assert "is grown by its desired capacity, not by LaunchInstances" in line
    assert "autoscaling:LaunchInstances" in line


class Killed(BaseException):
    """The process has ended."""


@BOTH
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("changed", [1, 2, 3])
def test_a_process_that_is_killed_at_a_purchase_buys_once(at_once: bool, when: str, changed: int) -> None:  # noqa: FBT001
    """Whether AWS had been asked or not, and whatever is wanted by then: the next process buys what lacks."""
    made = Buyer(a_group(), pods=a_gang(pods=2, gpus=8), at_once=at_once)

    def kill(what: str) -> None:
        if what.startswith(f"{when} {'launching' if at_once else 'resizing'}"):
            raise Killed

    made.cloud.touch = kill
    with pytest.raises(Killed):
        made.turn()
    made.cloud.touch = lambda _what: None
    made.process()
    made.pods = a_gang(pods=changed, gpus=8)
    for _ in range(3):
        made.turn(made.memory)
        made.after(1)
    assert made.desired() == [max(2, changed)]
    assert len(made.cloud.launched) == max(2, changed)


def through(made: Buyer, *, fails_at: int, failure: BaseException) -> int:
    """GangQueue until all is quiet, with one fault point that fails. Gives how many there were."""
    seen = 0

    def touch(_what: str) -> None:
        nonlocal seen
        seen += 1
        if seen == fails_at:
            raise failure

    made.cloud.touch = touch
    for _ in range(8):
        try:
            made.turn(made.memory)
        except Killed:
            made.process()
        made.after(5)
    return seen


@BOTH
@pytest.mark.parametrize("failure", [Killed(), ReadTimeoutError(endpoint_url="https://autoscaling")], ids=repr)
@pytest.mark.parametrize("late", [0.0, 3.0])
def test_a_failure_at_any_call_before_or_after_it_takes_effect_changes_nothing_in_the_end(
    at_once: bool,  # noqa: FBT001
    failure: BaseException,
    late: float,
) -> None:
    """Five pods in three zones, one of which is dry: the same nodes as without it, and never more than the limit."""
    zones = [a_group(zone=f"us-east-1{letter}", maximum=3) for letter in "abc"]

    def buyer() -> Buyer:
        made = Buyer(*zones, pods=a_gang(pods=5, gpus=8), limits={"nodes": 5}, at_once=at_once, says=NO_CAPACITY)
        made.cloud.dry, made.cloud.late = frozenset({zones[0].name}), (late, late)
        return made

    def watch(made: Buyer) -> None:
        assert sum(group.paid_for for group in made.cloud.groups.values()) <= 5

    ordinary = buyer()
    points = through(ordinary, fails_at=0, failure=failure)
    assert (sum(ordinary.desired()), len(ordinary.cloud.launched)) == (5, 5)
    assert points >= 6
    for point in range(1, points + 1):
        made = buyer()
        made.cloud.watch = partial(watch, made)
        through(made, fails_at=point, failure=failure)
        assert (made.desired(), len(made.cloud.launched)) == (ordinary.desired(), 5), f"at point {point} of {points}"


@pytest.mark.parametrize("wanted", [1, 2, 3])
@pytest.mark.parametrize("turns", [0, 3])
def test_an_order_that_aws_carries_out_after_nobody_listens_any_more_is_not_made_twice(wanted: int, turns: int) -> None:
    """The call was given up, or the process killed or frozen, while it was on its way: the token tells it is the same.

    It arrives just before the next process makes the order again, or when that one has turned three times.
    """
    made = Buyer(a_group(), a_group(zone="us-east-1b"), pods=a_gang(pods=2, gpus=8), limits={"nodes": 3})
    late: list[dict[str, Any]] = []
    ask = made.door._clients.autoscaling.launch_instances

    def times_out(**asked: Any) -> Any:
        late.append(asked)
        raise ReadTimeoutError(endpoint_url="https://autoscaling")

    made.door._clients.autoscaling.launch_instances = times_out  # type: ignore[method-assign]
    made.turn()
    assert ["does not answer" in line for line in made.failed] == [True]
    made.process()
    made.pods = a_gang(pods=wanted, gpus=8)
    for _ in range(turns):
        made.turn(made.memory)
        made.after(1)
    made.cloud.touch = lambda what: late and ask(**late.pop()) if what.startswith("before launching") else None
    if turns:
        ask(**late.pop())
    for _ in range(3):
        made.turn(made.memory)
        made.after(1)
    assert not late
    assert len(made.cloud.launched) == max(2, wanted)


def test_an_order_is_asked_about_no_longer_than_a_token_lives() -> None:
    """One that AWS has not carried out by then is decided anew, with another token."""
    made = Buyer(a_group(), pods=a_gang(pods=1, gpus=8))
    [first] = made.decide()
    [again] = made.decide(made.memory)
    assert isinstance(first, Grow)
    assert isinstance(again, Grow)
    assert (again.at, again.was, again.to) == (first.at, 0, 1)
    made.after(ORDERS_LAST.total_seconds())
    [anew] = made.decide(made.memory)
    assert isinstance(anew, Grow)
    assert anew.at == made.cloud.now
    tokens = {token_of(group=one.group, was=one.was, to=one.to, at=one.at) for one in (first, again, anew)}
    assert len(tokens) == 2


def test_what_ec2_refused_is_cancelled_at_aws_before_another_zone_is_bought_in() -> None:
    """With money for one node: the refused order is gone when the next one is made."""
    here, there = a_group(), a_group(zone="us-east-1b")
    made = Buyer(here, there, pods=a_gang(pods=1, gpus=8), limits={"usd_per_hour": 30.0}, refuses=1.0, at_once=False)
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
    made = Buyer(a_group(), pods=a_gang(pods=1, gpus=8), refuses=1.0, at_once=False)
    made.turn()
    made.after(1)
    assert [type(step) for step in made.turn()] == [Cancel]
    pause = made.policy.scale_up.refusal_backoff.total_seconds()
    for _ in range(2):
        made.after(pause / 3)
        assert made.decide() == ()
        made.process()
    made.after(pause / 3)
    assert [type(step) for step in made.turn()] == [Grow]


def test_an_order_is_not_cancelled_for_a_refusal_of_an_earlier_one() -> None:
    """The first node was refused once and came then: the second one waits for the end of that back-off, or goes on."""
    made = Buyer(a_group(), pods=a_gang(pods=1, gpus=8), refuses=1.0, at_once=False)
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
    made = Buyer(a_group(), pods=a_gang(pods=3, gpus=8), at_once=False)
    made.turn()
    made.after(1)
    [group] = made.cloud.groups.values()
    group.instances.popitem()
    made.cloud.refuses = 1.0
    made.after(1)
    [cancel] = [step for step in made.decide() if isinstance(step, Cancel)]
    assert describe(cancel) == f"cancel the order of 1 node in {group.shown.name}: back to 2 nodes"
    assert made.executor.take([cancel]) == [None]
    assert made.desired() == [2]


def test_an_instance_that_came_after_all_is_not_cancelled() -> None:
    """The refusal is old: Auto Scaling has tried again since. The next plan knows."""
    made = Buyer(a_group(), pods=a_gang(pods=1, gpus=8), refuses=1.0, at_once=False)
    made.turn()
    made.after(1)
    [cancel, *_] = made.decide()
    made.cloud.refuses = 0.0
    made.after(60)
    [failure] = made.executor.take([cancel])
    assert isinstance(failure, Changed)
    assert "has 1 node by now: EC2 delivered what it had refused" in str(failure)
    assert made.desired() == [1]
    assert [len(group.instances) for group in made.store.cluster(NOW).groups] == [1]


def test_a_launch_that_begins_as_its_order_is_cancelled_is_paid_for() -> None:
    """Its instance may come: until that is known, its money is not spent on another."""
    here, there = a_group(), a_group(zone="us-east-1b")
    limits = {"usd_per_hour": 30.0}
    made = Buyer(here, there, pods=a_gang(pods=1, gpus=8), limits=limits, refuses=1.0, at_once=False)
    made.turn()
    made.after(1)
    cancel, grow = made.decide()
    made.cloud.refuses, made.cloud.late = 0.0, (40.0, 40.0)
    made.cloud.begin(made.cloud.groups[here.name])
    [failure] = made.executor.take([cancel])
    assert isinstance(failure, Changed)
    assert "is launching a node after all" in str(failure)
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


@pytest.mark.parametrize(("pods", "most", "sizes"), [(1, 1, []), (1, 2, []), (2, 1, []), (2, 2, [(0, 1)])])
def test_what_a_minimum_keeps_is_launched_anew_by_auto_scaling_and_not_bought(
    pods: int, most: int, sizes: list[tuple[int, int]]
) -> None:
    """An instance of it never joined, and is ended: its successor counts as on its way, and towards the maximum."""
    groups = [a_group("gpu-a10g", joined=1, minimum=1, maximum=2), a_group("gpu-a10g", "us-east-1b", maximum=2)]
    waiting = [a_pod(f"p{number}", gpus=4) for number in range(pods)]
    look = a_cluster(pods=waiting, groups=groups, seen_at=later(minutes=16))
    decided = plan(look, a_policy(an_entry("gpu-a10g", max=most)), Memory())
    assert [step.instance for step in decided.steps if isinstance(step, Remove)] == [groups[0].instances[0].id]
    assert [(step.was, step.to) for step in decided.steps if isinstance(step, Grow)] == sizes
    told = {one.pod: one.because for one in decided.waiting}
    assert told["team/p0"] == "its node is on its way: g5.12xlarge in us-east-1a (group gpu-a10g)"


def test_an_instance_that_never_joined_is_given_back_and_another_bought_in_one_turn() -> None:
    """The order starts from what the removal leaves."""
    made = Buyer(a_group(), a_group(zone="us-east-1b"), pods=a_gang(pods=1, gpus=8))
    made.turn()
    made.after(1)
    made.after(made.policy.scale_up.boot_timeout.total_seconds())
    removed, grown = made.turn()
    assert isinstance(removed, Remove)
    assert removed.is_dead, "it goes also where its group is at its minimum"
    assert isinstance(grown, Grow)
    assert made.desired() == [0, 1]
    assert made.cloud.now > later()
