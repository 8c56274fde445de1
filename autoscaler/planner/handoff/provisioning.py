"""What ProvisioningRequests are told: their room is there, there is none so far, it is not kept any longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from autoscaler.model.actions import SetCondition, Waiting
from autoscaler.model.cluster import Cluster
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.demand.requested_gangs import BOOKED_FOR, name_of, why_not_planned
from autoscaler.planner.placement.gang_packing import Placed
from autoscaler.planner.supply.fleet import has_joined


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
        about = {"namespace": request.namespace, "name": request.name}
        if request.provisioned is not None:
            if cluster.seen_at >= request.provisioned + BOOKED_FOR:
                why = f"its room was kept for {BOOKED_FOR.total_seconds() / 60:.0f} minutes"
                found.append(SetCondition(**about, condition="BookingExpired", status=True, because=why))
        elif gang is not None and (there := placed.get(gang.name)) is not None:
            if len(there.places) == len(gang.waiting) and all(has_joined(place) for _, place in there.places):
                why = f"there is room for all of its {len(gang.waiting)} pods"
                found.append(SetCondition(**about, condition="Provisioned", status=True, because=why))
        elif (
            request.is_whole
            and not request.refused
            and (why := why_not_planned(request) or _why_not_placed(gang, because))
        ):
            found.append(SetCondition(**about, condition="Provisioned", status=False, because=why))
    return found


def _why_not_placed(gang: Gang | None, because: Mapping[str, str]) -> str:
    return because.get(gang.waiting[0].key, "there is no room for its pods") if gang is not None else ""


def looks(cluster: Cluster) -> list[datetime]:
    """When bookings end."""
    return [one.provisioned + BOOKED_FOR for one in cluster.provisioning_requests if one.provisioned is not None]
