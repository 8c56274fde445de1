"""Gangs that are bought for together: the same gangs, all of each, for no more money than gang by gang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import HOSTNAME
from autoscaler.planner.cutting_stock.joint_packing import Pool
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.placement.gang_packing import Packing, Placed, pack
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Place
from tests import examples
from tests.builders import a_gang, an_on_prem_node
from tests.test_autoscaler.test_planner.test_cutting_stock.test_joint_packing import lists_of_gangs
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import a_demand, a_market, groups_of

Both = tuple[dict[str, Placed | None], dict[str, Placed]]


def both(gangs: Sequence[tuple[Pod, ...]], market: Market) -> Both:
    """Gang by gang, which is undone, and together."""
    start = market.snapshot.mark()
    demands = [a_demand(market, gang, f"g{number}") for number, gang in enumerate(gangs)]
    one_by_one = {one.name: pack([one], market).placed[one.name] for one in demands}
    market.snapshot.undo(start)
    pool = Pool(market, SearchLimits())
    assert all(pool.take(one) for one in demands)
    assert pool.buy()
    return one_by_one, pool.found()


def usd(found: Mapping[str, Placed | None]) -> float:
    """Dollars per hour."""
    return Packing(found, sum(one.usd for one in found.values() if one)).usd_per_hour


def test_the_room_that_one_leaves_is_planned_for_another() -> None:
    """Eight gangs of one GPU each get a node for two of them at a time; together they fill one large node."""
    gangs = [a_gang(f"g{number}", 1, gpus=1, cpu=5) for number in range(8)]
    one_by_one, together = both(gangs, a_market([pod for gang in gangs for pod in gang], groups_of()))
    assert usd(together) == 9.0
    assert usd(together) < usd(one_by_one)


APART = PodTerm(HOSTNAME, (Requirement("app", "In", ("web",)),), frozenset({"team"}))
GANGS = lists_of_gangs(least=2, most=6, also=({}, {}, {}, {"labels": {"app": "web"}, "apart_from": (APART,)}))
"""Some keep apart from each other."""


@settings(deadline=None, max_examples=examples(40))
@given(gangs=GANGS, free=st.lists(st.sampled_from((2, 8)), max_size=2))
def test_together_no_gang_is_lost_and_none_pays_more(gangs: list[tuple[Pod, ...]], free: list[int]) -> None:
    """Pods are placed once, on nodes with room, of which none is empty."""
    homes = [an_on_prem_node(f"dgx-{number}", gpus=gpus, cpu=16, taints=()) for number, gpus in enumerate(free)]
    places = [Place(one.name, one.labels, (), dict(one.allocatable), 0, node=one) for one in homes]
    market = a_market([pod for gang in gangs for pod in gang], groups_of(), places)
    one_by_one, together = both(gangs, market)
    assert all(one_by_one.values())
    assert usd(together) <= usd(one_by_one) + 1e-9
    put = Counter(key for one in together.values() for key, _ in one.places)
    assert put == Counter(key for place in market.snapshot.places for key in place.guests)
    assert all(len(one.places) == len(gangs[int(name[1:])]) for name, one in together.items())
    assert all(amount >= 0 for place in market.snapshot.places for amount in place.free.values())
    bought = [place for one in together.values() for place in one.bought]
    assert len({place.name for place in bought}) == len(bought) == market.bought.total()
    assert all(place.guests for place in bought)


def test_two_gangs_are_enough_to_be_planned_together() -> None:
    """Four pods of a GPU each in either: four small nodes one after the other, one large node together."""
    gangs = [a_gang(f"g{number}", 4, gpus=1, cpu=5) for number in range(2)]
    one_by_one, together = both(gangs, a_market([pod for gang in gangs for pod in gang], groups_of()))
    assert usd(together) == 9.0
    assert usd(together) < usd(one_by_one)


def test_pods_without_gpus_take_none_of_those_that_others_want() -> None:
    """Eight of a GPU and two of none fill one node of 64 CPUs and eight GPUs; one after the other they need more."""
    gangs = [a_gang(f"g{number}", 1, gpus=int(number < 8), cpu=5) for number in range(10)]
    one_by_one, together = both(gangs, a_market([pod for gang in gangs for pod in gang], groups_of()))
    assert usd(together) == 9.0
    assert usd(together) < usd(one_by_one)


def test_nodes_are_bought_that_let_the_pods_in() -> None:
    """Not the cheaper ones of another zone, or with another label, though these would hold more."""
    near = Requirement("disk", "In", ("fast",))
    slow, fast = groups_of((("slow", 64, 8, 5.0), ("fast", 64, 8, 9.0)))
    groups = [replace(slow, labels={"disk": "slow"}), replace(fast, labels={"disk": "fast"})]
    gangs = [a_gang(f"g{number}", 1, gpus=1, cpu=5, affinity=((near,),)) for number in range(8)]
    one_by_one, together = both(gangs, a_market([pod for gang in gangs for pod in gang], groups))
    assert usd(together) == usd(one_by_one) == 9.0
    assert {place.group.name for one in together.values() if one for _, place in one.places if place.group} == {
        fast.name
    }


def test_what_is_idle_is_used_first_and_each_node_is_paid_by_the_gang_of_its_first_pod() -> None:
    """Of nine gangs of a GPU one has a machine of ours, the others share one large node."""
    gangs = [a_gang(f"g{number}", 1, gpus=1, cpu=5) for number in range(9)]
    home = an_on_prem_node("dgx-1", gpus=1, cpu=5, taints=())
    place = Place(home.name, home.labels, (), dict(home.allocatable), 0, node=home)
    _, together = both(gangs, a_market([pod for gang in gangs for pod in gang], groups_of(), [place]))
    assert usd(together) == 9.0
    assert [name for name, one in together.items() if one and one.bought] == ["g1"]
    assert place.guests == ["team/g0-worker-0"]
