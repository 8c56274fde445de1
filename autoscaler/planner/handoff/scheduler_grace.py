"""Pods without our gate that the scheduler has not looked at yet: nothing is bought where it may find room for them.

From when such a pod is created until the scheduler has said that it finds no place, it may bind it anywhere that has
room, whatever a plan has there. What is bought in that moment for the pod, or for those whose place it takes, may be
for others than it was planned for. So a purchase for it waits until the scheduler has spoken: some seconds at most,
more where it has many to try. Where it is slower, or another one has the pod, waiting longer costs more than a wrong
guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from autoscaler.model.actions import HELD, Grow, Waiting
from autoscaler.model.cluster import YUNIKORN, Pod
from autoscaler.model.needed_changes import NeededChange
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.handoff.reservations import is_reserved
from autoscaler.planner.placement.gang_packing import Placed
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.node_places import has_joined, is_ready

_PATIENCE: Final = timedelta(seconds=3)
_A_POD: Final = timedelta(seconds=1 / 50)
"""``kube-scheduler`` asks 50 things of the API server in a second, unless told otherwise (``clientConnection.qps``)."""
_AT_MOST: Final = timedelta(seconds=30)
_LONG: Final = timedelta(minutes=1)
"""After that a scheduler that runs has tried a pod."""
OTHER_SCHEDULER: Final = NeededChange("pod", pod="schedulerName", to="default-scheduler")


def not_tried_yet(gangs: Iterable[Gang], snapshot: Snapshot, now: datetime) -> dict[str, datetime]:
    """Pod key -> until when it may still be bound to a node that is there; the snapshot has no pod planned yet."""
    unheard = [pod for gang in gangs for pod in gang.waiting if not (pod.gates or pod.unschedulable_because)]
    patience = min(_AT_MOST, _PATIENCE + len(unheard) * _A_POD)
    young = [pod for pod in unheard if now < pod.created + patience]
    if not young:
        return {}
    fresh = [place for place in snapshot.places if not place.standing and _is_open(place)]
    found: dict[int, bool] = {}
    ends = {}
    for pod in young:
        shape = snapshot.shape(pod)
        if shape.number not in found:
            first = snapshot.find(shape)
            found[shape.number] = (first is not None and _is_open(first)) or any(
                snapshot.why_not(shape, place) is None for place in fresh
            )
        if found[shape.number]:
            ends[pod.key] = pod.created + patience
    return ends


def is_left_alone(pod: Pod, now: datetime) -> bool:
    """Whether the scheduler that it names, not Kubernetes' own, has said nothing of it though it could long have."""
    return bool(pod.scheduler) and not (pod.gates or pod.unschedulable_because) and now >= pod.created + _LONG


def is_not_asked_for(pod: Pod) -> bool:
    """Whether YuniKorn has the pod and does not ask for a node for it.

    Of what it has no node for it marks those ``Unschedulable`` that are within their quotas and that no placeholder of
    their task group keeps room for (``Application.getOutstandingRequests`` of yunikorn-core).
    """
    return pod.scheduler == YUNIKORN and not pod.unschedulable_because


def left_alone(gang: Gang, placed: Placed, now: datetime) -> list[Waiting]:
    """Lists the pods with a place on a node that is there that their own scheduler leaves alone."""
    there = {key for key, place in placed.places if has_joined(place)}
    return [
        Waiting(
            pod.key,
            f"fits on a node that is there, and its own scheduler, {pod.scheduler}, has not said anything of it so far",
            (OTHER_SCHEDULER,),
            cause=HELD,
        )
        for pod in gang.waiting
        if pod.key in there and is_left_alone(pod, now)
    ]


def are_held(steps: Iterable[Grow], ends: Mapping[str, datetime]) -> bool:
    """Whether these purchases wait: all of them where one is for one of these pods, as a part of a plan is no plan.

    Bought without the others, it could be taken by those for which nothing was bought, and be bought again.
    """
    return any(key in ends for step in steps for key in step.demand)


def _is_open(place: Place) -> bool:
    return is_ready(place) and not is_reserved(place)
