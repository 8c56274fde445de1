"""Rules between pods: affinity, anti-affinity and topology spread, and how many pods they count in each domain.

As the scheduler's plugins ``InterPodAffinity`` and ``PodTopologySpread`` have them, for pods that are to be placed
beside those that are bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Spread, Term
from autoscaler.model.feasibility import Reason, term_holds
from autoscaler.model.labels import HOSTNAME, ZONE
from autoscaler.model.needed_changes import selector_in_words
from autoscaler.model.pod_index import Counts, PodIndex
from autoscaler.planner.placement.topology_spread import EligibleDomains, Spreading
from autoscaler.planner.supply.candidate_nodes import Place, Shape

SelectorKey = tuple[Term, frozenset[str]]
"""A selector, and the namespaces in which it selects."""


class SelectedPods:
    """How many pods that a selector selects are in each domain of a topology key."""

    __slots__ = ("_selects", "by_key", "by_spreading", "in_a_domain", "namespaces", "selector", "total", "words")

    def __init__(
        self, selector: Term, namespaces: frozenset[str], *, keys: Iterable[str], spreadings: Iterable[Spreading]
    ) -> None:
        self.selector = selector
        self.namespaces = namespaces
        self.by_key: dict[str, dict[str, int]] = {key: defaultdict(int) for key in keys}
        self.by_spreading: dict[Spreading, dict[str, int]] = {one: defaultdict(int) for one in spreadings}
        """Of these only the pods on nodes that the spread counts."""
        self.in_a_domain = dict.fromkeys(self.by_key, 0)
        """Key -> how many of them are on nodes that have such a label."""
        self.total = 0
        self.words = selector_in_words(selector)
        """Which pods these are, for people."""
        self._selects: dict[int, bool] = {}

    def selects(self, shape: Shape) -> bool:
        """Whether pods of the shape are among them."""
        known = self._selects.get(shape.number)
        if known is None:
            known = self._selects[shape.number] = _selects(self.selector, self.namespaces, shape)
        return known

    def count(self, labels: Mapping[str, str], by: int, is_eligible: Callable[[Spreading], bool]) -> None:
        """Counts so many more on a node with these labels. ``is_eligible``: whether a spread counts that node."""
        self.total += by
        for key, counts in self.by_key.items():
            value = labels.get(key)
            if value is not None:
                counts[value] += by
                self.in_a_domain[key] += by
        for spreading, counts in self.by_spreading.items():
            value = labels.get(spreading.topology_key)
            if value is not None and is_eligible(spreading):
                counts[value] += by


class CountedSpread(NamedTuple):
    """A topology spread, with the pods that it counts and the nodes among which it counts them."""

    spread: Spread
    pods: SelectedPods
    spreading: Spreading

    @property
    def counts(self) -> Mapping[str, int]:
        """Pods by domain."""
        return self.pods.by_spreading.get(self.spreading, self.pods.by_key[self.spread.topology_key])


class InterPodRules:
    """What pods that are to be placed ask of others, and others of them; the counts change as pods are placed."""

    def __init__(
        self,
        residents: PodIndex,
        pending: Sequence[Pod],
        *,
        place_of: Callable[[str], Place | None],
        places: Callable[[], Iterable[Place]],
    ) -> None:
        """``place_of``: the place of that name; ``places``: all that a spread may count, closed ones too."""
        self.domains = EligibleDomains(places)
        self._keys_counting: dict[int, tuple[int, frozenset[str]]] = {}
        self._against: dict[int, tuple[int, tuple[PodTerm, ...]]] = {}
        self._counting: dict[int, tuple[SelectedPods, ...]] = {}
        self._anti_affinity: dict[PodTerm, dict[str, int]] = {}
        """Of pods with a place: how many of them are in which domain."""
        self._spreads: dict[int, tuple[CountedSpread, ...]] = {}
        self._planned_spreads: dict[CountedSpread, dict[str, int]] = {}
        """Of pods that are planned, not bound: how many of them are in which domain."""
        self._spreads_over: dict[int, tuple[int, tuple[CountedSpread, ...]]] = {}
        wanted: dict[SelectorKey, set[str]] = defaultdict(set)
        spreadings: dict[SelectorKey, dict[Spreading, None]] = defaultdict(dict)
        for pod in pending:
            for term in (*pod.apart_from, *pod.near_to):
                wanted[term.selector, term.namespaces].add(term.topology_key)
            if pod.near_to:
                wanted[_all_of(pod.near_to)].update(term.topology_key for term in pod.near_to)
            for one, spreading in _spreadings(pod.spread, pod.affinity):
                selector = one.selector, frozenset({pod.namespace})
                wanted[selector].add(one.topology_key)
                if spreading.is_narrow:
                    spreadings[selector][spreading] = None
        self._pending_anti_affinity: Collection[PodTerm] = dict.fromkeys(
            term for pod in pending for term in pod.apart_from
        )
        self._selected = {
            key: SelectedPods(*key, keys=sorted(keys), spreadings=spreadings.get(key, ()))
            for key, keys in wanted.items()
        }
        self.asked_labels = sorted(
            {requirement.key for selector, _ in wanted for requirement in selector}
            | {requirement.key for term in residents.anti_affinity for requirement in term.selector}
        )
        """Labels of a pod that tell some rule whether it selects the pod."""
        for term, by_node in residents.anti_affinity.items():
            for place, pods in _at_places(by_node, place_of):
                self._keep_away(term, place.labels, pods)
        if self._selected:
            self._count_residents(residents, place_of)
        self.is_empty = not self._selected and not self._anti_affinity

    def concern(self, shape: Shape) -> bool:
        """Whether rules of its own, or anti-affinity of others there or to come, say where a pod of that shape goes."""
        return bool(shape.apart_from or shape.near_to or shape.spread or self._anti_affinity_against(shape))

    def are_by_host_or_zone(self, shape: Shape) -> bool:
        """Whether all rules that have a say in where a pod of that shape goes are by zone, or keep it off hosts."""
        keys = {term.topology_key for term in (*shape.apart_from, *self._anti_affinity_against(shape))}
        keys |= {one.topology_key for one in shape.spread}
        return keys <= {HOSTNAME, ZONE} and all(term.topology_key == ZONE for term in shape.near_to)

    def keys_for(self, shape: Shape) -> tuple[str, ...]:
        """The topology keys whose domains decide whether the pods with a place admit the shape; none without rules."""
        if self.is_empty:
            return ()
        terms = (*shape.apart_from, *shape.near_to, *self._placed_against(shape))
        spreads = (*shape.spread, *(one.spread for one in self._planned_spreads_over(shape)))
        keys = [*(term.topology_key for term in terms), *(one.topology_key for one in spreads)]
        return tuple(dict.fromkeys(keys))

    def count_by(self, topology_key: str) -> bool:
        """Whether a rule of some pod counts by the key."""
        return any(topology_key in pods.by_key for pods in self._selected.values()) or any(
            term.topology_key == topology_key for term in (*self._anti_affinity, *self._pending_anti_affinity)
        )

    def count_shape_by(self, shape: Shape, topology_key: str) -> bool:
        """Whether a rule, its own or another pod's, counts pods of that shape by the key."""
        if self.is_empty:
            return False
        known = self._keys_counting.get(shape.number)
        if known is None or known[0] != len(self._anti_affinity):
            terms = (*shape.apart_from, *shape.near_to, *self._anti_affinity_against(shape))
            keys = {term.topology_key for term in terms} | {one.topology_key for one in shape.spread}
            keys = keys.union(*(pods.by_key for pods in self._that_count(shape)))
            known = self._keys_counting[shape.number] = len(self._anti_affinity), frozenset(keys)
        return topology_key in known[1]

    def counted_with(self, shape: Shape, topology_key: str, value: str) -> int:
        """Pods in a domain, as often as a rule counts them and a pod of that shape."""
        return sum(
            pods.by_key[topology_key].get(value, 0) for pods in self._that_count(shape) if topology_key in pods.by_key
        )

    def selected(self, term: PodTerm) -> int:
        """How many pods there are, or are planned, that a rule of the pending pods selects."""
        return self._selected[term.selector, term.namespaces].total

    def tell_apart(self, shape: Shape, one: Place, other: Place) -> bool:
        """Whether it makes a difference to some rule on which of the two places a pod of that shape is."""
        return any(
            any(one.labels.get(key) != other.labels.get(key) for key in pods.by_key) for pods in self._that_count(shape)
        )

    def why_not(self, shape: Shape, place: Place) -> Reason | None:
        """Why the pods around do not admit a pod of that shape on the place, or it does not admit them."""
        for term in self._placed_against(shape):
            value = place.labels.get(term.topology_key)
            if value is not None and self._anti_affinity[term].get(value):
                return Reason(f"the anti-affinity of a pod that runs {_there(term.topology_key)} forbids it")
        for term in shape.apart_from:
            pods = self._selected[term.selector, term.namespaces]
            value = place.labels.get(term.topology_key)
            if value is not None and pods.by_key[term.topology_key].get(value):
                there = _there(term.topology_key)
                return Reason(f"a pod of which {pods.words} runs {there}, which the pod's anti-affinity forbids")
        return (
            self._why_not_near(shape, place)
            or self._why_not_even(shape, place)
            or self._why_uneven_for_planned(shape, place)
        )

    def count(self, shape: Shape, labels: Mapping[str, str], by: int, name: str = "") -> None:
        """Counts so many more bound pods of the shape in the domains of these labels.

        ``name``: of their node; where they have none yet, those of a spread's own affinity, or none, will be eligible.
        """

        def is_eligible(spreading: Spreading) -> bool:
            return spreading.counts_node(labels, name) if name else shape.affinity in ((), spreading.affinity)

        for pods in self._that_count(shape):
            pods.count(labels, by, is_eligible)
        for term in shape.apart_from:
            self._keep_away(term, labels, by)

    def count_planned(self, shape: Shape, labels: Mapping[str, str], by: int, name: str = "") -> None:
        """Counts so many more planned pods of the shape, as :meth:`count` does."""
        self.count(shape, labels, by, name)
        for one in self._spreads_of(shape):
            value = labels.get(one.spread.topology_key)
            if value is not None:
                self._planned_spreads.setdefault(one, defaultdict(int))[value] += by

    def expect(self, prospects: Iterable[Place], may_come: Callable[[Place], bool]) -> None:
        """Samples of nodes that may be bought; looked at only where a rule of the pending pods counts by a label.

        ``may_come``: whether one more node like the sample may still be bought.
        """
        self.domains.expect(prospects if self._selected else (), may_come)

    def _keep_away(self, term: PodTerm, labels: Mapping[str, str], by: int) -> None:
        value = labels.get(term.topology_key)
        if value is not None:
            self._anti_affinity.setdefault(term, defaultdict(int))[value] += by

    def _count_residents(self, residents: PodIndex, place_of: Callable[[str], Place | None]) -> None:
        """Most selectors name one value of a label: a class of pods is asked only about those that name one of its."""
        naming: dict[tuple[str, str, str], list[SelectedPods]] = defaultdict(list)
        others: dict[str, list[SelectedPods]] = defaultdict(list)
        for selected in self._selected.values():
            named = [(one.key, value) for one in selected.selector[:1] if one.operator == "In" for value in one.values]
            for namespace in selected.namespaces:
                for key, value in named:
                    naming[namespace, key, value].append(selected)
                if not named:
                    others[namespace].append(selected)
        for (namespace, pairs), by_node in residents.classes.items():
            asked = [*others.get(namespace, ())]
            for key, value in pairs:
                asked += naming.get((namespace, key, value), ())
            for selected in asked:
                if term_holds(selected.selector, dict(pairs)):
                    for place, pods in _at_places(by_node, place_of):
                        selected.count(place.labels, pods, lambda spreading, place=place: spreading.counts(place))

    def _that_count(self, shape: Shape) -> tuple[SelectedPods, ...]:
        """The counts in which pods of that shape are."""
        known = self._counting.get(shape.number)
        if known is None:
            known = tuple(pods for pods in self._selected.values() if pods.selects(shape))
            self._counting[shape.number] = known
        return known

    def _anti_affinity_against(self, shape: Shape) -> tuple[PodTerm, ...]:
        """Returns the terms of other pods, there or to come, that keep the shape away."""
        pending = (term for term in self._pending_anti_affinity if term_selects(term, shape))
        return (*self._placed_against(shape), *pending)

    def _placed_against(self, shape: Shape) -> tuple[PodTerm, ...]:
        """Anti-affinity of pods with a place that selects pods of this shape."""
        known = self._against.get(shape.number)
        if known is None or known[0] != len(self._anti_affinity):
            terms = tuple(term for term in self._anti_affinity if term_selects(term, shape))
            known = self._against[shape.number] = (len(self._anti_affinity), terms)
        return known[1]

    def _why_not_near(self, shape: Shape, place: Place) -> Reason | None:
        """It is near to pods that all of its terms select; the first of them goes wherever all keys are."""
        if not shape.near_to:
            return None
        pods = self._selected[_all_of(shape.near_to)]
        for term in shape.near_to:
            if not pods.by_key[term.topology_key].get(place.labels[term.topology_key]):
                is_first = not any(pods.in_a_domain[one.topology_key] for one in shape.near_to)
                if is_first and pods.selects(shape):
                    return None
                there = _there(term.topology_key)
                return Reason(f"no pod of which {pods.words} runs {there}, as the pod's affinity asks")
        return None

    def _why_not_even(self, shape: Shape, place: Place) -> Reason | None:
        for one in self._spreads_of(shape):
            if self._is_uneven(one, place, more=one.pods.selects(shape)):
                by = _domain(one.spread.topology_key)
                return Reason(f"maxSkew of the pod's topology spread by {by} would be exceeded")
        return None

    def _why_uneven_for_planned(self, shape: Shape, place: Place) -> Reason | None:
        """The scheduler may come to a planned pod after this one, and would then find its spread uneven."""
        for one in self._planned_spreads_over(shape):
            key = one.spread.topology_key
            if self._planned_spreads[one].get(place.labels.get(key, ""), 0) > 0 and self._is_uneven(one, place, more=1):
                return Reason(f"maxSkew of a planned pod's topology spread by {_domain(key)} would be exceeded")
        return None

    def _is_uneven(self, one: CountedSpread, place: Place, *, more: int) -> bool:
        """Whether so many more of the pods that it counts are too many for the place's domain."""
        spread = one.spread
        counts = one.counts
        domains = self.domains.of(one.spreading)
        fewest = 0
        if len(counts) >= len(domains) and not (spread.min_domains is not None and len(domains) < spread.min_domains):
            fewest = min([counts.get(domain, 0) for domain in domains], default=0)
        many = counts.get(place.labels[spread.topology_key], 0) + more
        if many - fewest > spread.max_skew:
            return True
        # A pod on a node that is still to come is bound when the others that are bought have joined, perhaps with none.
        is_to_come = spread.topology_key == HOSTNAME and place.node is None
        return is_to_come and many > spread.max_skew and self.domains.may_grow(one.spreading)

    def _spreads_of(self, shape: Shape) -> tuple[CountedSpread, ...]:
        known = self._spreads.get(shape.number)
        if known is None:
            known = self._spreads[shape.number] = tuple(
                CountedSpread(one, self._selected[one.selector, frozenset({shape.namespace})], spreading)
                for one, spreading in _spreadings(shape.spread, shape.affinity)
            )
        return known

    def _planned_spreads_over(self, shape: Shape) -> tuple[CountedSpread, ...]:
        """Spreads of planned pods that count pods of this shape, but for its own."""
        known = self._spreads_over.get(shape.number)
        if known is None or known[0] != len(self._planned_spreads):
            others = self._planned_spreads.keys() - self._spreads_of(shape)
            spreads = tuple(one for one in self._planned_spreads if one in others and one.pods.selects(shape))
            known = self._spreads_over[shape.number] = (len(self._planned_spreads), spreads)
        return known[1]


