"""May this pod run there, and if not, why not: the scheduler's filters, on plain values.

A :class:`Scene` is a cluster to try placements in: :class:`Place` after place with what is free there, and every pod
that others must keep near to or away from. What is put can be taken back, so that a gang is tried as a whole.
Pods that placing cannot tell apart share one :class:`Shape`: questions are asked and answered once for all of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from autoscaler.cluster import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Group,
    Node,
    Pod,
    PodTerm,
    Requirement,
    Resources,
    Spread,
    Taint,
    Term,
    Toleration,
)
from autoscaler.labels import HOSTNAME
from autoscaler.roll import Roll, roll_of

NODE_NAME: Final = "metadata.name"
"""Key of a ``matchFields`` requirement: the node's name stands for a label."""

_COMMON: Final = frozenset({CPU, MEMORY, PODS, EPHEMERAL_STORAGE})
_CPU_UNIT: Final = 64_000
_MEMORY_UNIT: Final = 256 * 2**30
_ROUNDING: Final = 1e-9

Amounts = tuple[tuple[str, int], ...]
Harm = tuple[int, int, float]


class Reason(NamedTuple):
    """Why a pod may not run somewhere. ``asks`` and ``free`` are set where it is an amount that lacks."""

    kind: str
    asks: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What placing a pod depends on. Made by :meth:`Scene.shape`; pods that are alike get the same object."""

    requests: Resources
    amounts: Amounts
    affinity: tuple[Term, ...]
    tolerations: tuple[Toleration, ...]
    namespace: str
    labels: Mapping[str, str]
    """Only those that some rule asks about."""
    apart_from: tuple[PodTerm, ...]
    near_to: tuple[PodTerm, ...]
    spread: tuple[Spread, ...]
    host_ports: frozenset[tuple[str, int]]
    asked_keys: tuple[str, ...]
    """Label keys that its node affinity asks about, then those that a node must have at all."""
    number: int
    rank: tuple[float, ...]
    """Biggest first when sorted: devices, then the larger share of cpu or memory."""

    @property
    def devices(self) -> dict[str, int]:
        """Extended resources asked for: GPUs and the like."""
        return {name: amount for name, amount in self.amounts if name not in _COMMON}


@dataclass(slots=True, eq=False)
class Place:
    """Somewhere a pod may land: a node that is there, one that is on its way, or one that would be bought."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: dict[str, int]
    tier: int
    """Places of a lower tier are filled first."""
    node: Node | None = None
    group: Group | None = None
    standing: bool = True
    """Open to everyone; a fresh node becomes so with its first pod."""
    ports: frozenset[tuple[str, int]] = frozenset()
    guests: list[str] = field(default_factory=list)
    """Keys of the pods put here in this scene."""
    index: int = -1
    version: int = 0
    harm: tuple[int, Harm] | None = None
    """As of a version."""
    price: float = 0.0
    """Dollars per hour that using it adds to the bill."""


