"""Domains of a topology key (hosts, zones) among the nodes that a topology spread counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from autoscaler.model.constraints import Term
from autoscaler.model.feasibility import NODE_NAME, term_holds
from autoscaler.model.labels import HOSTNAME
from autoscaler.planner.supply.candidate_nodes import Place


class EligibleDomains:
    """Values of a topology key among the nodes that a pod selects and that have every key it is spread over.

    Nodes that are to come count as if they were there, and so do the zones in which some may be bought: when the
    scheduler binds the pod they may be, with nothing on them.
    """

    def __init__(self, places: Callable[[], Iterable[Place]]) -> None:
        self._places = places
        self._prospects: tuple[Place, ...] = ()
        self._may_come: Callable[[Place], bool] = _never
        self._known: dict[Spreading, dict[str, int]] = {}

    def of(self, spreading: Spreading) -> Mapping[str, int]:
        """How many nodes are in each domain, as that spread counts them."""
        known = self._known.get(spreading)
        if known is None:
            others = self._prospects if spreading.topology_key != HOSTNAME else ()
            known = self._known[spreading] = _domains_of(spreading, (*self._places(), *others))
        return known

    def count(self, place: Place, by: int) -> None:
        """Counts so many more nodes like the place."""
        for spreading, counts in self._known.items():
            _count_domain(counts, spreading, place, by)

    def expect(self, prospects: Iterable[Place], may_come: Callable[[Place], bool]) -> None:
        """Count samples of nodes that may be bought as if one of each were there, but by host.

        ``may_come``: whether one more node like the sample may still be bought.
        """
        self._prospects, self._may_come = tuple(prospects), may_come
        self._known.clear()

    def may_grow(self, spreading: Spreading) -> bool:
        """Whether a node may still be bought that is one more host among those that the spread counts."""
        return any(spreading.counts(sample) and self._may_come(sample) for sample in self._prospects)


def _never(_place: Place) -> bool:
    return False


class Spreading(NamedTuple):
    """Which nodes a spread counts, and by which label."""

    topology_key: str
    affinity: tuple[Term, ...]
    keys: frozenset[str]

    @property
    def is_narrow(self) -> bool:
        """Whether nodes of one domain may differ in whether it counts them; a host is one node."""
        return self.topology_key != HOSTNAME and bool(self.affinity or self.keys - {self.topology_key, HOSTNAME})

    def counts(self, place: Place) -> bool:
        """Whether the place is one of them."""
        return self.counts_node(place.labels, place.name)

    def counts_node(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node of that name with these labels is one of them."""
        return labels.keys() >= self.keys and (
            not self.affinity or any(term_holds(term, labels, name) for term in self.affinity)
        )


def _count_domain(counts: dict[str, int], spreading: Spreading, place: Place, by: int) -> None:
    """Counts so many more nodes of the place's domain."""
    if spreading.counts(place):
        value = place.labels[spreading.topology_key]
        counts[value] = counts.get(value, 0) + by
        if not counts[value]:
            del counts[value]


def _domains_of(spreading: Spreading, places: Iterable[Place]) -> dict[str, int]:
    """How many of these nodes are in each domain; asked once of all that no rule tells apart."""
    counts: dict[str, int] = {}
    affinity = {requirement.key for term in spreading.affinity for requirement in term}
    if NODE_NAME in affinity:
        for place in places:
            _count_domain(counts, spreading, place, 1)
        return counts
    keys = sorted(affinity | spreading.keys - {spreading.topology_key})
    known: dict[tuple[str | None, ...], bool] = {}
    for place in places:
        labels = place.labels
        domain = labels.get(spreading.topology_key)
        if domain is None:
            continue
        values = tuple(map(labels.get, keys))
        counted = known.get(values)
        if counted is None:
            counted = known[values] = spreading.counts(place)
        if counted:
            counts[domain] = counts.get(domain, 0) + 1
    return counts
