"""Pods and the nodes that may be had for them as a cutting-stock problem, in the words of :mod:`autoscaler.solver`.

A row is for pods that want the same: a shape, in a zone where rules between pods have decided on one. Pods that keep
their like off their node take an *exclusive place*, of which every node has one.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add, floordiv

from autoscaler.model.labels import GPU
from autoscaler.model.resources import ATTACHMENTS, CPU, MEMORY, PODS
from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds
from autoscaler.planner.cutting_stock.clustered_packing import SizeClusters
from autoscaler.planner.cutting_stock.cutting_plan import PartialPurchase, Purchase, Want
from autoscaler.planner.cutting_stock.feasible_kinds import FeasibleKinds
from autoscaler.planner.cutting_stock.host_rules import HostRules
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.cutting_stock.zone_aggregation import ZoneAggregation
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Shape
from autoscaler.solver.column_pool import ColumnPool
from autoscaler.solver.problem import Kind, Limit
from autoscaler.solver.problem import Shape as Row
from autoscaler.solver.solution import Answer, Nodes
from autoscaler.solver.solve import cheapest, lower_bound

_MEBI = 2**20
_FREE = 1e-6
"""The solver wants a price of everything."""
_ROUNDING = 1e-9


@dataclass(slots=True)
class CuttingProblem:
    """Pods by shape and the nodes that may be had, in the solver's words."""

    market: Market
    wants: list[Want]
    names: tuple[str, ...]
    """Of resources, in the order of the vectors."""
    kinds: list[Kind]
    feasible: FeasibleKinds
    rules: HostRules
    free: frozenset[str] = frozenset()
    """Kinds that cost nothing more."""
    admitting: Mapping[Shape, frozenset[str]] = field(default_factory=dict)
    """Those of them that pods may join which rules between pods concern; pods of other such shapes join none."""
    zones: ZoneAggregation | None = None
    """``None``: each zone has kinds of its own."""
    rows: list[Row] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)

    def vectors(
        self, several: Iterable[Mapping[str, int]], *, up: bool, exclusive: tuple[int, ...]
    ) -> list[tuple[int, ...]]:
        """Amounts in the solver's units, rounded ``up`` or down, and of each exclusive place so many."""
        units, nothing = list(map(_unit, self.names)), [0] * len(self.names)
        found = [tuple(map(max, map(one.get, self.names, nothing), nothing)) for one in several]
        if up:
            found = [tuple(map(add, one, [unit - 1 for unit in units])) for one in found]
        return [(*map(floordiv, one, units), *exclusive) for one in found]

    def row(self, want: Want, many: int, *, also: str = "") -> Row:
        """Returns the row of so many pods that want the same. ``also``: a kind of node that lets every pod in."""
        [vector] = self.vectors([dict(want.shape.amounts)], up=True, exclusive=self.rules.needs(want.shape))
        if self.zones is not None:
            return Row(vector, many, self.feasible.of(Want(want.shape, "")), part=want.zone)
        feasible = self.feasible.of(want)
        if self.free and not self.market.snapshot.stands_alone(want.shape):
            feasible = frozenset(kind.name for kind in self.kinds) if feasible is None else feasible
            feasible -= self.free - self.admitting.get(want.shape, frozenset())
        if also and feasible is not None:
            feasible |= {also}
        return Row(vector, many, feasible)

    def alike(self) -> dict[Want, int]:
        """The number of a want's row: pods of one may take places of each other's."""
        numbers: dict[object, int] = {}
        return {
            want: numbers.setdefault((row.amounts, row.kinds, row.part), len(numbers))
            for want, row in zip(self.wants, self.rows, strict=True)
        }

    def _offering(self, lot: Nodes) -> str:
        return lot.kind if self.zones is None else self.zones.names[lot.kind][lot.part]

    def _answer(
        self,
        rows: Sequence[Row],
        limits: SearchLimits,
        *,
        binding: bool,
        known: ColumnPool | None,
        begun: Sequence[Nodes],
        times: float,
    ) -> Answer:
        """Solves with little work first, and with more where that leaves something to be found."""
        size = sum(row.count for row in rows), len({(row.amounts, row.kinds) for row in rows})
        at_hand = bool(self.free)
        is_proven = times >= 1 and not at_hand
        once = any(row.members is not None for row in rows)
        works = limits.works_for(*size, times=times, at_hand=at_hand, binding=binding, once=once)
        search = functools.partial(
            cheapest,
            rows,
            self.kinds,
            limits=self.limits if binding else [],
            known=known,
            rounds=limits.rounds,
            neighbourhoods=limits.neighbourhoods_at_hand if at_hand else round(times * limits.neighbourhoods),
            enumerated=limits.work_enumerated if at_hand else 1.0,
            near=limits.near if is_proven else math.inf,
            effort=limits.effort_of_whole_proof if is_proven else 0.0,
        )
        proofs = (limits.work_of_proof, limits.more_work_of_proof)
        first, last = (0, 0) if once else limits.repacked_if_far(size[0], times=times, at_hand=at_hand)
        answer = search(begun=begun, deadline=works[0], proof=proofs[0])
        for work in works[1:]:
            answer = self._repacked(answer, limits, rounds=first)
            if limits.is_enough(answer, at_hand=at_hand):
                return answer
            better = begun if any(answer.left) else answer.nodes
            answer = answer.or_better(search(begun=better, deadline=work, proof=proofs[1]))
        return self._repacked(answer, limits, rounds=last)

    def _repacked(self, answer: Answer, limits: SearchLimits, *, rounds: int) -> Answer:
        """The same pods on nodes that cost less, if packing them anew finds any, where it is far above its bound."""
        if not rounds or any(answer.left) or not limits.is_far(answer, at_hand=bool(self.free)):
            return answer
        nodes = self._packed_anew(SizeClusters.each(self.rows), answer.nodes, answer, rounds=rounds)
        usd_of = {kind.name: kind.usd for kind in self.kinds}
        return answer.or_better(
            replace(answer, nodes=tuple(nodes), usd=sum(usd_of[one.kind] * one.times for one in nodes))
        )

    def _packed_anew(
        self, clusters: SizeClusters, nodes: Sequence[Nodes], answer: Answer, *, rounds: int
    ) -> Sequence[Nodes]:
        """The same pods, those on bought nodes packed anew; as they were where that takes more than a limit leaves."""
        bought = [kind for kind in self.kinds if kind.name not in self.free]
        better = clusters.repacked(nodes, answer, bought, self.limits, rounds=rounds)
        return nodes if self._exceeds(better) else better

    def _exceeds(self, nodes: Iterable[Nodes]) -> bool:
        """Whether these take more of a limit than there is."""
        many = Counter[str]()
        for lot in nodes:
            many[lot.kind] += lot.times
        return any(
            sum(limit.uses.get(kind, 0.0) * times for kind, times in many.items()) > limit.most + _ROUNDING
            for limit in self.limits
        )

    def _is_hopeless(self, rows: Sequence[Row], limits: SearchLimits) -> bool:
        """Whether what is scarce leaves no nodes for all pods: they would cost more than if each had a node."""
        pods = sum(row.count for row in rows)
        is_scarce = bool(self.limits) or all(kind.available is not None for kind in self.kinds)
        if not is_scarce or pods < limits.asked_whether_all:
            return False
        return lower_bound(rows, self.kinds, self.limits) > pods * max(kind.usd for kind in self.kinds)

    def nodes_of(self, contents: Iterable[tuple[str, Mapping[Want, int]]]) -> list[Nodes]:
        """Nodes of these kinds with these pods, in the solver's words."""
        number_of = {want: number for number, want in enumerate(self.wants)}
        return [
            Nodes(kind, 1, tuple((number_of[want], many) for want, many in held.items())) for kind, held in contents
        ]

    def solved(
        self,
        limits: SearchLimits,
        *,
        binding: bool,
        known: ColumnPool | None = None,
        begun: Sequence[Nodes] = (),
        times: float = 1.0,
    ) -> PartialPurchase | None:
        """The cheapest nodes found; ``None`` where these exceed a limit, or all nodes for so many pods are proven to.

        ``binding``: searched for within limits, and some pods may be left. ``begun``: a plan to begin with.
        ``times``: as much work as usual.
        """
        clusters = SizeClusters.of(self.rows)
        rows = clusters.shapes if clusters is not None else self.rows
        if not binding and self._is_hopeless(rows, limits):
            return None
        begun = begun if clusters is None else ()
        answer = self._answer(rows, limits, binding=binding, known=known, begun=begun, times=times)
        members = (clusters or SizeClusters.each(self.rows)).members
        left = tuple(
            (frozenset(self.wants[one] for one in several.tolist()), many)
            for several, many in zip(members, answer.left, strict=True)
            if many
        )
        nodes: Sequence[Nodes] = answer.nodes if clusters is None else clusters.seated(answer, self.kinds)
        rounds = 0 if binding or left else limits.repacked(sum(row.count for row in rows), times=times)
        if clusters is not None and answer.worths and rounds:
            nodes = self._packed_anew(clusters, nodes, answer, rounds=rounds)
        if self._exceeds(nodes):
            return None
        nodes = nodes if self.zones is not None else self._of_first_kinds(nodes)
        purchases = tuple(
            Purchase(self._offering(lot), lot.times, tuple((self.wants[number], many) for number, many in lot.pods))
            for lot in sorted(nodes, key=lambda lot: lot.kind not in self.free)
        )
        is_bound = self.zones is not None or not any(want.zone for want in self.wants)
        return PartialPurchase(purchases, left, answer.lower_bound if is_bound else 0.0)

    def _of_first_kinds(self, nodes: Sequence[Nodes]) -> Sequence[Nodes]:
        """The same nodes, of kinds alike those that come first in the market's order: what has failed of late last.

        Of two kinds that cost the same the solver takes either.
        """
        alike = defaultdict[float, list[Kind]](list)
        for kind in self.kinds:
            alike[kind.usd].append(kind)
        known = {kind.name: kind for kind in self.kinds}
        choices = [
            (lot, [one for one in alike[known[lot.kind].usd] if self._may_replace(lot, known[lot.kind], one)])
            if lot.kind not in self.free
            else (lot, [known[lot.kind]])
            for lot in nodes
        ]
        many = sum(lot.times for lot in nodes)
        left = {kind.name: many if kind.available is None else kind.available for kind in self.kinds}
        found = list[Nodes]()
        for lot, kinds in sorted(choices, key=lambda choice: len(choice[1])):
            times = lot.times
            for kind in kinds:
                now = min(times, left[kind.name])
                if now:
                    found.append(replace(lot, kind=kind.name, times=now))
                    left[kind.name], times = left[kind.name] - now, times - now
            if times:
                return nodes
        return found

    def _may_replace(self, lot: Nodes, kind: Kind, other: Kind) -> bool:
        """Whether nodes of the other kind, which cost the same, hold the lot's pods and take no more of any limit."""
        if kind is other:
            return True
        feasible = [self.rows[number].kinds for number, _ in lot.pods]
        return (
            other.amounts == kind.amounts
            and all(names is None or other.name in names for names in feasible)
            and all(limit.uses.get(other.name, 0.0) <= limit.uses.get(kind.name, 0.0) for limit in self.limits)
        )