def requirement_holds(requirement: Requirement, value: str | None) -> bool:
    """One match expression on the value of its key (``None``: the label is absent)."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _number_holds(requirement, value)


def _number_holds(requirement: Requirement, value: str | None) -> bool:
    try:
        have, bound = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if requirement.operator == "Gt" else have < bound


def term_holds(term: Term, labels: Mapping[str, str], name: str = "") -> bool:
    """All expressions hold on these labels; ``name`` answers for ``metadata.name``."""
    return all(requirement_holds(one, name if one.key == NODE_NAME and name else labels.get(one.key)) for one in term)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(_covers(one, taint) for one in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def why_not_on(
    *,
    affinity: tuple[Term, ...],
    tolerations: tuple[Toleration, ...],
    labels: Mapping[str, str],
    taints: tuple[Taint, ...],
    name: str = "",
) -> Reason | None:
    """What about the node itself (its labels, its taints) keeps a pod away; ``None`` where nothing does."""
    if affinity and not any(term_holds(term, labels, name) for term in affinity):
        return Reason(f"is not what the pod selects ({_asked(affinity, labels, name)})")
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(tolerations, taint):
            return Reason(f"taint {taint} not tolerated")
    return None


def _asked(affinity: tuple[Term, ...], labels: Mapping[str, str], name: str) -> str:
    """The first expression of each term that does not hold, in words."""
    failing = []
    for term in affinity:
        for one in term:
            if not requirement_holds(one, name if one.key == NODE_NAME and name else labels.get(one.key)):
                failing.append(in_words(one))
                break
    return " or ".join(dict.fromkeys(failing))


def in_words(requirement: Requirement) -> str:
    """For people: ``zone is us-east-1a``."""
    values = ", ".join(requirement.values)
    match requirement.operator:
        case "In":
            return f"{requirement.key} is {values.replace(', ', ' or ')}"
        case "NotIn":
            return f"{requirement.key} is not {values.replace(', ', ' nor ')}"
        case "Exists":
            return f"{requirement.key} is there"
        case "DoesNotExist":
            return f"{requirement.key} is not there"
        case "Gt":
            return f"{requirement.key} is above {values}"
        case "Lt":
            return f"{requirement.key} is below {values}"


def sum_up(reasons: Iterable[Reason], noun: str = "node") -> str:
    """``4 nodes: not enough nvidia.com/gpu (asks 8, at most 4 free); 2 nodes: taint x:NoSchedule not tolerated``."""
    counted: Counter[tuple[str, int]] = Counter()
    most_free: dict[tuple[str, int], int] = {}
    for kind, asks, free in reasons:
        counted[kind, asks] += 1
        most_free[kind, asks] = max(free, most_free.get((kind, asks), 0))
    return "; ".join(
        f"{count} {noun}{'s' if count > 1 else ''}: {_reason_in_words(kind, asks, most_free[kind, asks], count)}"
        for (kind, asks), count in sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    )


def _reason_in_words(kind: str, asks: int, free: int, count: int) -> str:
    if not asks:
        return kind
    resource = kind.rsplit(" ", 1)[-1]
    most = "at most " if count > 1 else ""
    return f"{kind} (asks {amount_in_words(resource, asks)}, {most}{amount_in_words(resource, free)} free)"


def amount_in_words(resource: str, amount: int) -> str:
    """``4``, ``1.5``, ``64Gi``: an amount without its resource's name."""
    return str(Resources({resource: amount})).rsplit(" ", 1)[0] if amount else "0"


