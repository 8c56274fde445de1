"""Many gangs bought for in one call of the solver: whole, in order, within limits, with a bound, without a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Grow, Memory, Plan
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import GPU, HOSTNAME, ZONE
from autoscaler.planner.cutting_stock.joint_packing import Pool
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.plan import plan
from autoscaler.solver.deadline import Work
from autoscaler.solver.problem import Kind, Shape
from autoscaler.solver.solve import cheapest, lower_bound
from tests import examples
from tests.builders import (
    NOW,
    TOLERATES_GPU,
    a_cluster,
    a_gang,
    a_group,
    a_pod,
    a_policy,
    an_on_prem_node,
    later,
    nodes_of,
)
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_demand, a_market, groups_of

ALWAYS = SearchLimits()
"""However few pods there are."""


def decide(cluster: Cluster, policy: Policy | None = None, memory: Memory | None = None) -> Plan:
    """The plan, with the joint purchase first."""
    return plan(cluster, policy or a_policy(), memory or Memory(), limits=ALWAYS)


def demanded(decided: Plan) -> set[str]:
    """Keys of the pods for which nodes are bought."""
    return {key for step in decided.steps if isinstance(step, Grow) for key in step.demand}


def test_the_first_in_line_are_bought_for_where_limits_leave_some_out() -> None:
    """Of nine gangs of one whole node each there is room for five, whatever their names."""
    gangs = [a_gang(f"g{9 - number}", 2, gpus=4, created=later(seconds=number)) for number in range(9)]
    policy = a_policy(limits={"nodes": 5})
    pods = [pod for gang in gangs for pod in gang]
    decided = decide(a_cluster(pods=pods, groups=[a_group(maximum=20)]), policy)
    assert demanded(decided) == {pod.key for gang in gangs[:5] for pod in gang}
    assert {one.pod for one in decided.waiting if "nodes" in one.because} == {
        pod.key for gang in gangs[5:] for pod in gang
    }


def test_priority_comes_before_age_under_limits() -> None:
    """The urgent one came last and is served."""
    urgent = a_gang("urgent", 1, gpus=8, priority=10, created=later(seconds=60))
    pods = [*(pod for n in range(4) for pod in a_gang(f"g{n}", 1, gpus=8)), *urgent]
    decided = decide(a_cluster(pods=pods, groups=[a_group(maximum=2)]))
    assert len(demanded(decided)) == 2
    assert urgent[0].key in demanded(decided)


def test_one_that_nothing_holds_leaves_the_others_their_nodes() -> None:
    """It waits and is told why; the others are bought for together all the same."""
    pods = [a_pod(f"fits-{number}", gpus=2) for number in range(6)] + [a_pod("giant", gpus=1000)]
    decided = decide(a_cluster(pods=pods))
    assert demanded(decided) == {pod.key for pod in pods[:-1]}
    (giant,) = [one for one in decided.waiting if one.pod == "team/giant"]
    assert giant.hopeless


def test_what_is_idle_is_given_out_in_order_before_anything_is_bought() -> None:
    """One node on its way, two gangs that would fill it: the older one has it, though the other asks for the same."""
    pods = [*a_gang("old", 2, gpus=4), *a_gang("new", 1, gpus=8, created=later(seconds=1))]
    decided = decide(a_cluster(pods=pods, groups=[a_group(desired=1)]))
    assert demanded(decided) == {"team/new-worker-0"}


def test_a_pod_that_others_keep_off_their_node_is_not_put_beside_them() -> None:
    """Pods without a rule of their own that another pending pod's anti-affinity means: a node without that pod."""
    web = ({"app": "web"}, (Requirement("app", "In", ("web",)),))
    alone = a_pod("alone", cpu=1, labels=web[0], apart_from=(PodTerm(HOSTNAME, web[1], frozenset({"team"})),))
    others = [a_pod(f"other-{number}", cpu=1, labels=web[0], created=later(seconds=number)) for number in range(4)]
    groups = [a_group("cpu")]
    for pods in ([alone, *others], [*others, replace(alone, created=later(seconds=9))]):
        machines = [an_on_prem_node(f"m{number}", gpus=0, cpu=3) for number in range(2)]
        decided = decide(a_cluster(pods=pods, groups=groups, nodes=machines))
        homes = {key: where.node for key, where in decided.memory.assignments.items()}
        assert len(homes) == 5
        assert list(homes.values()).count(homes["team/alone"]) == 1


