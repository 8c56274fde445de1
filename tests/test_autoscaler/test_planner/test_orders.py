"""Orders of which it is not known whether AWS has carried them out: open for a while, and made again, not anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.actions import Assignment, Cordon, Grow, Memory, Order
from autoscaler.model.cluster import FOREVER, PodSet, ProvisioningRequest, Refusal
from autoscaler.model.pauses import Pause, budget_of
from autoscaler.planner.orders import as_ordered, dated, made_again, ordered_so_far, orders_in, still_open
from autoscaler.planner.plan import plan
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of

GROUP, OTHER = a_group("gpu-a10g", desired=1, usd_per_hour=2.0), a_group("cpu")
NAME = GROUP.name
ORDER = Order(was=1, to=3, at=NOW)


def a_grow(name: str = NAME, **given: Any) -> Grow:
    """One that was decided."""
    return replace(Grow(group=name, was=1, to=3, usd_per_hour=4.0, demand=("team/p",), because="r"), **given)


@pytest.mark.parametrize(
    ("given", "seconds", "is_open"),
    [
        ({}, 0, True),
        ({}, 299, True),
        ({}, 300, False),
        ({"desired": 3}, 0, False),
        ({"desired": 0}, 0, False),
        ({"refusals": (Refusal(at=NOW, code="x"),)}, 0, False),
        ({"refusals": (Refusal(at=later(seconds=-1), code="x"),)}, 0, True),
    ],
)
def test_an_order_is_open_until_its_group_shows_what_came_of_it(
    given: dict[str, Any], seconds: float, *, is_open: bool
) -> None:
    """Or five minutes have passed; a refusal since then is an answer."""
    cluster = a_cluster(groups=[OTHER, replace(GROUP, **given)], seen_at=later(seconds=seconds))
    found = still_open(cluster, Memory(orders={NAME: ORDER}))
    assert found == ({NAME: ORDER} if is_open else {})
    assert still_open(cluster, Memory()) == {}


def test_what_was_refused_before_an_order_says_nothing_of_it() -> None:
    """Another process learns of a refusal that the first did not know of: it asks again, and takes nothing back."""
    group = a_group(joined=1)
    (node,) = nodes_of(group)
    pods = [replace(a_pod("runs", gpus=8), node=node.name), a_pod("waits", gpus=8)]
    bought = plan(a_cluster(pods=pods, nodes=[node], groups=[group]), a_policy(), Memory())
    (grow,) = bought.steps
    earlier = replace(group, refusals=(Refusal(at=later(seconds=-30), code="VcpuLimitExceeded"),))
    again = plan(
        a_cluster(pods=pods, nodes=[node], groups=[earlier], seen_at=later(seconds=1)), a_policy(), bought.memory
    )
    assert isinstance(grow, Grow)
    assert [replace(step, because="") for step in again.steps] == [replace(grow, because="")]


def test_what_was_ordered_counts_as_on_its_way() -> None:
    """In its own group; without orders the cluster is the same one."""
    cluster = a_cluster(groups=[OTHER, GROUP])
    assert as_ordered(cluster, {NAME: ORDER}).groups == (OTHER, replace(GROUP, desired=3))
    assert as_ordered(cluster, {}) is cluster


def test_an_order_is_made_again_while_pods_wait_for_its_nodes() -> None:
    """The very same one, with its time; pods on further nodes, or in other groups, are another's."""
    cluster = a_cluster(groups=[OTHER, GROUP])
    assignments = {
        "team/b": Assignment(f"{NAME}~2", NAME),
        "team/a": Assignment(f"{NAME}~1", NAME),
        "team/further": Assignment(f"{NAME}+1", NAME),
        "team/other": Assignment(f"{OTHER.name}~1", OTHER.name),
        "team/there": Assignment("ip-1", NAME),
    }
    assert made_again(cluster, {NAME: ORDER}, assignments) == [
        Grow(
            group=NAME,
            was=1,
            to=3,
            usd_per_hour=4.0,
            demand=("team/a", "team/b"),
            because="AWS has not said what came of this order of 2026-11-21 09:00:00 UTC",
            at=NOW,
        )
    ]
    assert made_again(cluster, {NAME: ORDER}, {"team/further": assignments["team/further"]}) == []
    assert made_again(cluster, {}, assignments) == []
    both = made_again(cluster, {NAME: ORDER, OTHER.name: Order(0, 1, NOW)}, assignments)
    assert [step.group for step in both] == sorted([NAME, OTHER.name])


