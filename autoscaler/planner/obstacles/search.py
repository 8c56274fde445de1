"""The fewest things to leave out so that a gang finds a place, found by leaving out all, and putting back one by one.

Whether something can be put back is asked of the packing itself, on the snapshot as the plan has left it. What is found
cannot be made smaller: with any of it put back the gang has no place. It is no proof that no other set is smaller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.cluster import Cluster, Group, Pod
from autoscaler.model.constraints import Taint
from autoscaler.model.pauses import Pause, stop_buying
from autoscaler.model.resources import Resources
from autoscaler.planner.obstacles.closed_nodes import ClosedNodes, is_cordoned
from autoscaler.planner.obstacles.relaxations import (
    OF_OTHERS,
    PARTS,
    STAGES,
    Relaxation,
    Relaxed,
    What,
    in_drop_order,
    part_of,
    relaxed_pod,
    rules_of,
)
from autoscaler.planner.obstacles.unbuilt_groups import added_for, offering_of, unbuilt_groups
from autoscaler.planner.placement.gang_packing import Demand, Placed, pack
from autoscaler.planner.placement.interpod_rules import term_selects
from autoscaler.planner.placement.offerings import Ceilings, Market, Offering
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place, Shape
from autoscaler.planner.supply.fleet import Fleet

_EMPTIED: Final = 100
"""Nodes that are thought of without their work, or twice as many as pods are asked for."""


@dataclass(frozen=True, slots=True)
class Found:
    """How a gang would be placed with something left out."""

    relaxed: Relaxed
    placed: Placed
    shapes: Mapping[str, Shape]
    """By key of the pod; of one that is split, with ``#`` and a number behind it."""
    pods: tuple[Pod, ...]
    """As they ask, with nothing left out."""
    split: frozenset[str]
    """Keys of those that are split."""
    ended: tuple[tuple[Place, Pod], ...] = ()
    """Pods that are as if they were not there, and where they are."""

    def leaves_out(self, what: What) -> bool:
        """Whether it is one of the things that are left out."""
        return any(one.what == what for one in self.relaxed)


@dataclass(slots=True)
class Work:
    """How many offerings and places may still be looked at, over all trials that share it."""

    left: int

    @property
    def is_spent(self) -> bool:
        """Says that nothing more is tried that can be done without."""
        return self.left <= 0


