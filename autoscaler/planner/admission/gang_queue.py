"""Whose turn it is: gangs that were planned before, then the others by priority and age; then as the scheduler has it.

What was bought for a gang, or is kept for it, stays its own while its pods wait for it: no gang that was refused a
moment ago takes it from them, to have it bought again. Where a gang of higher priority would find no place that way,
all are served in strict order. A gang that has fewer pods than it may have grows when it is its turn again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.planner.admission.demands import Demands
from autoscaler.planner.admission.gang_by_gang import Found, GangByGang
from autoscaler.planner.admission.joint_purchase import JointPurchase
from autoscaler.planner.admission.wait_or_buy import Patience, Wait
from autoscaler.planner.cutting_stock.joint_packing import Proof
from autoscaler.planner.cutting_stock.poolable import may_be_bought_jointly, may_be_pooled
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.handoff.leftovers import as_scheduled
from autoscaler.planner.placement.gang_packing import (
    Demand,
    Packing,
    Placed,
    as_assigned,
    pack,
    packing_of,
)
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Place, Shape


@dataclass(frozen=True, slots=True)
class GangQueue:
    """Gangs, the first to be served first, and what they are served from."""

    gangs: Sequence[Gang]
    market: Market
    patience: Patience
    homes: Mapping[str, Place]
    """Pod key -> where it was planned before."""
    limits: SearchLimits
    _turns: GangByGang = field(init=False)
    _proofs: list[Proof] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Each gang's demand is found out once."""
        demands = Demands(self.market.snapshot, self.homes)
        object.__setattr__(self, "_turns", GangByGang(self.market, self.patience, demands))

    @property
    def proof(self) -> Proof:
        """Returns the proof of what was bought jointly, the one that says most."""
        return max(self._proofs, key=lambda proof: proof.usd, default=Proof())

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Returns the shape of every pod, by key."""
        return {key: shape for gang in self.gangs for key, shape in self._turns.demands.of(gang).pods}

    def serve(self) -> tuple[Packing, dict[str, Wait]]:
        """Each gang's outcome, and which wait for machines that we own. The snapshot changes for good.

        Gangs without a place are asked again where others have been placed since: they may have room beside those then,
        or may be near to them; and where the scheduler puts pods without our gate so that less need be bought and
        limits have room again. Gangs with fewer pods than they may have grow once more after the others, as they would
        at the next look: what was on its way for others is taken then, or is not.
        """
        packing, waits = self._in_order()
        must_ask = any(self.homes.get(key) is not place for key, place in packing.homes.items())
        while True:
            before, packing = packing, as_scheduled(self.gangs, packing, self.market.snapshot)
            cancelled = self.market.cancel(before.bought, but=packing.bought)
            unplaced = [gang for gang in self.gangs if packing.placed.get(gang.name) is None]
            asked = {gang.name for gang in unplaced} if cancelled or must_ask else set[str]()
            partly = self._placed_in_part(packing)
            more, later = self._turns.serve([one for one in self.gangs if one.name in asked | partly.keys()], partly)
            waits = later if asked else waits
            if not any(more.values()):
                return packing, waits
            grown = {name: _joined(partly.get(name), placed) for name, placed in more.items()}
            packing, must_ask = packing_of({**packing.placed, **grown}), True

    def _placed_in_part(self, packing: Packing) -> dict[str, Placed]:
        """Gangs of which some pods have a place and others none; none of them where no other gang has been placed."""
        found = {}
        for gang in self.gangs:
            placed = packing.placed.get(gang.name)
            if placed is not None and len(placed.places) < len(gang.waiting):
                found[gang.name] = placed
        return found if len(found) < sum(one is not None for one in packing.placed.values()) else {}

    def _in_order(self) -> tuple[Packing, dict[str, Wait]]:
        start = self.market.snapshot.mark()
        settled = self._settled()
        packing, waits = self._after(settled)
        least = min((gang.priority for gang in self.gangs if gang.name in settled), default=0)
        outranked = [
            gang
            for gang in self.gangs
            if settled and gang.priority > least and packing.placed.get(gang.name) is None and gang.name not in waits
        ]
        if not outranked:
            return packing, waits
        self.market.snapshot.undo(start)
        could = any(self._could_be_placed(gang) for gang in outranked)
        return self._after({} if could else self._settled())

    def _settled(self) -> dict[str, Placed]:
        """Those that can be where they were planned before, there.

        Gangs of which more pods are needed than were planned come last: these take no place that others were given.
        """
        found: dict[str, Placed] = {}
        for completes in (False, True):
            for gang in self.gangs:
                demand = self._turns.demands.of(gang)
                if not demand.assignments or gang.name in found:
                    continue
                placed = as_assigned(demand, self.market, completes=completes)
                if placed is not None:
                    found[gang.name] = placed
        return found

    def _could_be_placed(self, gang: Gang) -> bool:
        mark = self.market.snapshot.mark()
        placed = pack([self._turns.demands.of(gang)], self.market).placed[gang.name]
        self.market.snapshot.undo(mark)
        return placed is not None

    def _after(self, settled: Mapping[str, Placed]) -> tuple[Packing, dict[str, Wait]]:
        """The others: those that may be, together; where that fails, those about which nothing but room decides.

        All in turn where nothing can be bought for any of these.
        """
        tried = frozenset[str]()
        for may_be_bought in (may_be_bought_jointly, may_be_pooled):
            pooled = self._pooled(settled, may_be_bought)
            found = self._jointly(settled, pooled) if pooled and pooled != tried else None
            if found is not None:
                more, waits = found
                return self._packing(settled, more), waits
            tried = pooled
        placed, waits = self._turns.serve(self.gangs, settled)
        return self._packing(settled, placed), waits

    def _jointly(self, settled: Mapping[str, Placed], pooled: frozenset[str]) -> tuple[Found, dict[str, Wait]] | None:
        return JointPurchase(self._turns, self.limits, settled, pooled, self._proofs).serve(self.gangs)

    def _packing(self, settled: Mapping[str, Placed], more: Found) -> Packing:
        """Joins both in the order in which they were served, in which the scheduler may bind them."""
        return packing_of({name: _joined(settled.get(name), more.get(name)) for name in (*settled, *more)})

    def _pooled(self, settled: Mapping[str, Placed], may_be_bought: Callable[[Demand, Market], bool]) -> frozenset[str]:
        """Names of the gangs that are bought for together, before any other is."""
        return frozenset(
            gang.name
            for gang in self.gangs
            if gang.name not in settled
            and not self._turns.is_patient(gang)
            and not self.patience.ban(gang)
            and may_be_bought(self._turns.demands.of(gang), self.market)
        )


def _joined(first: Placed | None, more: Placed | None) -> Placed | None:
    if first is None or more is None:
        return first or more
    return Placed(places=(*first.places, *more.places), bought=(*first.bought, *more.bought))
