"""When machines that we own are expected to have room, and which gangs wait for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.policy import Waiting as WaitingPolicy
from autoscaler.model.actions import Admit, Grow, Memory, Plan
from autoscaler.model.cluster import FOREVER, Pod
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.release_forecast import (
    Forecast,
    Release,
    Start,
    Task,
    bought_for,
    expected_end,
    worth_waiting,
)
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of

GPU = "nvidia.com/gpu"


def gpus(count: int) -> dict[str, int]:
    """That many."""
    return {GPU: count}


def forecast(free: list[int], *releases: tuple[float, int, int]) -> Forecast:
    """Machines with so many GPUs free; (seconds from now, machine, GPUs) for each that ends."""
    ends = [Release(later(seconds=at), place, gpus(count)) for at, place, count in releases]
    return Forecast([gpus(count) for count in free], ends, resources=[GPU])


def start(found: Forecast, *tasks: int, until: float = 3600) -> tuple[float, tuple[int, ...]] | None:
    """(seconds from now, machine of each task) for tasks of so many GPUs."""
    when = found.start([Task(gpus(count)) for count in tasks], now=NOW, until=later(seconds=until))
    return None if when is None else ((when.at - NOW).total_seconds(), when.places)


def test_what_fits_now_starts_now() -> None:
    """Where it leaves the least."""
    assert start(forecast([8, 4]), 4) == (0, (1,))


def test_a_job_starts_when_all_of_it_fits() -> None:
    """One machine is free first; the second task needs the other."""
    assert start(forecast([0, 0], (60, 0, 8), (90, 1, 8)), 8, 8) == (90, (0, 1))


def test_pods_that_end_together_free_their_room_together() -> None:
    """Not one after the other."""
    assert start(forecast([0, 0], (60, 0, 8), (60, 1, 8)), 8, 8) == (60, (0, 1))


def test_what_comes_too_late_is_not_waited_for() -> None:
    """The last moment counts."""
    assert start(forecast([0], (60, 0, 8)), 8, until=60) == (60, (0,))
    assert start(forecast([0], (61, 0, 8)), 8, until=60) is None


def test_what_is_waited_for_is_taken_for_those_behind() -> None:
    """Until the job that waits has ended, where it says when."""
    found = forecast([0], (60, 0, 8))
    found.reserve([Task(gpus(8))], Start(later(seconds=60), (0,)))
    assert start(found, 8) is None
    found = forecast([0], (60, 0, 8))
    found.reserve([Task(gpus(8))], Start(later(seconds=60), (0,)), duration=timedelta(seconds=30))
    assert start(found, 8) == (90, (0,))


def test_a_task_waits_for_machines_that_let_it_in_only() -> None:
    """Another's release is no use."""
    found = forecast([0, 0], (10, 0, 8), (60, 1, 8))
    picky = [Task(gpus(8), suits=frozenset({1}))]
    assert found.start(picky, now=NOW, until=later(hours=1)) == Start(later(seconds=60), (1,))


def test_what_ends_now_or_was_to_end_before_counts_at_once_and_later_ends_do_not() -> None:
    """All that is overdue together."""
    assert start(forecast([0], (0, 0, 8)), 8) == (0, (0,))
    assert start(forecast([0], (-60, 0, 4), (0, 0, 4)), 8) == (0, (0,))
    assert start(forecast([0], (0, 0, 4), (1, 0, 4)), 8) == (1, (0,))
    assert start(forecast([0], (0, 0, 4), (1, 0, 4)), 8, until=0) is None


def test_the_largest_task_is_placed_first_each_where_it_leaves_the_least() -> None:
    """Their places are told in the order in which the tasks were given."""
    assert start(forecast([4, 8]), 4, 8) == (0, (0, 1))
    assert start(forecast([9, 5, 6]), 5, 6, 1) == (0, (1, 2, 0))
    assert start(forecast([8, 8]), 4, 4) == (0, (0, 0))
    assert start(forecast([8]), 4, 5) is None
    assert start(forecast([0, 0]), 0) == (0, (0,))


