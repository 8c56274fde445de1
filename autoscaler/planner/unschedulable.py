"""Why gangs found no place, and all that would have to change for it: in words, and as values to be carried out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.model.actions import Waiting
from autoscaler.model.cluster import Cluster, Group, Pod
from autoscaler.model.feasibility import (
    why_no_room,
)
from autoscaler.model.needed_changes import WORK_ENDS, NeededChange, merged
from autoscaler.planner.demand.gangs import Gang
from autoscaler.planner.handoff.scheduler_grace import OTHER_SCHEDULER, is_left_alone
from autoscaler.planner.obstacles.answer_cache import AnswerCache, Asked, source_of
from autoscaler.planner.obstacles.changes import changes_of
from autoscaler.planner.obstacles.reasons import Reasons, Verdict
from autoscaler.planner.obstacles.relaxations import Relaxed
from autoscaler.planner.obstacles.search import Found, Search, Work
from autoscaler.planner.obstacles.verification import Answer, verified
from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.supply.candidate_nodes import Place, Shape
from autoscaler.planner.supply.fleet import Fleet

_CATCH_ALL: Final = NeededChange("other", other=WORK_ENDS)
"""Where no search finds what would help."""
_ONLY_BESIDE: Final = Verdict("has room only beside what is planned for others now, and is planned again with them")
_WORK: Final = 30_000
"""Offerings, places and pods that are looked at for all answers of one plan: some 750 trials for 40 of them, 30 for
1,000. When it is spent, pods that are like others are told what these are, and others more than they may need."""
_CHECKED: Final = 5_000
"""And for trying whether the answers help: those that it does not suffice for are told as they were found."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What was found for a gang, for others like it."""

    verdict: Verdict
    shape: Shape | None
    """Of the pods that keep their gang waiting, where it is theirs alone."""
    changes: tuple[NeededChange, ...]
    relaxed: Relaxed | None

    @property
    def real_changes(self) -> tuple[NeededChange, ...]:
        """Returns the changes that help; none where no search found any."""
        return () if self.changes == (_CATCH_ALL,) else self.changes


@dataclass(frozen=True, slots=True)
class _Before:
    """A gang that is served first, when all that it takes has changed."""

    gang: Gang
    demand: Demand
    shapes: frozenset[Shape]
    """With what is left out."""
    places: frozenset[int]
    """Ids of places that it would be on, or that have room by changes for it."""
    changes: tuple[NeededChange, ...]
    """But for those of its pods."""
    changes_pods: bool
    verdict: Verdict


