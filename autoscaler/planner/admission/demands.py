"""What gangs ask for, in the words of placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place

HOMELESS: Final[Mapping[str, Place]] = MappingProxyType({})
"""No pod was planned before."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Each gang's, found out once."""

    snapshot: Snapshot
    homes: Mapping[str, Place]
    """Pod key -> where it was planned before."""
    _known: dict[str, Demand] = field(default_factory=dict)
    """By name of the gang."""

    def of(self, gang: Gang) -> Demand:
        """Returns what the gang's waiting pods ask for."""
        known = self._known.get(gang.name)
        if known is None:
            known = self._known[gang.name] = demand_of(gang, self.snapshot, self.homes)
        return known


def demand_of(gang: Gang, snapshot: Snapshot, homes: Mapping[str, Place] = HOMELESS) -> Demand:
    """What a gang asks for; ``homes``: pod key -> where it was planned before."""
    shapes = [(pod, snapshot.shape(pod)) for pod in gang.waiting]
    topology = gang.topology or _common_ground(gang)
    anchor = None
    if gang.topology:
        known = [place for host in gang.nodes if (place := snapshot.place_on(host)) is not None]
        anchor = next((place.labels[gang.topology] for place in known if gang.topology in place.labels), None)
    return Demand(
        name=gang.name,
        pods=tuple((pod.key, shape) for pod, shape in shapes),
        minimum=gang.minimum,
        topology=topology,
        anchor=anchor,
        assignments={pod.key: homes[pod.key] for pod in gang.waiting if pod.key in homes},
    )


def _common_ground(gang: Gang) -> str | None:
    """The topology key by which all its pods must be near to each other, if there is one."""
    keys = [{term.topology_key for term in pod.near_to} for pod in gang.waiting]
    common = set.intersection(*keys) if keys else set()
    return min(common) if common and len(gang.waiting) > 1 else None
