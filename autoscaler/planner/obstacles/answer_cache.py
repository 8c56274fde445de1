"""What was told at the last look of pods that found no place, for a look at which all is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Waiting
from autoscaler.model.cluster import Cluster, Pod
from autoscaler.model.node_index import NodeIndex
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import FillOrder, Place
from autoscaler.planner.supply.fleet import Fleet

_ANY_TIME: Final = datetime.min.replace(tzinfo=UTC)
_OF_THE_LOOK: Final[dict[str, Any]] = {
    "places": (),
    "closed_places": (),
    "nodes": NodeIndex({}, {}, frozenset(), (), (), frozenset()),
    "group_of": {},
    "residents": {},
    "sizes": {},
    "stirring": {},
    "order": FillOrder(),
    "samples": {},
}
"""What of a fleet comes of the look alone, at whatever time: it is compared as part of that."""
Asked = Sequence[tuple[Gang, Demand]]


@dataclass(slots=True)
class AnswerCache:
    """Made once by the caller and handed in with each look; a plan is the same with it and without.

    The answers are kept while all that they are worked out from is equal: they hang on each other, and on every node
    (each counts those that are full, and the end of any one job changed 195 of 195 of them).
    """

    _worked_out_from: object = None
    _found: tuple[Waiting, ...] = ()

    def kept_or(self, work_out: Callable[[], Iterable[Waiting]], *, source: object) -> tuple[Waiting, ...]:
        """The answers of the last look, if their source was equal to this; else these. ``source``: frozen values."""
        if self._worked_out_from is None or self._worked_out_from != source:
            self._found, self._worked_out_from = tuple(work_out()), source
        return self._found


def source_of(cluster: Cluster, policy: Policy, fleet: Fleet, market: Market, asked: Asked) -> object:
    """All that answers are worked out from: the look but for its time, and what the plan has made of it.

    What else comes with time is told by the plan too, but for whether another scheduler leaves a pod alone.
    """
    snapshot, pods = market.snapshot, pod_index_of(cluster.pods)
    gangs = [
        (gang, demand.topology, demand.anchor, demand.minimum, tuple(shape.number for _, shape in demand.pods))
        for gang, demand in asked
    ]
    return (
        gangs,
        len(snapshot.shapes),
        market.ceilings.copy(),
        dict(market.bought),
        dict(market.cancelled),
        [(one.group.name, one.buyable) for one in market.offerings],
        policy,
        replace(cluster, pods=(), seen_at=_ANY_TIME),
        replace(fleet, **_OF_THE_LOOK),
        [(market.is_kept(place), *_as_it_is(place)) for place in snapshot.places],
        [_as_it_is(place) for place in fleet.closed_places],
        _Pods(pods.pods),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Pods:
    """All pods of a look: equal to others that answers cannot tell from them.

    Of one that is bound it makes no difference that its kubelet has begun with it, which comes once for each pod; what
    follows of when it ends is in the tier of its node.
    """

    all: tuple[Pod, ...]

    __hash__ = None  # type: ignore[assignment]  # compared alone

    def __eq__(self, other: object) -> bool:
        """Pod by pod: most are the same object."""
        if not isinstance(other, _Pods) or len(self.all) != len(other.all):
            return False
        return all(
            one is another or _begun(one) == _begun(another) for one, another in zip(self.all, other.all, strict=True)
        )


def _begun(pod: Pod) -> Pod:
    return pod if pod.node is None or pod.is_finished else replace(pod, phase="Running", started=None)


def _as_it_is(place: Place) -> tuple[object, ...]:
    free = tuple(place.free.items())
    return place.name, place.tier, place.standing, place.price, place.ports, free, tuple(place.guests)