def test_a_task_is_held_against_each_resource_that_it_asks_for() -> None:
    """What it does not ask for may be lacking, also where more is taken than is there."""
    both = ["cpu", GPU]
    found = Forecast([{"cpu": 2, GPU: 8}, {"cpu": 8, GPU: 4}], [], resources=both)

    def places(*tasks: dict[str, int]) -> tuple[int, ...] | None:
        begun = found.start([Task(amounts) for amounts in tasks], now=NOW, until=NOW)
        return begun and begun.places

    assert places({"cpu": 4, GPU: 2}) == (1,)
    assert places({"cpu": 4, GPU: 5}) is None
    assert places({"cpu": 1}) == (0,)
    found.take(1, {GPU: 5})
    assert places({"cpu": 8}) == (1,)
    assert places({"cpu": 8, GPU: 1}) is None
    found.take(1, {GPU: -5})
    assert places({"cpu": 8, GPU: 4}) == (1,)


def test_one_more_release_is_one_in_order() -> None:
    """The earliest that makes room counts."""
    found = forecast([0, 0], (60, 0, 8))
    assert start(found, 8) == (60, (0,))
    found.expect(Release(later(seconds=10), 1, gpus(8)))
    assert start(found, 8) == (10, (1,))
    found.expect(Release(later(seconds=70), 1, gpus(8)))
    assert start(found, 8, 8) == (60, (0, 1))
    assert start(found, 16) == (70, (1,))


def test_places_that_let_a_task_in_are_told_one_by_one() -> None:
    """None lets nothing in; of two the one that leaves the least."""
    found = forecast([8, 4, 4])

    def place(*suits: int) -> tuple[int, ...] | None:
        begun = found.start([Task(gpus(4), suits=frozenset(suits))], now=NOW, until=NOW)
        return begun and begun.places

    assert [place(), place(0), place(2, 0), place(0, 1, 2)] == [None, (0,), (2,), (1,)]


@pytest.mark.parametrize(("minutes", "ends"), [(0, 10), (9, 10), (10, 15), (20, 30)])
def test_what_runs_longer_than_it_was_to_is_expected_to_need_half_as_long_again(minutes: float, ends: float) -> None:
    """From the moment at which it was to end."""
    now = later(minutes=minutes)
    assert expected_end(NOW, timedelta(minutes=10), now=now) == later(minutes=ends)


RELEASES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(1, 8)), max_size=8)


@given(st.lists(st.integers(0, 4), min_size=3, max_size=3), RELEASES, st.integers(1, 12))
def test_one_task_starts_at_the_first_moment_at_which_some_machine_has_room(
    free: list[int], releases: list[tuple[float, int, int]], asked: int
) -> None:
    """Compared with looking at every second."""

    def room(place: int, second: int) -> int:
        return free[place] + sum(count for at, where, count in releases if where == place and at <= second)

    expected = next((second for second in range(10) if any(room(place, second) >= asked for place in range(3))), None)
    found = start(forecast(free, *releases), asked)
    assert (found[0] if found else None) == expected


@pytest.mark.parametrize(
    ("minutes", "usd", "hours", "price", "least", "worth"),
    [
        (30, 10.0, 1.0, None, 0, True),
        (30, 10.0, 1.0, 10.0, 0, True),
        (30, 10.0, 1.0, 25.0, 0, False),
        (30, 10.0, None, 15.0, 0, True),
        (30, 10.0, 0.1, 10.0, 0, False),
        (30, 10.0, 2.0, 10.0, 20.0, True),
        (30, 10.0, 1.9, 10.0, 20.0, False),
        (30, 10.0, 1.9, None, 20.0, False),
    ],
)
def test_a_wait_is_worth_it_while_it_costs_less_than_buying(
    minutes: float, usd: float, hours: float | None, price: float | None, least: float, *, worth: bool
) -> None:
    """A short job is cheap to burst; a long one is cheap to hold back."""
    in_all = bought_for(usd, None if hours is None else timedelta(hours=hours))
    assert worth_waiting(wait=timedelta(minutes=minutes), usd=in_all, price=price, least=least) == worth


