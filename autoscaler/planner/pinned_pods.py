"""Pods that can go to one node only take their room there before anything else is planned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from autoscaler.model.actions import STARTING, STUCK, Recreate, Waiting
from autoscaler.model.cluster import Pod
from autoscaler.model.labels import HOSTNAME, RESERVED
from autoscaler.model.needed_changes import NeededChange
from autoscaler.planner.demand.gangs import pinned_to
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of pods that can go to one node only."""

    stuck: Sequence[tuple[Pod, str]]
    """Those that have no room there, and why."""
    waiting: Sequence[Waiting]
    again: Sequence[Recreate]


def settle(pinned: Iterable[Pod], snapshot: Snapshot, fleet: Fleet, *, at_home: Collection[str]) -> Settled:
    """Put them on the snapshot where they have room.

    Those ``at_home`` also where a rule speaks against it: all of a job may be spread evenly, and some of it unevenly.
    """
    closed = _why_closed(fleet)
    stuck: list[tuple[Pod, str]] = []
    waiting: list[Waiting] = []
    again: list[Recreate] = []
    for pod in pinned:
        host = pinned_to(pod) or ""
        place = snapshot.place_on(host)
        shape = snapshot.shape(pod)
        reason = snapshot.why_not(shape, place) if place else None
        if place is not None and (reason is None or pod.key in at_home):
            snapshot.put(shape, place, pod.key)
            told = (
                f"its node {place.name} is reserved for it, and it tolerates {RESERVED}: kube-scheduler binds it next"
            )
            if pod.key in at_home:
                waiting.append(Waiting(pod.key, told, cause=STARTING))
            elif pod.unschedulable_because:
                waiting.append(Waiting(pod.key, f"the scheduler says: {pod.unschedulable_because}", cause=STUCK))
            continue
        if place is None:
            why = f"is bound for node {host}: {closed.get(host, 'not there')}"
        else:
            why = f"is bound for node {host}, where it does not fit: {reason.kind if reason else ''}"
        in_vain = place is not None or host not in closed
        if in_vain and pod.admitted_to == host and pod.owner:
            again.append(Recreate(pod=pod.key, because=f"it {why}"))
        if pod.admitted_to == host and pod.owner:
            waiting.append(Waiting(pod.key, why, (_made_anew(pod),), cause=STUCK))
        else:
            stuck.append((pod, why))
    return Settled(stuck, waiting, again)


def _made_anew(pod: Pod) -> NeededChange:
    return NeededChange(
        "other",
        run=f"kubectl delete pod --namespace {pod.namespace} {pod.name}",
        note="its Job makes it anew, and a place is sought again",
    )


def _why_closed(fleet: Fleet) -> dict[str, str]:
    """Host name of a node that nothing is planned on -> why."""
    return {fleet.nodes.named[name].labels.get(HOSTNAME, name): why for name, why in fleet.unusable.items()}
