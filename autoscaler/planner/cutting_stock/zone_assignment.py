"""Zones for pods that nodes are bought for together, where rules between pods count by zone.

Each pod in its turn goes to the zone with fewest of the pods that it is counted with, where the rules of all pods that
have a place or a zone let it; of those with as few, to one that has not failed of late. From then on it is counted
there: pods that come later see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from autoscaler.model.labels import ZONE
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.placement.offerings import Market, Offering
from autoscaler.planner.supply.candidate_nodes import Shape


@dataclass(slots=True)
class Zones:
    """Which pods go to which zone, as far as zones are given out."""

    market: Market
    _load: Counter[str] = field(default_factory=Counter)
    _offered: dict[object, dict[str, Offering]] = field(default_factory=dict)
    """What a shape asks of a node -> zone -> the first offering of which a node may be bought there that holds it."""

    def assign(self, shape: Shape) -> str | None:
        """The zone of one more pod; empty where it does not matter, ``None``: there is none."""
        snapshot = self.market.snapshot
        if not snapshot.rules.count_by(ZONE):
            return ""
        offered = self._possible(shape)
        if not snapshot.rules.count_shape_by(shape, ZONE):
            return self._least(offered)
        for zone in sorted(
            offered, key=lambda zone: (snapshot.rules.counted_with(shape, ZONE, zone), self._rank(zone, offered))
        ):
            if snapshot.rules.why_not(shape, self.market.sample(offered[zone])) is None:
                self._load[zone] += 1
                snapshot.count(shape, {ZONE: zone}, 1)
                return zone
        return None

    def _least(self, offered: Mapping[str, Offering]) -> str:
        """Returns the zone of a pod that no rule counts."""
        zone = min(offered, key=lambda zone: self._rank(zone, offered), default="")
        self._load[zone] += 1
        return zone

    def _rank(self, zone: str, offered: Mapping[str, Offering]) -> tuple[datetime, int, str]:
        """What has not failed of late first, then where fewest go, so that each zone has some of every size."""
        return offered[zone].failed, self._load[zone], zone

    def leave(self, want: Want, many: int) -> None:
        """Stops counting so many pods where they were to go: they get a place."""
        if want.zone:
            self.market.snapshot.count(want.shape, {ZONE: want.zone}, -many)

    def keep(self, want: Want, many: int) -> None:
        """Counts so many pods again, for they got no place."""
        if want.zone:
            self.market.snapshot.count(want.shape, {ZONE: want.zone}, many)

    def _possible(self, shape: Shape) -> dict[str, Offering]:
        key = (shape.amounts, shape.affinity, shape.ties, shape.tolerations, shape.asked_keys)
        known = self._offered.get(key)
        if known is None:
            known = self._offered[key] = {}
            for offering in self.market.with_room(shape.amounts):
                zone = self.market.sample(offering).labels.get(ZONE)
                if zone is None or zone in known or not self.market.buyable(offering):
                    continue
                if self.market.capacity(offering, shape):
                    known[zone] = offering
        return known
