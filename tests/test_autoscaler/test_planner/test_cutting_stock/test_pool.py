"""A pool by itself: pods that it keeps for a purchase, pods that a node is there for, and pods left without a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.model.cluster import Group, Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import GPU, HOSTNAME, ZONE
from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds, put_jointly
from autoscaler.planner.cutting_stock.cutting_plan import PartialPurchase, Purchase, Want
from autoscaler.planner.cutting_stock.idle_nodes import IdleNodes
from autoscaler.planner.cutting_stock.joint_packing import Pool, Proof
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import CORDONED_TIER, EC2_TIER, Place
from autoscaler.planner.supply.node_places import new_place
from tests.builders import a_gang, a_pod
from tests.test_autoscaler.test_planner.test_placement.test_gang_packing import (
    a_demand,
    a_market,
    groups_of,
    own_place,
)

LIMITS = SearchLimits()
(NODE,) = groups_of((("node", 16, 4, 2.0),))
"""Sixteen CPUs and four GPUs."""
SIZES = groups_of((("small", 4, 1, 1.0), ("large", 64, 8, 6.0)))


def at_hand(group: Group, name: str, *, tier: int = CORDONED_TIER, **free: int) -> Place:
    """A node of the group that the bill has already."""
    place = new_place(group, name, dict(group.allocatable) | free)
    return replace(place, tier=tier, standing=False)


def a_pool(market: Market, *gangs: Sequence[Pod], fills_first: bool = True) -> tuple[Pool, list[bool]]:
    """Of these gangs, named g0 and so on; and which of them it took."""
    shapes = {market.snapshot.shape(pod) for gang in gangs for pod in gang}
    pool = Pool(market, LIMITS, jointly=frozenset() if fills_first else put_jointly(shapes, market))
    return pool, [pool.take(a_demand(market, gang, f"g{number}")) for number, gang in enumerate(gangs)]


def where(pool: Pool) -> dict[str, str]:
    """Pod -> node."""
    return {key.removeprefix("team/"): place.name.rpartition("-")[2] for key, place in pool.places.items()}


def waiting(pool: Pool) -> list[str]:
    """Pods that are kept for a purchase."""
    return sorted(key.removeprefix("team/") for _, key in pool.waiting.pods)


# --- Idle nodes -------------------------------------------------------------------------------------------------------


def test_idle_nodes_are_given_out_readiest_and_smallest_first() -> None:
    """Not one that pods were planned on, that is open, or on which the pod may not be."""
    pod = a_pod("p", gpus=1, cpu=1)
    small = at_hand(NODE, "small", cpu=4000)
    whole, ready = at_hand(NODE, "whole"), at_hand(NODE, "ready", tier=EC2_TIER)
    tiny = at_hand(NODE, "tiny", cpu=500)
    kept = at_hand(NODE, "kept", cpu=2000)
    offerings = a_market([pod], [NODE]).offerings
    snapshot = Snapshot([whole, small, ready, tiny, kept], (), [pod])
    market = Market(snapshot, offerings, Ceilings(), kept={"kept"})
    shape = snapshot.shape(pod)
    nodes = IdleNodes(market)
    found = []
    while (place := nodes.first(shape)) is not None:
        found.append(place.name)
        market.take(place)
        snapshot.put(shape, place, place.name)
    assert found == ["ready", "small", "whole"]
    none = Market(Snapshot((), (), [pod]), offerings, Ceilings())
    assert IdleNodes(none).first(none.snapshot.shape(pod)) is None
    assert (bool(IdleNodes(none)), bool(IdleNodes(market, kept=True))) == (False, True)


def test_nodes_that_others_were_planned_on_are_filled_when_those_have_been_served() -> None:
    """Not before; by pods about which nothing but room decides, and what is left is bought for."""
    gang = a_gang("a", 3, gpus=3, cpu=1)
    own = PodTerm(HOSTNAME, (Requirement("app", "In", ("b",)),), frozenset({"team"}))
    keeper = a_gang("b", 1, gpus=2, cpu=1, labels={"app": "b"}, apart_from=(own,))
    offerings = a_market([*gang, *keeper], [NODE]).offerings
    snapshot = Snapshot([at_hand(NODE, "kept-1"), at_hand(NODE, "kept-2")], (), [*gang, *keeper])
    market = Market(snapshot, offerings, Ceilings(), kept={"kept-1", "kept-2"})
    pool, took = a_pool(market, keeper, gang)
    assert (took, where(pool)) == ([True, True], {})
    pool.complete()
    assert where(pool) == {"a-worker-0": "1", "a-worker-1": "2"}
    assert waiting(pool) == ["a-worker-2", "b-worker-0"]
    assert {name: sum(wanted.values()) for name, wanted in pool.wanted.items()} == {"g0": 1, "g1": 1}
    assert pool.buy()
    assert len(market.opened) == 4


# --- What is taken ----------------------------------------------------------------------------------------------------


def test_what_stands_is_filled_then_idle_nodes_and_the_rest_waits() -> None:
    """In order; an idle node that is opened has room for other shapes too."""
    gang = [*a_gang("a", 4, gpus=4, cpu=1)]
    small = [a_pod("small", cpu=2)]
    market = a_market([*gang, *small], [NODE], [own_place("own"), at_hand(NODE, "idle-1"), at_hand(NODE, "idle-2")])
    pool, took = a_pool(market, gang, small)
    assert took == [True, True]
    assert [where(pool).get(pod.name) for pod in gang] == ["own", "1", "2", None]
    assert waiting(pool) == ["a-worker-3"]
    assert where(pool)["small"] == "own"
    assert {name: dict(count) for name, count in pool.wanted.items()} == {
        "g0": {Want(market.snapshot.shape(gang[3]), ""): 1},
        "g1": {},
    }


def test_an_idle_node_that_is_opened_for_one_gang_has_room_for_those_that_found_none() -> None:
    """The first found no standing place; with the second's node there is one."""
    first, large, again = [a_pod("first", cpu=2)], [a_pod("large", gpus=4, cpu=8)], [a_pod("again", cpu=2)]
    places = [own_place("own", cpu=1000), at_hand(NODE, "idle")]
    market = a_market([*first, *large, *again], [NODE], places)
    pool, took = a_pool(market, first, large, again)
    assert (took, where(pool), waiting(pool)) == ([True] * 3, {"first": "idle", "large": "idle", "again": "idle"}, [])


