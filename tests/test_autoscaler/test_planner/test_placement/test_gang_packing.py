"""The cheapest set of nodes for whole gangs, measured against every way there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model import labels as words
from autoscaler.model.cluster import Group, Pod
from autoscaler.model.resources import Resources
from autoscaler.planner.placement.gang_packing import Demand, pack
from autoscaler.planner.placement.offerings import Ceilings, Market, Offering
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import new_place
from tests import examples
from tests.builders import a_gang, a_group, a_pod, an_on_prem_node

PRICES = (("small", 4, 1, 1.0), ("medium", 16, 2, 3.1), ("large", 64, 8, 9.0), ("cpu", 32, 0, 0.9))
"""(name, CPUs, GPUs, dollars per hour)"""


def a_market(pods: Sequence[Pod], groups: Sequence[Group], places: Sequence[Place] = (), **ceilings: float) -> Market:
    """A market over an empty cluster, or over these places."""
    offerings = [Offering(group=one, new_place=partial(_new, one), buyable=one.maximum) for one in groups]
    return Market(Snapshot(places, (), pods), offerings, Ceilings(**ceilings))


def _new(group: Group, name: str) -> Place:
    return new_place(group, name, dict(group.allocatable))


def groups_of(prices: Sequence[tuple[str, int, int, float]] = PRICES, maximum: int = 20) -> list[Group]:
    """One group for each."""
    return [
        replace(
            a_group(name, taints=(), maximum=maximum),
            allocatable=Resources.parse({"cpu": cpus, "memory": "1Ti", "pods": 110, words.GPU: gpus}),
            usd_per_hour=usd,
        )
        for name, cpus, gpus, usd in prices
    ]


def a_demand(market: Market, pods: Sequence[Pod], name: str = "gang") -> Demand:
    """The pods as one gang."""
    return Demand(name=name, pods=tuple((pod.key, market.snapshot.shape(pod)) for pod in pods))


def cheapest(pods: Sequence[Pod], groups: Sequence[Group]) -> float:
    """The least that any way of sharing nodes costs, by trying them all."""
    best = float("inf")
    for parts in _partitions(list(pods)):
        usd = 0.0
        for part in parts:
            asked = Resources.total(pod.requests for pod in part)
            usd += min((one.usd_per_hour for one in groups if asked.fits_in(one.allocatable)), default=float("inf"))
        best = min(best, usd)
    return best


def _partitions(pods: list[Pod]) -> Iterator[list[list[Pod]]]:
    if not pods:
        yield []
        return
    for parts in _partitions(pods[1:]):
        yield [[pods[0]], *parts]
        for number, part in enumerate(parts):
            yield [*parts[:number], [pods[0], *part], *parts[number + 1 :]]


tasks = st.lists(st.tuples(st.sampled_from((1, 3, 10, 30)), st.sampled_from((0, 0, 1, 2, 4))), min_size=1, max_size=6)


@given(tasks=tasks)
@settings(deadline=None, max_examples=examples(100))
def test_a_small_gang_is_bought_for_at_about_the_least_cost(tasks: list[tuple[int, int]]) -> None:
    """Seldom is another way of sharing nodes cheaper, and never by half."""
    pods = [a_pod(f"p{n}", cpu=cpu, gpus=gpus) for n, (cpu, gpus) in enumerate(tasks)]
    market = a_market(pods, groups_of())
    packing = pack([a_demand(market, pods)], market)
    least = cheapest(pods, groups_of())
    assert least - 1e-6 <= packing.usd_per_hour <= 1.5 * least


def test_nothing_is_left_behind_by_a_gang_that_does_not_fit() -> None:
    """The snapshot and the market are as before."""
    pods = a_gang(pods=3, gpus=8)
    market = a_market(pods, groups_of(maximum=2))
    packing = pack([a_demand(market, pods)], market)
    assert packing.placed == {"gang": None}
    assert (market.opened, market.snapshot.places, +market.bought) == ([], [], {})


def test_ceilings_are_given_back_with_what_was_tried() -> None:
    """Only what is kept counts."""
    pods = a_gang(pods=2, gpus=8)
    market = a_market(pods, groups_of(), usd=18.0, nodes=2, gpus=16)
    assert pack([a_demand(market, pods)], market).usd_per_hour == 18.0
    assert (market.ceilings.usd, market.ceilings.nodes, market.ceilings.gpus) == (0.0, 0, 0)


def test_a_second_gang_uses_what_was_bought_for_the_first() -> None:
    """A node is shared, and paid once."""
    first, second = a_gang("first", 1, gpus=4), a_gang("second", 1, gpus=4)
    market = a_market([*first, *second], groups_of((("large", 64, 8, 9.0),)))
    packing = pack([a_demand(market, first, "first"), a_demand(market, second, "second")], market)
    assert packing.usd_per_hour == 9.0


def test_free_room_is_used_before_anything_is_bought() -> None:
    """Two pods fit on the machine that is there."""
    pods = a_gang(pods=3, gpus=4)
    node = an_on_prem_node()
    place = Place(node.name, node.labels, node.taints, dict(node.allocatable), tier=0, node=node)
    market = a_market(pods, groups_of(), places=[place])
    placed = pack([a_demand(market, pods)], market).placed["gang"]
    assert placed is not None
    assert [place.name for _, place in placed.places].count(node.name) == 2
    assert placed.usd == 9.0
