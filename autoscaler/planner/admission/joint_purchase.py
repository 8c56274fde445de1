"""One purchase for all gangs that may be bought for together; within limits, for as many as there is room for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.planner.admission.demands import HOMELESS
from autoscaler.planner.admission.gang_by_gang import Found, GangByGang
from autoscaler.planner.admission.limited_admission import LimitedAdmission
from autoscaler.planner.admission.wait_or_buy import Wait
from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds, put_jointly
from autoscaler.planner.cutting_stock.cutting_plan import PartialPurchase
from autoscaler.planner.cutting_stock.joint_packing import Pool, Proof
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.placement.gang_packing import Placed
from autoscaler.planner.placement.offerings import CENT, Market
from autoscaler.planner.supply.candidate_nodes import Place, Shape
from autoscaler.solver.column_pool import ColumnPool


@dataclass(frozen=True, slots=True)
class _Served:
    """What came of some gangs."""

    asked: set[str]
    """Their names."""
    placed: Found
    waits: dict[str, Wait]
    proof: Proof
    purchase: PartialPurchase | None
    """What was bought for all at once, to be bought again without another search."""
    known: ColumnPool | None
    """Fillings that are good within limits."""

    @property
    def usd(self) -> float:
        """Dollars per hour of what was bought."""
        return sum(placed.usd for placed in self.placed.values() if placed is not None)

    def is_better_than(self, other: _Served) -> bool:
        """Whether it places a gang that the other leaves out, or the same ones for less."""
        mine, others = self.placed_gangs, other.placed_gangs
        return self.usd < other.usd - CENT if mine == others else not mine < others

    @property
    def placed_gangs(self) -> set[str]:
        """Names of those that have places."""
        return {name for name, placed in self.placed.items() if placed is not None}

    @property
    def is_free(self) -> bool:
        """Whether all of them have places that cost nothing more."""
        return not self.usd and all(self.placed.values())

    @property
    def homes(self) -> dict[str, Place]:
        """Pod key -> its place."""
        return {key: place for placed in self.placed.values() if placed is not None for key, place in placed.places}


@dataclass(frozen=True, slots=True)
class JointPurchase:
    """Buys for some of the gangs jointly; the others are served in turn beside them."""

    turns: GangByGang
    limits: SearchLimits
    settled: Mapping[str, Placed]
    """Gangs that have their places already, by name."""
    pooled: frozenset[str]
    """Names of those that are bought for together."""
    proofs: list[Proof]
    """What is proven of a purchase is added to these."""

    @property
    def _market(self) -> Market:
        return self.turns.market

    def serve(self, gangs: Sequence[Gang]) -> tuple[Found, dict[str, Wait]] | None:
        """All of these; where limits leave some out, those that there is room for together, and the others in turn.

        ``None``: not even one can be bought for. The snapshot is as it was then.
        """
        whole = self._attempt(gangs)
        if whole is not None:
            self.proofs.append(whole.proof)
            return whole.placed, whole.waits
        start = self._market.snapshot.mark()
        is_asked = self.limits.first is not None and not self._put_jointly(gangs, within_limits=True)
        parts = self._parts(gangs)
        if len(parts) > 1 and is_asked and self._are_far_from_proven(parts):
            self._market.snapshot.undo(start)
            parts = self._merged(gangs, parts)
        if not parts:
            return None
        found, waits = Found(), dict[str, Wait]()
        for part in parts:
            self.proofs.append(part.proof)
            found, waits = found | part.placed, waits | part.waits
        rest = [gang for gang in gangs if not any(gang.name in part.asked for part in parts)]
        more, later = self.turns.serve(rest, self.settled, goes_on=True)
        return found | more, waits | later

    def _parts(self, gangs: Sequence[Gang], *, first: _Served | None = None) -> list[_Served]:
        """Within limits, one purchase after the other: what is left after one may do for some of the others."""
        parts: list[_Served] = []
        for _ in range(self.limits.turns_within_limits):
            part = first if first and not parts else self._within_limits(gangs, goes_on=bool(parts))
            if part is None:
                break
            parts.append(part)
            gangs = [gang for gang in gangs if gang.name not in part.asked]
        return parts

    def _are_far_from_proven(self, parts: Sequence[_Served]) -> bool:
        """Whether what is proven of one of several purchases says little of all of them.

        Where pods have places that cost nothing more it is left: a search for all at once begins without these.
        """
        usd, proven = sum(part.usd for part in parts), max(part.proof.usd for part in parts)
        return usd > proven * (1 + self.limits.near) and all(place.price for place in _homes(parts).values())

    def _merged(self, gangs: Sequence[Gang], parts: Sequence[_Served]) -> list[_Served]:
        """Buys at once for all that were bought for in parts, where that is cheaper; else in parts again, so proven.

        The search begins with what was found.
        """
        start, homes = self._market.snapshot.mark(), _homes(parts)
        placed = {name for part in parts for name in part.placed_gangs}
        now = [gang for gang in gangs if gang.name in placed]
        found = self._purchase(now, goes_on=False, known=parts[0].known, begun=homes)
        if found is not None and found.placed_gangs == placed:
            if found.usd < sum(part.usd for part in parts) - CENT:
                return [found]
            self.proofs.append(found.proof)
        self._market.snapshot.undo(start)
        first = [gang for gang in gangs if gang.name in parts[0].asked]
        return self._parts(
            gangs, first=self._purchase(first, goes_on=False, known=parts[0].known, partial=parts[0].purchase)
        )

    def _within_limits(self, gangs: Sequence[Gang], *, goes_on: bool) -> _Served | None:
        """What came of those asked now: of those that are pooled, those with room.

        Gangs that are placed one by one are asked only where no gang before them was refused.
        """
        for _ in range(2):
            wanted, admission = self._admission(gangs, goes_on=goes_on)
            unlikely = set(wanted) - {wanted[one] for one in admission.served(0.0)}
            refused = next((n for n, gang in enumerate(gangs) if gang.name in unlikely), None)
            if refused is None or all(gang.name in self.pooled for gang in gangs[refused:]):
                break
            gangs = [gang for n, gang in enumerate(gangs) if n < refused or gang.name in self.pooled]
        for part in self.limits.kept_back:
            left_out = set(wanted) - {wanted[one] for one in admission.served(part)}
            now = [gang for gang in gangs if gang.name not in left_out]
            if left_out == set(wanted):
                return None
            found = self._attempt(now, goes_on=goes_on, known=admission.known)
            if found is not None:
                return found
        return None

    def _admission(self, gangs: Sequence[Gang], *, goes_on: bool) -> tuple[list[str], LimitedAdmission]:
        """The gangs that want new nodes, by name, and which of them are served. The snapshot stays as it is."""
        start = self._market.snapshot.mark()
        pool = Pool(self._market, self.limits, jointly=self._put_jointly(gangs, within_limits=True))
        self.turns.serve(gangs, self.settled, pool=pool, pooled=self.pooled, goes_on=goes_on)
        pool.complete()
        names = [name for name, shapes in pool.wanted.items() if shapes]
        times = self.limits.work_of_admission * (self.limits.work_of_later_turns if goes_on else 1.0)
        wanted = [pool.wanted[name] for name in names]
        admission = LimitedAdmission(wanted, pool.problem(), self.limits, times=times)
        self._market.snapshot.undo(start)
        return names, admission

    def _attempt(
        self, gangs: Sequence[Gang], *, goes_on: bool = False, known: ColumnPool | None = None
    ) -> _Served | None:
        """Serves these gangs, those that are pooled jointly; returns ``None``, and leaves no trace, if that fails.

        ``known``: fillings for a purchase within limits, where a few gangs may be left out. Where there are places that
        cost nothing more, the cheaper is kept of filling them first and of filling them in the same problem.
        """
        within_limits = known is not None
        times = self.limits.work_of_later_turns if within_limits and goes_on else 1.0
        fit = not within_limits and self._fit_at_once(gangs)
        jointly = frozenset() if fit else self._put_jointly(gangs, within_limits=within_limits)
        if not jointly:
            return self._purchase(gangs, goes_on=goes_on, known=known, times=times)
        return self._cheaper_purchase(gangs, jointly, goes_on=goes_on, known=known, times=times)

    def _cheaper_purchase(
        self, gangs: Sequence[Gang], jointly: frozenset[Shape], *, goes_on: bool, known: ColumnPool | None, times: float
    ) -> _Served | None:
        """The cheaper of filling first what costs nothing more and of filling it in the same problem.

        The latter can begin with the former, and do better, unless rules between pods concern some.
        """
        start, alone = self._market.snapshot.mark(), all(map(self._market.snapshot.stands_alone, self._shapes(gangs)))
        less = times * (self.limits.work_otherwise if alone else 1.0)
        first = self._purchase(gangs, goes_on=goes_on, known=known, times=less)
        if first is not None and first.is_free:
            return first
        self._market.snapshot.undo(start)
        begun = first.homes if first is not None else {}
        at_once = self._at_once(gangs, jointly, begun, goes_on=goes_on, known=known, times=times)
        if first is None or (at_once is not None and at_once.is_better_than(first)):
            return at_once
        self._market.snapshot.undo(start)
        served = [gang for gang in gangs if gang.name in first.asked]
        again = self._purchase(served, goes_on=goes_on, known=known, times=less, partial=first.purchase)
        if again is None or at_once is None or not at_once.proof.usd or at_once.asked != again.asked:
            return again
        return replace(again, proof=self._proof(again, at_once.proof))

    def _at_once(
        self,
        gangs: Sequence[Gang],
        jointly: frozenset[Shape],
        begun: Mapping[str, Place],
        *,
        goes_on: bool,
        known: ColumnPool | None,
        times: float,
    ) -> _Served | None:
        """Filled in the same problem; where not all pods have room that standing places alone hold, these go first."""
        found = self._purchase(gangs, goes_on=goes_on, known=known, jointly=jointly, times=times, begun=begun)
        offered = frozenset(filter(self._market.offers, jointly))
        if found is None and offered and offered != jointly:
            return self._purchase(gangs, goes_on=goes_on, known=known, jointly=offered, times=times, begun=begun)
        return found

    def _fit_at_once(self, gangs: Iterable[Gang]) -> bool:
        """Whether few pods are asked about, all pooled, that find room in turn on nodes that stand.

        The kinds of these nodes need not be known then.
        """
        asked = [gang for gang in gangs if gang.name not in self.settled]
        pods = [item for gang in asked for item in self.turns.demands.of(gang).ranked]
        if len(pods) > self.limits.tried_at_once or not all(gang.name in self.pooled for gang in asked):
            return False
        snapshot, start = self._market.snapshot, self._market.snapshot.mark()
        placed = 0
        for key, shape in pods:
            place = snapshot.find(shape)
            if place is None:
                break
            snapshot.put(shape, place, key)
            placed += 1
        snapshot.undo(start)
        return placed == len(pods)

    def _put_jointly(self, gangs: Iterable[Gang], *, within_limits: bool = False) -> frozenset[Shape]:
        """Shapes of pods that are put on places that cost nothing more in the same problem as nodes are bought in.

        ``within_limits``: all or none, for pods of other shapes are put there before, whichever come first.
        """
        shapes = self._shapes(gangs)
        found = put_jointly(shapes, self._market)
        if not found or (within_limits and found != shapes):
            return frozenset()
        there = AtHandKinds.of(found, self._market, most=self.limits.at_hand_kinds)
        return found if there is not None else frozenset()

    def _shapes(self, gangs: Iterable[Gang]) -> set[Shape]:
        """Returns the shapes of the pods that are bought for jointly."""
        return {shape for gang in gangs if gang.name in self.pooled for _, shape in self.turns.demands.of(gang).pods}

    def _purchase(
        self,
        gangs: Sequence[Gang],
        *,
        goes_on: bool,
        known: ColumnPool | None = None,
        jointly: frozenset[Shape] = frozenset(),
        times: float = 1.0,
        partial: PartialPurchase | None = None,
        begun: Mapping[str, Place] = HOMELESS,
    ) -> _Served | None:
        """Buys as ``_attempt`` says, in one way. ``times``: as much work as usual. ``partial``: found for these before.

        ``begun``: by pod its place as found in another way, for the search to begin with.
        """
        start, binding = self._market.snapshot.mark(), known is not None
        for _ in range(2 if binding else 1):
            pool = Pool(
                self._market,
                self.limits,
                partial=partial,
                known=known,
                begun=begun,
                jointly=jointly,
                times=times,
            )
            placed, waits = self.turns.serve(gangs, self.settled, pool=pool, pooled=self.pooled, goes_on=goes_on)
            pool.complete()
            if pool.buy(binding=binding):
                both = placed | pool.found()
                in_turn = {gang.name: both[gang.name] for gang in gangs if gang.name in both}
                return _Served({gang.name for gang in gangs}, in_turn, waits, pool.proof(), pool.bought, known)
            self._market.snapshot.undo(start)
            partial, left_out = pool.partial, pool.last_left()
            if partial is None or len(left_out) > self.limits.left_out * len(pool.demands):
                return None
            gangs = [gang for gang in gangs if gang.name not in left_out]
        return None

    def _proof(self, served: _Served, other: Proof) -> Proof:
        """What another purchase for the same pods has proven, for which all that is at hand could be had as well."""
        found = [placed for name, placed in served.placed.items() if name in self.pooled and placed is not None]
        at_hand = frozenset(key for placed in found for key, place in placed.places if not place.price)
        return Proof(other.usd, at_hand, sum(placed.usd for placed in found))


def _homes(parts: Iterable[_Served]) -> dict[str, Place]:
    return {key: place for part in parts for key, place in part.homes.items()}