# --- In the plan ------------------------------------------------------------------------------------------------------


def running(ends_in: timedelta | None, **given: Any) -> Pod:
    """A pod of eight GPUs on dgx-01 since now."""
    return a_pod("runs", gpus=8, node="dgx-01", phase="Running", started=NOW, duration=ends_in, **given)


def decide(*pods: Pod, **waiting: Any) -> Plan:
    """With one machine of eight GPUs and a patience of half an hour."""
    policy = a_policy().model_copy(update={"waiting": WaitingPolicy(**{"patience": "30m"} | waiting)})
    return plan(a_cluster(pods=pods, nodes=[an_on_prem_node()]), policy, Memory())


def buys(decided: Plan) -> int:
    """Nodes."""
    return sum(step.by for step in decided.steps if isinstance(step, Grow))


def test_a_job_waits_for_a_machine_that_is_expected_to_become_free() -> None:
    """It is told until when, and is looked at again then."""
    decided = decide(running(timedelta(minutes=10)), *a_gang(pods=1, gpus=8))
    (said,) = decided.waiting
    assert buys(decided) == 0
    assert said.because == (
        "waits for machines that we own: room for all of it is expected at "
        f"{later(minutes=10):%Y-%m-%d %H:%M:%S} UTC "
        f"(its patience ends at {later(minutes=30, seconds=-5):%Y-%m-%d %H:%M:%S} UTC); "
        "buying for it would cost 21.96 $/h"
    )
    assert decided.wake_at == later(minutes=10)


@pytest.mark.parametrize(
    ("pods", "waiting"),
    [
        ((running(None), *a_gang(pods=1, gpus=8)), {}),
        ((running(timedelta(minutes=31)), *a_gang(pods=1, gpus=8)), {}),
        ((running(timedelta(minutes=10)), *a_gang(pods=1, gpus=8)), {"patience": "0s"}),
        ((running(timedelta(minutes=10)), *a_gang(pods=1, gpus=8, patience=timedelta(0))), {}),
        ((running(timedelta(minutes=10)), *a_gang(pods=1, gpus=8, created=later(minutes=-30))), {}),
        ((running(timedelta(minutes=10)), *a_gang(pods=1, gpus=8)), {"usd_per_hour": 1000}),
        ((running(timedelta(minutes=10)), *a_gang(pods=1, gpus=8)), {"least_usd": 22}),
    ],
    ids=[
        "no end said",
        "too late",
        "no patience",
        "its own says no",
        "patience over",
        "dear to wait",
        "little to save",
    ],
)
def test_for_what_is_not_expected_in_time_no_pod_waits(pods: tuple[Pod, ...], waiting: dict[str, Any]) -> None:
    """It is bought at once."""
    assert buys(decide(*pods, **waiting)) == 1


@pytest.mark.parametrize(("minutes", "ahead"), [(20, 10), (80, 40)])
def test_what_is_overdue_is_expected_to_take_half_as_long_again(minutes: float, ahead: float) -> None:
    """It was to run five minutes; nothing is known better than how long it has run."""
    late = replace(running(timedelta(minutes=5)), started=later(minutes=-minutes))
    decided = decide(late, *a_gang(pods=1, gpus=8))
    assert (buys(decided), decided.wake_at == later(minutes=ahead)) == ((0, True) if ahead < 30 else (1, False))