def test_of_a_gang_that_nothing_holds_no_trace_is_left() -> None:
    """Others are taken before it and behind it."""
    first, giant, last = (
        a_gang("a", 1, gpus=4, cpu=1),
        [a_pod("x", gpus=4), a_pod("y", gpus=64)],
        a_gang("b", 1, gpus=4),
    )
    market = a_market([*first, *giant, *last], [NODE], [own_place("own"), own_place("own-2")])
    pool, took = a_pool(market, first, giant, last)
    assert took == [True, False, True]
    assert [demand.name for demand in pool.demands] == ["g0", "g2"]
    assert (sorted(where(pool)), waiting(pool)) == (["a-worker-0", "b-worker-0"], [])
    assert sum(len(place.guests) for place in market.snapshot.places) == 2
    closed = a_market(last, groups_of((("node", 16, 4, 2.0),), maximum=0))
    assert a_pool(closed, last)[1] == [False]


def test_where_all_is_one_problem_nothing_is_filled_before() -> None:
    """Nor with pods that only what stands holds; what holds no pod of a gang leaves it out at once."""
    gang, large, giant = a_gang("a", 1, gpus=1, cpu=1), [a_pod("large", gpus=1, cpu=64)], [a_pod("giant", gpus=64)]
    market = a_market([*gang, *large, *giant], [NODE], [own_place("own", cpu=90_000)])
    pool, took = a_pool(market, gang, large, giant, fills_first=False)
    assert (took, where(pool), waiting(pool)) == ([True, True, False], {}, ["a-worker-0", "large"])
    assert pool.buy()
    assert where(pool) == {"large": "own", "a-worker-0": "own"}
    assert pool.proof() == Proof(pytest.approx(0.0, abs=1e-5), frozenset({"team/large", "team/a-worker-0"}), 0.0)


def test_pods_of_other_shapes_are_put_first_where_some_are_put_jointly() -> None:
    """What that leaves to the others is not proven to be best."""
    gang, large = a_gang("a", 1, gpus=1, cpu=1), [a_pod("large", gpus=1, cpu=64)]
    market = a_market([*gang, *large], [NODE], [own_place("own", cpu=90_000)])
    pool = Pool(market, LIMITS, jointly=frozenset({market.snapshot.shape(gang[0])}))
    assert [pool.take(a_demand(market, some, name)) for some, name in ((gang, "a"), (large, "b"))] == [True, True]
    assert (where(pool), waiting(pool)) == ({"large": "own"}, ["a-worker-0"])
    assert pool.buy()
    assert where(pool) == {"large": "own", "a-worker-0": "own"}
    assert pool.proof() == Proof()


