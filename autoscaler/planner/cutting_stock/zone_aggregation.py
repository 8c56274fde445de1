"""Offerings of several zones as one kind of node, where nothing but the zone tells them apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.placement.offerings import Offering
from autoscaler.planner.supply.candidate_nodes import Place


@dataclass(frozen=True, slots=True)
class ZoneAggregation:
    """Offerings that are to be had alike in every zone, without an end: the solver sees one kind for all of them."""

    names: Mapping[str, Mapping[str, str]]
    """By the name of the kind and zone the offering."""

    @classmethod
    def of(
        cls, counts: Iterable[Want], offerings: Mapping[str, Offering], samples: Mapping[str, Place]
    ) -> ZoneAggregation | None:
        """``None``: something differs, or a pod may go to any zone."""
        zones = {want.zone for want in counts}
        if not zones or "" in zones:
            return None
        alike: dict[object, dict[str, str]] = defaultdict(dict)
        for name, offering in offerings.items():
            sample = samples[name]
            labels = frozenset((key, value) for key, value in sample.labels.items() if key not in (ZONE, HOSTNAME))
            room = tuple(sorted(sample.free.items()))
            alike[room, labels, sample.taints, offering.usd].setdefault(sample.labels.get(ZONE, ""), name)
        if not all(several.keys() >= zones for several in alike.values()):
            return None
        return cls({next(iter(several.values())): several for several in alike.values()})