def test_machines_that_we_own_are_filled_first() -> None:
    """Four of six find room there; a node is bought for the other two."""
    pods = [pod for n in range(6) for pod in a_gang(f"g{n}", 1, gpus=2, created=later(seconds=n))]
    decided = decide(a_cluster(pods=pods, nodes=[an_on_prem_node(gpus=8)]))
    assert demanded(decided) == {"team/g4-worker-0", "team/g5-worker-0"}


def test_a_plan_right_after_a_purchase_buys_nothing_more() -> None:
    """What was bought for which gang is remembered, though all were bought for together."""
    cluster = a_cluster(pods=[a_pod(f"p{number}", gpus=1 + number % 4) for number in range(12)])
    first = decide(cluster)
    to = {step.group: step.to for step in first.steps if isinstance(step, Grow)}
    bought = [replace(group, desired=to.get(group.name, 0)) for group in cluster.groups]
    again = decide(a_cluster(pods=cluster.pods, groups=bought), memory=first.memory)
    assert first.usd_per_hour > 0
    assert not demanded(again)
    assert again.usd_per_hour == first.usd_per_hour


@st.composite
def lists_of_gangs(
    draw: st.DrawFn, least: int = 1, most: int = 8, also: Sequence[Mapping[str, Any]] = ({},)
) -> list[tuple[Pod, ...]]:
    """So many; ``also``: what any of them may have."""
    return [
        a_gang(
            f"g{number}",
            draw(st.integers(1, 4)),
            gpus=draw(st.sampled_from((0, 1, 2, 8))),
            cpu=draw(st.sampled_from((1, 5, 14))),
            **draw(st.sampled_from(also)),
        )
        for number in range(draw(st.integers(least, most)))
    ]


@settings(deadline=None, max_examples=examples(60))
@given(
    gangs=lists_of_gangs(),
    nodes=st.none() | st.integers(0, 6),
    gpus=st.none() | st.integers(0, 24),
    usd=st.none() | st.sampled_from((3.0, 20.0)),
)
def test_a_pool_serves_whole_gangs_within_all_limits_or_buys_nothing(
    gangs: Sequence[tuple[Pod, ...]], nodes: int | None, gpus: int | None, usd: float | None
) -> None:
    """Each pod once, on a node with room, and the bound is no more than is paid."""
    limits = {"nodes": nodes, "gpus": gpus, "usd": usd}
    ceilings = {name: limit for name, limit in limits.items() if limit is not None}
    market = a_market([pod for gang in gangs for pod in gang], groups_of(maximum=4), **ceilings)
    pool = Pool(market, ALWAYS)
    demands = [a_demand(market, gang, f"g{number}") for number, gang in enumerate(gangs)]
    for demand in demands:
        if not pool.take(demand):
            return
    if not pool.buy():
        return
    found = pool.found()
    put = Counter(key for one in found.values() for key, _ in one.places)
    assert put == Counter(key for place in market.snapshot.places for key in place.guests)
    assert put == Counter(pod.key for gang in gangs for pod in gang)
    assert all(amount >= 0 for place in market.snapshot.places for amount in place.free.values())
    bought = [place for one in found.values() for place in one.bought]
    paid = sum(place.price for place in bought)
    assert len({place.name for place in bought}) == len(bought) == market.bought.total() == len(market.snapshot.places)
    assert nodes is None or len(bought) <= nodes
    assert gpus is None or sum(place.group.allocatable[GPU] for place in bought if place.group) <= gpus
    assert usd is None or paid <= usd + 1e-6
    assert pool.bound <= paid + 1e-6


