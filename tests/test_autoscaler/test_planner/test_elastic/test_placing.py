"""Where elastic pods go: own machines first, then where least is wasted; and off the snapshot again."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from autoscaler.model.cluster import Group, Pod
from autoscaler.model.labels import GPU, HOSTNAME, ZONE
from autoscaler.model.resources import Resources
from autoscaler.planner.elastic.placing import Placing, _fillings, _wasted
from autoscaler.planner.supply.candidate_nodes import EC2_TIER, ON_PREM_TIER, Place
from tests.builders import a_group, a_pod
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_market


def a_place(name: str, cpu: int, *, gpus: int = 0, zone: str = "a", tier: int = ON_PREM_TIER, **given: Any) -> Place:
    """A machine with so many cores free."""
    free = {"cpu": cpu * 1000, "memory": 2**40, "pods": 110} | ({GPU: gpus} if gpus else {})
    return Place(name, {HOSTNAME: name, ZONE: zone}, (), free, tier, **given)


def placing(
    *places: Place,
    pods: list[Pod],
    sizes: list[int] | None = None,
    thorough: bool = True,
    groups: list[Group] | None = None,
) -> Placing:
    """With pods of these sizes to come, in cores."""
    amounts = [Resources({"cpu": size * 1000}) for size in sizes or []]
    return Placing(a_market(pods, groups or [], places), amounts, thorough=thorough)


def least(free: int, sizes: tuple[int, ...]) -> int:
    """What no filling uses, by trying all."""
    sums = {
        sum(n * s for n, s in zip(many, sizes, strict=True)) for many in product(range(free + 1), repeat=len(sizes))
    }
    return free - max(one for one in sums if one <= free)


@pytest.mark.parametrize("sizes", [(3,), (2, 5), (3, 5, 7), (4, 6)])
def test_what_is_wasted_is_what_the_best_filling_leaves(sizes: tuple[int, ...]) -> None:
    """Of up to sixteen of the largest; of more room next to nothing is."""
    assert [_wasted(free, sizes) for free in range(1, 21)] == [least(free, sizes) for free in range(1, 21)]
    most = 16 * sizes[-1]
    assert _wasted(most, sizes) == most - max(_fillings(sizes))
    assert [_wasted(free, sizes) for free in (most + 1, 0, -1)] == [0, 0, 0]
    assert _wasted(1, ()) == 0


def test_pods_that_are_far_smaller_do_not_count_and_too_many_sizes_fill_all() -> None:
    """A quarter of the largest is too small to rely on."""
    assert 1 not in _fillings((1, 4))
    assert 2 in _fillings((2, 7))
    assert _fillings(tuple(range(1000, 1100))) == ()
    assert _wasted(5, tuple(range(1000, 1100))) == 0


def test_a_task_goes_where_it_wastes_least_and_on_own_machines_first() -> None:
    """Of pods of three and five cores: five is full with one, six would leave one over."""
    pod = a_pod(cpu=5)
    own = [a_place("a6", 6), a_place("b8", 8), a_place("c5", 5)]
    bought = a_place("ec2", 5, tier=EC2_TIER)
    found = placing(bought, *own, pods=[pod], sizes=[3, 5])
    taken = [place.name if (place := found.take(pod)) else None for _ in range(5)]
    assert taken == ["c5", "b8", "a6", "ec2", None]


def test_what_is_as_wasteful_goes_where_fewer_gpus_and_less_room_are() -> None:
    """Then by name; a task with a GPU is placed by GPUs."""
    pod, gpu = a_pod(cpu=2), a_pod("gpu", cpu=1, gpus=1, tolerations=())
    places = [a_place("d", 8, gpus=4), a_place("c", 9), a_place("b", 8), a_place("a", 8)]
    found = placing(*places, pods=[pod, gpu])
    assert [place.name for _ in range(4) if (place := found.take(pod))] == ["a", "a", "a", "a"]
    assert (found.take(gpu) or places[1]).name == "d"


def test_without_a_comparison_it_goes_where_it_does_least_harm() -> None:
    """As other pods do: to the fullest."""
    pod = a_pod(cpu=5)
    found = placing(a_place("a6", 6), a_place("b8", 8), pods=[pod], sizes=[3, 5], thorough=False)
    assert (found.take(pod) or a_place("none", 0)).name == "a6"


def test_what_is_taken_and_given_is_forgotten_at_once() -> None:
    """A pod that ends makes room on its node; on a node that nothing is planned on it makes none."""
    pod = a_pod(cpu=5)
    place = a_place("a", 6)
    found = placing(place, pods=[pod])
    start = found.mark()
    assert found.take(pod) is place
    assert found.take(pod) is None
    found.give("a", pod)
    found.give("elsewhere", pod)
    assert (found.take(pod), place.free["cpu"]) == (place, 1000)
    assert place.guests == ["elastic/0", "elastic/1"]
    found.undo(start)
    assert (place.free["cpu"], place.guests) == (6000, [])
    assert found.number(pod) == found.number(a_pod("like", cpu=5))
    assert found.number(pod) != found.number(a_pod("other", cpu=4))


@pytest.mark.parametrize(("usd", "opened"), [(0.767, None), (0.768, "cpu"), (30.0, "cpu")])
def test_a_node_is_opened_for_no_more_than_it_may_cost(usd: float, opened: str | None) -> None:
    """The cheapest that holds it."""
    pod = a_pod(cpu=5)
    found = placing(pods=[pod], groups=[a_group("gpu-a100", taints=()), a_group("cpu")])
    place = found.open(pod, usd)
    assert (place.group.entry if place is not None and place.group is not None else None) == opened
    if place is not None:
        assert place.guests == ["elastic/0"]
    large = a_pod(cpu=50)
    found = placing(pods=[large], groups=[a_group("gpu-a100", taints=()), a_group("cpu")])
    place = found.open(large, 30.0)
    assert place is not None
    assert place.group is not None
    assert place.group.entry == "gpu-a100"


def test_tasks_that_start_together_have_places_together_or_none() -> None:
    """The largest first, told in their own order; nothing is taken where one has none."""
    pods = [a_pod("small", cpu=2), a_pod("large", cpu=6)]
    places = [a_place("a", 6), a_place("b", 2)]
    found = placing(*places, pods=pods)
    assert found.take_all([*pods, pods[0]]) is None
    assert found.mark() == 0
    assert found.take_all(pods) == ("b", "a")


@pytest.mark.parametrize(("anchor", "names"), [(None, ("c", "d")), ("b", ("c", "d")), ("a", None), ("x", None)])
def test_tasks_of_one_zone_have_places_in_one_zone(anchor: str | None, names: tuple[str, ...] | None) -> None:
    """In the one where they run already, if they do."""
    pods = [a_pod("p0", cpu=5), a_pod("p1", cpu=6)]
    places = [a_place("a", 5), a_place("c", 5, zone="b"), a_place("d", 6, zone="b")]
    found = placing(*places, pods=pods)
    assert found.take_all(pods, topology=ZONE, anchor=anchor) == names