def rules_between(counts: Mapping[Want, int]) -> HostRules:
    """Returns the rules by host between so many pods that want the same."""
    shapes = Counter[Shape]()
    for want, many in counts.items():
        shapes[want.shape] += many
    return HostRules(shapes)


def cutting_problem(
    counts: Mapping[Want, int],
    market: Market,
    *,
    limited: bool = True,
    there: AtHandKinds | None = None,
    rules: HostRules | None = None,
) -> CuttingProblem:
    """Makes the problem of so many pods. ``limited``: within all limits; else within none. ``there``: free places.

    ``rules``: between pods, also of others; without, those of these.
    """
    most = sum(counts.values())
    asked = {name for want in counts for name, _ in want.shape.amounts}
    buyable = {one.group.name: market.buyable(one) for one in market.offerings} if limited else {}
    offerings = {one.group.name: one for one in market.offerings if not limited or buyable[one.group.name]}
    samples = {name: market.sample(one) for name, one in offerings.items()}
    at_hand = there.places if there is not None else {}
    rules = rules or rules_between(counts)
    available = {
        name: market.ceilings.of_entry(one.group, buyable[name]) if limited else most for name, one in offerings.items()
    }
    shared = list(market.ceilings.shared([one.group for one in offerings.values()], most)) if limited else []
    endless = not (shared or at_hand) and all(many >= most for many in available.values())
    zones = ZoneAggregation.of(counts, offerings, samples) if endless else None
    if zones is not None:
        samples = {name: samples[name] for name in zones.names}
    problem = CuttingProblem(
        market=market,
        wants=list(counts),
        names=(CPU, MEMORY, GPU, PODS, *sorted(asked - {CPU, MEMORY, GPU, PODS})),
        kinds=[],
        free=frozenset(at_hand),
        admitting=there.admitting if there is not None else {},
        feasible=FeasibleKinds(market, samples | {name: places[0] for name, places in at_hand.items()}),
        rules=rules,
        zones=zones,
        limits=shared,
    )
    one_each = (1,) * len(rules.exclusive)
    rooms = problem.vectors([places[0].free for places in at_hand.values()], up=False, exclusive=one_each)
    for (name, places), room in zip(at_hand.items(), rooms, strict=True):
        problem.kinds.append(Kind(name, room, _FREE * (1 + places[0].tier), len(places)))
    names = list(offerings if problem.zones is None else problem.zones.names)
    rooms = problem.vectors([samples[name].free for name in names], up=not limited, exclusive=one_each)
    for name, room in zip(names, rooms, strict=True):
        many = available[name]
        problem.kinds.append(Kind(name, room, offerings[name].usd, None if many >= most else many))
    problem.rows = [problem.row(want, many) for want, many in counts.items()]
    return problem


def _unit(resource: str) -> int:
    """Bytes are counted in MiB: sizes in one problem should not be a billion apart."""
    counted = resource in (CPU, GPU, PODS) or "/" in resource or resource.startswith(ATTACHMENTS)
    return 1 if counted else _MEBI
