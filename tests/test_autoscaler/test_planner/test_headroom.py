"""Nodes kept free beyond what pods need: kept idle, bought where they lack, within every limit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.model.actions import Backoff, Cordon, Grow, Memory, Plan, Remove, Uncordon
from autoscaler.model.cluster import Group, Refusal
from autoscaler.model.pauses import ALL, Pause
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_entry, later, nodes_of


def decided(headroom: int, *, joined: int = 0, limits: dict[str, Any] | None = None, **look: Any) -> Plan:
    """Of a policy with one group of four GPUs a node."""
    groups = look.pop("groups", None) or (a_group("gpu-a10g", joined=joined),)
    nodes = look.pop("nodes", None) or [node for group in groups for node in nodes_of(group)]
    policy = a_policy(an_entry("gpu-a10g", headroom=headroom, max=6), limits=limits or {})
    return plan(a_cluster(groups=groups, nodes=nodes, **look), policy, Memory())


def grown(done: Plan) -> dict[str, int]:
    """Group -> what it is raised to."""
    return {step.group: step.to for step in done.steps if isinstance(step, Grow)}


NAME = a_group("gpu-a10g").name


def test_nodes_that_lack_are_bought_though_no_pod_waits() -> None:
    """With the headroom as the reason, at the price of so many."""
    done = decided(2)
    (step,) = done.steps
    assert isinstance(step, Grow)
    assert (step.to, step.demand, step.usd_per_hour) == (2, (), pytest.approx(11.344))
    assert step.because == "2 nodes for the headroom of group gpu-a10g"
    assert done.usd_per_hour == pytest.approx(11.344)


def test_idle_nodes_of_the_headroom_stay_and_others_go() -> None:
    """One that we closed meanwhile is opened again."""
    done = decided(2, joined=3)
    assert [type(step) for step in done.steps] == [Cordon]
    (group,) = (a_group("gpu-a10g", joined=1),)
    marks = {"cordoned": True, "cordoned_by": "spillway-autoscaler", "cordoned_at": NOW}
    (step,) = decided(1, groups=(group,), nodes=nodes_of(group, **marks)).steps
    assert isinstance(step, Uncordon)
    assert step.because == "wanted for the headroom of group gpu-a10g"
    assert [type(step) for step in decided(0, groups=(group,), nodes=nodes_of(group)).steps] == [Cordon]


def test_a_pod_takes_a_free_node_and_another_one_is_bought() -> None:
    """So that as many are free as before; a purchase for pods and one for the headroom are one step."""
    assert grown(decided(1, joined=1, pods=[a_pod("p", gpus=4)])) == {NAME: 2}
    done = decided(1, pods=[a_pod("p", gpus=4)])
    assert grown(done) == {NAME: 2}
    (step,) = [step for step in done.steps if isinstance(step, Grow)]
    assert step.demand == ("team/p",)
    assert step.usd_per_hour == pytest.approx(11.344)


def test_what_is_on_its_way_is_not_bought_again() -> None:
    """Asked for, launched, or joined and not ready yet; unless a pod is planned on it."""
    asked = a_group("gpu-a10g", desired=1)
    assert not grown(decided(1, groups=(asked,), nodes=[]))
    assert grown(decided(1, groups=(asked,), nodes=[], pods=[a_pod("p", gpus=4)])) == {NAME: 2}
    group = a_group("gpu-a10g", joined=1)
    assert not grown(decided(1, groups=(group,), nodes=nodes_of(group, ready=False)))


@pytest.mark.parametrize(
    ("limits", "to"),
    [({"nodes": 1}, 1), ({"gpus": 7}, 1), ({"usd_per_hour": 12}, 2), ({}, 4)],
)
def test_the_headroom_breaks_no_limit(limits: dict[str, Any], to: int) -> None:
    """As many as there is money for."""
    assert grown(decided(4, limits=limits)) == {NAME: to}


@pytest.mark.parametrize("limits", [{"nodes": 1}, {"gpus": 7}, {"usd_per_hour": 10}])
def test_a_node_that_is_being_ended_counts_towards_the_limits_until_it_is_shut_down(limits: dict[str, Any]) -> None:
    """Its termination hook may hold it for an hour, which AWS bills."""
    group = a_group("gpu-a10g", joined=1, desired=0)
    (ending,) = (replace(one, state="terminating", held=True) for one in group.instances)
    for instance, to in ((ending, {}), (replace(ending, held=False, is_down=True), {NAME: 1})):
        groups = (replace(group, instances=(instance,)),)
        assert grown(decided(1, groups=groups, limits=limits)) == to


def test_pods_come_before_the_headroom() -> None:
    """Where money is for one node only."""
    done = decided(1, limits={"nodes": 1}, pods=[a_pod("p", gpus=4)])
    (step,) = [step for step in done.steps if isinstance(step, Grow)]
    assert (step.to, step.demand) == (1, ("team/p",))


def test_a_group_that_ec2_refused_is_left_alone_and_looked_at_again() -> None:
    """The other zone has it; where none has, the plan wakes up when the back-off ends."""
    refusal = Refusal(at=NOW, code="InsufficientInstanceCapacity")
    first = replace(a_group("gpu-a10g"), refusals=(refusal,))
    second = a_group("gpu-a10g", "us-east-1b")
    assert grown(decided(1, groups=(first, second), nodes=[])) == {second.name: 1}
    done = decided(1, groups=(first,), nodes=[])
    assert not grown(done)
    assert done.wake_at == later(minutes=3)


def test_under_a_pause_none_is_bought() -> None:
    """And none goes."""
    assert not decided(2, pauses=(Pause(ALL),)).steps


def test_more_than_the_group_may_have_is_not_asked() -> None:
    """Its MaxSize is AWS's."""
    group: Group = a_group("gpu-a10g", maximum=2)
    assert grown(decided(5, groups=(group,), nodes=[])) == {NAME: 2}