@dataclass(slots=True)
class Search:
    """What is asked, and what of the plan."""

    cluster: Cluster
    policy: Policy
    fleet: Fleet
    market: Market
    work: Work
    """When it is spent only one trial is made for each gang, the quick way, with everything left out."""
    taken: list[Group] = field(default_factory=list)
    """Groups of nodes that those before it in turn would have bought, once for each node."""
    ended: set[str] = field(default_factory=set)
    """Keys of pods whose end those before it in turn count on."""
    closed: ClosedNodes = field(init=False)
    _unbuilt: list[Offering] | None = None
    _taints: frozenset[Taint] | None = None
    _rooms: tuple[Resources, ...] | None = None
    """Of all machines that there are or may be, empty: each once."""

    def __post_init__(self) -> None:
        """Lists the closed nodes."""
        self.closed = ClosedNodes(self.fleet)

    @property
    def snapshot(self) -> Snapshot:
        """Returns the snapshot as the plan has left it."""
        return self.market.snapshot

    @property
    def ceilings(self) -> Ceilings:
        """What is left to buy, after those before it in turn."""
        left = self.market.ceilings.copy()
        for group in self.taken:
            left.take(group)
        return left

    def smallest(self, pods: Sequence[Pod], demand: Demand, *, like: Relaxed | None = None) -> Found | None:
        """Returns the least to leave out; the snapshot stays as it would be then. ``None``: no place even so.

        ``like``: what was left out for another gang of the same pods, which is tried first.
        """
        start = self.snapshot.mark()
        known = self._try(pods, demand, like, thorough=True) if like is not None else None
        if known is not None:
            return known
        self.snapshot.undo(start)
        may = list(self._may_be_left_out(pods, demand))
        full: list[Relaxation] = []
        for allowed in STAGES:
            now = [one for one in may if one.what in allowed]
            if now == full and allowed is not STAGES[0]:
                continue
            full = now
            for relaxed in _with_parts(full):
                found = self._try(pods, demand, relaxed, thorough=False)
                if found is not None and self.work.is_spent:
                    return found
                self.snapshot.undo(start)
                if found is not None:
                    return self._reduced(pods, demand, list(relaxed))
        return None

    def _reduced(self, pods: Sequence[Pod], demand: Demand, relaxed: list[Relaxation]) -> Found | None:
        """Puts back every single thing without which the gang still has a place.

        Many at once are put back where that will do, else each half of them: most are not needed.
        """
        stack = _halves(in_drop_order(relaxed))
        while stack and not self.work.is_spent:
            several = stack.pop()
            fewer = [one for one in relaxed if one not in several]
            if self._has_place(pods, demand, fewer):
                relaxed = fewer
            elif len(several) > 1:
                stack += _halves(several)
        return self._try(pods, demand, relaxed, thorough=True) or self._try(pods, demand, relaxed, thorough=False)

    def _has_place(self, pods: Sequence[Pod], demand: Demand, relaxed: Sequence[Relaxation]) -> bool:
        """Asked the quick way first. The snapshot is as it was."""
        start = self.snapshot.mark()
        for thorough in (False, True):
            found = self._try(pods, demand, relaxed, thorough=thorough)
            self.snapshot.undo(start)
            if found is not None:
                return True
        return False

    def keep(self, found: Found, ended: Collection[str]) -> None:
        """Have it on the snapshot, which is as it was before it; ``ended``: keys of the pods that make room for it."""
        for place, pod in found.ended:
            if pod.key in ended:
                self.snapshot.remove_pod(self.snapshot.shape(pod), place)
        self.ended |= set(ended)
        for _, place in found.placed.places:
            if place.index < 0:
                self.snapshot.add(place)
        for key, place in found.placed.places:
            self.snapshot.put(found.shapes[key], place, key)
        self._count_bought(found.placed)

    def bought_for(self, pods: Sequence[Pod], demand: Demand, relaxed: Relaxed) -> list[Group]:
        """What other pods, as they ask, would have bought for them with the same left out: a group for each node."""
        start = self.snapshot.mark()
        found = self._try(pods, demand, [one for one in relaxed if one.what in OF_OTHERS], thorough=False)
        self.snapshot.undo(start)
        placed = found.placed.bought if found is not None else ()
        return [place.group for place in placed if place.group is not None]

    # --- One trial ----------------------------------------------------------------------------------------------------

    def _try(
        self, pods: Sequence[Pod], demand: Demand, relaxed: Sequence[Relaxation], *, thorough: bool
    ) -> Found | None:
        """Tries on the snapshot, which is changed; to be undone by the caller, also where there is no place."""
        without = {one.what for one in relaxed}
        shapes, split = self._shapes(pods, tuple(relaxed))
        names = self.closed.names
        self.closed.open(
            self.snapshot, cordoned=names if "uncordon" in without else (), unfit=names if "ready" in without else ()
        )
        ended = tuple(self._end_work(list(shapes.values()))) if "work" in without else ()
        wanted = replace(demand, pods=tuple(shapes.items()), minimum=None, assignments={})
        if "topology" in without:
            wanted = replace(wanted, topology=None, anchor=None)
        offerings = list(self.offerings(without, many=len(shapes), shapes=shapes.values()))
        self.work.left -= len(offerings) + len(self.snapshot.places) + len(ended)
        market = self.market.relaxed(offerings, self._ceilings(without), thorough=thorough)
        placed = pack([wanted], market).placed[demand.name]
        if placed is None:
            return None
        self._count_bought(placed)
        return Found(tuple(relaxed), placed, shapes, tuple(pods), split, ended)

    def place(self, demand: Demand, more: Sequence[Offering] = ()) -> Placed | None:
        """Where it goes as it is, on the snapshot, which is changed. ``more``: what may be bought for it alone."""
        self.work.left -= len(self.market.offerings) + len(self.snapshot.places)
        market = self.market.with_more(more) if more else self.market
        placed = pack([demand], market).placed[demand.name]
        if placed is not None and more:
            self._count_bought(placed)
        return placed

    def _count_bought(self, placed: Placed) -> None:
        names = [place.group.name for place in placed.bought if place.group is not None]
        self.market.bought.update(names)
        self.snapshot.note(lambda: self.market.bought.subtract(names))

    def _shapes(self, pods: Sequence[Pod], relaxed: Relaxed) -> tuple[dict[str, Shape], frozenset[str]]:
        parts = max((one.parts for one in relaxed), default=1)
        shapes: dict[str, Shape] = {}
        split = set()
        for pod in pods:
            asked = relaxed_pod(pod, relaxed)
            if parts == 1 or not self._is_too_large(pod):
                shapes[pod.key] = self.snapshot.shape(asked)
                continue
            split.add(pod.key)
            part = self.snapshot.shape(part_of(asked, parts))
            shapes |= {f"{pod.key}#{number}": part for number in range(parts)}
        return shapes, frozenset(split)

    def _is_too_large(self, pod: Pod) -> bool:
        """Says whether the pod is too large for every machine that there is or may be, empty."""
        if self._rooms is None:
            rooms = [node.allocatable for node in self.cluster.nodes]
            rooms += [Resources(self.market.sample(one).free) for one in self.market.offerings]
            rooms += [one.group.allocatable for one in self._unbuilt_offerings()]
            self._rooms = tuple(dict.fromkeys(rooms))
        return not any(pod.requests.fits_in(room) for room in self._rooms)

    # --- What may be left out -----------------------------------------------------------------------------------------

    def _may_be_left_out(self, pods: Sequence[Pod], demand: Demand) -> Iterator[Relaxation]:
        yield from rules_of(pods, self._all_taints(), demand.topology)
        shapes = {pod.key: self.snapshot.shape(pod) for pod in pods}
        for term in dict.fromkeys(term for pod in pods for term in pod.near_to):
            meets_itself = any(term_selects(term, shape) for shape in shapes.values())
            yield Relaxation("near" if self.snapshot.rules.selected(term) or meets_itself else "partner", term=term)
        limits, ceilings = self.policy.limits, self.market.ceilings
        asks: list[tuple[What, object]] = [
            ("usd", limits.usd_per_hour is not None),
            ("nodes", limits.nodes is not None),
            ("gpus", limits.gpus is not None),
            ("quota", ceilings.quotas),
            ("resume", any(self.pauses_of(group) for group in self._all_groups())),
            ("capacity", self.fleet.closed),
            ("max", self.policy.groups),
            ("pulumi", self.policy.groups),
            ("uncordon", any(map(is_cordoned, self.closed.nodes))),
            ("ready", any(map(self.closed.is_unfit, self.closed.nodes))),
            ("work", self.fleet.residents),
            ("split", any(map(self._is_too_large, pods))),
        ]
        yield from (Relaxation(what) for what, exists in asks if exists)
        yield Relaxation("group")

    def _all_taints(self) -> frozenset[Taint]:
        if self._taints is None:
            places = chain(self.snapshot.places, map(self.market.sample, self.market.offerings))
            found = {taint for place in places for taint in place.taints}
            found |= {taint for one in self._unbuilt_offerings() for taint in one.group.taints}
            found |= {taint for place in self.fleet.closed_places for taint in place.taints}
            self._taints = frozenset(found)
        return self._taints

    # --- What a trial has ---------------------------------------------------------------------------------------------

    def _ceilings(self, without: set[What]) -> Ceilings:
        left, now = self.ceilings, self.market.ceilings.gpus
        if left.gpus is not None and now is not None and now >= 0:
            left.gpus = max(0, left.gpus)  # nodes without GPUs take none of what those before it in turn lack
        return Ceilings(
            usd=None if "usd" in without else left.usd,
            nodes=None if "nodes" in without else left.nodes,
            gpus=None if "gpus" in without else left.gpus,
            entries={} if "max" in without else left.entries,
            quotas={} if "quota" in without else left.quotas,
        )

    def offerings(
        self, without: Collection[What] = (), *, many: int = 0, shapes: Iterable[Shape] = ()
    ) -> Iterator[Offering]:
        """What may be bought with these things left out. ``many``: pods that a place is sought for."""
        for one in self.market.offerings:
            name = one.group.name
            size, bought = self.fleet.size_of(one.group), self.market.bought[name]
            most = bought + many if "pulumi" in without else max(0, one.group.maximum - size)
            shut = name in self.fleet.closed and "capacity" not in without
            buyable = 0 if shut or self._is_paused(one.group, without) else most
            yield one if buyable == one.buyable else replace(one, buyable=buyable)
        more = list(self._unbuilt_offerings()) if "pulumi" in without else []
        more += [added_for(list(shapes), self.policy)] if "group" in without else []
        for one in more:
            if not self._is_paused(one.group, without):
                yield replace(one, buyable=self.market.bought[one.group.name] + many)

    def _is_paused(self, group: Group, without: Collection[What]) -> bool:
        return "resume" not in without and bool(self.pauses_of(group))

    def pauses_of(self, group: Group) -> tuple[Pause, ...]:
        """Why nothing is bought in it, also where it is not there yet."""
        return stop_buying(self.cluster.pauses, group.entry)

    def _all_groups(self) -> list[Group]:
        return [one.group for one in (*self.market.offerings, *self._unbuilt_offerings())]

    def _unbuilt_offerings(self) -> list[Offering]:
        if self._unbuilt is None:
            self._unbuilt = [offering_of(group) for group in unbuilt_groups(self.cluster, self.policy)]
        return self._unbuilt

    def _end_work(self, shapes: Sequence[Shape]) -> Iterator[tuple[Place, Pod]]:
        """Take away what is on the places that the shapes might go to, but for pods that they must be near to."""
        alone = all(map(self.snapshot.stands_alone, shapes))
        places = (
            self._worth_emptying(shapes) if alone else [*self.snapshot.places, *self.closed.still_closed(self.snapshot)]
        )
        wanted = {term for shape in shapes for term in shape.near_to}
        for place in places:
            for pod in self.fleet.residents.get(place.name, ()):
                shape = self.snapshot.shape(pod)
                if pod.key not in self.ended and not any(term_selects(term, shape) for term in wanted):
                    self.snapshot.remove_pod(shape, place)
                    yield place, pod

    def _worth_emptying(self, shapes: Sequence[Shape]) -> list[Place]:
        """Returns, of the places that would hold one of the pods if they were empty, those with the fewest pods."""
        fit = {
            place.name: place
            for shape in set(shapes)
            for place in self.snapshot.takers(shape)
            if place.node is not None and shape.requests.fits_in(place.node.allocatable)
        }
        most = max(_EMPTIED, 2 * len(shapes))
        return sorted(fit.values(), key=lambda place: (len(self.fleet.residents.get(place.name, ())), place.name))[
            :most
        ]


def _halves(several: list[Relaxation]) -> list[list[Relaxation]]:
    """The first one last, to be taken first."""
    half = (len(several) + 1) // 2
    return [one for one in (several[half:], several[:half]) if one]


def _with_parts(relaxed: Sequence[Relaxation]) -> Iterator[Relaxed]:
    """Yields ways to split a gang: into few pods first."""
    if not any(one.what == "split" for one in relaxed):
        yield tuple(relaxed)
        return
    for parts in PARTS:
        yield tuple(replace(one, parts=parts) if one.what == "split" else one for one in relaxed)