@settings(deadline=None, max_examples=examples(40))
@given(gangs=lists_of_gangs(), free=st.lists(st.sampled_from((2, 8)), max_size=2), seed=st.randoms())
def test_a_plan_costs_no_less_than_its_bound_and_does_not_depend_on_the_order_of_the_look(
    gangs: Sequence[tuple[Pod, ...]], free: Sequence[int], seed: Random
) -> None:
    """Nodes that are there included."""
    pods = [pod for gang in gangs for pod in gang]
    nodes = [an_on_prem_node(f"dgx-{number}", gpus=gpus, cpu=16) for number, gpus in enumerate(free)]
    cluster = a_cluster(pods=pods, nodes=nodes)
    decided = decide(cluster)
    assert 0 <= decided.lower_bound_usd_per_hour <= decided.usd_per_hour + 1e-6
    mixed = list(pods)
    seed.shuffle(mixed)
    assert decide(a_cluster(pods=mixed, nodes=nodes[::-1], groups=cluster.groups[::-1])) == decided


def test_the_bound_counts_what_is_free_as_free() -> None:
    """Two pods for one place on a machine of ours: one of them costs a node, and no less can be proven than a part."""
    cluster = a_cluster(pods=[a_pod("a", gpus=8), a_pod("b", gpus=8)], nodes=[an_on_prem_node(gpus=8)])
    decided = decide(cluster)
    assert 0 < decided.lower_bound_usd_per_hour <= decided.usd_per_hour


def test_pods_of_more_sizes_than_the_solver_takes_are_planned_for_in_clusters() -> None:
    """Of 400 sizes: each pod once, on a node with room for it, at most a fifth above the bound; free room is used."""
    dice = Random(7)  # noqa: S311 - the same pods every time
    pods = [
        pod
        for n in range(400)
        for pod in a_gang(f"g{n}", 1, gpus=dice.choice((0, 0, 1, 2)), cpu=f"{dice.randint(100, 9000)}m")
    ]
    market = a_market(pods, groups_of(maximum=1000))
    pool = Pool(market, ALWAYS)
    assert all(pool.take(a_demand(market, (pod,), pod.key)) for pod in pods)
    assert pool.buy()
    places = market.snapshot.places
    assert Counter(key for place in places for key in place.guests) == Counter(pod.key for pod in pods)
    assert all(amount >= 0 for place in places for amount in place.free.values())
    paid = sum(place.price for place in places)
    assert 0.8 * paid < pool.bound <= paid
    decided = decide(a_cluster(pods=pods, nodes=[an_on_prem_node(gpus=8)], groups=groups_of(maximum=1000)))
    assert 0 < decided.lower_bound_usd_per_hour <= decided.usd_per_hour


def test_effort_is_counted_and_ends_where_it_is_spent() -> None:
    """More work is never a dearer plan here, and what is done stays near to what was granted."""
    shapes = [Shape((1000 * size, 500 * (size % 7 + 1), size % 3, 1), 20 + size) for size in range(1, 40)]
    kinds = [Kind(f"k{n}", (16_000 * n, 9_000 * n, n % 4 * 2, 110), 0.9 * n + 2.0 * (n % 4)) for n in range(1, 12)]
    found = {}
    for budget in (50.0, 2_000.0):
        work = Work()
        found[budget] = cheapest(shapes, kinds, deadline=budget, clock=work)
        assert work.done < 1.5 * budget
        assert not any(found[budget].left)
        again = cheapest(shapes, kinds, deadline=budget, clock=Work())
        assert (again.usd, again.nodes) == (found[budget].usd, found[budget].nodes)
    assert lower_bound(shapes, kinds) <= found[2_000.0].usd <= found[50.0].usd