def test_a_group_that_has_more_nodes_than_it_may_have_gets_none() -> None:
    """Its MaxSize was lowered below what runs."""
    group = a_group("gpu-a10g", joined=3, maximum=2)
    assert grown(decided(5, groups=(group,))) == {}


def test_a_headroom_that_is_lowered_gives_its_nodes_back() -> None:
    """As idle nodes go."""
    group = a_group("gpu-a10g", joined=1)
    closed = nodes_of(group, cordoned=True, cordoned_by="spillway-autoscaler", cordoned_at=later(minutes=-20))
    assert [type(step) for step in decided(0, groups=(group,), nodes=closed).steps] == [Remove]


def test_of_groups_that_cost_the_same_the_one_that_failed_of_late_comes_last() -> None:
    """Though its back-off is over."""
    groups = tuple(a_group("gpu-a10g", zone) for zone in ("us-east-1a", "us-east-1b"))
    failed = Backoff(NOW - timedelta(minutes=3), 1, NOW - timedelta(minutes=6), "InsufficientInstanceCapacity")
    policy = a_policy(an_entry("gpu-a10g", headroom=1))
    done = plan(a_cluster(groups=groups), policy, Memory(backoffs={groups[0].name: failed}))
    assert grown(done) == {groups[1].name: 1}


def test_what_one_group_may_not_have_is_bought_in_the_next_at_the_lower_price_first() -> None:
    """What is bought for pods counts towards the MaxSize of their group."""
    dear, cheap = a_group("gpu-a10g", maximum=9), a_group("gpu-a10g", "us-east-1b", maximum=2, usd_per_hour=5.0)
    assert grown(decided(3, groups=(dear, cheap), nodes=[])) == {cheap.name: 2, dear.name: 1}
    assert grown(decided(2, groups=(dear, cheap), nodes=[])) == {cheap.name: 2}
    assert grown(decided(2, groups=(dear, cheap), nodes=[], pods=[a_pod("p", gpus=4)])) == {cheap.name: 2, dear.name: 1}
    alike = a_group("gpu-a10g", "us-east-1b", maximum=9)
    assert grown(decided(1, groups=(alike, dear), nodes=[])) == {dear.name: 1}