@dataclass(slots=True)
class Unschedulable:
    """Answers for gangs that found no place, after all others have found theirs."""

    cluster: Cluster
    policy: Policy
    fleet: Fleet
    market: Market
    cache: AnswerCache | None = None
    _known: dict[object, _Told] = field(default_factory=dict)
    _before: list[_Before] = field(default_factory=list)
    _search: Search = field(init=False)
    _of_pinned: Search = field(init=False)
    _reasons: Reasons = field(init=False)

    def __post_init__(self) -> None:
        """Prepares the searches; nothing is asked yet."""
        self._search = Search(self.cluster, self.policy, self.fleet, self.market, work=Work(_WORK))
        self._of_pinned = Search(self.cluster, self.policy, self.fleet, self.market, work=Work(_WORK))
        self._reasons = Reasons(self._search)

    def explain(self, asked: Iterable[tuple[Gang, Demand]]) -> Iterable[Waiting]:
        """One ``Waiting`` for each pod of the gangs, which are in turn: each counts on what those before it take.

        The snapshot is as it was, afterwards.
        """
        asked = list(asked)
        if self.cache is None or not asked:
            return self._explained(asked)
        source = source_of(self.cluster, self.policy, self.fleet, self.market, asked)
        left_alone = [self._is_left_alone(gang) for gang, _ in asked]
        return self.cache.kept_or(lambda: self._explained(asked), source=(left_alone, source))

    def _explained(self, asked: Asked) -> Iterator[Waiting]:
        start = self.market.snapshot.mark()
        told = [self._known_or_told(gang, demand) for gang, demand in asked]
        self.market.snapshot.undo(start)
        plain = replace(self._search, work=Work(_CHECKED), taken=[], ended=set())
        answers = [Answer(*one, known.real_changes) for one, known in zip(asked, told, strict=True)]
        for (gang, demand), known, changes in zip(asked, told, verified(answers, plain), strict=True):
            yield from _waiting(gang, demand, known, changes or known.changes)

    def changes_for(self, pod: Pod) -> tuple[NeededChange, ...]:
        """Returns what lets in a pod that can go to one node only and does not fit there. The snapshot is as it was."""
        start, search = self.market.snapshot.mark(), self._of_pinned
        demand = Demand(name=pod.key, pods=((pod.key, self.market.snapshot.shape(pod)),))
        found = search.smallest([pod], demand)
        changes = changes_of(found, search, search.ceilings) if found is not None else (_CATCH_ALL,)
        self.market.snapshot.undo(start)
        return changes

    def _known_or_told(self, gang: Gang, demand: Demand) -> _Told:
        key = (tuple(sorted(shape.number for _, shape in demand.pods)), demand.topology, demand.anchor)
        known = self._known.get(key)
        if known is None or not self._search.work.is_spent:
            known = self._known[key] = self._told(gang, demand, known)
        return known

    def _told(self, gang: Gang, demand: Demand, known: _Told | None) -> _Told:
        snapshot, search = self.market.snapshot, self._search
        start, left = snapshot.mark(), search.ceilings
        found = search.smallest(gang.waiting, demand, like=known.relaxed if known is not None else None)
        if found is None:
            verdict, shape = self._verdict(demand, None, left)
            return _Told(verdict, shape, (_CATCH_ALL,), None)
        for group in self._bought_before(found):
            left.take(group)
        changes = changes_of(found, search, left)
        snapshot.undo(start)
        is_free = not changes
        verdict, shape = self._verdict(demand, found, left, is_free=is_free)
        if self._is_left_alone(gang):
            changes = merged(changes, [OTHER_SCHEDULER])
        if search.work.is_spent:  # from now on each is told of itself alone
            return _Told(verdict, shape, changes or (_CATCH_ALL,), found.relaxed)
        ended = {key for one in changes if one.other == WORK_ENDS for key in one.pods}
        search.keep(found, ended)
        changes = self._counting_on_others(found, changes, is_free=is_free)
        own = tuple(one for one in changes if one.kind != "pod")
        changes_pods = any(one.kind == "pod" and one != OTHER_SCHEDULER for one in changes)
        touched = {id(place) for _, place in found.placed.places}
        touched |= {id(place) for place, pod in found.ended if pod.key in ended}
        shapes = frozenset(found.shapes.values())
        self._before.append(_Before(gang, demand, shapes, frozenset(touched), own, changes_pods, verdict))
        search.taken += [place.group for place in found.placed.bought if place.group is not None]
        return _Told(verdict, shape, changes or (_CATCH_ALL,), found.relaxed)

    def _is_left_alone(self, gang: Gang) -> bool:
        return any(is_left_alone(pod, self.cluster.seen_at) for pod in gang.waiting)

    def _bought_before(self, found: Found) -> Iterator[Group]:
        """What limits that are raised for this gang let those before it in turn have, as their pods are now."""
        fresh = [place for place in found.placed.bought if place.group is not None]
        for before in self._before if fresh else ():
            shapes = {shape for _, shape in before.demand.pods}
            if before.changes_pods and any(self._suits(shape, place) for shape in shapes for place in fresh):
                yield from self._search.bought_for(before.gang.waiting, before.demand, found.relaxed)

    def _counting_on_others(
        self, found: Found, changes: tuple[NeededChange, ...], *, is_free: bool
    ) -> tuple[NeededChange, ...]:
        """Adds what it takes that those before it in turn, which would be served first, leave it its places."""
        places = {id(place): place for _, place in found.placed.places}
        is_rival = {id(one): self._is_rival(one, places.values()) for one in self._before}
        for before in self._before:
            shares = bool(before.places & places.keys())
            if shares or (is_rival[id(before)] and _hangs_on_others((*before.changes, *changes))):
                changes = merged(changes, before.changes)
        if is_free and not any(before.places & places.keys() for before in self._before):
            # it has room only where others make some, somewhere in its zone
            changes = merged(changes, *(before.changes for before in self._before))
        return changes

    def _is_rival(self, before: _Before, places: Collection[Place]) -> bool:
        """Whether it would be served from these places, were they there: what limits leave it, it is counted with."""
        return not before.changes_pods and any(self._suits(shape, place) for shape in before.shapes for place in places)

    def _suits(self, shape: Shape, place: Place) -> bool:
        return self.market.snapshot.suits(shape, place) and why_no_room(shape.amounts, _whole_room(place)) is None

    def _verdict(
        self, demand: Demand, found: Found | None, left: Ceilings, *, is_free: bool = False
    ) -> tuple[Verdict, Shape | None]:
        """``is_free``: it takes no change but those for pods before it in turn."""
        limited = self._reasons.limited(found, left) if found is not None else None
        if found is not None and limited is None and is_free:
            used = {id(place) for _, place in found.placed.places}
            lent = [one for one in self._before if one.places & used] or self._before
            limited = lent[0].verdict if lent else _ONLY_BESIDE
        for shape in sorted({shape for _, shape in demand.pods}, key=lambda shape: shape.rank):
            verdict = self._reasons.impossible(shape)
            if verdict is not None:
                more = f"; then it {limited.because}" if limited is not None else ""
                return Verdict(verdict.because + more, verdict.cause), shape
        return limited or self._reasons.busy(demand), None


def _waiting(gang: Gang, demand: Demand, known: _Told, changes: tuple[NeededChange, ...]) -> Iterator[Waiting]:
    """What is said of each of its pods."""
    shapes = dict(demand.pods)
    first = next((pod for pod in gang.waiting if shapes.get(pod.key) is known.shape), None)
    because = known.verdict.because
    mates = f"its gang waits for {first.name}: {because}" if first is not None else because
    for pod in gang.waiting:
        own = known.shape in (None, shapes.get(pod.key))
        yield Waiting(pod.key, because if own else mates, changes, known.verdict.cause)


def _hangs_on_others(changes: Iterable[NeededChange]) -> bool:
    return any(one.kind == "other" for one in changes)


def _whole_room(place: Place) -> dict[str, int]:
    """What the place has when nothing is on it."""
    if place.node is not None:
        return dict(place.node.allocatable.items())
    return dict(place.group.allocatable.items()) if place.group is not None else {}