@pytest.mark.parametrize(
    ("given", "again"),
    [({}, True), ({"provisioned": NOW}, False), ({"may_buy": False}, False)],
    ids=["asks for nodes", "has its room", "asks for none"],
)
def test_an_order_is_not_made_again_for_a_request_that_nothing_is_bought_for(
    given: dict[str, Any], *, again: bool
) -> None:
    """Its room was taken back by EC2, and a node that was ordered for the headroom would be its own."""
    request = ProvisioningRequest("team", "ask", "uid", NOW, (PodSet(a_pod(gpus=4), 1),), **given)
    cluster = a_cluster(groups=[GROUP], provisioning_requests=(request,))
    made = made_again(cluster, {NAME: ORDER}, {"team/ask/0": Assignment(f"{NAME}~1", NAME)})
    assert [step.demand for step in made] == ([("team/ask/0",)] if again else [])


@pytest.mark.parametrize(("patience", "again"), [(None, True), (timedelta(days=1), True), (FOREVER, False)])
def test_an_order_is_not_made_again_for_a_pod_that_only_takes_room_that_is_there(
    patience: timedelta | None, *, again: bool
) -> None:
    """A node that another pod waited for, which is gone."""
    cluster = a_cluster(pods=[replace(a_pod("p", gpus=4), patience=patience)], groups=[GROUP])
    made = made_again(cluster, {NAME: ORDER}, {"team/p": Assignment(f"{NAME}~1", NAME)})
    assert [step.demand for step in made] == ([("team/p",)] if again else [])


@pytest.mark.parametrize(
    ("spent", "again"),
    [({"namespace": "team"}, []), ({"owner": "ada"}, []), ({"namespace": "other"}, [NAME]), ({"owner": "bob"}, [NAME])],
    ids=str,
)
def test_an_order_is_not_made_again_for_those_whose_budget_is_spent_by_now(
    spent: dict[str, str], again: list[str]
) -> None:
    """It counts as made until it is known."""
    pod = a_pod("p", gpus=4, labels={words.OWNER: "ada"})
    look = a_cluster(pods=[pod], groups=[a_group("gpu-a10g"), OTHER])
    first = plan(look, a_policy(), Memory())
    later_on = replace(look, seen_at=later(seconds=20), pauses=(Pause(budget_of(**spent)),))
    then = plan(later_on, a_policy(), first.memory)
    assert [step.group for step in then.steps if isinstance(step, Grow)] == again
    assert then.memory.orders == first.memory.orders


@pytest.mark.parametrize("scope", ["all", "buying", "group.gpu-a10g", "buying.cpu"])
def test_an_order_is_not_made_again_while_buying_is_paused(scope: str) -> None:
    """An operator's word that came after it; it counts as made until it is known, and is made once it is resumed."""
    pods, memory = [a_pod("p", gpus=4)], Memory()
    look = a_cluster(pods=pods, groups=[a_group("gpu-a10g"), OTHER])
    first = plan(look, a_policy(), memory)
    [order] = [step for step in first.steps if isinstance(step, Grow)]
    later_on = replace(look, seen_at=later(seconds=20), pauses=(Pause(scope),))
    then = plan(later_on, a_policy(), first.memory)
    made = [replace(step, because="") for step in then.steps]
    assert made == ([replace(order, because="")] if scope == "buying.cpu" else [])
    assert then.memory.orders == first.memory.orders
    after = plan(replace(later_on, pauses=()), a_policy(), then.memory)
    assert [replace(step, because="") for step in after.steps] == [replace(order, because="")]


def test_nodes_beyond_an_open_order_are_ordered_once_it_is_answered() -> None:
    """What is there, on its way, or of another group is planned on as before."""
    cluster = a_cluster(groups=[OTHER, GROUP], nodes=[an_on_prem_node("n1")])
    kept = {
        "team/there": Assignment("n1", NAME),
        "team/coming": Assignment(f"{NAME}~1", NAME),
        "team/other": Assignment(f"{OTHER.name}+1", OTHER.name),
    }
    further = {"team/further": Assignment(f"{NAME}+1", NAME)}
    assert ordered_so_far({**kept, **further}, {NAME}, cluster) == kept
    assert ordered_so_far({**kept, **further}, (), cluster) == {**kept, **further}


def test_orders_bear_the_time_at_which_they_were_decided() -> None:
    """But for groups with an open one, in which nothing is ordered besides; other steps stay as they are."""
    cluster = a_cluster(groups=[OTHER, GROUP], seen_at=later(minutes=1))
    steps = [Cordon(NAME, "r"), a_grow(), a_grow(OTHER.name)]
    now = replace(a_grow(OTHER.name), at=later(minutes=1))
    assert dated(steps, cluster, besides={NAME}) == [steps[0], now]
    assert dated(steps, cluster, besides=()) == [steps[0], replace(a_grow(), at=later(minutes=1)), now]
    assert orders_in([steps[0], now]) == {OTHER.name: Order(1, 3, later(minutes=1))}
