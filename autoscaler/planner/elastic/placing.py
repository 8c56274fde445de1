"""Where elastic pods would go: on the snapshot that all pods of a plan are placed on, and off it again.

Elastic tasks fill what others leave, so of the nodes with room for one they take that of which the least is wasted by
it: in EDL's case 1 trainers and servers then use 90.7 % of the CPUs, and 87.8 % where each goes to the fullest node.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import count
from typing import Final

from autoscaler.model.cluster import Pod
from autoscaler.model.feasibility import why_no_room
from autoscaler.model.labels import GPU
from autoscaler.model.resources import CPU, MEMORY, Resources
from autoscaler.planner.placement.offerings import CENT, Market
from autoscaler.planner.placement.options import Within
from autoscaler.planner.supply.candidate_nodes import Place, Shape

_MANY: Final = 16
"""So many of the largest pods beside each other waste next to nothing."""
_SMALL: Final = 4
"""Pods this much smaller than the largest find a gap anywhere; there are not enough of them to fill them all."""
_FILLINGS: Final = 4096
"""Pods of so many different sizes that they fill a node to so many levels waste next to nothing, too."""


class Placing:
    """Pods put on a snapshot and taken off; what was done since a mark is undone at once."""

    def __init__(self, market: Market, sizes: Iterable[Resources], *, thorough: bool) -> None:
        """``sizes``: of pods that may come, by which what is left of a node is of use or is not.

        ``thorough``: all nodes are compared for each pod; else it goes where it does least harm, as other pods do.
        """
        self.thorough = thorough
        self._sizes = {name: tuple(sorted({size[name] for size in sizes if size[name]})) for name in (GPU, CPU)}
        self._market = market
        self._snapshot = market.snapshot
        self._numbers = count()

    def mark(self) -> int:
        """Returns a mark for :meth:`undo`."""
        return self._snapshot.mark()

    def undo(self, mark: int) -> None:
        """Forget what was put and taken off since."""
        self._snapshot.undo(mark)

    @property
    def wasted(self) -> int:
        """Thousandths of CPUs on standing nodes that pods of the known sizes cannot fill."""
        free = (place.free.get(CPU, 0) for place in self._snapshot.places if place.standing)
        return sum(_wasted(left, self._sizes[CPU]) for left in free)

    def number(self, pod: Pod) -> int:
        """The same for pods that placing cannot tell apart."""
        return self._snapshot.shape(pod).number

    def give(self, node: str, pod: Pod) -> None:
        """A pod on that node ends. Nodes that nothing is planned on are passed over."""
        place = self._snapshot.place(node)
        if place is not None:
            self._snapshot.remove_pod(self._snapshot.shape(pod), place)

    def take(self, pod: Pod) -> Place | None:
        """The standing place of which it wastes least, own machines first; ``None``: there is none."""
        return self._take(self._snapshot.shape(pod), None)

    def _take(self, shape: Shape, within: Within) -> Place | None:
        place = self._least_wasted(shape, within) if self.thorough else self._snapshot.find(shape, within)
        if place is not None:
            self._snapshot.put(shape, place, self._key())
        return place

    def _least_wasted(self, shape: Shape, within: Within) -> Place | None:
        takers = self._snapshot.takers(shape)
        ranked = sorted(
            (self._rank(shape.requests, place), number)
            for number, place in enumerate(takers)
            if place.standing and why_no_room(shape.amounts, place.free) is None
            if within is None or place.labels.get(within[0]) == within[1]
        )
        free = (place for _, number in ranked if self._snapshot.why_not(shape, place := takers[number]) is None)
        return next(free, None)

    def open(self, pod: Pod, usd: float) -> Place | None:
        """An idle node, one on its way, or one to be bought, the cheapest first, for no more than so much per hour."""
        shape = self._snapshot.shape(pod)
        for offering in self._market.offerings:
            if offering.usd > usd + CENT:
                return None
            place = self._market.open(offering, lambda place: self._snapshot.why_not(shape, place) is None)
            if place is not None:
                self._snapshot.put(shape, place, self._key())
                return place
        return None

    def take_all(
        self, pods: Sequence[Pod], *, topology: str | None = None, anchor: str | None = None
    ) -> tuple[str, ...] | None:
        """A standing place for each, the largest first; or ``None``, and nothing is taken."""
        if topology is None:
            return self._all_within(pods, None)
        values = {place.labels[topology] for place in self._snapshot.places if topology in place.labels}
        for value in sorted(values) if anchor is None else [anchor]:
            found = self._all_within(pods, (topology, value))
            if found is not None:
                return found
        return None

    def _all_within(self, pods: Sequence[Pod], within: Within) -> tuple[str, ...] | None:
        mark, places = self.mark(), dict[int, str]()
        shapes = [self._snapshot.shape(pod) for pod in pods]
        for number in sorted(range(len(pods)), key=lambda one: (shapes[one].rank, one)):
            place = self._take(shapes[number], within)
            if place is None:
                self.undo(mark)
                return None
            places[number] = place.name
        return tuple(places[number] for number in range(len(pods)))

    def _rank(self, size: Resources, place: Place) -> tuple[int, int, tuple[int, ...], str]:
        """Own machines; then how much less of the machine can be used once it is there; then how full that is."""
        free, what = place.free, GPU if size[GPU] else CPU
        left, sizes = free.get(what, 0), self._sizes[what]
        more_wasted = _wasted(left - size[what], sizes) - _wasted(left, sizes)
        return place.tier, more_wasted, (free.get(GPU, 0), left, free.get(MEMORY, 0)), place.name

    def _key(self) -> str:
        return f"elastic/{next(self._numbers)}"


def _wasted(free: int, sizes: tuple[int, ...]) -> int:
    """What is left of ``free`` by the best filling with pods of these sizes; 0 where there is room for many of them."""
    if not sizes or not 0 < free <= _MANY * sizes[-1]:
        return 0
    fillings = _fillings(sizes)
    return free - fillings[bisect_right(fillings, free) - 1] if fillings else 0


@lru_cache(maxsize=64)
def _fillings(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """All sums of pods of these sizes up to many of the largest, in order; none where there are too many."""
    counted, most = [size for size in sizes if _SMALL * size > sizes[-1]], _MANY * sizes[-1]
    found, fresh = {0}, [0]
    while fresh:
        fresh = list({level + size for level in fresh for size in counted if level + size <= most} - found)
        found.update(fresh)
        if len(found) > _FILLINGS:
            return ()
    return tuple(sorted(found))
