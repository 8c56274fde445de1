"""Domains of a label (hosts, zones): how many pods of a sort are in each, and which of them a spread counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from autoscaler.model.constraints import Term
from autoscaler.model.feasibility import NODE_NAME, term_holds
from autoscaler.model.labels import HOSTNAME
from autoscaler.planner.supply.candidate_nodes import Place, Shape


class Watch:
    """How many pods that match a selector are in each domain of a topology key."""

    __slots__ = ("by_key", "matches", "namespaces", "selector", "total")

    def __init__(self, selector: Term, namespaces: frozenset[str], keys: Iterable[str]) -> None:
        self.selector = selector
        self.namespaces = namespaces
        self.by_key: dict[str, dict[str, int]] = {key: defaultdict(int) for key in keys}
        self.total = 0
        self.matches: dict[int, bool] = {}

    def concerns_shape(self, shape: Shape) -> bool:
        """Whether pods of the shape match."""
        known = self.matches.get(shape.number)
        if known is None:
            known = shape.namespace in self.namespaces and term_holds(self.selector, shape.labels)
            self.matches[shape.number] = known
        return known

    def count(self, labels: Mapping[str, str], by: int) -> None:
        """So many more are on a node with these labels."""
        self.total += by
        for key, counts in self.by_key.items():
            value = labels.get(key)
            if value is not None:
                counts[value] += by


class Spreading(NamedTuple):
    """Which nodes a spread counts, and by which label."""

    topology_key: str
    affinity: tuple[Term, ...]
    keys: frozenset[str]

    def counts(self, place: Place) -> bool:
        """Whether the place is one of them."""
        labels = place.labels
        return labels.keys() >= self.keys and (
            not self.affinity or any(term_holds(term, labels, place.name) for term in self.affinity)
        )


def count_domain(counts: dict[str, int], spreading: Spreading, place: Place, by: int) -> None:
    """So many more nodes of the place's domain."""
    if spreading.counts(place):
        value = place.labels[spreading.topology_key]
        counts[value] = counts.get(value, 0) + by
        if not counts[value]:
            del counts[value]


def domains_of(spreading: Spreading, places: Iterable[Place]) -> dict[str, int]:
    """How many of these nodes are in each domain; asked once of all that no rule tells apart."""
    counts: dict[str, int] = {}
    affinity = {requirement.key for term in spreading.affinity for requirement in term}
    if NODE_NAME in affinity:
        for place in places:
            count_domain(counts, spreading, place, 1)
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


def in_words(topology_key: str) -> str:
    """For people."""
    return {HOSTNAME: "host", "topology.kubernetes.io/zone": "zone"}.get(topology_key, topology_key)
