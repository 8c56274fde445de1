"""A cluster to try placements in: places with what is free there, and the pods that others keep near to or away from.

What is put can be taken back, so that a gang is tried as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Taint, Term
from autoscaler.model.feasibility import NODE_NAME, Reason, term_holds, why_no_room, why_not_on, why_not_tied
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.model.pod_index import PodIndex, pod_index_of
from autoscaler.planner.placement.topology_spread import Spreading, Watch, count_domain, domains_of, in_words
from autoscaler.planner.supply.candidate_nodes import FillOrder, Place, Ranking, Shape, Shelf, shape_of

WatchKey = tuple[Term, frozenset[str]]


class Snapshot:
    """A cluster to try placements in."""

    def __init__(
        self,
        places: Sequence[Place],
        residents: Iterable[Pod],
        newcomers: Sequence[Pod],
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
        self._repelled: dict[int, tuple[int, tuple[PodTerm, ...]]] = {}
        self._concerned: dict[int, tuple[Watch, ...]] = {}
        self._counted: dict[int, tuple[int, frozenset[str]]] = {}
        self._verdicts: dict[tuple[int, tuple[Taint, ...], tuple[str | None, ...]], Reason | None] = {}
        self._domains: dict[Spreading, dict[str, int]] = {}
        self._prospects: tuple[Place, ...] = ()
        self._takers: dict[object, tuple[int, list[Place]]] = {}
        self._added = 0
        self._journal: list[Callable[[], None]] = []
        self._watches: dict[WatchKey, Watch] = {}
        self._repelling: dict[PodTerm, dict[str, int]] = {}
        self._keepers: Collection[PodTerm] = ()
        """Anti-affinity of pods that are still to be placed."""
        for number, place in enumerate(self.places):
            place.index = number
        self._look_around(pod_index_of(residents), newcomers)

    # --- Asking -------------------------------------------------------------------------------------------------------

    def shape(self, pod: Pod) -> Shape:
        """The shape of a pod; the same object for pods that placing cannot tell apart."""
        seen = {key: pod.labels[key] for key in self._asked_labels if key in pod.labels}
        namespace = "" if self._lonely else pod.namespace
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
        if shape.host_ports or self._minded(shape):
            return False
        return not self._meaning(shape)

    def has_common_rules(self, shape: Shape) -> bool:
        """Whether all rules that have a say in where a pod of that shape goes are by zone, or keep it off hosts."""
        keys = {term.topology_key for term in (*shape.apart_from, *self._meaning(shape))}
        keys |= {one.topology_key for one in shape.spread}
        return keys <= {HOSTNAME, ZONE} and all(term.topology_key == ZONE for term in shape.near_to)

    def admits(self, shape: Shape, place: Place) -> bool:
        """Whether rules between pods, and the host ports in use, let a pod of that shape join those on the place."""
        return _why_no_port(shape, place) is None and self._why_not_beside(shape, place) is None

    def counts_by(self, topology_key: str) -> bool:
        """Whether a rule of some pod counts by the key."""
        return any(topology_key in watch.by_key for watch in self._watches.values()) or any(
            term.topology_key == topology_key for term in (*self._repelling, *self._keepers)
        )

    def is_counted_by(self, shape: Shape, topology_key: str) -> bool:
        """Whether a rule, its own or another pod's, counts pods of that shape by the key."""
        return not self._lonely and topology_key in self._counted_keys(shape)

    def _counted_keys(self, shape: Shape) -> frozenset[str]:
        """The keys by which rules, its own or other pods', count pods of that shape."""
        known = self._counted.get(shape.number)
        if known is None or known[0] != len(self._repelling):
            keys = {term.topology_key for term in (*shape.apart_from, *shape.near_to, *self._meaning(shape))}
            keys |= {one.topology_key for one in shape.spread}
            keys = keys.union(*(watch.by_key for watch in self._watching(shape)))
            known = self._counted[shape.number] = len(self._repelling), frozenset(keys)
        return known[1]

    def _watching(self, shape: Shape) -> tuple[Watch, ...]:
        """What counts pods of that shape."""
        known = self._concerned.get(shape.number)
        if known is None:
            known = tuple(watch for watch in self._watches.values() if watch.concerns_shape(shape))
            self._concerned[shape.number] = known
        return known

    def counted_with(self, shape: Shape, topology_key: str, value: str) -> int:
        """Pods in a domain, as often as a rule counts them and a pod of that shape."""
        return sum(
            watch.by_key[topology_key].get(value, 0) for watch in self._watching(shape) if topology_key in watch.by_key
        )

    def suits_others(self, shape: Shape, place: Place) -> bool:
        """Whether the rules between pods let a pod of that shape on a place that is empty."""
        return self._why_not_beside(shape, place) is None

    def _meaning(self, shape: Shape) -> tuple[PodTerm, ...]:
        """The anti-affinity of others, there or to come, that means pods of that shape."""
        return tuple(term for term in (*self._repellers(shape), *self._keepers) if _is_meant(term, shape))

    def counted(self, term: PodTerm) -> int:
        """How many pods there are, or are planned, that a rule of the newcomers means."""
        return self._watches[term.selector, term.namespaces].total

    def means(self, term: PodTerm, shape: Shape) -> bool:
        """Whether a rule between pods is about pods of that shape."""
        return _is_meant(term, shape)

    def is_counted_apart(self, shape: Shape, one: Place, other: Place) -> bool:
        """Whether it makes a difference to the rules of some pod on which of the two a pod of that shape is."""
        return any(
            any(one.labels.get(key) != other.labels.get(key) for key in watch.by_key) for watch in self._watching(shape)
        )

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
            or (self._why_not_beside(shape, place) if self._minded(shape) else None)
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
        keys = self._minded(shape)
        refused: set[tuple[str | None, ...]] = set()
        for place in ranking.in_order():
            if within is not None and place.labels.get(within[0]) != within[1]:
                continue
            if not keys:
                return place
            domains = tuple([place.labels.get(key) for key in keys])
            if domains not in refused and self._why_not_beside(shape, place) is None:
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
        """One more place."""
        place.index = len(self.places)
        self.places.append(place)
        self._by_name[place.name] = place
        self._by_host[place.labels.get(HOSTNAME, place.name)] = place
        self._changed.append(place)
        self._added += 1
        self._count_domains(place, 1)
        self._journal.append(self._drop_last)

    def put(self, shape: Shape, place: Place, key: str) -> None:
        """Put a pod there. The caller has asked ``why_not``."""
        self._occupy(shape, place, by=1)
        place.guests.append(key)
        opened = not place.standing
        place.standing = True
        self._journal.append(lambda: self._take_back(shape, place, opened=opened))

    def move(self, shape: Shape, old: Place, new: Place, key: str) -> None:
        """Put a pod elsewhere, for good. The caller has asked ``why_not``."""
        self._occupy(shape, old, by=-1)
        old.guests.remove(key)
        self.put(shape, new, key)

    def leave(self, shape: Shape, place: Place, *, pods: int = 1) -> None:
        """As if a pod of that shape, which is there, were not; ``-1`` pods: as if it were after all."""
        self._occupy(shape, place, by=-pods)
        self._journal.append(lambda: self._occupy(shape, place, by=pods))

    def remove(self, place: Place) -> None:
        """Take an empty place away, for good."""
        self.places = [one for one in self.places if one is not place]
        self._forget(place)

    def expect(self, prospects: Iterable[Place]) -> None:
        """Samples of nodes that may be bought: pods are spread as if one of each were there.

        They are looked at only where some rule between pods of these counts by a label.
        """
        self._prospects = tuple(prospects) if self._watches else ()
        self._domains.clear()

    def mark(self) -> int:
        """Now, for :meth:`undo`."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back everything since."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def count(self, shape: Shape, labels: Mapping[str, str], by: int) -> None:
        """So many more pods of the shape are counted in the domains of these labels, though they have no place yet."""
        self._count(shape, labels, by)
        self._journal.append(lambda: self._count(shape, labels, -by))

    def note(self, undo: Callable[[], None]) -> None:
        """Remember how to take back something of the caller's with what is put."""
        self._journal.append(undo)

    # --- Within -------------------------------------------------------------------------------------------------------

    def _take_back(self, shape: Shape, place: Place, *, opened: bool) -> None:
        place.guests.pop()
        if opened:
            place.standing = False
        self._occupy(shape, place, by=-1)

    def _drop_last(self) -> None:
        self._forget(self.places.pop())

    def _forget(self, place: Place) -> None:
        self._count_domains(place, -1)
        del self._by_name[place.name]
        del self._by_host[place.labels.get(HOSTNAME, place.name)]
        place.version += 1
        place.standing = False
        place.index = -1
        self._added += 1

    def _occupy(self, shape: Shape, place: Place, *, by: int) -> None:
        place.version += 1
        free = place.free
        for name, amount in shape.amounts:
            free[name] = free.get(name, 0) - amount * by
        if shape.host_ports:
            place.ports = place.ports | shape.host_ports if by > 0 else place.ports - shape.host_ports
        self._count(shape, place.labels, by)
        self._changed.append(place)

    def _count(self, shape: Shape, labels: Mapping[str, str], by: int) -> None:
        for watch in self._watching(shape):
            watch.count(labels, by)
        for term in shape.apart_from:
            self._repel(term, labels, by)

    def _repel(self, term: PodTerm, labels: Mapping[str, str], by: int) -> None:
        value = labels.get(term.topology_key)
        if value is not None:
            self._repelling.setdefault(term, defaultdict(int))[value] += by

    def _look_around(self, residents: PodIndex, newcomers: Sequence[Pod]) -> None:
        """Index what the newcomers' rules ask about those that are there, and the other way round."""
        wanted: dict[WatchKey, set[str]] = defaultdict(set)
        for pod in newcomers:
            for term in (*pod.apart_from, *pod.near_to):
                wanted[term.selector, term.namespaces].add(term.topology_key)
            for one in pod.spread:
                wanted[one.selector, frozenset({pod.namespace})].add(one.topology_key)
        self._keepers = dict.fromkeys(term for pod in newcomers for term in pod.apart_from)
        self._watches = {key: Watch(*key, keys=sorted(keys)) for key, keys in wanted.items()}
        self._asked_labels = sorted(
            {requirement.key for selector, _ in wanted for requirement in selector}
            | {requirement.key for term in residents.keepers for requirement in term.selector}
        )
        for term, counts in residents.keepers.items():
            for place, pods in self._at_places(counts):
                self._repel(term, place.labels, pods)
        if self._watches:
            self._count_residents(residents)
        self._lonely = not self._watches and not self._repelling

    def _count_residents(self, residents: PodIndex) -> None:
        """Most selectors name one value of a label: a sort of pods is asked only about those that name one of its."""
        naming: dict[tuple[str, str, str], list[Watch]] = defaultdict(list)
        others: dict[str, list[Watch]] = defaultdict(list)
        for watch in self._watches.values():
            named = [(one.key, value) for one in watch.selector[:1] if one.operator == "In" for value in one.values]
            for namespace in watch.namespaces:
                for key, value in named:
                    naming[namespace, key, value].append(watch)
                if not named:
                    others[namespace].append(watch)
        for (namespace, pairs), counts in residents.classes.items():
            asked = [*others.get(namespace, ())]
            for key, value in pairs:
                asked += naming.get((namespace, key, value), ())
            for watch in asked:
                for place, pods in self._at_places(counts) if term_holds(watch.selector, dict(pairs)) else ():
                    watch.count(place.labels, pods)

    def _at_places(self, counts: Mapping[str, int]) -> Iterator[tuple[Place, int]]:
        """Of pods by node those on places, closed ones too."""
        for node, pods in counts.items():
            place = self._by_name.get(node) or self._closed.get(node)
            if place is not None:
                yield place, pods

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
            verdict = verdict or why_not_tied(shape.ties, place.labels, place.name) or _why_no_domain(shape, place)
            self._verdicts[key] = verdict
            return verdict

    def _minded(self, shape: Shape) -> tuple[str, ...]:
        """The topology keys whose domains decide whether the pods around let the shape in; none where no pod minds."""
        if self._lonely:
            return ()
        terms = (*shape.apart_from, *shape.near_to, *self._repellers(shape))
        keys = [*(term.topology_key for term in terms), *(one.topology_key for one in shape.spread)]
        return tuple(dict.fromkeys(keys))

    def _repellers(self, shape: Shape) -> tuple[PodTerm, ...]:
        """The anti-affinity of others that means pods of this shape."""
        known = self._repelled.get(shape.number)
        if known is None or known[0] != len(self._repelling):
            assignments = tuple(term for term in self._repelling if _is_meant(term, shape))
            known = self._repelled[shape.number] = (len(self._repelling), assignments)
        return known[1]

    def _why_not_beside(self, shape: Shape, place: Place) -> Reason | None:
        """What the pods around have against it, or it against them."""
        for term in self._repellers(shape):
            value = place.labels.get(term.topology_key)
            if value is not None and self._repelling[term].get(value):
                return Reason(f"a pod there keeps such pods out of its {in_words(term.topology_key)}")
        for term in shape.apart_from:
            watch = self._watches[term.selector, term.namespaces]
            value = place.labels.get(term.topology_key)
            if value is not None and watch.by_key[term.topology_key].get(value):
                return Reason(f"a pod that it must be apart from is in the same {in_words(term.topology_key)}")
        return self._why_not_near(shape, place) or self._why_not_even(shape, place)

    def _why_not_near(self, shape: Shape, place: Place) -> Reason | None:
        if not shape.near_to:
            return None
        watches = [self._watches[term.selector, term.namespaces] for term in shape.near_to]
        first = not any(watch.total for watch in watches) and all(watch.concerns_shape(shape) for watch in watches)
        for term, watch in zip(shape.near_to, watches, strict=True):
            if not (first or watch.by_key[term.topology_key].get(place.labels[term.topology_key])):
                return Reason(f"no pod that it must be near to is in the same {in_words(term.topology_key)}")
        return None

    def _why_not_even(self, shape: Shape, place: Place) -> Reason | None:
        for one in shape.spread:
            value = place.labels[one.topology_key]
            watch = self._watches[one.selector, frozenset({shape.namespace})]
            counts = watch.by_key[one.topology_key]
            domains = self._eligible_domains(shape, one.topology_key)
            fewest = 0
            if len(counts) >= len(domains) and not (one.min_domains is not None and len(domains) < one.min_domains):
                fewest = min([counts.get(domain, 0) for domain in domains], default=0)
            if counts.get(value, 0) + watch.concerns_shape(shape) - fewest > one.max_skew:
                return Reason(f"would be spread unevenly over {in_words(one.topology_key)}s")
        return None

    def _eligible_domains(self, shape: Shape, topology_key: str) -> Mapping[str, int]:
        """Values of the key among the nodes that the pod selects and that have every key it is spread over.

        Nodes that are to come count as if they were there, and so do the zones in which some may be bought: when the
        scheduler binds the pod they may be, with nothing on them.
        """
        spreading = Spreading(topology_key, shape.affinity, frozenset(one.topology_key for one in shape.spread))
        known = self._domains.get(spreading)
        if known is None:
            others = self._prospects if topology_key != HOSTNAME else ()
            known = self._domains[spreading] = domains_of(spreading, (*self.places, *self._closed.values(), *others))
        return known

    def _count_domains(self, place: Place, by: int) -> None:
        for spreading, counts in self._domains.items():
            count_domain(counts, spreading, place, by)


def _why_no_domain(shape: Shape, place: Place) -> Reason | None:
    """A node without the label that pods are counted by is in no domain: such pods never go there."""
    for term in shape.near_to:
        if term.topology_key not in place.labels:
            return Reason(f"no pod that it must be near to is in the same {in_words(term.topology_key)}")
    for one in shape.spread:
        if one.topology_key not in place.labels:
            return Reason(f"has no label {one.topology_key} to spread over")
    return None


def _why_no_port(shape: Shape, place: Place) -> Reason | None:
    taken = shape.host_ports & place.ports
    return Reason("host port {1}/{0} is taken".format(*min(taken))) if taken else None


def _is_meant(term: PodTerm, shape: Shape) -> bool:
    return shape.namespace in term.namespaces and term_holds(term.selector, shape.labels)