def why_no_domain(shape: Shape, place: Place) -> Reason | None:
    """Say which label the place lacks by which the shape's rules count: on such a node it never goes."""
    for term in shape.near_to:
        if term.topology_key not in place.labels:
            return Reason(f"no label {term.topology_key}, which the pod's affinity names")
    for one in shape.spread:
        if one.topology_key not in place.labels:
            return Reason(f"no label {one.topology_key}, which the pod's topology spread names")
    return None


def term_selects(term: PodTerm, shape: Shape) -> bool:
    """Whether a rule between pods selects pods of that shape."""
    return _selects(term.selector, term.namespaces, shape)


def _spreadings(spreads: Sequence[Spread], affinity: tuple[Term, ...]) -> Iterator[tuple[Spread, Spreading]]:
    """Yields each spread of a pod with the nodes that it counts."""
    keys = frozenset(one.topology_key for one in spreads)
    return ((one, Spreading(one.topology_key, affinity, keys)) for one in spreads)


def _all_of(terms: Sequence[PodTerm]) -> SelectorKey:
    """Selects the pods that all of these terms select."""
    if len(terms) == 1:
        return terms[0].selector, terms[0].namespaces
    selector = tuple(dict.fromkeys(one for term in terms for one in term.selector))
    return selector, frozenset.intersection(*(term.namespaces for term in terms))


def _selects(selector: Term, namespaces: frozenset[str], shape: Shape) -> bool:
    return shape.namespace in namespaces and term_holds(selector, shape.labels)


def _domain(topology_key: str) -> str:
    """Name a domain of the key for people."""
    return {HOSTNAME: "host", ZONE: "zone"}.get(topology_key, topology_key)


def _there(topology_key: str) -> str:
    return "on the node" if topology_key == HOSTNAME else f"in its {_domain(topology_key)}"


def _at_places(by_node: Counts, place_of: Callable[[str], Place | None]) -> Iterator[tuple[Place, int]]:
    """Yields, of pods by node, those on places."""
    for node, pods in by_node.items():
        place = place_of(node)
        if place is not None:
            yield place, pods
