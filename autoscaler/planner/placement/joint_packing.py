"""Gangs that nothing but room decides about, bought for together: one call of the solver for all of them.

A pool takes gangs in the order in which they are served. What fits goes on nodes that are there at once; other pods are
kept by class (their :class:`Shape`). When all gangs have been asked, the pool buys for everything that is left in one
cutting-stock problem (:mod:`autoscaler.solver.solve`): every offering is a kind of node, what is left of the policy's
limits are limits. What is there already is given out first, in order: standing places, then idle nodes and those on
their way.

How long the solver searches is counted in work, not in seconds: the same look gives the same plan on any machine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autoscaler.model.feasibility import NODE_NAME
from autoscaler.model.labels import GPU
from autoscaler.model.resources import CPU, MEMORY, PODS
from autoscaler.planner.placement.at_hand_kinds import AtHandKinds
from autoscaler.planner.placement.clustered_packing import SizeClusters
from autoscaler.planner.placement.gang_packing import Demand, Placed
from autoscaler.planner.placement.offerings import Market
from autoscaler.planner.placement.room_table import RoomTable
from autoscaler.planner.supply.candidate_nodes import ATTACHMENTS, Place, Shape, harm
from autoscaler.solver.column_pool import Known
from autoscaler.solver.deadline import Work
from autoscaler.solver.problem import Kind, Limit
from autoscaler.solver.problem import Shape as Row
from autoscaler.solver.solution import Nodes
from autoscaler.solver.solve import cheapest

_MEBI = 2**20
_FREE = 1e-6
"""The solver wants a price of everything."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much is searched in one look, in counted work."""

    joint_at_least: int = 300
    """Pods that may be pooled times offerings: with fewer, each gang is tried in several ways, one after the other, and
    the cheaper of that and the joint purchase is kept. Below it that takes some milliseconds."""
    work: float = 15.0
    """Of the solver for any pool; a unit is about a millisecond of a core of 2024."""
    work_of_first: float = 0.155
    """More for each of the first pods for which nodes are bought: rows are added with them."""
    first: int = 500
    work_per_pod: float = 0.1
    """More for each further one."""
    work_per_row: float = 18.0
    """More for each row beyond those: what is as good as 112 rows of openb takes so much longer (199 rows: twice)."""
    few_rows: int = 112
    at_hand_kinds: int = 300
    """Kinds at most of places that cost nothing more, to be filled in the same problem as nodes are bought in."""
    work_at_hand: float = 4.0
    """As much work as for a purchase alone, times this, for such a problem."""
    work_otherwise: float = 0.25
    """And for the purchase that is made where such places are filled first, which is compared with it."""
    turns: int = 12
    """Of buying for those that were left, where pods are of many sizes."""
    rounds: int = 400
    """Of pricing at most."""
    turns_within_limits: int = 3
    """Of admitting gangs and buying for them, where limits leave room for some only."""
    work_of_admission: float = 3.0
    """As much work as for a purchase, times this, to find out which gangs limits leave room for."""
    left_out: float = 0.05
    """Part of the gangs that a purchase within limits may leave out, to be served in turn."""
    kept_back: tuple[float, ...] = (0.0, 0.01, 0.03, 0.1, 0.3)
    """Parts of what is scarce that are left for whole nodes, until a purchase is found."""

    def work_for(self, pods: int, rows: int) -> float:
        """The budget of one call of the solver."""
        for_pods = self.work_of_first * min(pods, self.first) + self.work_per_pod * max(0, pods - self.first)
        return self.work + for_pods + self.work_per_row * max(0, rows - self.few_rows)


class IdleNodes:
    """Fresh nodes that cost nothing more, the readiest and smallest first; not those that pods were planned on before.

    A cluster has few of them beside many pods, so a node that is too small for a shape once is not asked again.
    """

    def __init__(self, market: Market, resources: Iterable[str]) -> None:
        self._market = market
        nodes = [
            place for offering in market.offerings for place in market.at_hand(offering) if not market.is_kept(place)
        ]
        self._nodes = sorted(nodes, key=lambda place: (harm(place), place.name))
        self._table = RoomTable([place.free for place in self._nodes], resources)
        self._with_room: dict[int, list[Place]] = {}

    def first(self, shape: Shape) -> Place | None:
        """The first that may take a pod of the shape and is not open yet."""
        nodes = self._with_room.get(shape.number)
        if nodes is None:
            enough = np.nonzero(self._table.enough(shape.amounts))[0].tolist() if self._nodes else []
            nodes = self._with_room[shape.number] = [self._nodes[one] for one in enough]
        return next((one for one in nodes if not one.standing and self._market.scene.why_not(shape, one) is None), None)