def test_of_idle_nodes_the_ready_ones_stay_then_the_oldest() -> None:
    """The others go."""
    group = a_group("gpu-a10g", joined=3)
    first, second, third = nodes_of(group)
    for nodes, kept in (
        ([replace(first, created=later(seconds=-1)), replace(second, created=later(seconds=-3)), third], second.name),
        ([replace(first, created=later(seconds=-9), ready=False, unready_since=NOW), second, third], second.name),
        ([first, second, third], first.name),
    ):
        done = decided(1, groups=(group,), nodes=nodes)
        assert {step.node for step in done.steps if isinstance(step, Cordon)} == {one.name for one in nodes} - {kept}


def test_each_entry_has_a_headroom_of_its_own() -> None:
    """One without it keeps none; another's nodes are not counted, nor bought."""
    policy = a_policy(an_entry("gpu-a10g", headroom=1), an_entry("gpu-a100", headroom=2), an_entry("cpu"))
    groups = (a_group("gpu-a10g", joined=1), a_group("gpu-a100"), a_group("cpu", joined=1))
    nodes = [node for group in groups for node in nodes_of(group)]
    done = plan(a_cluster(groups=groups, nodes=nodes), policy, Memory())
    assert grown(done) == {groups[1].name: 2}
    assert [step.node for step in done.steps if isinstance(step, Cordon)] == [nodes[1].name]


def test_a_node_on_its_way_for_pods_is_no_headroom_and_one_beyond_them_is() -> None:
    """Two are coming, one of them for a pod: with a headroom of two one is bought, with one none."""
    coming = a_group("gpu-a10g", desired=2)
    pods = [a_pod("p", gpus=4)]
    assert grown(decided(2, groups=(coming,), nodes=[], pods=pods)) == {NAME: 3}
    assert grown(decided(1, groups=(coming,), nodes=[], pods=pods)) == {}
    (step,) = [one for one in decided(4, groups=(coming,), nodes=[], pods=pods).steps if isinstance(one, Grow)]
    assert (step.was, step.to, step.usd_per_hour) == (2, 5, pytest.approx(3 * 5.672))
    assert step.because == "3 nodes for the headroom of group gpu-a10g"
    (step,) = [one for one in decided(1, pods=[a_pod("p", gpus=4)]).steps if isinstance(one, Grow)]
    assert step.because.endswith("; 1 node for the headroom of group gpu-a10g")


def test_the_plan_looks_again_only_where_fewer_are_free_than_wanted() -> None:
    """A group that is refused matters to no plan where another had them."""
    refusal = Refusal(at=NOW, code="InsufficientInstanceCapacity")
    first = replace(a_group("gpu-a10g"), refusals=(refusal,))
    second = a_group("gpu-a10g", "us-east-1b", maximum=1)
    assert decided(1, groups=(first, second), nodes=[]).wake_at is None
    assert decided(2, groups=(first, second), nodes=[]).wake_at == later(minutes=3)


def test_what_is_bought_for_pods_counts_in_its_own_group() -> None:
    """With its price and towards the limits, whichever group stands first."""
    busy = a_group("cpu", joined=1)
    groups = (busy, a_group("gpu-a10g"))
    pods = [a_pod("p", gpus=4), a_pod("there", node=nodes_of(busy)[0].name, phase="Running")]
    (step,) = [one for one in decided(1, groups=groups, pods=pods).steps if isinstance(one, Grow)]
    assert (step.group, step.to, step.usd_per_hour) == (NAME, 2, pytest.approx(2 * 5.672))
    assert grown(decided(3, groups=groups, pods=pods, limits={"nodes": 3})) == {NAME: 2}
