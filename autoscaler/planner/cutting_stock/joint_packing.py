"""Gangs that nothing but room decides about, bought for together: one call of the solver for all of them.

A pool takes gangs in the order in which they are served. What fits goes on nodes that are there at once; other pods are
kept by class (their :class:`Shape`). When all gangs have been asked, the pool buys for everything that is left in one
cutting-stock problem (:mod:`autoscaler.solver.solve`): every offering is a kind of node, what is left of the policy's
limits are limits. What is there already is given out first, in order: standing places, then idle nodes and those on
their way; or it is among the kinds of node, for pods of which it may be asked in one problem with the others.

How long the solver searches is counted in work, not in seconds: the same look gives the same plan on a slow machine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds
from autoscaler.planner.cutting_stock.cutting_plan import PartialPurchase, Want
from autoscaler.planner.cutting_stock.cutting_problem import CuttingProblem, cutting_problem, rules_between
from autoscaler.planner.cutting_stock.host_rules import HostRules
from autoscaler.planner.cutting_stock.idle_nodes import IdleNodes
from autoscaler.planner.cutting_stock.node_filling import NodeFilling
from autoscaler.planner.cutting_stock.search_limits import SearchLimits
from autoscaler.planner.cutting_stock.waiting_pods import WaitingPods
from autoscaler.planner.cutting_stock.zone_assignment import Zones
from autoscaler.planner.placement.gang_packing import Demand, Placed
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.supply.candidate_nodes import Place, Shape
from autoscaler.solver.column_pool import ColumnPool


@dataclass(frozen=True, slots=True)
class Proof:
    """What nodes for some pods cost at least."""

    usd: float = 0.0
    """Dollars per hour."""
    at_hand: frozenset[str] = frozenset()
    """Keys of the pods on places that cost nothing: it holds also if others of its pods have these places."""
    bought: float = 0.0
    """Dollars per hour of what was bought for them."""


@dataclass(slots=True)
class Pool:
    """Gangs to be bought for together."""

    market: Market
    limits: SearchLimits
    demands: list[Demand] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    """Pod key -> where it goes."""
    waiting: WaitingPods = field(default_factory=WaitingPods)
    """Pods for which nodes are wanted."""
    wanted: dict[str, Counter[Want]] = field(default_factory=dict)
    """By gang the pods for which nodes are wanted."""
    bound: float = 0.0
    """Dollars per hour that nodes for these pods cost at least."""
    partial: PartialPurchase | None = None
    """What was found, and not bought, for it leaves some out; given, it is bought for a pool without these."""
    bought: PartialPurchase | None = None
    """What was bought first."""
    known: ColumnPool | None = None
    """Fillings that were found before, for the search to begin with."""
    begun: Mapping[str, Place] = field(default_factory=dict)
    """Pod key -> where it goes by a plan that was made before, for the search to begin with."""
    jointly: frozenset[Shape] = frozenset()
    """Pods of these shapes are put on places that cost nothing more in the same problem as nodes are bought in; pods of
    other shapes are put there first, or bought for."""
    times: float = 1.0
    """As much work as usual."""
    _there: AtHandKinds | None = None
    _zones: Zones = field(init=False)
    _rules: HostRules | None = None
    _filling: NodeFilling = field(init=False)
    _full: set[int] = field(default_factory=set)
    """Numbers of the shapes for which no standing place has room."""
    _is_unproven: bool = False
    """Whether a pod had a place before it was known for how many nodes are to be bought, or rules concern it."""
    _opened: int = 0
    """How many fresh nodes there were when that was found."""
    _holdable: dict[int, bool] = field(default_factory=dict)
    _idle_nodes: IdleNodes | None = None

    def __post_init__(self) -> None:
        """Zones are given out with an eye on those that are there."""
        self._zones = Zones(self.market)
        self._filling = NodeFilling(self.market, self.waiting, self.places, self._zones, self.jointly, self._full)

    def take(self, demand: Demand) -> bool:
        """Put the gang's pods on standing places as far as there is room, and keep the others; ``False``: hopeless.

        Hopeless is a gang of which a pod fits on no standing place and on no kind of node that may be bought, or for
        which there is no zone.
        """
        snapshot, mark = self.market.snapshot, self.market.snapshot.mark()
        self._note_opened()
        placed: dict[str, Place] = {}
        rest: list[tuple[str, Want]] = []
        for key, shape in demand.ranked if len(demand.pods) > 1 else demand.pods:
            if shape in self.jointly and (self._is_holdable(shape) or snapshot.find(shape) is not None):
                rest.append((key, Want(shape, "")))
                continue
            place = self._at_hand(shape, self._idle()) if shape.number not in self._full else None
            if place is not None:
                snapshot.put(shape, place, key)
                placed[key] = place
                self._note_opened()
                continue
            self._full.add(shape.number)
            zone = self._zones.assign(shape) if self._is_holdable(shape) else None
            if zone is None:
                snapshot.undo(mark)
                self._full.clear()
                return False
            rest.append((key, Want(shape, zone)))
        self.demands.append(demand)
        self._is_unproven |= bool(placed) or not all(snapshot.stands_alone(want.shape) for _, want in rest)
        self.places |= placed
        self.wanted[demand.name] = Counter(want for _, want in rest)
        for key, want in rest:
            self.waiting.add(want, key)
        return True

    def complete(self) -> None:
        """All gangs have been asked: those at hand that are kept are filled, and zones given that no rule gives."""
        self._fill_kept()
        self._divide_among_zones()

    def _fill_kept(self) -> None:
        """Put pods on nodes at hand that others were planned on before: those were served without.

        Where all that is at hand is filled in the same problem as nodes are bought in, these nodes are among it.
        """
        idle = IdleNodes(self.market, kept=True)
        if self.jointly or not idle:
            return
        gang_of = self._gang_of()
        for want in self.waiting.counts:
            if want.zone or not self.market.snapshot.stands_alone(want.shape):
                continue
            keys = self.waiting.all(want)
            for key in keys[: self._filling.put_in_turn(want, keys, lambda shape: self._at_hand(shape, idle))]:
                self.wanted[gang_of[key]] -= Counter({want: 1})
        self._note_opened()

    def _gang_of(self) -> dict[str, str]:
        """Pod key -> name of its gang."""
        return {key: demand.name for demand in self.demands for key, _ in demand.pods}

    def _divide_among_zones(self) -> None:
        """Each pod but those that may go to any place at hand: the solver sees one kind for all zones then."""
        counts = {want: many for want, many in self.waiting.counts.items() if want.shape not in self.jointly}
        planned: Counter[Want] = Counter()
        for bought in self.partial.purchases if self.partial is not None else ():
            for want, many in bought.pods:
                planned[want] += many * bought.times
        divided = list(self._zones.divide(counts, planned))
        gang_of = self._gang_of() if divided else {}
        for want, zones in divided:
            keys = self.waiting.all(want)
            self.waiting.remove(want, keys)
            for key, zone in zip(keys, zones, strict=True):
                there = Want(want.shape, zone)
                self.waiting.add(there, key)
                self.wanted[gang_of[key]] += Counter({there: 1})
                self.wanted[gang_of[key]] -= Counter({want: 1})

    def buy(self, *, binding: bool = False) -> bool:
        """Whether there are nodes for all that wait; they are opened and filled then. Else the snapshot is left dirty.

        ``binding``: it is searched within the limits; else they are only looked at, and nothing is bought where the
        cheapest nodes exceed one. Of pods of many sizes some may be left at first: they go beside others, or are bought
        for once more.
        """
        rules = self._know_rules()
        for turn in range(self.limits.turns):
            if not self.waiting:
                return True
            found = (self.partial if not turn else None) or self._searched(binding=binding or bool(turn))
            if found is None or (found.left and found is not self.partial):
                self.partial = found
                return False
            if not turn:
                self.bound, self.bought = found.bound, found
            self._there = found.there.untaken() if found.there is not None else None
            rows = self.problem().alike() if len(rules.stances) > 1 else {}
            if not self._filling.opened(found.purchases, self._there, rules, rows):
                return False
            self._filling.put_beside_others(rules)
        return not self.waiting

    def last_left(self) -> set[str]:
        """The last gangs whose pods the purchase leaves out: nodes are for all without them."""
        left = dict(self.partial.left) if self.partial is not None else {}
        found = set()
        for demand in reversed(self.demands):
            wanted = self.wanted[demand.name]
            if any(many > 0 and not shapes.isdisjoint(wanted) for shapes, many in left.items()):
                found.add(demand.name)
                left = {shapes: many - sum(wanted[one] for one in shapes) for shapes, many in left.items()}
        return found

    def problem(self) -> CuttingProblem:
        """Returns the cutting-stock problem of the pods that wait."""
        counts = self.waiting.counts
        if self.jointly:
            shapes = dict.fromkeys(want.shape for want in counts if want.shape in self.jointly)
            self._there = AtHandKinds.of(shapes, self.market, most=self.limits.at_hand_kinds) if shapes else None
        return cutting_problem(counts, self.market, there=self._there, rules=self._know_rules())

    def _know_rules(self) -> HostRules:
        """Between all pods for which nodes are wanted, also when some of them have places by now."""
        if self._rules is None:
            self._rules = rules_between(self.waiting.counts)
        return self._rules

    def _searched(self, *, binding: bool) -> PartialPurchase | None:
        problem = self.problem()
        begun = problem.nodes_of(self._nodes_begun()) if self.begun else ()
        found = problem.solved(self.limits, binding=binding, known=self.known, begun=begun, times=self.times)
        return found and replace(found, there=self._there)

    def _nodes_begun(self) -> Iterable[tuple[str, Counter[Want]]]:
        """Kind and pods of each node of the plan to begin with."""
        there = self._there.places if self._there is not None else {}
        kind_of = {place.name: kind for kind, places in there.items() for place in places}
        nodes: dict[tuple[str, str], Counter[Want]] = defaultdict(Counter)
        for want, key in self.waiting.pods:
            place = self.begun.get(key)
            if place is None:
                continue
            kind = place.group.name if place.price and place.group is not None else kind_of.get(place.name)
            if kind is not None:
                nodes[kind, place.name][want] += 1
        return ((kind, held) for (kind, _), held in nodes.items())

    def proof(self) -> Proof:
        """Returns what was bought, and what is proven of it.

        Nothing where some pods had places that cost nothing before the others were asked about, or rules were kept in
        a stricter sense than they need be.
        """
        bought = sum(placed.usd for placed in self.found().values())
        if not self.jointly:
            return Proof(self.bound, bought=bought)
        if self._is_unproven:
            return Proof(bought=bought)
        return Proof(self.bound, frozenset(key for key, place in self.places.items() if not place.price), bought)

    def found(self) -> dict[str, Placed]:
        """Each gang's outcome. A node is on the account of the gang that has its first pod."""
        owner = self._gang_of()
        bought: dict[str, list[Place]] = defaultdict(list)
        for place in dict.fromkeys(self.places.values()):
            if place.price and place.guests[0] in owner:
                bought[owner[place.guests[0]]].append(place)
        return {
            demand.name: Placed(
                places=tuple((key, self.places[key]) for key, _ in demand.pods),
                bought=tuple(bought.get(demand.name, ())),
            )
            for demand in self.demands
        }

    def _at_hand(self, shape: Shape, idle: IdleNodes) -> Place | None:
        """A standing place with room for the shape; else an idle node or one on its way, which is opened."""
        place = self.market.snapshot.find(shape)
        if place is None:
            place = idle.first(shape)
            if place is not None:
                self.market.take(place)
        return place

    def _idle(self) -> IdleNodes:
        if self._idle_nodes is None:
            self._idle_nodes = IdleNodes(self.market)
        return self._idle_nodes

    def _note_opened(self) -> None:
        """A node that was opened has room for other shapes, too."""
        if self._opened != len(self.market.opened):
            self._opened = len(self.market.opened)
            self._full.clear()

    def _is_holdable(self, shape: Shape) -> bool:
        known = self._holdable.get(shape.number)
        if known is None:
            known = self._holdable[shape.number] = self.market.offers(shape)
        return known
