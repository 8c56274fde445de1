"""A queue by itself: what a gang asks for, when gangs are bought for together, and what each comes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from autoscaler.config.policy import Waiting as WaitingPolicy
from autoscaler.model.cluster import FOREVER, Group, Node, Pod
from autoscaler.model.constraints import PodTerm, Requirement
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.planner.admission.demands import demand_of
from autoscaler.planner.admission.gang_queue import GangQueue
from autoscaler.planner.admission.wait_or_buy import Patience
from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.demand.gangs import gangs_of
from autoscaler.planner.placement.available_offerings import coming, offerings
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Shape
from autoscaler.planner.supply.fleet import survey
from tests.builders import NOW, a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, later

GPUS = a_group("gpu-a10g", usd_per_hour=2.0)
"""Four GPUs a node."""


def a_queue(
    *pods: Pod,
    groups: Sequence[Group] = (GPUS,),
    nodes: Sequence[Node] = (),
    homes: Mapping[str, str] | None = None,
    unbought: Mapping[str, str] | None = None,
    patience: timedelta = timedelta(0),
    ceilings: Ceilings | None = None,
) -> GangQueue:
    """Of these pods; ``homes``: pod -> node that it was planned on."""
    cluster = a_cluster(pods=pods, groups=groups, nodes=nodes)
    policy = a_policy().model_copy(update={"waiting": WaitingPolicy(patience=patience)})
    fleet = survey(cluster, policy, {})
    gangs = gangs_of(cluster.pods)
    snapshot = Snapshot([*fleet.places, *coming(cluster, fleet)], pods, [pod for gang in gangs for pod in gang.waiting])
    known = {place.name: place for place in snapshot.places}
    meant = {f"team/{pod}": known[node] for pod, node in (homes or {}).items()}
    kept = {place.name for place in meant.values()}
    market = Market(snapshot, offerings(cluster, policy, fleet), ceilings or Ceilings(), kept=kept)
    asked = Patience(cluster, policy, fleet, snapshot, unbought=unbought or {})
    return GangQueue(gangs, market, asked, meant, SearchLimits())


def placed(queue: GangQueue) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Gang -> its nodes, empty where it has none; and gang -> why it waits."""
    packing, waits = queue.serve()
    found = {name: sorted(place.name for _, place in one.places) if one else [] for name, one in packing.placed.items()}
    return (
        {name.removeprefix("team/"): names for name, names in found.items()},
        {name.removeprefix("team/"): wait.because for name, wait in waits.items()},
    )


# --- What a gang asks for ---------------------------------------------------------------------------------------------


def test_a_gang_asks_for_places_of_all_its_pods_of_which_its_least_is_together() -> None:
    """Those that were planned before are told, others' are not."""
    pods = a_gang("gang", 3, gpus=1, minimum=2)
    queue = a_queue(*pods, nodes=[an_on_prem_node("n1")], homes={"gang-worker-1": "n1"})
    (gang,) = queue.gangs
    snapshot = queue.market.snapshot
    home = snapshot.places[0]
    demand = demand_of(gang, snapshot, {pods[1].key: home, "team/other": home})
    assert (demand.name, [key for key, _ in demand.pods], demand.minimum) == ("team/gang", [pod.key for pod in pods], 2)
    assert (demand.assignments, demand.topology, demand.anchor) == ({pods[1].key: home}, None, None)
    assert queue.shapes == {pod.key: snapshot.shape(pod) for pod in pods}


@pytest.mark.parametrize(
    ("where", "anchor"),
    [((), None), (("n1",), "a"), (("n2",), "b"), (("n3",), None), (("n3", "n2"), "b"), (("gone", "n1"), "a")],
)
def test_a_gang_with_a_topology_is_anchored_where_a_pod_of_it_runs(where: Sequence[str], anchor: str | None) -> None:
    """On the first node that has the label."""
    labels: list[dict[str, str]] = [{ZONE: "a"}, {ZONE: "b"}, {}]
    nodes = [an_on_prem_node(f"n{number}", labels=label) for number, label in enumerate(labels, start=1)]
    pods = a_gang("gang", 3, gpus=1, topology=ZONE)
    runs = [replace(pod, node=node, phase="Running", gates=()) for pod, node in zip(pods, where, strict=False)]
    queue = a_queue(*runs, *pods[len(runs) :], nodes=nodes)
    demand = demand_of(queue.gangs[0], queue.market.snapshot)
    assert (demand.topology, demand.anchor) == (ZONE, anchor)


