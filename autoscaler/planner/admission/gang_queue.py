"""Whose turn it is: gangs that were planned before, then the others by priority and age; then as the scheduler has it.

What was bought for a gang, or is kept for it, stays its own while its pods wait for it: no gang that was refused a
moment ago takes it from them, to have it bought again. Where a gang of higher priority would find no place that way,
all are served in strict order. A gang that has fewer pods than it may have grows when it is its turn again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from autoscaler.planner.admission.limited_admission import LimitedAdmission
from autoscaler.planner.admission.wait_or_buy import Patience, Wait
from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds
from autoscaler.planner.cutting_stock.cutting_problem import PartialPurchase
from autoscaler.planner.cutting_stock.joint_packing import Pool, Proof
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
    still_to_come,
    taken_from_others,
)
from autoscaler.planner.placement.offerings import CENT, Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place, Shape
from autoscaler.solver.column_pool import ColumnPool

_HOMELESS: Final[Mapping[str, Place]] = MappingProxyType({})
_Found = dict[str, Placed | None]
_Refused = dict[object, tuple[int, Wait | None]]
"""What pods alike were told, and how many fresh nodes were in use then."""


@dataclass(frozen=True, slots=True)
class _Served:
    """What came of some gangs."""

    asked: set[str]
    """Their names."""
    placed: _Found
    waits: dict[str, Wait]
    proof: Proof
    purchase: PartialPurchase | None
    """What was bought for all at once, to be bought again without another search."""

    @property
    def usd(self) -> float:
        """Dollars per hour of what was bought."""
        return sum(placed.usd for placed in self.placed.values() if placed is not None)

    @property
    def homes(self) -> dict[str, Place]:
        """Pod key -> its place."""
        return {key: place for placed in self.placed.values() if placed is not None for key, place in placed.places}


def _proof(served: _Served, pooled: frozenset[str], other: Proof) -> Proof:
    """What another purchase for the same pods has proven, for which all that is at hand could be had as well."""
    found = [placed for name, placed in served.placed.items() if name in pooled and placed is not None]
    at_hand = frozenset(key for placed in found for key, place in placed.places if not place.price)
    return Proof(other.usd, at_hand, sum(placed.usd for placed in found))


@dataclass(frozen=True, slots=True)
class GangQueue:
    """Gangs, the first to be served first, and what they are served from."""

    gangs: Sequence[Gang]
    market: Market
    patience: Patience
    homes: Mapping[str, Place]
    """Pod key -> where it was planned before."""
    limits: SearchLimits
    _demands: dict[str, Demand] = field(default_factory=dict)
    """By name of the gang."""
    _proofs: list[Proof] = field(default_factory=list)

    @property
    def proof(self) -> Proof:
        """Of what was bought together, the one that says most."""
        return max(self._proofs, key=lambda proof: proof.usd, default=Proof())

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Of every pod, by key."""
        return {key: shape for gang in self.gangs for key, shape in self._demand(gang).pods}

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
            more, later = self._each([one for one in self.gangs if one.name in asked | partly.keys()], partly)
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
                demand = self._demand(gang)
                if not demand.assignments or gang.name in found:
                    continue
                placed = as_assigned(demand, self.market, completes=completes)
                if placed is not None:
                    found[gang.name] = placed
        return found

    def _could_be_placed(self, gang: Gang) -> bool:
        mark = self.market.snapshot.mark()
        placed = pack([self._demand(gang)], self.market).placed[gang.name]
        self.market.snapshot.undo(mark)
        return placed is not None

    def _after(self, settled: Mapping[str, Placed]) -> tuple[Packing, dict[str, Wait]]:
        """The others: those that may be, together; where that fails, those about which nothing but room decides.

        All in turn where nothing can be bought for any of these.
        """
        tried = frozenset[str]()
        for may_be_bought in (may_be_bought_jointly, may_be_pooled):
            pooled = self._pooled(settled, may_be_bought)
            found = self._together(settled, pooled) if pooled and pooled != tried else None
            if found is not None:
                more, waits = found
                return self._packing(settled, more), waits
            tried = pooled
        placed, waits = self._each(self.gangs, settled)
        return self._packing(settled, placed), waits

    def _packing(self, settled: Mapping[str, Placed], more: _Found) -> Packing:
        """Of both, in the order in which they were served, in which the scheduler may bind them."""
        return packing_of({name: _joined(settled.get(name), more.get(name)) for name in (*settled, *more)})

    def _pooled(self, settled: Mapping[str, Placed], may_be_bought: Callable[[Demand, Market], bool]) -> frozenset[str]:
        """Names of the gangs that are bought for together, before any other is."""
        return frozenset(
            gang.name
            for gang in self.gangs
            if gang.name not in settled
            and not self._is_patient(gang)
            and not self.patience.ban(gang)
            and may_be_bought(self._demand(gang), self.market)
        )

    def _together(self, settled: Mapping[str, Placed], pooled: frozenset[str]) -> tuple[_Found, dict[str, Wait]] | None:
        """All of them; where limits leave some out, those that there is room for together, and the others in turn.

        ``None``: not even one can be bought for. The snapshot is as it was then.
        """
        whole = self._attempt(self.gangs, settled, pooled)
        if whole is not None:
            self._proofs.append(whole.proof)
            return whole.placed, whole.waits
        found, waits = _Found(), dict[str, Wait]()
        rest = list(self.gangs)
        for _ in range(self.limits.turns_within_limits):
            part = self._within_limits(rest, settled, pooled, goes_on=bool(found))
            if part is None:
                break
            self._proofs.append(part.proof)
            found, waits = found | part.placed, waits | part.waits
            rest = [gang for gang in rest if gang.name not in part.asked]
        if not found:
            return None
        more, later = self._each(rest, settled, goes_on=True)
        return found | more, waits | later

    def _within_limits(
        self, gangs: Sequence[Gang], settled: Mapping[str, Placed], pooled: frozenset[str], *, goes_on: bool
    ) -> _Served | None:
        """What came of those asked now: of those that are pooled, those with room.

        Gangs that are placed one by one are asked only where no gang before them was refused.
        """
        for _ in range(2):
            wanted, admission = self._admission(gangs, settled, pooled, goes_on=goes_on)
            unlikely = set(wanted) - {wanted[one] for one in admission.served(0.0)}
            refused = next((n for n, gang in enumerate(gangs) if gang.name in unlikely), None)
            if refused is None or all(gang.name in pooled for gang in gangs[refused:]):
                break
            gangs = [gang for n, gang in enumerate(gangs) if n < refused or gang.name in pooled]
        for part in self.limits.kept_back:
            left_out = set(wanted) - {wanted[one] for one in admission.served(part)}
            now = [gang for gang in gangs if gang.name not in left_out]
            if left_out == set(wanted):
                return None
            found = self._attempt(now, settled, pooled, goes_on=goes_on, known=admission.known)
            if found is not None:
                return found
        return None

    def _admission(
        self, gangs: Sequence[Gang], settled: Mapping[str, Placed], pooled: frozenset[str], *, goes_on: bool
    ) -> tuple[list[str], LimitedAdmission]:
        """The gangs that want new nodes, by name, and which of them are served. The snapshot stays as it is."""
        start = self.market.snapshot.mark()
        pool = Pool(self.market, self.limits, fills_first=not self._has_few_kinds_at_hand(gangs, pooled))
        self._each(gangs, settled, pool=pool, pooled=pooled, goes_on=goes_on)
        pool.fill_kept()
        names = [name for name, shapes in pool.wanted.items() if shapes]
        times = self.limits.work_of_admission * (self.limits.work_of_later_turns if goes_on else 1.0)
        wanted = [pool.wanted[name] for name in names]
        admission = LimitedAdmission(wanted, pool.problem(), self.limits, times=times)
        self.market.snapshot.undo(start)
        return names, admission

    def _attempt(
        self,
        gangs: Sequence[Gang],
        settled: Mapping[str, Placed],
        pooled: frozenset[str],
        *,
        goes_on: bool = False,
        known: ColumnPool | None = None,
    ) -> _Served | None:
        """These gangs, those that are pooled bought for together; ``None``, and no trace, if that fails.

        ``known``: fillings for a purchase within limits, where a few gangs may be left out. Where there are places that
        cost nothing more, the cheaper is kept of filling them first and of filling them in the same problem.
        """
        jointly = not self._fit_at_once(gangs, settled, pooled) and self._has_few_kinds_at_hand(gangs, pooled)
        if known is not None:
            times = self.limits.work_of_later_turns if goes_on else 1.0
            return self._purchase(
                gangs, settled, pooled, goes_on=goes_on, known=known, fills_first=not jointly, times=times
            )
        if not jointly:
            return self._purchase(gangs, settled, pooled, goes_on=goes_on)
        return self._cheaper_purchase(gangs, settled, pooled, goes_on=goes_on)

    def _cheaper_purchase(
        self, gangs: Sequence[Gang], settled: Mapping[str, Placed], pooled: frozenset[str], *, goes_on: bool
    ) -> _Served | None:
        start, less = self.market.snapshot.mark(), self.limits.work_otherwise
        first = self._purchase(gangs, settled, pooled, goes_on=goes_on, times=less)
        if first is not None and not first.usd:
            return first
        self.market.snapshot.undo(start)
        begun = first.homes if first is not None else {}
        at_once = self._purchase(gangs, settled, pooled, goes_on=goes_on, fills_first=False, begun=begun)
        if first is None or (at_once is not None and at_once.usd < first.usd - CENT):
            return at_once
        self.market.snapshot.undo(start)
        again = self._purchase(gangs, settled, pooled, goes_on=goes_on, times=less, partial=first.purchase)
        return again if again is None or at_once is None else replace(again, proof=_proof(again, pooled, at_once.proof))

    def _fit_at_once(self, gangs: Iterable[Gang], settled: Collection[str], pooled: Collection[str]) -> bool:
        """Whether few pods are asked about, all pooled, that find room in turn on nodes that stand.

        The kinds of these nodes need not be known then.
        """
        asked = [gang for gang in gangs if gang.name not in settled]
        pods = [item for gang in asked for item in self._demand(gang).ranked]
        if len(pods) > self.limits.tried_at_once or not all(gang.name in pooled for gang in asked):
            return False
        snapshot, start = self.market.snapshot, self.market.snapshot.mark()
        placed = 0
        for key, shape in pods:
            place = snapshot.find(shape)
            if place is None:
                break
            snapshot.put(shape, place, key)
            placed += 1
        snapshot.undo(start)
        return placed == len(pods)

    def _has_few_kinds_at_hand(self, gangs: Iterable[Gang], pooled: frozenset[str]) -> bool:
        shapes = {shape for gang in gangs if gang.name in pooled for _, shape in self._demand(gang).pods}
        if not all(map(self.market.snapshot.stands_alone, shapes)):
            return False
        return AtHandKinds.of(shapes, self.market, most=self.limits.at_hand_kinds) is not None

    def _purchase(
        self,
        gangs: Sequence[Gang],
        settled: Mapping[str, Placed],
        pooled: frozenset[str],
        *,
        goes_on: bool,
        known: ColumnPool | None = None,
        fills_first: bool = True,
        times: float = 1.0,
        partial: PartialPurchase | None = None,
        begun: Mapping[str, Place] = _HOMELESS,
    ) -> _Served | None:
        """As in ``_attempt``, in one way. ``times``: as much work as usual. ``partial``: found for these before.

        ``begun``: by pod its place as found in another way, for the search to begin with.
        """
        start, binding = self.market.snapshot.mark(), known is not None
        for _ in range(2 if binding else 1):
            pool = Pool(
                self.market,
                self.limits,
                partial=partial,
                known=known,
                begun=begun,
                fills_first=fills_first,
                times=times,
            )
            placed, waits = self._each(gangs, settled, pool=pool, pooled=pooled, goes_on=goes_on)
            pool.fill_kept()
            if pool.buy(binding=binding):
                both = placed | pool.found()
                in_turn = {gang.name: both[gang.name] for gang in gangs if gang.name in both}
                return _Served({gang.name for gang in gangs}, in_turn, waits, pool.proof(), pool.bought)
            self.market.snapshot.undo(start)
            partial, left_out = pool.partial, pool.last_left()
            if partial is None or len(left_out) > self.limits.left_out * len(pool.demands):
                return None
            gangs = [gang for gang in gangs if gang.name not in left_out]
        return None

    def _is_patient(self, gang: Gang) -> bool:
        return gang.oldest + self.patience.of(gang) > self.patience.now

    def _each(
        self,
        gangs: Iterable[Gang],
        settled: Mapping[str, Placed],
        *,
        pool: Pool | None = None,
        pooled: Collection[str] = (),
        goes_on: bool = False,
    ) -> tuple[_Found, dict[str, Wait]]:
        """Each gang in turn: placed, bought for, or left to wait for machines that we own; the settled ones grow.

        ``pool`` takes those that are ``pooled``, unless one of their pods fits nowhere. ``goes_on``: gangs before these
        have been served.
        """
        placed, waits = _Found(), dict[str, Wait]()
        refused: _Refused = {}
        if not goes_on:
            self.patience.forget()
        for gang in gangs:
            if pool is not None and gang.name in pooled:
                if pool.take(self._demand(gang)):
                    continue
                if may_be_pooled(self._demand(gang), self.market):
                    placed[gang.name] = None
                    continue
            demand = self._demand(gang)
            if gang.name in settled:
                demand = still_to_come(demand, settled[gang.name])
                if not demand.pods:
                    continue
            may_wait = bool(self.patience.ban(gang)) or (gang.name not in settled and self._is_patient(gang))
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

    def _demand(self, gang: Gang) -> Demand:
        known = self._demands.get(gang.name)
        if known is None:
            known = self._demands[gang.name] = demand_of(gang, self.market.snapshot, self.homes)
        return known


def demand_of(gang: Gang, snapshot: Snapshot, homes: Mapping[str, Place] = _HOMELESS) -> Demand:
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


def _joined(first: Placed | None, more: Placed | None) -> Placed | None:
    if first is None or more is None:
        return first or more
    return Placed(places=(*first.places, *more.places), bought=(*first.bought, *more.bought))


def _common_ground(gang: Gang) -> str | None:
    """The topology key by which all its pods must be near to each other, if there is one."""
    keys = [{term.topology_key for term in pod.near_to} for pod in gang.waiting]
    common = set.intersection(*keys) if keys else set()
    return min(common) if common and len(gang.waiting) > 1 else None