WEB = (Requirement("app", "In", ("web",)),)


def apart(key: str) -> dict[str, Any]:
    """Pods that share no host, or no zone, with each other."""
    return {"labels": {"app": "web"}, "apart_from": (PodTerm(key, WEB, frozenset({"team"})),)}


def test_pods_that_rules_by_host_concern_are_put_in_the_same_problem() -> None:
    """Beside no pod that keeps them off, whether it runs or is put there as well."""
    plain = [a_pod(f"plain-{number}", gpus=1) for number in range(2)]
    alone = [a_pod(f"alone-{number}", gpus=1, **apart(HOSTNAME)) for number in range(3)]
    runs = a_pod("runs", node="taken", phase="Running", **apart(HOSTNAME))
    places = [own_place("own"), own_place("taken"), own_place("full", **{GPU: 0})]
    offerings = a_market([], [NODE]).offerings
    market = Market(Snapshot(places, [runs], [*plain, *alone]), offerings, Ceilings())
    pool, _ = a_pool(market, plain, alone, fills_first=False)
    assert (where(pool), len(waiting(pool))) == ({}, 5)
    assert pool.buy()
    nodes = where(pool)
    assert sorted(nodes[pod.name] in ("own", "taken") for pod in [*plain, *alone]) == [False, False, True, True, True]
    assert len({nodes[pod.name] for pod in alone} - {"taken"}) == 3
    assert pool.proof() == Proof(bought=4.0), "rules may be kept in a stricter sense than they need be"


def test_pods_that_rules_by_zone_concern_are_put_first() -> None:
    """Where all else is one problem; those that find no room are bought for, and others fill what is left."""
    plain = [a_pod(f"plain-{number}", gpus=1) for number in range(3)]
    alone = [a_pod(f"alone-{number}", gpus=1, **apart(ZONE)) for number in range(2)]
    market = a_market([*plain, *alone], [NODE], [own_place("own")])
    pool, _ = a_pool(market, plain, alone, fills_first=False)
    assert (where(pool), waiting(pool)) == ({"alone-0": "own"}, ["alone-1", "plain-0", "plain-1", "plain-2"])
    assert pool.buy()
    nodes = where(pool)
    assert {nodes[pod.name] for pod in plain} == {"own"}
    assert nodes["alone-1"] != "own"
    assert pool.proof() == Proof(bought=2.0)


# --- What is bought ---------------------------------------------------------------------------------------------------


def test_what_is_filled_in_one_problem_with_a_purchase_is_proven_for_these_places() -> None:
    """The machine has room for the one or the other."""
    pods = [a_pod("large", gpus=4), a_pod("small", gpus=4)]
    market = a_market(pods, [NODE], [own_place("own")])
    pool, _ = a_pool(market, pods[:1], pods[1:], fills_first=False)
    assert pool.buy()
    (own,) = [key for key, place in pool.places.items() if place.name == "own"]
    assert pool.proof() == Proof(pytest.approx(2.0, abs=1e-5), frozenset({own}), 2.0)


def test_what_a_purchase_has_overlooked_at_hand_is_filled_before_it_is_bought() -> None:
    """Two of three pods go on the machine that has room; for the third the node is bought, for it alone."""
    pods = [a_pod(f"p{number}", gpus=2) for number in range(3)]
    market = a_market(pods, [NODE], [own_place("own")])
    pool, _ = a_pool(market, *([pod] for pod in pods), fills_first=False)
    want = Want(market.snapshot.shape(pods[0]), "")
    there = AtHandKinds.of([want.shape], market, most=9)
    bought = Purchase(NODE.name, 1, ((want, 1),)), Purchase(NODE.name, 1, ((want, 2),))
    pool.partial = PartialPurchase(bought, (), 0.0, there)
    assert pool.buy()
    assert where(pool) == {"p0": "own", "p1": "own", "p2": where(pool)["p2"]}
    assert ([place.guests for place in market.snapshot.places], market.bought.total()) == (
        [["team/p0", "team/p1"], ["team/p2"]],
        1,
    )