@pytest.mark.parametrize(
    ("keys", "topology"),
    [
        (((ZONE,), (ZONE,)), ZONE),
        (((ZONE, HOSTNAME), (ZONE,)), ZONE),
        (((ZONE, HOSTNAME), (ZONE, HOSTNAME)), HOSTNAME),
        (((ZONE,), ()), None),
        (((ZONE,), (HOSTNAME,)), None),
        (((), ()), None),
        (((ZONE,),), None),
    ],
)
def test_pods_that_must_all_be_near_to_each_other_share_that_topology(
    keys: Sequence[Sequence[str]], topology: str | None
) -> None:
    """One pod alone shares nothing; nothing is settled by pods that run."""
    web = (Requirement("app", "In", ("web",)),)
    pods = [
        replace(pod, near_to=tuple(PodTerm(key, web, frozenset({"team"})) for key in asked))
        for pod, asked in zip(a_gang("gang", len(keys), labels={"app": "web"}), keys, strict=True)
    ]
    queue = a_queue(*pods)
    demand = demand_of(queue.gangs[0], queue.market.snapshot)
    assert (demand.topology, demand.anchor) == (topology, None)


# --- Together or in turn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "bought", "proven"),
    [
        ({}, 2, 4.0),
        ({"groups": (GPUS, a_group("cpu"))}, 2, 4.0),
        ({"unbought": {"team/a": "not now"}}, 1, 2.0),
        ({"unbought": {"team/a": "not now", "team/b": "not now"}}, 0, 0.0),
        ({"patience": timedelta(hours=1)}, 2, 0.0),
        ({"patience": timedelta(seconds=5)}, 2, 4.0),
    ],
)
def test_gangs_that_may_be_bought_for_are_bought_for_together(
    given: dict[str, Any], bought: int, proven: float
) -> None:
    """What that costs at least is proven. Those that nothing is bought for, or that may wait, are served in turn."""
    queue = a_queue(*a_gang("a", 2, gpus=2), *a_gang("b", 2, gpus=2), **given)
    found, waits = placed(queue)
    assert (queue.market.bought.total(), queue.proof.usd) == (bought, pytest.approx(proven))
    assert {f"team/{name}" for name in waits} == given.get("unbought", {}).keys()
    assert {name for name, nodes in found.items() if nodes} == {"a", "b"} - waits.keys()


def test_gangs_whose_pods_keep_apart_by_host_are_bought_for_with_the_others() -> None:
    """Two replicas on two nodes, and a gang beside them: what all of that costs is proven."""
    apart = PodTerm(HOSTNAME, (Requirement("app", "In", ("web",)),), frozenset({"team"}))
    web = [a_pod(f"web-{number}", gpus=1, labels={"app": "web"}, apart_from=(apart,)) for number in range(2)]
    queue = a_queue(*web, *a_gang("a", 2, gpus=3))
    found, _ = placed(queue)
    assert found["web-0"] != found["web-1"]
    assert {*found["a"]} == {*found["web-0"], *found["web-1"]}
    assert (queue.market.bought.total(), queue.proof.usd) == (2, pytest.approx(4.0))