@dataclass(frozen=True, slots=True)
class Purchase:
    """Nodes of one kind that hold the same."""

    kind: str
    times: int
    pods: tuple[tuple[Shape, int], ...]
    """(shape, how many of it on each node)"""


@dataclass(frozen=True, slots=True)
class PartialPurchase:
    """Nodes for all pods of a pool but a few."""

    purchases: tuple[Purchase, ...]
    left: tuple[tuple[frozenset[Shape], int], ...]
    """Of pods of about one size so many are left out."""
    bound: float


@dataclass(frozen=True, slots=True)
class Proof:
    """What nodes for some pods cost at least."""

    usd: float = 0.0
    """Dollars per hour."""
    at_hand: frozenset[str] = frozenset()
    """Keys of the pods on places that cost nothing: it holds also if others of its pods have these places."""


@dataclass(slots=True)
class Pool:
    """Gangs to be bought for together."""

    market: Market
    limits: SearchLimits
    demands: list[Demand] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    """Pod key -> where it goes."""
    waiting: dict[Shape, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Pods for which nodes are wanted, in the order in which their gangs are served."""
    wanted: dict[str, Counter[Shape]] = field(default_factory=dict)
    """By gang the pods for which nodes are wanted."""
    bound: float = 0.0
    """Dollars per hour that nodes for these pods cost at least."""
    partial: PartialPurchase | None = None
    """What was found, and not bought, for it leaves some out; given, it is bought for a pool without these."""
    known: Known | None = None
    """Fillings that were found before, for the search to begin with."""
    fills_first: bool = True
    """Places that cost nothing more are filled before nodes are bought; else in the same problem."""
    times: float = 1.0
    """As much work as usual."""
    _there: AtHandKinds | None = None
    _full: set[int] = field(default_factory=set)
    """Numbers of the shapes for which no standing place has room."""
    _opened: int = 0
    """How many fresh nodes there were when that was found."""
    _holdable: dict[int, bool] = field(default_factory=dict)
    _idle_nodes: IdleNodes | None = None

    def take(self, demand: Demand) -> bool:
        """Put the gang's pods on standing places as far as there is room, and keep the others; ``False``: hopeless.

        Hopeless is a gang of which a pod fits on no standing place and on no kind of node that may be bought.
        """
        scene, mark = self.market.scene, self.market.scene.mark()
        self._note_opened()
        placed: dict[str, Place] = {}
        rest: list[tuple[str, Shape]] = []
        for key, shape in demand.ranked if len(demand.pods) > 1 else demand.pods:
            if not self.fills_first and self._is_holdable(shape):
                rest.append((key, shape))
                continue
            place = self._at_hand(shape) if shape.number not in self._full else None
            if place is not None:
                scene.put(shape, place, key)
                placed[key] = place
                self._note_opened()
                continue
            self._full.add(shape.number)
            if not self._is_holdable(shape):
                scene.undo(mark)
                self._full.clear()
                return False
            rest.append((key, shape))
        self.demands.append(demand)
        self.places |= placed
        self.wanted[demand.name] = Counter(shape for _, shape in rest)
        for key, shape in rest:
            self.waiting[shape].append(key)
        return True

    def buy(self, *, binding: bool = False) -> bool:
        """Whether there are nodes for all that wait; they are opened and filled then. Else the scene is left dirty.

        ``binding``: it is searched within the limits; else they are only looked at, and nothing is bought where the
        cheapest nodes exceed one. Of pods of many sizes some may be left at first: they go beside others, or are bought
        for once more.
        """
        for turn in range(self.limits.turns):
            if not self.waiting:
                return True
            found = self.partial if not turn else None
            found = found or self._searched(binding=binding or bool(turn))
            if found is None or (found.left and found is not self.partial):
                self.partial = found
                return False
            self.bound = self.bound if turn else found.bound
            if not all(map(self._is_opened_and_filled, found.purchases)):
                return False
            self._put_beside_others()
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
        """Of the pods that wait."""
        counts = {shape: len(keys) for shape, keys in self.waiting.items()}
        if not self.fills_first:
            self._there = AtHandKinds.of(counts, self.market, most=self.limits.at_hand_kinds)
        return cutting_problem(counts, self.market, there=self._there)

    def _searched(self, *, binding: bool) -> PartialPurchase | None:
        problem = self.problem()
        times = self.limits.work_at_hand if problem.free else self.times
        return problem.solved(self.limits, binding=binding, known=self.known, times=times)

    def _put_beside_others(self) -> None:
        """Pods that are left go on nodes that were bought for others, where there is room."""
        for shape, keys in list(self.waiting.items()):
            while keys and (place := self.market.scene.find(shape)) is not None:
                key = keys.pop(0)
                self.market.scene.put(shape, place, key)
                self.places[key] = place
            if not keys:
                del self.waiting[shape]

    def proof(self) -> Proof:
        """Of the purchase."""
        free = (
            frozenset() if self.fills_first else frozenset(key for key, place in self.places.items() if not place.price)
        )
        return Proof(self.bound, free)

    def found(self) -> dict[str, Placed]:
        """Each gang's outcome. A node is on the account of the gang that has its first pod."""
        owner = {key: demand.name for demand in self.demands for key, _ in demand.pods}
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

    def _at_hand(self, shape: Shape) -> Place | None:
        """A standing place with room for the shape; else an idle node or one on its way, which is opened."""
        place = self.market.scene.find(shape)
        if place is None:
            place = self._idle().first(shape)
            if place is not None:
                self.market.take(place)
        return place

    def _idle(self) -> IdleNodes:
        if self._idle_nodes is None:
            names = {name for shape in self.market.scene.shapes for name, _ in shape.amounts}
            self._idle_nodes = IdleNodes(self.market, names)
        return self._idle_nodes

    def _note_opened(self) -> None:
        """A node that was opened has room for other shapes, too."""
        if self._opened != len(self.market.opened):
            self._opened = len(self.market.opened)
            self._full.clear()

    def _is_holdable(self, shape: Shape) -> bool:
        known = self._holdable.get(shape.number)
        if known is None:
            market = self.market
            known = self._holdable[shape.number] = any(
                (market.buyable(offering) or market.at_hand(offering)) and market.capacity(offering, shape)
                for offering in market.with_room(shape.amounts)
            )
        return known

    def _is_opened_and_filled(self, bought: Purchase) -> bool:
        """Whether these nodes could be had, with room for all that they are to hold. What holds nothing is left."""
        for _ in range(bought.times):
            seated = [(shape, self.waiting[shape][:many]) for shape, many in bought.pods if shape in self.waiting]
            asked = _asked(((name, amount * len(keys)) for name, amount in shape.amounts) for shape, keys in seated)
            if not any(keys for _, keys in seated):
                continue
            place = self._opened_node(bought.kind, asked)
            if place is None:
                return False
            for shape, keys in seated:
                for key in keys:
                    self.market.scene.put(shape, place, key)
                    self.places[key] = place
                del self.waiting[shape][: len(keys)]
                if not self.waiting[shape]:
                    del self.waiting[shape]
        return True

    def _opened_node(self, kind: str, asked: Mapping[str, int]) -> Place | None:
        """A node of it that has so much room."""

        def fits(place: Place) -> bool:
            return all(amount <= place.free.get(name, 0) for name, amount in asked.items())

        if self._there is not None and kind in self._there.places:
            return self._there.take(kind, self.market)
        return self.market.open(self.market.offering(kind), fits, at_hand=False)


def _asked(amounts: Iterable[Iterable[tuple[str, int]]]) -> dict[str, int]:
    """In sum."""
    total: dict[str, int] = {}
    for some in amounts:
        for name, amount in some:
            total[name] = total.get(name, 0) + amount
    return total


@dataclass(slots=True)
class CuttingProblem:
    """Pods by shape and the nodes that may be had, in the solver's words."""

    market: Market
    shapes: list[Shape]
    names: tuple[str, ...]
    """Of resources, in the order of the vectors."""
    kinds: list[Kind]
    takers: _Takers
    free: frozenset[str] = frozenset()
    """Kinds that cost nothing more."""
    rows: list[Row] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)

    def vector(self, amounts: Mapping[str, int], *, up: bool) -> tuple[int, ...]:
        """Amounts in the solver's units, rounded ``up`` or down."""
        rounded = [max(0, amounts.get(name, 0)) for name in self.names]
        return tuple(
            -(-one // _unit(name)) if up else one // _unit(name) for name, one in zip(self.names, rounded, strict=True)
        )

    def row(self, shape: Shape, many: int, *, also: str = "") -> Row:
        """So many pods of a shape. ``also``: a kind of node that lets every pod in."""
        takers = self.takers.of(shape)
        if also and takers is not None:
            takers |= {also}
        return Row(self.vector(dict(shape.amounts), up=True), many, takers)

    def solved(
        self, limits: SearchLimits, *, binding: bool, known: Known | None = None, times: float = 1.0
    ) -> PartialPurchase | None:
        """The cheapest nodes found; ``None`` where these exceed a limit. ``binding``: searched for within limits.

        ``times``: as much work as usual.
        """
        clusters = SizeClusters.of(self.rows)
        rows = clusters.shapes if clusters is not None else self.rows
        work = times * limits.work_for(sum(row.count for row in rows), len(rows))
        answer = cheapest(
            rows,
            self.kinds,
            limits=self.limits if binding else [],
            known=known,
            deadline=work,
            clock=Work(),
            rounds=limits.rounds,
        )
        members = (
            [[one] for one in range(len(rows))] if clusters is None else [one.tolist() for one in clusters.members]
        )
        left = tuple(
            (frozenset(self.shapes[one] for one in several), many)
            for several, many in zip(members, answer.left, strict=True)
            if many
        )
        nodes = answer.nodes if clusters is None else clusters.seated(answer, self.kinds)
        if any(_exceeds(nodes, limit) for limit in self.limits):
            return None
        purchases = tuple(
            Purchase(lot.kind, lot.times, tuple((self.shapes[number], many) for number, many in lot.pods))
            for lot in sorted(nodes, key=lambda lot: lot.kind not in self.free)
        )
        return PartialPurchase(purchases, left, answer.lower_bound)


def cutting_problem(
    counts: Mapping[Shape, int], market: Market, *, limited: bool = True, there: AtHandKinds | None = None
) -> CuttingProblem:
    """For so many pods of each shape. ``limited``: within all limits; else within none. ``there``: free places."""
    most = sum(counts.values())
    asked = {name for shape in counts for name, _ in shape.amounts}
    offerings = {one.group.name: one for one in market.offerings if not limited or market.buyable(one)}
    samples = {name: market.sample(one) for name, one in offerings.items()}
    at_hand = there.places if there is not None else {}
    problem = CuttingProblem(
        market=market,
        shapes=list(counts),
        names=(CPU, MEMORY, GPU, PODS, *sorted(asked - {CPU, MEMORY, GPU, PODS})),
        kinds=[],
        free=frozenset(at_hand),
        takers=_Takers(market, samples | {name: places[0] for name, places in at_hand.items()}),
    )
    for name, places in at_hand.items():
        room = problem.vector(places[0].free, up=False)
        problem.kinds.append(Kind(name, room, _FREE * (1 + places[0].tier), len(places)))
    for name, offering in offerings.items():
        many = market.ceilings.of_entry(offering.group, market.buyable(offering)) if limited else most
        room = problem.vector(samples[name].free, up=not limited)
        problem.kinds.append(Kind(name, room, offering.usd or _FREE, None if many >= most else many))
    problem.rows = [problem.row(shape, many) for shape, many in counts.items()]
    if limited:
        problem.limits = list(market.ceilings.shared([one.group for one in offerings.values()], most))
    return problem


def _exceeds(nodes: Iterable[Nodes], limit: Limit) -> bool:
    return sum(limit.uses.get(lot.kind, 0.0) * lot.times for lot in nodes) > limit.most + 1e-9


def _unit(resource: str) -> int:
    """Bytes are counted in MiB: sizes in one problem should not be a billion apart."""
    counted = resource in (CPU, GPU, PODS) or "/" in resource or resource.startswith(ATTACHMENTS)
    return 1 if counted else _MEBI


class _Takers:
    """Which kinds of node let a shape in, by labels and taints; asked once of those that no rule tells apart."""

    def __init__(self, market: Market, samples: Mapping[str, Place]) -> None:
        self._market, self._samples = market, samples
        self._alike: dict[tuple[str, ...], dict[object, list[str]]] = {}
        self._known: dict[object, frozenset[str] | None] = {}

    def of(self, shape: Shape) -> frozenset[str] | None:
        """Names of kinds; ``None``: all of them."""
        key = (shape.affinity, shape.ties, shape.tolerations)
        if key not in self._known:
            self._known[key] = self._asked(shape)
        return self._known[key]

    def _asked(self, shape: Shape) -> frozenset[str] | None:
        names: list[str] = []
        for several in self._classes(shape.asked_keys).values():
            if self._market.scene.suits(shape, self._samples[several[0]]):
                names += several
        return None if len(names) == len(self._samples) else frozenset(names)

    def _classes(self, keys: tuple[str, ...]) -> dict[object, list[str]]:
        """Kinds with the same taints and the same values of these labels."""
        known = self._alike.get(keys)
        if known is None:
            known = self._alike[keys] = defaultdict(list)
            for name, sample in self._samples.items():
                values = tuple([sample.name if key == NODE_NAME else sample.labels.get(key) for key in keys])
                known[sample.taints, values].append(name)
        return known
