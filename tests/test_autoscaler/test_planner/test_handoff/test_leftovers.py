"""Pods without our gate are planned where the scheduler would put them: in what a plan leaves over."""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.model.actions import Assignment, Grow, Memory, Nominate
from autoscaler.model.cluster import Pod
from autoscaler.model.resources import Resources
from autoscaler.planner.demand.gangs import gangs_of
from autoscaler.planner.handoff.leftovers import as_scheduled
from autoscaler.planner.placement.gang_packing import Packing, Placed
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.plan import plan
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.node_places import new_place
from tests.builders import TOLERATES_GPU, a_cluster, a_gang, a_group, a_pod, a_policy, later, nodes_of

NO_PLACE = "0/1 nodes are available: 1 Insufficient cpu."


def bought(entry: str, name: str) -> Place:
    """A node that a plan would buy."""
    group = a_group(entry)
    place = new_place(group, name, dict(group.allocatable))
    place.price = group.usd_per_hour
    return place


def packed(homes: Sequence[tuple[Pod, Place]]) -> tuple[Packing, list[Pod]]:
    """After :func:`as_scheduled`: each pod is a gang that pays for its node if it is the first there."""
    pods = [pod for pod, _ in homes]
    places = list({id(place): place for _, place in homes}.values())
    snapshot = Snapshot(places, (), pods)
    placed = {}
    for pod, place in homes:
        payer = not place.guests
        snapshot.put(snapshot.shape(pod), place, pod.key)
        placed[pod.key] = Placed(places=((pod.key, place),), bought=(place,) if payer else ())
    return as_scheduled(gangs_of(pods), Packing(placed=placed, usd_per_hour=0.0), snapshot), pods


def test_a_node_is_not_bought_whose_pods_find_room_that_is_left_over() -> None:
    """The scheduler would put them there, and the node would stand empty."""
    small = a_pod("small", tolerations=(TOLERATES_GPU,))
    found, _ = packed([(small, bought("cpu", "c")), (a_pod("big", gpus=8), bought("gpu-a100", "g"))])
    assert found.placed["team/small"] is not None
    assert found.placed["team/small"].bought == ()
    assert found.placed["team/small"].places[0][1].name == "g"
    assert found.usd_per_hour == a_group("gpu-a100").usd_per_hour


def test_room_that_one_gives_away_serves_another() -> None:
    """The first node's pod fits where the second's has gone from; looked at once, it would have stayed."""
    half = a_pod("half", cpu=8)
    whole = a_pod("whole", cpu=14, tolerations=(TOLERATES_GPU,))
    more = a_pod("more", cpu=1)
    found, _ = packed(
        [
            (half, bought("cpu", "a")),
            (whole, bought("cpu", "b")),
            (more, bought("cpu", "c")),
            (a_pod("big", gpus=8, cpu=60), bought("gpu-a100", "g")),
        ]
    )
    nodes = {place.name for one in found.placed.values() if one for place in one.bought}
    assert len(nodes) == 2


def test_pods_behind_our_gate_stay_where_they_are_planned() -> None:
    """They are pinned: nothing puts them elsewhere."""
    (gated,) = a_gang("gated", pods=1, tolerations=(TOLERATES_GPU,))
    place = bought("cpu", "c")
    pods = [gated, a_pod("big", gpus=8)]
    snapshot = Snapshot([place, other := bought("gpu-a100", "g")], (), pods)
    snapshot.put(snapshot.shape(gated), place, gated.key)
    snapshot.put(snapshot.shape(pods[1]), other, pods[1].key)
    placed = {
        "team/gated": Placed(places=((gated.key, place),), bought=(place,)),
        "team/big": Placed(places=((pods[1].key, other),), bought=(other,)),
    }
    found = as_scheduled(gangs_of(pods), Packing(placed=placed, usd_per_hour=0.0), snapshot)
    assert found.placed["team/gated"] == placed["team/gated"]


def test_a_pod_whose_node_is_on_its_way_is_planned_on_one_that_has_joined() -> None:
    """Where that has room the scheduler puts it there, whatever was bought for it."""
    coming, there = a_group("cpu", desired=1), a_group("gpu-a10g", joined=1)
    (node,) = nodes_of(there, ready=False)
    pod = a_pod(tolerations=(TOLERATES_GPU,), unschedulable_because=NO_PLACE)
    gpu = a_pod("gpu", gpus=4, unschedulable_because=NO_PLACE)
    memory = Memory(
        assignments={pod.key: Assignment(f"{coming.name}~1", coming.name), gpu.key: Assignment(node.name, there.name)}
    )
    decided = plan(a_cluster(pods=[pod, gpu], nodes=[node], groups=[coming, there]), a_policy(), memory)
    assert not [step for step in decided.steps if isinstance(step, Grow)]
    (step,) = [step for step in decided.steps if isinstance(step, Nominate)]
    assert dict(step.placements) == {pod.key: node.name, gpu.key: node.name}
    assert Resources.total((pod.requests, gpu.requests)).fits_in(node.allocatable)


def test_what_was_refused_is_asked_again_when_less_is_bought() -> None:
    """The limit of two nodes has room again when one of them need not be bought: at once, not in the next plan."""
    small = a_pod("small", cpu=4, tolerations=(TOLERATES_GPU,), unschedulable_because=NO_PLACE)
    elastic = a_gang("elastic", pods=2, gpus=8, minimum=1, created=later(seconds=1))
    last = a_gang("last", pods=1, cpu=14, created=later(seconds=2))
    groups = [a_group("cpu", maximum=2), a_group("gpu-a100", maximum=1)]
    policy = a_policy(limits={"nodes": 2})
    decided = plan(a_cluster(pods=[small, *elastic, *last], groups=groups), policy, Memory())
    bought = {step.group: step.demand for step in decided.steps if isinstance(step, Grow)}
    assert bought == {
        groups[0].name: ("team/last-worker-0",),
        groups[1].name: ("team/elastic-worker-0", "team/small"),
    }
