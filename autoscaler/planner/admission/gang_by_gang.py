"""Gangs one after another: each is placed, bought for, or left to wait for machines that we own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from autoscaler.planner.admission.demands import Demands
from autoscaler.planner.admission.wait_or_buy import Patience, Wait
from autoscaler.planner.cutting_stock.joint_packing import Pool
from autoscaler.planner.cutting_stock.poolable import may_be_pooled
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.placement.gang_packing import Demand, Placed, pack, still_to_come, taken_from_others
from autoscaler.planner.placement.offerings import Market

Found = dict[str, Placed | None]
"""By name of the gang."""
_Refused = dict[object, tuple[int, Wait | None]]
"""What pods alike were told, and how many fresh nodes were in use then."""


@dataclass(frozen=True, slots=True)
class GangByGang:
    """What gangs are served from in turn."""

    market: Market
    patience: Patience
    demands: Demands

    def is_patient(self, gang: Gang) -> bool:
        """Whether it may still wait for machines that we own."""
        return gang.oldest + self.patience.of(gang) > self.patience.now

    def serve(
        self,
        gangs: Iterable[Gang],
        settled: Mapping[str, Placed],
        *,
        pool: Pool | None = None,
        pooled: Collection[str] = (),
        goes_on: bool = False,
    ) -> tuple[Found, dict[str, Wait]]:
        """Each gang in turn: placed, bought for, or left to wait for machines that we own; the settled ones grow.

        ``pool`` takes those that are ``pooled``, unless one of their pods fits nowhere. ``goes_on``: gangs before these
        have been served.
        """
        placed, waits = Found(), dict[str, Wait]()
        refused: _Refused = {}
        if not goes_on:
            self.patience.forget()
        for gang in gangs:
            if pool is not None and gang.name in pooled:
                if pool.take(self.demands.of(gang)):
                    continue
                if may_be_pooled(self.demands.of(gang), self.market):
                    placed[gang.name] = None
                    continue
            demand = self.demands.of(gang)
            if gang.name in settled:
                demand = still_to_come(demand, settled[gang.name])
                if not demand.pods:
                    continue
            may_wait = bool(self.patience.ban(gang)) or (gang.name not in settled and self.is_patient(gang))
            found = self._alone(gang, demand, refused, may_wait=may_wait)
            if isinstance(found, Wait):
                waits[gang.name] = found
            else:
                placed[gang.name] = found
        return placed, waits

    def _alone(self, gang: Gang, demand: Demand, refused: _Refused, *, may_wait: bool) -> Placed | Wait | None:
        """A gang by itself: its places, why it waits instead of having nodes bought, or ``None``.

        ``refused``: what found no place, or none that its namespace may pay for: its like finds none either.
        """
        snapshot, alike, ban = self.market.snapshot, self._alike(demand), self.patience.ban(gang)
        key = alike and (alike, ban)
        if key in refused and refused[key][0] == len(self.market.opened):
            return refused[key][1]
        before = snapshot.mark()
        found: Placed | Wait | None = pack([demand], self.market).placed[gang.name]
        usd = self._price(found, demand) if isinstance(found, Placed) and may_wait else 0.0
        if usd:
            snapshot.undo(before)
            wait = self.patience.wait(gang, demand, usd_per_hour=usd)
            found = wait if wait is not None else pack([demand], self.market).placed[gang.name]
        if key is not None and (found is None or (ban and isinstance(found, Wait))):
            refused[key] = len(self.market.opened), found
        return found

    def _alike(self, demand: Demand) -> object | None:
        """The same for demands that find a place or none together; ``None`` where other pods have a say in it."""
        if not may_be_pooled(demand, self.market):
            return None
        return frozenset(Counter(shape.number for _, shape in demand.pods).items())

    def _price(self, found: Placed, demand: Demand) -> float:
        """Dollars per hour of what is bought, or was bought for others, which would have to buy again."""
        others = taken_from_others(found, demand, self.market)
        return found.usd + sum(place.group.usd_per_hour for place in others.values() if place.group is not None)
