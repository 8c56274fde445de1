"""Which node the scheduler is told to try first for a pod, so that what was bought for some is not taken by others.

A pod behind our gate is pinned to its node when the gate is lifted. A pod without it is the scheduler's from the start,
and the scheduler spreads: nodes bought for a set of pods would soon hold others, and one of them be left over. So the
plan is told to it as nominations (https://kep.k8s.io/5278). It tries the nominated node first, and until the pod is
bound no other pod of the same or a lower priority gets its room there. Where the nominated node does not do after all,
the scheduler decides as ever and withdraws the nomination; the next plan starts from what it did.

A node that has joined is nominated for at once: its kubelet takes seconds to be ready, and until then no pod is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from autoscaler.model.actions import Nominate
from autoscaler.model.cluster import Node, Pod
from autoscaler.model.labels import GATE
from autoscaler.model.pod_index import PodIndex
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.handoff.reservations import SPREADS, is_reserved
from autoscaler.planner.placement.gang_packing import Placed

_MORE_COME: Final = timedelta(minutes=5)
"""After a pod without our gate others are expected for so long: they are bound before a plan knows of them."""


def is_contended(gangs: Iterable[Gang], index: PodIndex, at: datetime) -> bool:
    """Whether some pod waits that the scheduler may put anywhere, or it has just put one somewhere."""
    if any(not pod.gates for gang in gangs for pod in gang.waiting):
        return True
    return any(one.last_ungated is not None and at - one.last_ungated < _MORE_COME for one in index.loads.values())


def homes_of(placed: Mapping[str, Placed | None]) -> dict[str, Node | None]:
    """Pod key -> the node that the plan has it on, where that has joined and others could take its room."""
    return {
        key: None if is_reserved(place) else place.node
        for one in placed.values()
        if one is not None
        for key, place in one.places
    }


def overstayed(
    pods: Iterable[Pod], homes: Mapping[str, Node | None], residents: Mapping[str, Sequence[Pod]]
) -> frozenset[str]:
    """Names of nodes on which a nomination that the plan has left still keeps room.

    A pod that is tried there now may be refused for it, and is not tried again when the nomination goes.
    """
    stale = set()
    for pod in pods:
        node = homes.get(pod.key)
        if pod.nominated and (node is None or node.name != pod.nominated) and not _is_cleared(pod, residents):
            stale.add(pod.nominated)
    return frozenset(stale)


def nominations(
    gangs: Sequence[Gang],
    placed: Mapping[str, Placed | None],
    residents: Mapping[str, Sequence[Pod]],
    *,
    contended: bool,
) -> list[Nominate]:
    """Returns at most one step, for all pods whose planned node has joined and is not nominated for them yet.

    Of pods without our gate those that the scheduler has tried in vain: the others it binds at this moment. Where such
    pods come (``contended``), those behind our gate too: their room would else be taken before the gates are lifted. A
    nomination that the plan has left is taken back, for it keeps room from others. ``residents``: by node name.
    """
    homes = homes_of(placed)
    news = []
    for pod in (pod for gang in gangs for pod in gang.waiting):
        node = homes.get(pod.key)
        wanted = node.name if node is not None and not node.cordoned else ""
        needs = contended if GATE in pod.gates else pod.unschedulable_because
        if wanted and not (needs or pod.nominated):
            continue
        if wanted != pod.nominated and not _is_cleared(pod, residents):
            news.append((pod.key, wanted))
    news.sort(key=lambda one: (one[1], one[0]))
    there = f"planned there; {SPREADS}, but tries a nominated node first"
    because = there if any(node for _, node in news) else "planned there no more, and a nomination keeps room"
    return [Nominate(placements=tuple(news), because=because)] if news else []


def _is_cleared(pod: Pod, residents: Mapping[str, Sequence[Pod]]) -> bool:
    """Whether pods are going from the node that it is nominated for: the scheduler sends them away in its favour."""
    return any(one.deleting for one in residents.get(pod.nominated, ()))
