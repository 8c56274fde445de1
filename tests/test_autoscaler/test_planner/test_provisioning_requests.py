"""Room that is asked for before there are pods: bought once and whole, kept for ten minutes, taken pod by pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.actions import Cordon, Evict, Memory, Nominate, Plan, Reserve, SetCondition
from autoscaler.model.cluster import Cluster, Pod, PodSet, ProvisioningRequest
from autoscaler.model.constraints import Taint
from autoscaler.model.labels import RESERVED
from autoscaler.planner.demand.requested_gangs import MOST_PODS, why_not_planned
from autoscaler.planner.explanation.explain import explain
from autoscaler.planner.plan import plan
from tests.builders import (
    NOW,
    TOLERATES_GPU,
    a_cluster,
    a_group,
    a_pod,
    a_policy,
    an_entry,
    an_on_prem_node,
    later,
    nodes_of,
)
from tests.test_autoscaler.test_planner.test_scale_up import grown

KEYS = [f"team/ask/{number}" for number in range(3)]


def a_request(*sets: tuple[int, int], name: str = "ask", **given: Any) -> ProvisioningRequest:
    """Of pods with so many GPUs, so many times: three of eight unless others are given."""
    pod_sets = tuple(PodSet(a_pod(f"of-{gpus}", gpus=gpus), count) for gpus, count in sets or ((8, 3),))
    return ProvisioningRequest("team", name, uid=f"uid-{name}", created=NOW, pod_sets=pod_sets, **given)


def asked(*requests: ProvisioningRequest, **given: Any) -> Cluster:
    """A look with them."""
    return a_cluster(provisioning_requests=requests, **given)


def told(decided: Plan) -> list[tuple[str, bool]]:
    """Conditions that are set."""
    return [(step.condition, step.status) for step in decided.steps if isinstance(step, SetCondition)]


def ready(many: int, **given: Any) -> dict[str, Any]:
    """A group of machines of eight GPUs with so many that have joined."""
    group = a_group(joined=many)
    return {"groups": [group], "nodes": nodes_of(group, **given)}


def comes(number: int, **given: Any) -> Pod:
    """One that was created for the request."""
    return a_pod(f"worker-{number}", gpus=8, consumes="ask", **given)


def test_all_that_is_asked_for_is_bought_by_one_order_and_not_again() -> None:
    """It is told nothing until nodes are there, and then that they are; no step is about a pod."""
    decided = plan(asked(a_request()), a_policy(), Memory())
    assert grown(decided) == {a_group().name: 3}
    assert told(decided) == []
    coming = asked(a_request(), groups=[a_group(desired=3)])
    again = plan(coming, a_policy(), decided.memory)
    assert (grown(again), told(again)) == ({}, [])
    half = {"groups": [a_group(joined=2, desired=3)], "nodes": nodes_of(a_group(joined=2))}
    assert told(plan(asked(a_request(), **half), a_policy(), again.memory)) == []
    there = plan(asked(a_request(), **ready(3)), a_policy(), again.memory)
    assert told(there) == [("Provisioned", True)]
    assert {type(step) for step in there.steps} == {SetCondition}


@given(
    st.lists(st.tuples(st.sampled_from((1, 3, 4, 8)), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(0, 3),
    st.integers(0, 6),
    st.booleans(),
)
def test_a_request_gets_a_place_for_all_of_its_pods_or_for_none(
    sets: list[tuple[int, int]],
    machines: int,
    limit: int,
    may_buy: bool,  # noqa: FBT001 - drawn
) -> None:
    """Whatever is there and may be bought; a second look orders nothing more."""
    nodes = [an_on_prem_node(f"dgx-{number}", gpus=4) for number in range(machines)]
    cluster, policy = asked(a_request(*sets, may_buy=may_buy), nodes=nodes), a_policy(an_entry(max=limit))
    first = plan(cluster, policy, Memory())
    assert len(first.memory.assignments) in (0, sum(count for _, count in sets))
    assert bool(first.memory.assignments) or told(first) == [("Provisioned", False)]
    assert may_buy or not grown(first)
    orders = grown(first)
    groups = tuple(replace(group, desired=orders.get(group.name, 0)) for group in cluster.groups)
    assert grown(plan(replace(cluster, groups=groups), policy, first.memory)) == {}


def test_machines_that_are_there_are_enough() -> None:
    """Those that the lab owns first."""
    decided = plan(asked(a_request((4, 2)), nodes=[an_on_prem_node()]), a_policy(), Memory())
    assert (grown(decided), told(decided)) == ({}, [("Provisioned", True)])


def test_what_does_not_fit_whole_is_not_bought_and_told_once() -> None:
    """With the reason; a request that has been told so hears of it when there is room."""
    policy = a_policy(an_entry(max=2))
    decided = plan(asked(a_request()), policy, Memory())
    assert (grown(decided), told(decided)) == ({}, [("Provisioned", False)])
    (answer,) = (step for step in decided.steps if isinstance(step, SetCondition))
    assert "max 2 of group gpu-a100" in answer.because
    assert told(plan(asked(a_request(refused=True)), policy, Memory())) == []
    assert told(plan(asked(a_request(refused=True), **ready(3)), a_policy(), Memory())) == [("Provisioned", True)]


def test_a_request_for_more_pods_than_any_cluster_has_is_refused_at_once() -> None:
    """A large number is written in a moment; the others are served."""
    large, small = a_request((1, 10**9), name="large"), a_request((8, 1))
    decided = plan(asked(large, small), a_policy(), Memory())
    assert grown(decided) == {a_group().name: 1}
    (answer,) = (step for step in decided.steps if isinstance(step, SetCondition))
    assert (answer.name, answer.because) == ("large", "it asks for 1000000000 pods: at most 20000 are planned for")
    assert told(plan(asked(replace(large, refused=True)), a_policy(), Memory())) == []
    assert why_not_planned(a_request((1, MOST_PODS))) == ""
    assert why_not_planned(a_request((1, MOST_PODS + 1))) != ""


def test_to_check_for_capacity_buys_nothing() -> None:
    """There is room, or there is none."""
    check = a_request((8, 1), may_buy=False)
    decided = plan(asked(check), a_policy(), Memory())
    assert (grown(decided), told(decided)) == ({}, [("Provisioned", False)])
    assert told(plan(asked(check, nodes=[an_on_prem_node()]), a_policy(), Memory())) == [("Provisioned", True)]


def test_a_request_without_its_templates_is_waited_for() -> None:
    """Part of it is not what was asked for."""
    half = replace(a_request(), pod_sets=(*a_request().pod_sets, PodSet(None, 1)))
    assert plan(asked(half), a_policy(), Memory()).steps == ()
    assert explained(half).endswith("asks room for 4 pods: a PodTemplate that it names is not there")


@pytest.mark.parametrize(
    ("now", "are_kept"), [(later(minutes=9, seconds=59), True), (later(minutes=10), False), (later(hours=1), False)]
)
def test_nodes_are_kept_for_ten_minutes(now: datetime, are_kept: bool) -> None:  # noqa: FBT001 - a table
    """Idle for longer than others may be; then they go, and the request is told."""
    booked = a_request(provisioned=NOW)
    there = ready(3, created=later(hours=-2))
    decided = plan(replace(asked(booked, **there), seen_at=now), a_policy(), Memory())
    assert bool([step for step in decided.steps if isinstance(step, Cordon)]) != are_kept
    assert told(decided) == ([] if are_kept else [("BookingExpired", True)])
    because = {step.because for step in decided.steps if isinstance(step, SetCondition)}
    assert because == (set() if are_kept else {"its room was kept for 10 minutes"})
    if are_kept:
        assert decided.wake_at is not None
        assert decided.wake_at <= later(minutes=10)


@pytest.mark.parametrize("come", [1, 2, 3])
def test_pods_that_come_take_its_room_and_buy_nothing(come: int) -> None:
    """Whether they wait or run; the rest stays booked."""
    booked = a_request(provisioned=NOW)
    there = ready(3)
    for bound in (0, come):
        pods = [
            comes(n, **({"node": there["nodes"][n].name, "phase": "Running"} if n < bound else {})) for n in range(come)
        ]
        decided = plan(asked(booked, pods=pods, **there), a_policy(), Memory())
        assert (grown(decided), told(decided)) == ({}, [])
        assert len([pod for pod in decided.memory.assignments if pod in KEYS]) == 3 - come


def test_one_that_asks_something_else_takes_the_room_of_any() -> None:
    """And more than were asked for are bought for as ever."""
    booked = a_request((8, 1), (4, 1), provisioned=NOW)
    assert left(booked, [8]) == ["of-4"]
    assert left(booked, [4]) == ["of-8"]
    assert left(booked, [2]) == ["of-4"]
    assert left(booked, [2, 2]) == []
    assert left(booked, [8, 8, 8]) == []
    decided = plan(
        asked(a_request((8, 1), provisioned=NOW), pods=[comes(0), comes(1)], **ready(1)), a_policy(), Memory()
    )
    assert grown(decided) == {a_group().name: 1}


def test_a_pod_that_is_made_anew_takes_no_room_twice() -> None:
    """One that has failed, or goes, has another in its place; one that is done has had its room."""
    booked = a_request(provisioned=NOW)
    for gone, kept in (({"phase": "Failed"}, 3), ({"deleting": True}, 3), ({"phase": "Succeeded"}, 2)):
        decided = plan(asked(booked, pods=[comes(0, node="elsewhere", **gone)], **ready(3)), a_policy(), Memory())
        assert len([pod for pod in decided.memory.assignments if pod in KEYS]) == kept


def left(booked: ProvisioningRequest, come: Sequence[int]) -> list[str]:
    """What it still keeps room for, by template, when pods with so many GPUs have come."""
    pods = [a_pod(f"p{number}", gpus=gpus, consumes="ask") for number, gpus in enumerate(come)]
    decided = plan(asked(booked, pods=pods, **ready(3)), a_policy(), Memory())
    names = ["of-8", "of-4"]
    return [names[int(key.rpartition("/")[2])] for key in decided.memory.assignments if key.startswith("team/ask/")]


def test_nothing_is_bought_again_for_what_was_booked() -> None:
    """Its room was taken by others, or its node is gone: what comes asks for itself."""
    decided = plan(asked(a_request(provisioned=NOW)), a_policy(), Memory())
    assert (grown(decided), told(decided)) == ({}, [])


def test_two_requests_and_a_gang_of_pods_share_no_room() -> None:
    """The older is served first."""
    second = replace(a_request((8, 1), name="second"), created=later(seconds=1))
    decided = plan(asked(a_request((8, 1)), second, nodes=[an_on_prem_node()]), a_policy(), Memory())
    assert [step.name for step in decided.steps if isinstance(step, SetCondition)] == ["ask"]
    assert grown(decided) == {a_group().name: 1}


def explained(request: ProvisioningRequest, **given: Any) -> str:
    """What `explain job` says of it."""
    cluster, policy = asked(request, **given), a_policy(an_entry(max=2))
    (line,) = explain("job", "team/ask", cluster, policy, plan(cluster, policy, Memory()))
    return line


def test_a_request_is_explained_by_its_name() -> None:
    """Why it waits, that it is told next, until when its room is kept."""
    asks = "ProvisioningRequest team/ask asks room for 3 pods: "
    assert "max 2 of group gpu-a100" in explained(a_request()).removeprefix(asks)
    assert explained(a_request((1, 3)), nodes=[an_on_prem_node()]) == f"{asks}all of it is there, and it is told next"
    assert explained(a_request(provisioned=NOW)) == (
        "ProvisioningRequest team/ask has its room, which is kept until 09:10:00 UTC: it is for 3 pods"
    )


def test_no_scheduler_is_told_of_what_is_no_pod() -> None:
    """Neither a nomination nor a way onto a node that is reserved; pods that come are let in."""
    there = ready(1)
    node = replace(there["nodes"][0], taints=(*there["nodes"][0].taints, Taint(RESERVED)))
    there["nodes"] = (node,)
    decided = plan(asked(a_request((8, 1)), **there), a_policy(), Memory())
    assert {type(step) for step in decided.steps} == {SetCondition}
    pods = [comes(0, unschedulable_because="0/1 nodes are available")]
    decided = plan(asked(a_request((8, 1), provisioned=NOW), pods=pods, **there), a_policy(), decided.memory)
    assert {type(step) for step in decided.steps} & {Reserve, Nominate} == {Reserve}


def test_booked_room_is_no_room_for_pods_that_are_moved() -> None:
    """Nor is a place for what is booked one for them: a node is emptied where all of its pods have another."""
    group = a_group(joined=1)
    (node,) = nodes_of(group)
    web = a_pod(
        "web",
        cpu=30,
        owner="ReplicaSet/web",
        phase="Running",
        started=NOW,
        tolerations=(TOLERATES_GPU,),
        node=node.name,
    )
    now, home = later(hours=2), an_on_prem_node(gpus=0)
    cpus = home.allocatable["cpu"] // 1000
    for kept, is_moved in ((cpus - 31, True), (cpus - 29, False), (1, True)):
        sets = (PodSet(a_pod("of", cpu=kept), 1),)
        booked = replace(a_request(), pod_sets=sets, provisioned=later(hours=1, minutes=55))
        cluster = asked(booked, pods=[web], nodes=[node, home], groups=[group], seen_at=now)
        assert bool([step for step in plan(cluster, a_policy(), Memory()).steps if isinstance(step, Evict)]) == is_moved
    full = replace(home, allocatable=home.allocatable - a_pod("of", cpu=cpus - 20).requests)
    booked = replace(a_request(), pod_sets=(PodSet(a_pod("of", cpu=1), 1),), provisioned=later(hours=1, minutes=55))
    cluster = asked(booked, pods=[web], nodes=[node, full], groups=[group], seen_at=now)
    assert [step for step in plan(cluster, a_policy(), Memory()).steps if isinstance(step, Evict)] == []
