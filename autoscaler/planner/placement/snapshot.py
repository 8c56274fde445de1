"""A cluster to try placements in: places with what is free there, under the rules between pods.

What is put can be taken back, so that a gang is tried as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import Taint
from autoscaler.model.feasibility import NODE_NAME, Reason, why_no_room, why_not_on, why_not_tied
from autoscaler.model.labels import HOSTNAME
from autoscaler.model.pod_index import pod_index_of
from autoscaler.planner.placement.interpod_rules import InterPodRules, why_no_domain
from autoscaler.planner.supply.candidate_nodes import FillOrder, Place, Ranking, Shape, Shelf, shape_of

Count = Callable[[Shape, Mapping[str, str], int, str], None]


class Snapshot:
    """A cluster to try placements in."""

    def __init__(
        self,
        places: Sequence[Place],
        residents: Iterable[Pod],
        pending: Sequence[Pod],
        *,
        closed: Iterable[Place] = (),
        order: FillOrder | None = None,
    ) -> None:
        """Of ``residents`` the bound ones matter; their requests are already taken out of their places' ``free``.

        ``closed``: nothing is put there, but the pods there count in rules between pods, and the places as domains of a
        spread, as in the scheduler (``interPodAffinity``, and ``podTopologySpread`` with ``nodeTaintsPolicy: Ignore``).
        ``order``: what is known of the order in which these places are filled.
        """
        self.places = list(places)
        self._order = order or FillOrder()
        self._closed = {place.name: place for place in closed}
        self._by_name = {place.name: place for place in self.places}
        self._by_host = {place.labels.get(HOSTNAME, place.name): place for place in self.places}
        self._shapes: dict[object, Shape] = {}
        self._changed: list[Place] = []
        self._rankings: dict[int, Ranking] = {}
        self._shelf: Shelf | None = None
        self._verdicts: dict[tuple[int, tuple[Taint, ...], tuple[str | None, ...]], Reason | None] = {}
        self._takers: dict[object, tuple[int, list[Place]]] = {}
        self._added = 0
        self._journal: list[Callable[[], None]] = []
        for number, place in enumerate(self.places):
            place.index = number
        self.rules = InterPodRules(
            pod_index_of(residents),
            pending,
            place_of=lambda name: self._by_name.get(name) or self._closed.get(name),
            places=lambda: (*self.places, *self._closed.values()),
        )

    # --- Asking -------------------------------------------------------------------------------------------------------

    def shape(self, pod: Pod) -> Shape:
        """The shape of a pod; the same object for pods that placing cannot tell apart."""
        seen = {key: pod.labels[key] for key in self.rules.asked_labels if key in pod.labels}
        namespace = "" if self.rules.is_empty else pod.namespace
        key = (
            pod.requests,
            pod.affinity,
            pod.ties,
            pod.tolerations,
            pod.apart_from,
            pod.near_to,
            pod.spread,
            pod.host_ports,
            namespace,
            frozenset(seen.items()),
        )
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = shape_of(pod, namespace, seen, number=len(self._shapes))
        return known

    @property
    def shapes(self) -> Collection[Shape]:
        """All that pods were found to have so far."""
        return self._shapes.values()

    def stands_alone(self, shape: Shape) -> bool:
        """Whether no other pod, there or to come, has a say in where a pod of that shape goes."""
        return not (shape.host_ports or self.rules.concern(shape))

    def admits(self, shape: Shape, place: Place) -> bool:
        """Whether rules between pods, and the host ports in use, let a pod of that shape join those on the place."""
        return _why_no_port(shape, place) is None and self.rules.why_not(shape, place) is None

    def place(self, name: str) -> Place | None:
        """The place of that name."""
        return self._by_name.get(name)

    def place_on(self, hostname: str) -> Place | None:
        """The place whose host name label says so."""
        return self._by_host.get(hostname)

    def why_not(self, shape: Shape, place: Place) -> Reason | None:
        """Why a pod of that shape may not be put there now, or ``None`` where it may."""
        return (
            self._why_not_ever(shape, place)
            or why_no_room(shape.amounts, place.free)
            or _why_no_port(shape, place)
            or (self.rules.why_not(shape, place) if self.rules.keys_for(shape) else None)
        )

    def why_not_new(self, shape: Shape, sample: Place) -> Reason | None:
        """Why not on an empty node such as this sample, whatever else is around."""
        return self._why_not_ever(shape, sample) or why_no_room(shape.amounts, sample.free)

    def suits(self, shape: Shape, place: Place) -> bool:
        """Whether its labels and taints let the shape in."""
        return self._why_not_ever(shape, place) is None

    def takers(self, shape: Shape) -> Sequence[Place]:
        """The places whose labels and taints let the shape in, as of when its like was first asked about."""
        key = (shape.affinity, shape.ties, shape.tolerations)
        known = self._takers.get(key)
        if known is None or known[0] != self._added:
            found = [place for place in self.places if self._why_not_ever(shape, place) is None]
            known = self._takers[key] = (self._added, found)
        return known[1]

    def find(self, shape: Shape, within: tuple[str, str] | None = None) -> Place | None:
        """The standing place where a pod of that shape does least harm; ``within`` names a label that it must have."""
        ranking = self._rankings.get(shape.number)
        if ranking is None or ranking.is_stale():
            if self._shelf is None or self._shelf.is_stale():
                self._shelf = Shelf(self.places, self._changed, self._order)
            ranking = self._rankings[shape.number] = Ranking(
                shape, self._shelf, lambda place: self._why_not_ever(shape, place) is None
            )
        if within is not None and within[0] == HOSTNAME:
            place = self._by_host.get(within[1])
            return place if place is not None and place.standing and self.why_not(shape, place) is None else None
        keys = self.rules.keys_for(shape)
        refused: set[tuple[str | None, ...]] = set()
        for place in ranking.in_order():
            if within is not None and place.labels.get(within[0]) != within[1]:
                continue
            if not keys:
                return place
            domains = tuple([place.labels.get(key) for key in keys])
            if domains not in refused and self.rules.why_not(shape, place) is None:
                return place
            refused.add(domains)
        return None

    def reasons(self, shape: Shape) -> Iterator[Reason]:
        """Why not, for every registered place."""
        for place in self.places:
            if place.node is not None:
                reason = self.why_not(shape, place)
                if reason is not None:
                    yield reason

    # --- Changing -----------------------------------------------------------------------------------------------------

    def add(self, place: Place) -> None:
        """Adds a place."""
        place.index = len(self.places)
        self.places.append(place)
        self._by_name[place.name] = place
        self._by_host[place.labels.get(HOSTNAME, place.name)] = place
        self._changed.append(place)
        self._added += 1
        self.rules.domains.count(place, 1)
        self._journal.append(self._drop_last)

    def put(self, shape: Shape, place: Place, key: str) -> None:
        """Put a pod there. The caller has asked ``why_not``."""
        self._occupy(shape, place, by=1, count=self.rules.count_planned)
        place.guests.append(key)
        opened = not place.standing
        place.standing = True
        self._journal.append(lambda: self._take_back(shape, place, opened=opened))

    def move(self, shape: Shape, old: Place, new: Place, key: str) -> None:
        """Put a pod elsewhere, for good. The caller has asked ``why_not``."""
        self._occupy(shape, old, by=-1, count=self.rules.count_planned)
        old.guests.remove(key)
        self.put(shape, new, key)

    def remove_pod(self, shape: Shape, place: Place) -> None:
        """Go on as if a pod of that shape, which is bound there, were not."""
        self._occupy(shape, place, by=-1, count=self.rules.count)
        self._journal.append(lambda: self._occupy(shape, place, by=1, count=self.rules.count))

    def restore_pod(self, shape: Shape, place: Place) -> None:
        """Go on as if a pod that was removed were there after all."""
        self._occupy(shape, place, by=1, count=self.rules.count)
        self._journal.append(lambda: self._occupy(shape, place, by=-1, count=self.rules.count))

    def remove(self, place: Place) -> None:
        """Take an empty place away, for good."""
        self.places = [one for one in self.places if one is not place]
        self._forget(place)

    def mark(self) -> int:
        """Returns a mark of the state now, for :meth:`undo`."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Takes back everything since the mark."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def count(self, shape: Shape, labels: Mapping[str, str], by: int) -> None:
        """Counts so many more pods of the shape in the domains of these labels, though they have no place yet."""
        self.rules.count_planned(shape, labels, by)
        self._journal.append(lambda: self.rules.count_planned(shape, labels, -by))

    def note(self, undo: Callable[[], None]) -> None:
        """Remember how to take back something of the caller's with what is put."""
        self._journal.append(undo)

    # --- Within -------------------------------------------------------------------------------------------------------

    def _take_back(self, shape: Shape, place: Place, *, opened: bool) -> None:
        place.guests.pop()
        if opened:
            place.standing = False
        self._occupy(shape, place, by=-1, count=self.rules.count_planned)

    def _drop_last(self) -> None:
        self._forget(self.places.pop())

    def _forget(self, place: Place) -> None:
        self.rules.domains.count(place, -1)
        del self._by_name[place.name]
        del self._by_host[place.labels.get(HOSTNAME, place.name)]
        place.version += 1
        place.standing = False
        place.index = -1
        self._added += 1

    def _occupy(self, shape: Shape, place: Place, *, by: int, count: Count) -> None:
        place.version += 1
        free = place.free
        for name, amount in shape.amounts:
            free[name] = free.get(name, 0) - amount * by
        if shape.host_ports:
            place.ports = place.ports | shape.host_ports if by > 0 else place.ports - shape.host_ports
        count(shape, place.labels, by, place.name)
        self._changed.append(place)

    def _why_not_ever(self, shape: Shape, place: Place) -> Reason | None:
        """Labels and taints; asked once for all places that these rules cannot tell apart."""
        values = tuple([place.name if key == NODE_NAME else place.labels.get(key) for key in shape.asked_keys])
        key = (shape.number, place.taints, values)
        try:
            return self._verdicts[key]
        except KeyError:
            verdict = why_not_on(
                affinity=shape.affinity,
                tolerations=shape.tolerations,
                labels=place.labels,
                taints=place.taints,
                name=place.name,
            )
            verdict = verdict or why_not_tied(shape.ties, place.labels, place.name) or why_no_domain(shape, place)
            self._verdicts[key] = verdict
            return verdict


def _why_no_port(shape: Shape, place: Place) -> Reason | None:
    taken = shape.host_ports & place.ports
    return Reason("host port {1}/{0} is taken".format(*min(taken))) if taken else None