@pytest.mark.parametrize("runs", [running(None), running(timedelta(days=30)), None])
def test_for_what_is_patient_for_ever_nothing_is_bought(runs: Pod | None) -> None:
    """Whatever is expected, and without machines of our own; free room it takes, also on a node that is paid for."""
    patient = a_gang(pods=2, gpus=8, patience=FOREVER, created=later(minutes=-300))
    nodes = [an_on_prem_node()] if runs else []
    look = a_cluster(pods=[*([runs] if runs else []), *patient], nodes=nodes)
    decided = plan(look, a_policy(), Memory())
    assert (buys(decided), {one.pod for one in decided.waiting}) == (0, {pod.key for pod in patient})
    group = a_group("gpu-a100", joined=2)
    there = replace(look, groups=(group,), nodes=(*nodes, *nodes_of(group)))
    assert [step.gang for step in plan(there, a_policy(), Memory()).steps if isinstance(step, Admit)] == ["team/mnist"]


def test_without_machines_of_our_own_no_pod_waits() -> None:
    """There is nothing to expect."""
    policy = a_policy().model_copy(update={"waiting": WaitingPolicy(patience=timedelta(minutes=30))})
    assert buys(plan(a_cluster(pods=a_gang(pods=1, gpus=8)), policy, Memory())) == 1


def test_two_jobs_do_not_wait_for_one_machine() -> None:
    """The second has nothing to wait for unless the first says when it ends."""
    first, second = a_gang("a", 1, gpus=8), a_gang("b", 1, gpus=8, created=later(seconds=1))
    assert buys(decide(running(timedelta(minutes=10)), *first, *second)) == 1
    short = [replace(pod, duration=timedelta(minutes=5)) for pod in first]
    assert buys(decide(running(timedelta(minutes=10)), *short, *second)) == 0


def test_what_waits_leaves_free_room_to_others() -> None:
    """A small job behind it goes on at once."""
    node = an_on_prem_node("dgx-02", gpus=4)
    policy = a_policy().model_copy(update={"waiting": WaitingPolicy(patience=timedelta(minutes=30))})
    large, small = a_gang("large", 1, gpus=8), a_gang("small", 1, gpus=4, created=later(seconds=1))
    pods = (running(timedelta(minutes=10)), *large, *small)
    decided = plan(a_cluster(pods=pods, nodes=[an_on_prem_node(), node]), policy, Memory())
    assert [step.gang for step in decided.steps if isinstance(step, Admit)] == ["team/small"]
    assert buys(decided) == 0


@pytest.mark.parametrize("remembers", [True, False])
def test_what_waits_takes_no_node_that_was_bought_for_another(*, remembers: bool) -> None:
    """The other would have to buy again; that the node costs nothing more is no reason to take it."""
    policy = a_policy()
    patient = a_gang("patient", 1, gpus=8, patience=timedelta(minutes=30))
    hasty = a_gang("hasty", 1, gpus=8, created=later(seconds=1))
    pods = (running(timedelta(minutes=10)), *patient, *hasty)
    first = plan(a_cluster(pods=pods, nodes=[an_on_prem_node()]), policy, Memory())
    (grow,) = [step for step in first.steps if isinstance(step, Grow)]
    assert grow.demand == tuple(pod.key for pod in hasty)
    groups = [replace(one, desired=grow.to) if one.name == grow.group else one for one in a_cluster().groups]
    memory = first.memory if remembers else Memory()
    again = plan(a_cluster(pods=pods, nodes=[an_on_prem_node()], groups=groups), policy, memory)
    assert buys(again) == 0
    assert {said.pod: "waits for machines that we own" in said.because for said in again.waiting} == {
        patient[0].key: True,
        hasty[0].key: False,
    }


def test_a_gang_that_runs_and_lacks_a_pod_does_not_wait() -> None:
    """The others stand still meanwhile."""
    first, second = a_gang(pods=2, gpus=8)
    there = replace(first, node="dgx-01", phase="Running", started=NOW, duration=timedelta(minutes=5))
    assert buys(decide(there, second)) == 1
