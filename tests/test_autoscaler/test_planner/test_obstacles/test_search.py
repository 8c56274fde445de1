"""The least that must be left out for a gang to have a place: one thing at a time, and no more than it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Backoff
from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Requirement, Taint, Toleration
from autoscaler.model.labels import ZONE
from autoscaler.model.pauses import BUYING, Pause
from autoscaler.planner.obstacles.relaxations import Relaxation
from autoscaler.planner.obstacles.search import Found, Search, Work
from autoscaler.planner.placement.available_offerings import affordable, offerings
from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.fleet import survey
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, an_entry, an_on_prem_node, later

GROUP = a_group("gpu-a10g", vcpus=48, quota="L-1", usd_per_hour=2.0)
POD = a_pod("p", gpus=4)


def a_search(*pods: Pod, policy: Policy | None = None, closed: Any = None, work: int = 100_000, **look: Any) -> Search:
    """Of a cluster with one group of four GPUs a node."""
    cluster = a_cluster(**{"pods": pods, "groups": (GROUP,)} | look)
    policy = policy or a_policy(an_entry("gpu-a10g", zones=("us-east-1a",)))
    fleet = survey(cluster, policy, closed or {})
    waiting = [pod for pod in cluster.pods if not pod.node]
    snapshot = Snapshot(fleet.places, cluster.pods, waiting, closed=fleet.closed_places)
    market = Market(snapshot, offerings(cluster, policy, fleet), affordable(cluster, policy, fleet))
    return Search(cluster, policy, fleet, market, Work(work))


def smallest(search: Search, *pods: Pod, topology: str | None = None) -> Found:
    """Of these pods as a gang."""
    shapes = tuple((pod.key, search.snapshot.shape(pod)) for pod in pods)
    found = search.smallest(pods, Demand("gang", shapes, topology=topology))
    assert found is not None
    return found


def left_out(search: Search, *pods: Pod) -> list[str]:
    """What is left out, in order of its kind."""
    return sorted(one.what for one in smallest(search, *pods).relaxed)


def limited(**limits: Any) -> Policy:
    """The same policy within these limits."""
    return a_policy(an_entry("gpu-a10g", zones=("us-east-1a",)), limits=limits)


BUSY = a_pod("busy", gpus=8, node="dgx-01", phase="Running")
OWN: dict[str, Any] = {"groups": (), "policy": a_policy(an_entry("cpu", max=1, zones=("us-east-1a",)))}


@pytest.mark.parametrize(
    ("look", "whats"),
    [
        ({}, []),
        ({"policy": limited(usd_per_hour=1.9)}, ["usd"]),
        ({"policy": limited(nodes=0)}, ["nodes"]),
        ({"policy": limited(gpus=3)}, ["gpus"]),
        ({"policy": limited(gpus=3, nodes=0)}, ["gpus", "nodes"]),
        ({"pauses": (Pause(BUYING),)}, ["resume"]),
        ({"closed": {GROUP.name: Backoff(later(minutes=3), 1, NOW, "x")}}, ["capacity"]),
        ({"groups": (a_group("gpu-a10g", maximum=0),)}, ["pulumi"]),
        ({"groups": ()}, ["pulumi"]),
        ({**OWN, "nodes": (an_on_prem_node(),)}, []),
        ({**OWN, "nodes": (an_on_prem_node(cordoned=True, cordoned_by="kubectl"),)}, ["uncordon"]),
        ({**OWN, "nodes": (an_on_prem_node(ready=False),)}, ["ready"]),
        ({**OWN, "nodes": (an_on_prem_node(),), "pods": (POD, BUSY)}, ["work"]),
        (
            {**OWN, "nodes": (an_on_prem_node(cordoned=True, cordoned_by="kubectl"),), "pods": (POD, BUSY)},
            ["uncordon", "work"],
        ),
        (OWN, ["group"]),
    ],
)
def test_what_alone_keeps_a_pod_waiting_is_found_alone(look: dict[str, Any], whats: Sequence[str]) -> None:
    """A group is added where nothing that is there, or in the policy, would do."""
    assert left_out(a_search(*look.pop("pods", (POD,)), **look), POD) == whats


def test_of_what_a_pod_asks_only_what_is_in_its_way_is_left_out() -> None:
    """One selector of two, one taint of two, not the rule that it be near to what is there."""
    node = an_on_prem_node("dgx-01", taints=(Taint("team"), Taint("other")), labels={"disk": "ssd", ZONE: "z"})
    db = a_pod("db", cpu=1, node="dgx-01", phase="Running", labels={"app": "db"})
    near = PodTerm(ZONE, (Requirement("app", "In", ("db",)),), frozenset({"team"}))
    pod = a_pod(
        "p",
        cpu=100,
        selector={"disk": "ssd", "rack": "r9"},
        tolerations=(Toleration("other", "Exists"),),
        near_to=(near,),
    )
    search = a_search(pod, db, pods=(pod, db), nodes=(node,), groups=(), policy=OWN["policy"])
    found = smallest(search, pod)
    assert sorted(one.what for one in found.relaxed) == ["select", "taint"]
    assert found.leaves_out("taint")
    assert not found.leaves_out("near")
    alone = a_search(pod, pods=(pod,), nodes=(node,), groups=(), policy=OWN["policy"])
    assert sorted(one.what for one in smallest(alone, pod).relaxed) == ["partner", "select", "taint"]


def test_without_work_left_all_is_left_out_at_once() -> None:
    """One trial for each gang, the quick way."""
    spent = a_search(POD, policy=limited(usd_per_hour=1.9), work=0)
    assert len(smallest(spent, POD).relaxed) > 1
    assert left_out(a_search(POD, policy=limited(usd_per_hour=1.9)), POD) == ["usd"]


def test_what_was_found_for_pods_alike_is_tried_first() -> None:
    """Though less would do; where it does not do, all is searched."""
    search = a_search(POD, policy=limited(usd_per_hour=1.9))
    demand = Demand("gang", ((POD.key, search.snapshot.shape(POD)),))
    known = (Relaxation("usd"), Relaxation("nodes"))
    start = search.snapshot.mark()
    for like, whats in ((known, ["nodes", "usd"]), ((Relaxation("nodes"),), ["usd"]), (None, ["usd"])):
        found = search.smallest([POD], demand, like=like)
        assert found is not None
        assert sorted(one.what for one in found.relaxed) == whats
        search.snapshot.undo(start)


def test_a_pod_that_is_too_large_for_all_is_split_into_as_few_parts_as_it_takes() -> None:
    """By key, with a number; one that is not too large stays whole."""
    giant = a_pod("giant", gpus=10)
    found = smallest(a_search(giant, POD, pods=(giant, POD)), giant, POD)
    assert [(one.what, one.parts) for one in found.relaxed if one.what == "split"] == [("split", 3)]
    assert found.split == {"team/giant"}
    assert sorted(found.shapes) == ["team/giant#0", "team/giant#1", "team/giant#2", "team/p"]


def test_what_is_kept_stands_on_the_snapshot_for_those_behind_it() -> None:
    """The pods that make room are gone, the new node is there, and its name is not given again."""
    search = a_search(POD)
    start = search.snapshot.mark()
    found = smallest(search, POD)
    search.snapshot.undo(start)
    search.keep(found, ())
    (place,) = [place for place in search.snapshot.places if place.guests]
    assert place.guests == ["team/p"]
    assert search.market.bought[GROUP.name] == 1
    search.snapshot.undo(start)
    assert (search.market.bought[GROUP.name], search.snapshot.places) == (0, [])


def test_groups_of_those_before_in_turn_count_against_the_ceilings() -> None:
    """As many as they would have bought."""
    search = a_search(POD, policy=limited(nodes=2, usd_per_hour=5, gpus=9))
    search.taken += [GROUP, GROUP]
    left = search.ceilings
    assert (left.nodes, left.usd, left.gpus) == (0, pytest.approx(1.0), 1)
    assert left_out(search, POD) == ["gpus", "nodes", "usd"]