class _Watch:
    """How many pods that match a selector are in each domain of a topology key."""

    __slots__ = ("by_key", "matches", "namespaces", "selector", "total")

    def __init__(self, selector: Term, namespaces: frozenset[str], keys: Iterable[str]) -> None:
        self.selector = selector
        self.namespaces = namespaces
        self.by_key: dict[str, dict[str, int]] = {key: defaultdict(int) for key in keys}
        self.total = 0
        self.matches: dict[int, bool] = {}

    def concerns(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace in self.namespaces and term_holds(self.selector, labels)

    def concerns_shape(self, shape: Shape) -> bool:
        known = self.matches.get(shape.number)
        if known is None:
            known = self.matches[shape.number] = self.concerns(shape.namespace, shape.labels)
        return known

    def count(self, labels: Mapping[str, str], by: int) -> None:
        self.total += by
        for key, counts in self.by_key.items():
            value = labels.get(key)
            if value is not None:
                counts[value] += by


_Entry = tuple[Harm, str, int, Place, int]
"""Order, name, a number of its own, the place and which version of it was ranked."""
WatchKey = tuple[Term, frozenset[str]]


class Scene:
    """A cluster to try placements in."""

    def __init__(self, places: Sequence[Place], residents: Iterable[Pod], newcomers: Sequence[Pod]) -> None:
        """Of ``residents`` the bound ones matter; their requests are already taken out of their places' ``free``."""
        self.places: list[Place] = []
        self._by_name: dict[str, Place] = {}
        self._by_host: dict[str, Place] = {}
        self._shapes: dict[object, Shape] = {}
        self._changed: list[Place] = []
        self._rankings: dict[int, _Ranking] = {}
        self._shelf: _Shelf | None = None
        self._repelled: dict[int, tuple[int, tuple[PodTerm, ...]]] = {}
        self._verdicts: dict[tuple[int, tuple[Taint, ...], tuple[str | None, ...]], Reason | None] = {}
        self._domains: dict[_Spreading, dict[str, int]] = {}
        self._takers: dict[tuple[tuple[Term, ...], tuple[Toleration, ...]], tuple[int, list[Place]]] = {}
        self._added = 0
        self._journal: list[Callable[[], None]] = []
        self._watches: dict[WatchKey, _Watch] = {}
        self._repelling: dict[PodTerm, dict[str, int]] = {}
        for place in places:
            self.add(place)
        self._look_around(roll_of(residents), newcomers)

    # --- Asking -------------------------------------------------------------------------------------------------------

    def shape(self, pod: Pod) -> Shape:
        """The shape of a pod; the same object for pods that placing cannot tell apart."""
        seen = {key: pod.labels[key] for key in self._asked_labels if key in pod.labels}
        namespace = "" if self._lonely else pod.namespace
        key = (
            pod.requests,
            pod.affinity,
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
            known = self._shapes[key] = _shape(pod, namespace, seen, number=len(self._shapes))
        return known

    def stands_alone(self, shape: Shape) -> bool:
        """Whether no other pod, there or to come, has a say in where a pod of that shape goes."""
        return not shape.host_ports and not self._minded(shape)

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
        """Why not on an empty node such as this sample, whoever else is around."""
        return self._why_not_ever(shape, sample) or why_no_room(shape.amounts, sample.free)

    def takers(self, shape: Shape) -> Sequence[Place]:
        """The places whose labels and taints let the shape in, as of when its like was first asked about."""
        key = (shape.affinity, shape.tolerations)
        known = self._takers.get(key)
        if known is None or known[0] != self._added:
            found = [place for place in self.places if self._why_not_ever(shape, place) is None]
            known = self._takers[key] = (self._added, found)
        return known[1]

    def find(self, shape: Shape, within: tuple[str, str] | None = None) -> Place | None:
        """The standing place where a pod of that shape does least harm; ``within`` names a label that it must have."""
        ranking = self._rankings.get(shape.number)
        if ranking is None:
            self._shelf = self._shelf or _Shelf(self)
            ranking = self._rankings[shape.number] = _Ranking(self, shape, self._shelf)
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
        if opened:
            self._count_domains(place, -1)
            place.standing = True
            self._count_domains(place, 1)
        self._journal.append(lambda: self._take_back(shape, place, opened=opened))

    def mark(self) -> int:
        """Now, for :meth:`undo`."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back everything since."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def note(self, undo: Callable[[], None]) -> None:
        """Remember how to take back something of the caller's with what is put."""
        self._journal.append(undo)

    # --- Within -------------------------------------------------------------------------------------------------------

    def _take_back(self, shape: Shape, place: Place, *, opened: bool) -> None:
        place.guests.pop()
        if opened:
            self._count_domains(place, -1)
            place.standing = False
            self._count_domains(place, 1)
        self._occupy(shape, place, by=-1)

    def _drop_last(self) -> None:
        place = self.places.pop()
        self._count_domains(place, -1)
        del self._by_name[place.name]
        del self._by_host[place.labels.get(HOSTNAME, place.name)]
        place.version += 1
        place.standing = False
        place.index = -1
        self._added += 1

    def _occupy(self, shape: Shape, place: Place, *, by: int) -> None:
        free = place.free
        for name, amount in shape.amounts:
            free[name] = free.get(name, 0) - amount * by
        if shape.host_ports:
            place.ports = place.ports | shape.host_ports if by > 0 else place.ports - shape.host_ports
        for watch in self._watches.values():
            if watch.concerns_shape(shape):
                watch.count(place.labels, by)
        for term in shape.apart_from:
            self._repel(term, place.labels, by)
        place.version += 1
        self._changed.append(place)

    def _repel(self, term: PodTerm, labels: Mapping[str, str], by: int) -> None:
        value = labels.get(term.topology_key)
        if value is not None:
            self._repelling.setdefault(term, defaultdict(int))[value] += by

    def _look_around(self, residents: Roll, newcomers: Sequence[Pod]) -> None:
        """Index what the newcomers' rules ask about those who are there, and the other way round."""
        wanted: dict[WatchKey, set[str]] = defaultdict(set)
        for pod in newcomers:
            for term in (*pod.apart_from, *pod.near_to):
                wanted[term.selector, term.namespaces].add(term.topology_key)
            for one in pod.spread:
                wanted[one.selector, frozenset({pod.namespace})].add(one.topology_key)
        self._watches = {key: _Watch(*key, keys=sorted(keys)) for key, keys in wanted.items()}
        self._asked_labels = sorted(
            {requirement.key for selector, _ in wanted for requirement in selector}
            | {requirement.key for term in residents.keepers for requirement in term.selector}
        )
        for term, counts in residents.keepers.items():
            for node, pods in counts.items():
                place = self._by_name.get(node)
                if place is not None:
                    self._repel(term, place.labels, pods)
        if self._watches:
            self._count_residents(residents)
        self._lonely = not self._watches and not self._repelling

    def _count_residents(self, residents: Roll) -> None:
        """Most selectors name one value of a label: a sort of pods is asked only about those that name one of its."""
        naming: dict[tuple[str, str, str], list[_Watch]] = defaultdict(list)
        others: dict[str, list[_Watch]] = defaultdict(list)
        for watch in self._watches.values():
            named = [(one.key, value) for one in watch.selector[:1] if one.operator == "In" for value in one.values]
            for namespace in watch.namespaces:
                for key, value in named:
                    naming[namespace, key, value].append(watch)
                if not named:
                    others[namespace].append(watch)
        for (namespace, pairs), counts in residents.sorts.items():
            asked = [*others.get(namespace, ())]
            for key, value in pairs:
                asked += naming.get((namespace, key, value), ())
            for watch in asked:
                if term_holds(watch.selector, dict(pairs)):
                    self._count_sort(watch, counts)

    def _count_sort(self, watch: _Watch, counts: Mapping[str, int]) -> None:
        for node, pods in counts.items():
            place = self._by_name.get(node)
            if place is not None:
                watch.count(place.labels, pods)

    def _why_not_ever(self, shape: Shape, place: Place) -> Reason | None:
        """Labels and taints; asked once for all places that these rules cannot tell apart."""
        values = tuple([place.name if key == NODE_NAME else place.labels.get(key) for key in shape.asked_keys])
        key = (shape.number, place.taints, values)
        try:
            return self._verdicts[key]
        except KeyError:
            verdict = self._verdicts[key] = why_not_on(
                affinity=shape.affinity,
                tolerations=shape.tolerations,
                labels=place.labels,
                taints=place.taints,
                name=place.name,
            ) or _why_no_domain(shape, place)
            return verdict

    def _minded(self, shape: Shape) -> tuple[str, ...]:
        """The topology keys whose domains decide whether the pods around let the shape in; none where nobody minds."""
        if self._lonely:
            return ()
        terms = (*shape.apart_from, *shape.near_to, *self._repellers(shape))
        keys = [*(term.topology_key for term in terms), *(one.topology_key for one in shape.spread)]
        return tuple(dict.fromkeys(keys))

    def _repellers(self, shape: Shape) -> tuple[PodTerm, ...]:
        """The anti-affinity of others that means pods of this shape."""
        known = self._repelled.get(shape.number)
        if known is None or known[0] != len(self._repelling):
            meant = tuple(term for term in self._repelling if _is_meant(term, shape))
            known = self._repelled[shape.number] = (len(self._repelling), meant)
        return known[1]

    def _why_not_beside(self, shape: Shape, place: Place) -> Reason | None:
        """What the pods around have against it, or it against them."""
        for term in self._repellers(shape):
            value = place.labels.get(term.topology_key)
            if value is not None and self._repelling[term].get(value):
                return Reason(f"a pod there keeps such pods out of its {_domain(term.topology_key)}")
        for term in shape.apart_from:
            watch = self._watches[term.selector, term.namespaces]
            value = place.labels.get(term.topology_key)
            if value is not None and watch.by_key[term.topology_key].get(value):
                return Reason(f"a pod that it must be apart from is in the same {_domain(term.topology_key)}")
        return self._why_not_near(shape, place) or self._why_not_even(shape, place)

    def _why_not_near(self, shape: Shape, place: Place) -> Reason | None:
        if not shape.near_to:
            return None
        watches = [self._watches[term.selector, term.namespaces] for term in shape.near_to]
        first = not any(watch.total for watch in watches) and all(watch.concerns_shape(shape) for watch in watches)
        for term, watch in zip(shape.near_to, watches, strict=True):
            if not (first or watch.by_key[term.topology_key].get(place.labels[term.topology_key])):
                return Reason(f"no pod that it must be near to is in the same {_domain(term.topology_key)}")
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
                return Reason(f"would be spread unevenly over {_domain(one.topology_key)}s")
        return None

    def _eligible_domains(self, shape: Shape, topology_key: str) -> Mapping[str, int]:
        """Values of the key among the nodes that the pod selects and that have every key it is spread over."""
        spreading = _Spreading(topology_key, shape.affinity, frozenset(one.topology_key for one in shape.spread))
        known = self._domains.get(spreading)
        if known is None:
            known = self._domains[spreading] = {}
            for place in self.places:
                _count_domain(known, spreading, place, 1)
        return known

    def _count_domains(self, place: Place, by: int) -> None:
        for spreading, counts in self._domains.items():
            _count_domain(counts, spreading, place, by)


class _Spreading(NamedTuple):
    """Which nodes a spread counts, and by which label."""

    topology_key: str
    affinity: tuple[Term, ...]
    keys: frozenset[str]

    def counts(self, place: Place) -> bool:
        labels = place.labels
        return (
            (place.node is not None or place.standing)
            and labels.keys() >= self.keys
            and (not self.affinity or any(term_holds(term, labels, place.name) for term in self.affinity))
        )


def _count_domain(counts: dict[str, int], spreading: _Spreading, place: Place, by: int) -> None:
    """So many more nodes of the place's domain."""
    if spreading.counts(place):
        value = place.labels[spreading.topology_key]
        counts[value] = counts.get(value, 0) + by
        if not counts[value]:
            del counts[value]


class _Shelf:
    """The standing places in the order in which they are to be filled, as they were when first asked about."""

    def __init__(self, scene: Scene) -> None:
        standing = [place for place in scene.places if place.standing]
        ranked = sorted((_harm(place), place.name, place.version, place) for place in standing)
        self.entries = ranked
        self.seen = len(scene._changed)  # noqa: SLF001 - the two are one mechanism
        self._starts: list[int] = []
        """Where each tier and number of free devices begins."""
        for number, entry in enumerate(ranked):
            if not number or entry[0][:2] != ranked[number - 1][0][:2]:
                self._starts.append(number)

    def worth_a_look(self, shape: Shape) -> list[range]:
        """Positions, in order, that hold every place with room for the shape: the others have too little in sum."""
        asked = dict(shape.amounts)
        devices = sum(amount for name, amount in shape.amounts if name not in _COMMON)
        rest = asked.get(CPU, 0) / _CPU_UNIT + asked.get(MEMORY, 0) / _MEMORY_UNIT
        found = []
        for start, end in pairwise((*self._starts, len(self.entries))):
            tier, free, _ = self.entries[start][0]
            if free >= devices:
                least = ((tier, free, rest - _ROUNDING), "", 0)
                found.append(range(bisect_left(self.entries, least, start, end, key=itemgetter(0, 1, 2)), end))
        return found


class _Ranking:
    """The standing places with room for one shape, best first, kept in step with the scene's changes.

    Most places never change: those are read off the shelf that all shapes share. Those that do are in a heap.
    """

    def __init__(self, scene: Scene, shape: Shape, shelf: _Shelf) -> None:
        self._scene = scene
        self._shape = shape
        self._tickets = count()
        self._shelf = shelf.entries
        self._rows = shelf.worth_a_look(shape)
        self._heap: list[_Entry] = []
        self._seen = shelf.seen

    def in_order(self) -> Iterator[Place]:
        """Best first; may be left before its end."""
        self._catch_up()
        passed = []
        unchanged = self._unchanged()
        try:
            first = next(unchanged, None)
            while first is not None or self._heap:
                if first is not None and (not self._heap or first[:2] < self._heap[0][:2]):
                    yield first[3]
                    first = next(unchanged, None)
                    continue
                entry = heapq.heappop(self._heap)
                *_, place, version = entry
                if version == place.version and place.standing and place.index >= 0:
                    passed.append(entry)
                    yield place
        finally:
            for entry in passed:
                heapq.heappush(self._heap, entry)

    def _unchanged(self) -> Iterator[tuple[Harm, str, int, Place]]:
        """From the shelf, those that are as they were; what comes before the first of them is never asked again."""
        shape, scene = self._shape, self._scene
        is_first = True
        for number, row in enumerate(self._rows):
            for position in row:
                entry = self._shelf[position]
                place = entry[3]
                if entry[2] == place.version and self._has_room(place) and scene._why_not_ever(shape, place) is None:  # noqa: SLF001
                    if is_first:
                        self._rows = [range(position, row.stop), *self._rows[number + 1 :]]
                        is_first = False
                    yield entry
        if is_first:
            self._rows = []

    def _catch_up(self) -> None:
        changed = self._scene._changed  # noqa: SLF001
        for place in {id(place): place for place in changed[self._seen :]}.values():
            if self._has_room(place) and self._scene._why_not_ever(self._shape, place) is None:  # noqa: SLF001
                entry = (_harm(place), place.name, next(self._tickets), place, place.version)
                heapq.heappush(self._heap, entry)
        self._seen = len(changed)

    def _has_room(self, place: Place) -> bool:
        if not place.standing or place.index < 0:
            return False
        free = place.free
        for name, amount in self._shape.amounts:
            if amount > free.get(name, 0):
                return False
        return not (self._shape.host_ports and self._shape.host_ports & place.ports)


def _shape(pod: Pod, namespace: str, labels: Mapping[str, str], *, number: int) -> Shape:
    requests = pod.requests if pod.requests[PODS] else pod.requests + Resources({PODS: 1})
    devices = sum(amount for name, amount in requests.items() if name not in _COMMON)
    rank = (-devices, -max(requests[CPU] / _CPU_UNIT, requests[MEMORY] / _MEMORY_UNIT), number)
    return Shape(
        requests=requests,
        amounts=tuple(sorted((name, amount) for name, amount in requests.items() if amount > 0)),
        affinity=pod.affinity,
        tolerations=pod.tolerations,
        namespace=namespace,
        labels=labels,
        apart_from=pod.apart_from,
        near_to=pod.near_to,
        spread=pod.spread,
        host_ports=pod.host_ports,
        asked_keys=_asked_keys(pod),
        number=number,
        rank=rank,
    )


def _asked_keys(pod: Pod) -> tuple[str, ...]:
    selected = [one.key for term in pod.affinity for one in term]
    needed = [*(term.topology_key for term in pod.near_to), *(one.topology_key for one in pod.spread)]
    return tuple(dict.fromkeys([*selected, *needed]))


def why_no_room(amounts: Amounts, free: Mapping[str, int]) -> Reason | None:
    """Which amount lacks first."""
    for name, amount in amounts:
        if amount > free.get(name, 0):
            return Reason(f"not enough {name}", amount, max(0, free.get(name, 0)))
    return None


def _why_no_domain(shape: Shape, place: Place) -> Reason | None:
    """A node without the label that pods are counted by is in no domain: such pods never go there."""
    for term in shape.near_to:
        if term.topology_key not in place.labels:
            return Reason(f"no pod that it must be near to is in the same {_domain(term.topology_key)}")
    for one in shape.spread:
        if one.topology_key not in place.labels:
            return Reason(f"has no label {one.topology_key} to spread over")
    return None


def _why_no_port(shape: Shape, place: Place) -> Reason | None:
    taken = shape.host_ports & place.ports
    return Reason("host port {1}/{0} is taken".format(*min(taken))) if taken else None


def _harm(place: Place) -> Harm:
    """How much use of a place is lost to others when a pod goes there: its tier, free devices stranded, what is left.

    A pod takes the same from every place, so the order is the same for all pods, and is kept until the place changes.
    """
    known = place.harm
    if known is None or known[0] != place.version:
        free = place.free
        devices = sum([amount for name, amount in free.items() if name not in _COMMON and amount > 0])
        rest = max(0, free.get(CPU, 0)) / _CPU_UNIT + max(0, free.get(MEMORY, 0)) / _MEMORY_UNIT
        known = place.harm = (place.version, (place.tier, devices, rest))
    return known[1]


def _is_meant(term: PodTerm, shape: Shape) -> bool:
    return shape.namespace in term.namespaces and term_holds(term.selector, shape.labels)


def _domain(topology_key: str) -> str:
    return {HOSTNAME: "host", "topology.kubernetes.io/zone": "zone"}.get(topology_key, topology_key)