def test_without_pods_that_wait_nothing_is_bought() -> None:
    """Nor is anything proven."""
    gang = a_gang("a", 1, gpus=1)
    pool, _ = a_pool(a_market(gang, [NODE], [own_place("own")]), gang)
    assert (pool.buy(), pool.proof(), pool.bought) == (True, Proof(), None)


def test_a_node_is_on_the_account_of_the_gang_that_has_its_first_pod() -> None:
    """Each node once; places are told in the order of a gang's pods."""
    gangs = [a_gang(name, 2, gpus=3, cpu=1) for name in "ab"] + [a_gang("c", 2, gpus=1, cpu=1)]
    pods = [pod for gang in gangs for pod in gang]
    market = a_market(pods, [NODE])
    pool, _ = a_pool(market, *gangs)
    assert pool.buy()
    found = pool.found()
    assert [found[f"g{number}"].usd for number in range(3)] == [4.0, 4.0, 0.0]
    assert [[key for key, _ in found[f"g{number}"].places] for number in range(3)] == [
        [pod.key for pod in gang] for gang in gangs
    ]
    assert (pool.proof().usd, pool.proof().at_hand, pool.proof().bought) == (pytest.approx(8.0), frozenset(), 8.0)
    assert (market.bought.total(), waiting(pool)) == (4, [])


@pytest.mark.parametrize("binding", [False, True])
def test_where_limits_do_not_leave_enough_nothing_is_bought(*, binding: bool) -> None:
    """What was found is kept for a pool without those that it leaves out."""
    gangs = [a_gang(name, 1, gpus=4) for name in "abc"]
    market = a_market([pod for gang in gangs for pod in gang], [NODE], nodes=2)
    pool, _ = a_pool(market, *gangs)
    assert not pool.buy(binding=binding)
    assert market.bought.total() == 0
    if binding:
        assert pool.last_left() == {"g2"}
        fewer = Pool(market, LIMITS, partial=pool.partial)
        for number, gang in enumerate(gangs[:2]):
            assert fewer.take(a_demand(market, gang, f"g{number}"))
        assert fewer.buy(binding=True)
        assert fewer.found().keys() == {"g0", "g1"}


def test_of_pods_that_a_purchase_leaves_out_the_last_gangs_wait() -> None:
    """As many gangs as it takes, from the end, of those that want such pods."""
    gangs = [a_gang("a", 2, gpus=1), a_gang("b", 1, cpu=2), a_gang("c", 2, gpus=1), a_gang("d", 1, cpu=2)]
    market = a_market([pod for gang in gangs for pod in gang], [NODE])
    pool, _ = a_pool(market, *gangs)
    gpu, cpu = (Want(market.snapshot.shape(gang[0]), "") for gang in gangs[:2])

    def left(*some: tuple[frozenset[Want], int]) -> set[str]:
        pool.partial = PartialPurchase((), some, 0.0)
        return pool.last_left()

    assert pool.last_left() == set()
    assert left((frozenset({gpu}), 0)) == set()
    assert left((frozenset({gpu}), 1)) == left((frozenset({gpu}), 2)) == {"g2"}
    assert left((frozenset({gpu}), 3)) == {"g0", "g2"}
    assert left((frozenset({cpu}), 1)) == {"g3"}
    assert left((frozenset({cpu, gpu}), 3)) == {"g2", "g3"}
    assert left((frozenset({cpu}), 2), (frozenset({gpu}), 1)) == {"g1", "g2", "g3"}


def test_pods_that_keep_off_each_other_get_nodes_of_their_own_and_others_the_rest() -> None:
    """Three that want a host each, and two that fit beside them."""
    alone = [a_pod(f"alone-{number}", gpus=2, **apart(HOSTNAME)) for number in range(3)]
    plain = [a_pod(f"plain-{number}", gpus=2) for number in range(2)]
    market = a_market([*alone, *plain], [NODE])
    pool, _ = a_pool(market, *([pod] for pod in [*alone, *plain]))
    assert pool.buy()
    nodes = where(pool)
    assert len({nodes[pod.name] for pod in alone}) == 3
    assert (market.bought.total(), len(nodes)) == (3, 5)
    assert max(Counter(nodes.values()).values()) == 2