def test_a_node_kept_for_pods_planned_before_is_left_to_them() -> None:
    """The newcomer, first in line by priority, buys its own."""
    group = a_group(joined=1)
    node = nodes_of(group)[0]
    old = a_pod("old", gpus=8)
    first = decide(a_cluster(pods=[old], nodes=[node], groups=[group]))
    assert first.memory.assignments[old.key].node == node.name
    newcomer = a_pod("newcomer", gpus=8, created=later(seconds=-60))
    again = decide(a_cluster(pods=[old, newcomer], nodes=[node], groups=[group]), memory=first.memory)
    assert demanded(again) == {newcomer.key}


def test_a_machine_that_we_own_is_given_to_what_would_be_dearest_to_buy_for() -> None:
    """Filled in order it would take the pods without GPUs, and an 8-GPU node would be bought for the last."""
    small = [a_pod(f"a-{number}", cpu=14, tolerations=(TOLERATES_GPU,)) for number in range(4)]
    large = a_pod("z", gpus=8, cpu=90, created=later(seconds=1))
    decided = decide(a_cluster(pods=[*small, large], nodes=[an_on_prem_node(cpu=128, gpus=8)]))
    assert decided.memory.assignments["team/z"].node == "dgx-01"
    assert decided.usd_per_hour < 2
    assert decided.lower_bound_usd_per_hour <= decided.usd_per_hour


@settings(deadline=None, max_examples=examples(60))
@given(gangs=lists_of_gangs(), owned=st.lists(st.sampled_from([0, 1, 4, 8]), max_size=3))
def test_with_machines_of_ours_a_plan_costs_no_more_than_filling_them_first(
    gangs: Sequence[tuple[Pod, ...]], owned: list[int]
) -> None:
    """And never less than its bound; every pod is served either way."""
    pods = [pod for gang in gangs for pod in gang]
    nodes = [an_on_prem_node(f"dgx-{number}", gpus=gpus, cpu=20) for number, gpus in enumerate(owned)]
    cluster = a_cluster(pods=pods, nodes=nodes)
    jointly = plan(cluster, a_policy(), Memory(), limits=ALWAYS)
    in_turn = plan(cluster, a_policy(), Memory(), limits=replace(ALWAYS, at_hand_kinds=0))
    assert jointly.usd_per_hour <= in_turn.usd_per_hour + 1e-6
    assert jointly.lower_bound_usd_per_hour <= jointly.usd_per_hour + 1e-6
    assert jointly.memory.assignments.keys() == in_turn.memory.assignments.keys()


@pytest.mark.parametrize(("late", "bought"), [("a", {"b": 3, "a": 1}), ("b", {"a": 3, "b": 1})])
def test_of_groups_alike_those_that_have_failed_of_late_are_bought_in_last(late: str, bought: dict[str, int]) -> None:
    """Each has three nodes at most, and four are needed. The solver takes any of two that cost the same."""
    groups = [a_group("gpu-a10g", zone=f"us-east-1{zone}", maximum=3) for zone in "ab"]
    pods = [a_pod(f"p{number}", gpus=4) for number in range(4)]
    market = a_market(pods, groups, failed={f"local-gpu-a10g-us-east-1{late}": NOW})
    pool = Pool(market, ALWAYS)
    assert all(pool.take(a_demand(market, (pod,), pod.name)) for pod in pods)
    assert pool.buy()
    assert {name[-1]: many for name, many in market.bought.items()} == bought


def test_a_kind_alike_does_not_take_what_others_need() -> None:
    """A pod of the first zone has its one node there, also where the other zone has failed of late."""
    groups = [a_group("gpu-a10g", zone=f"us-east-1{zone}", maximum=1) for zone in "ab"]
    here = Requirement(ZONE, "In", ("us-east-1a",))
    pods = [a_pod("anywhere", gpus=4), a_pod("here", gpus=3, affinity=((here,),))]
    market = a_market(pods, groups, failed={"local-gpu-a10g-us-east-1b": NOW})
    pool = Pool(market, ALWAYS)
    assert all(pool.take(a_demand(market, (pod,), pod.name)) for pod in pods)
    assert pool.buy()
    assert {key: place.labels[ZONE] for key, place in pool.places.items()} == {
        "team/anywhere": "us-east-1b",
        "team/here": "us-east-1a",
    }
