"""Zones for pods that nodes are bought for together, where rules between pods count by zone.

Each pod in its turn goes to the zone with fewest of the pods that it is counted with, where the rules of all pods that
have a place or a zone let it; of those with as few, to one that has not failed of late. From then on it is counted
there: pods that come later see it.

Pods that no rule counts by zone are divided among zones at last, such that each zone has about the same mix: nodes cost
least where pods that keep apart by host have others to share them with. Those that no rule concerns fill up what the
others leave uneven; the others go where most pods are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from autoscaler.model.labels import ZONE
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.placement.offerings import Market, Offering
from autoscaler.planner.supply.candidate_nodes import Shape


@dataclass(frozen=True, slots=True)
class _Division:
    """Pods divided among zones by their shares."""

    shares: Mapping[str, float]
    owed: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Pods that a zone had too few so far."""

    def next(self, many: int, zones: Sequence[str]) -> list[str]:
        """The zones of so many more pods, which may go to these."""
        total = sum(self.shares[zone] for zone in zones)
        for zone in zones:
            self.owed[zone] += many * (self.shares[zone] / total if total else 1 / len(zones))
        found = []
        for _ in range(many):
            found.append(max(zones, key=lambda zone: round(self.owed[zone], 6)))
            self.owed[found[-1]] -= 1
        return found


@dataclass(slots=True)
class Zones:
    """Which pods go to which zone, as far as zones are given out."""

    market: Market
    _load: Counter[str] = field(default_factory=Counter)
    _offered: dict[object, dict[str, Offering]] = field(default_factory=dict)
    """What a shape asks of a node -> zone -> the first offering of which a node may be bought there that holds it."""

    def assign(self, shape: Shape) -> str | None:
        """The zone of one more pod; empty where no rule counts it by zone, ``None``: there is none."""
        snapshot = self.market.snapshot
        if not snapshot.rules.count_shape_by(shape, ZONE):
            return ""
        offered = self._possible(shape)

        def rank(zone: str) -> tuple[int, datetime, int, str]:
            """Where fewest go comes after what has not failed of late, so that each zone has some of every size."""
            return snapshot.rules.counted_with(shape, ZONE, zone), offered[zone].failed, self._load[zone], zone

        for zone in sorted(offered, key=rank):
            if snapshot.rules.why_not(shape, self.market.sample(offered[zone])) is None:
                self._load[zone] += 1
                snapshot.count(shape, {ZONE: zone}, 1)
                return zone
        return None

    def divide(self, counts: Mapping[Want, int], planned: Mapping[Want, int]) -> Iterator[tuple[Want, list[str]]]:
        """Yields those without a zone, with the zones of so many pods that want it; none where no rule counts by zone.

        ``planned``: so many of each have a place in a plan that was made before, which divided them.
        """
        if not self.market.snapshot.rules.count_by(ZONE):
            return
        among = {want: self._least_failed(want.shape) for want in counts if not want.zone}
        loose, ruled = self._divisions(counts, among)
        for want, zones in among.items():
            before = {zone: planned.get(Want(want.shape, zone), 0) for zone in zones}
            division = loose if self.market.snapshot.stands_alone(want.shape) else ruled
            if any(before.values()):
                division = _Division(before)
            if zones:
                yield want, division.next(counts[want], zones)

    def _divisions(
        self, counts: Mapping[Want, int], among: Mapping[Want, Sequence[str]]
    ) -> tuple[_Division, _Division]:
        """Of pods that stand alone, and of others."""
        asked: Counter[str] = Counter()
        for want, many in counts.items():
            for name, amount in want.shape.amounts:
                asked[name] += many * amount
        fixed: defaultdict[str, float] = defaultdict(float)
        loose = 0.0
        for want, many in counts.items():
            load = many * sum(amount / asked[name] for name, amount in want.shape.amounts if amount)
            zones = among.get(want, [want.zone])
            if len(zones) == 1:
                fixed[zones[0]] += load
            elif self.market.snapshot.stands_alone(want.shape):
                loose += load
        all_zones = sorted(fixed.keys() | {zone for zones in among.values() for zone in zones})
        loads = {zone: fixed[zone] for zone in all_zones}
        level = _level(loads.values(), loose)
        return (
            _Division({zone: max(0.0, level - load) for zone, load in loads.items()}),
            _Division({zone: max(level, load) for zone, load in loads.items()}),
        )

    def _least_failed(self, shape: Shape) -> list[str]:
        """Zones with nodes for it, of these the ones in which it is longest ago that one failed."""
        offered = self._possible(shape)
        least = min((offering.failed for offering in offered.values()), default=None)
        return sorted(zone for zone, offering in offered.items() if offering.failed == least)

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


def _level(loads: Iterable[float], more: float) -> float:
    """Up to which level the lowest loads are filled by so much more."""
    total, in_turn = more, sorted(loads)
    for lower, load in enumerate(in_turn):
        if lower and total <= load * lower:
            return total / lower
        total += load
    return total / max(1, len(in_turn))
