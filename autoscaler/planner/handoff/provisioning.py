"""What ProvisioningRequests are told: their room is there, there is none so far, it is not kept any longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from autoscaler.model.actions import SetCondition, Waiting
from autoscaler.model.cluster import Cluster, ProvisioningRequest
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.demand.requested_gangs import BOOKED_FOR, name_of, why_not_planned
from autoscaler.planner.placement.gang_packing import Placed
from autoscaler.planner.supply.node_places import has_joined


def answers(
    cluster: Cluster, gangs: Iterable[Gang], placed: Mapping[str, Placed | None], waiting: Iterable[Waiting]
) -> list[SetCondition]:
    """One for each request of which something new is known. ``waiting``: why pods have no place, those asked for too.

    That there is no room is said once: the words of then stay, and the next answer is that there is.
    """
    if not cluster.provisioning_requests:
        return []
    asked = {gang.name: gang for gang in gangs}
    because = {one.pod: one.because for one in waiting}
    found = []
    for request in cluster.provisioning_requests:
        gang = asked.get(name_of(request))
        if request.provisioned is not None:
            answer = _booked(request, cluster.seen_at)
        elif gang is not None and (there := placed.get(gang.name)) is not None:
            answer = _placed(request, gang, there)
        else:
            answer = _not_placed(request, because.get(gang.waiting[0].key, "") if gang is not None else "")
        found += [answer] if answer is not None else []
    return found


def _booked(request: ProvisioningRequest, now: datetime) -> SetCondition | None:
    if request.provisioned is None or now < request.provisioned + BOOKED_FOR:
        return None
    why = f"its room was kept for {BOOKED_FOR.total_seconds() / 60:.0f} minutes"
    return SetCondition(request.namespace, request.name, "BookingExpired", status=True, because=why)


def _placed(request: ProvisioningRequest, gang: Gang, there: Placed) -> SetCondition | None:
    if not all(has_joined(place) for _, place in there.places):
        return None
    why = f"there is room for all of its {len(gang.waiting)} pods"
    return SetCondition(request.namespace, request.name, "Provisioned", status=True, because=why)


def _not_placed(request: ProvisioningRequest, because: str) -> SetCondition | None:
    why = because or why_not_planned(request)
    if request.refused or not (request.is_whole and why):
        return None
    return SetCondition(request.namespace, request.name, "Provisioned", status=False, because=why)


def looks(cluster: Cluster) -> list[datetime]:
    """Returns the moments at which bookings end."""
    return [one.provisioned + BOOKED_FOR for one in cluster.provisioning_requests if one.provisioned is not None]