@pytest.mark.parametrize(("pods", "gpus", "looked"), [(32, 1, False), (33, 1, True), (32, 2, True), (2, 9, True)])
def test_kinds_of_what_is_there_are_looked_for_where_few_pods_do_not_fit_at_once(
    pods: int, gpus: int, *, looked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among 15,000 nodes that takes longer than all else; where all have room at once it would say nothing."""
    asked, of = list[object](), AtHandKinds.of

    def noted(shapes: Iterable[Shape], market: Market, *, most: int) -> AtHandKinds | None:
        asked.append(market)
        return of(shapes, market, most=most)

    monkeypatch.setattr(AtHandKinds, "of", noted)
    nodes = [an_on_prem_node(f"n{number}", gpus=8, cpu=64) for number in range(5)]
    queue = a_queue(*(a_pod(f"p{number}", gpus=gpus) for number in range(pods)), nodes=nodes)
    found, _ = placed(queue)
    assert bool(asked) is looked
    assert sum(map(bool, found.values())) == (pods if gpus < 9 else 0)


def test_a_gang_that_was_planned_before_is_not_bought_for_again() -> None:
    """Its node is its own; it counts for nothing."""
    ordered = replace(GPUS, desired=1)
    pods = [*a_gang("a", 2, gpus=2), *a_gang("b", 2, gpus=2)]
    name = next(place.name for place in a_queue(*pods, groups=(ordered,)).market.snapshot.places)
    homes = {"a-worker-0": name, "a-worker-1": name}
    queue = a_queue(*pods, groups=(ordered,), homes=homes)
    found, _ = placed(queue)
    assert found["a"] == [name, name]
    assert found["b"][0] == found["b"][1] != name
    assert (queue.proof.usd, queue.market.bought.total()) == (pytest.approx(2.0), 1)


def test_a_node_that_was_kept_for_a_gang_that_finds_no_place_any_more_is_another_gangs() -> None:
    """The first needs a second node, which limits forbid; the other has its node instead of a new one."""
    ordered = replace(GPUS, desired=1)
    pods = [*a_gang("a", 2, gpus=4, priority=1), *a_gang("b", 1, gpus=4)]
    name = next(place.name for place in a_queue(*pods, groups=(ordered,)).market.snapshot.places)
    queue = a_queue(*pods, groups=(ordered,), homes={"a-worker-0": name}, ceilings=Ceilings(entries={GPUS.entry: 0}))
    found, _ = placed(queue)
    assert (found, queue.market.bought.total()) == ({"a": [], "b": [name]}, 0)


def test_the_proof_that_says_most_is_kept() -> None:
    """None, without a joint purchase."""
    queue = a_queue(*a_gang("a", 2, gpus=2, topology=ZONE))
    placed(queue)
    assert (queue.proof.usd, queue.proof.at_hand) == (0.0, frozenset())
    pods = [*a_gang("a", 2, gpus=4), *a_gang("b", 1, gpus=4), *a_gang("c", 3, gpus=4)]
    queue = a_queue(*pods, ceilings=Ceilings(nodes=3))
    found, _ = placed(queue)
    assert ([len(set(found[name])) for name in "abc"], queue.proof.usd) == ([2, 1, 0], pytest.approx(6.0))


@pytest.mark.parametrize("topology", [None, ZONE])
def test_gangs_of_a_kind_are_refused_together_and_asked_again_when_more_is_there(topology: str | None) -> None:
    """A small one behind them is served all the same; what is refused has no trace."""
    pods = [pod for name in "abc" for pod in a_gang(name, 1, gpus=4, topology=topology)]
    small = a_gang("small", 1, gpus=1, created=later(seconds=9))
    queue = a_queue(*pods, *small, groups=(replace(GPUS, maximum=2),))
    found, waits = placed(queue)
    assert ([len(found[name]) for name in "abc"], found["small"], waits) == ([1, 1, 0], [], {})
    assert queue.market.bought.total() == 2


def test_a_gang_that_may_wait_for_ever_takes_what_is_free_and_buys_nothing() -> None:
    """Its namespace or itself; what it does not take others get."""
    node = an_on_prem_node("n1", gpus=4)
    patient = a_gang("patient", 1, gpus=4, patience=FOREVER)
    second = a_gang("second", 1, gpus=4, patience=FOREVER, created=later(seconds=1))
    found, waits = placed(a_queue(*patient, *second, nodes=[node]))
    assert (found, set(waits)) == ({"patient": ["n1"]}, {"second"})
    third = a_gang("third", 1, gpus=4, created=later(seconds=2))
    found, waits = placed(a_queue(*patient, *second, *third, nodes=[node]))
    assert (found["patient"], set(waits), len(found["third"])) == (["n1"], {"second"}, 1)


def test_the_last_moment_of_patience_is_over() -> None:
    """A gang that is as old as it may wait is bought for."""
    busy = a_pod("busy", gpus=4, node="n1", phase="Running", started=NOW, duration=timedelta(minutes=1))
    for seconds, waits in ((600, False), (599, True)):
        gang = a_gang(
            "gang", 1, gpus=4, created=later(seconds=-seconds), patience=timedelta(minutes=11 if waits else 10)
        )
        found, told = placed(a_queue(busy, *gang, nodes=[an_on_prem_node("n1", gpus=4)]))
        assert (bool(told), bool(found)) == (waits, not waits)


def test_a_gang_that_was_refused_is_asked_again_where_a_later_one_makes_room_for_it() -> None:
    """It is to be near to pods of which the node is bought after it was asked; another is near to its own."""
    near = [PodTerm(HOSTNAME, (Requirement("app", "In", (app,)),), frozenset({"team"})) for app in ("first", "last")]
    second = a_gang("second", 1, gpus=1, labels={"app": "second"}, near_to=(near[0],))
    first = a_gang("first", 2, gpus=1, created=later(seconds=1), labels={"app": "first"}, near_to=(near[1],))
    last = a_gang("last", 1, gpus=1, created=later(seconds=2), labels={"app": "last"})
    queue = a_queue(*second, *first, *last)
    found, _ = placed(queue)
    (node,) = found["last"]
    assert (found["first"], found["second"], queue.market.bought.total()) == ([node] * 2, [node], 1)
