"""Where pods may go: kinds of node on offer, by zone, and machines that are there, with what is free on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from autoscaler.model import labels as words
from autoscaler.model.cluster import Node, Pod
from autoscaler.model.constraints import Requirement, Taint, Term, Toleration
from autoscaler.model.feasibility import NODE_NAME, requirement_holds, tolerates
from autoscaler.planner.supply.offers import Offer, vector, wanted
from autoscaler.solver.problem import Kind

Amounts = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Room:
    """Offers and machines, and which of them a sort of pods may run on."""

    def __init__(
        self, offers: Sequence[Offer], nodes: Sequence[Node], pods: Sequence[Pod], models: Sequence[Pod]
    ) -> None:
        """``models``: of each sort of pods one."""
        self.offers, self.models = offers, models
        self.sizes: Amounts = np.array([wanted(pod) for pod in models], dtype=np.int64).reshape(-1, 4)
        self.rooms: Amounts = np.array([offer.kind.amounts for offer in offers], dtype=np.int64).reshape(-1, 4)
        self.machines = [node for node in nodes if node.ready and not node.cordoned and not node.deleting]
        self.free = _free(self.machines, pods)
        self.spare: Amounts = np.maximum(self.free, 0)
        """The same, where more is taken than there is: nothing."""
        self.zones = sorted({offer.zone for offer in offers})
        self.merges = _same_everywhere(offers)
        """Every offer is there in every zone: to the solver zones are parts that share their kinds."""
        self.number_of = {(offer.kind.name, offer.zone): number for number, offer in enumerate(offers)}
        self._by_name = {(offer.kind.name, ""): offer for offer in offers}
        self._by_name |= {(_merged(offer), offer.zone): offer for offer in offers}
        self._seen_offers = _Seen([("", offer.labels, offer.taints) for offer in offers])
        self._seen_machines = _Seen(
            [(node.name, {words.HOSTNAME: node.name, **node.labels}, node.taints) for node in self.machines]
        )
        self._suiting: dict[int, tuple[Mask, Mask]] = {}
        chosen: dict[Any, int] = {}
        self.choice = [chosen.setdefault((pod.affinity, pod.tolerations), len(chosen)) for pod in models]
        """For each sort a number that it shares with those that may run at the same places, room aside."""
        kin: dict[Any, int] = {}
        self.kin = [
            kin.setdefault((pod.requests, choice), len(kin)) for pod, choice in zip(models, self.choice, strict=True)
        ]
        """For each sort a number that it shares with those that ask the same of a node."""
        self._fitting: dict[int, Mask] = {}
        self._zones_for: dict[int, frozenset[str]] = {}
        self._names: dict[tuple[int, str | None], frozenset[str]] = {}
        self._held: tuple[Mask, Mask] | None = None

    def kinds(self, alone: tuple[int, ...]) -> list[Kind]:
        """What is on offer, with so many places of each sort of which a node has few."""
        found: dict[str, Kind] = {}
        for offer in self.offers:
            name = self.name(offer)
            found.setdefault(name, replace(offer.kind, name=name, amounts=offer.kind.amounts + alone))
        return list(found.values())

    def offer(self, kind: str, part: str) -> Offer:
        """That which the solver calls so."""
        return self._by_name[kind, part if self.merges else ""]

    def name(self, offer: Offer) -> str:
        """What the solver calls it."""
        return _merged(offer) if self.merges else offer.kind.name

    def names(self, sort: int, zone: str | None) -> frozenset[str]:
        """To the solver, what pods of the sort select in the zone, whether or not they fit."""
        key = (self.choice[sort], zone)
        known = self._names.get(key)
        if known is None:
            chosen = np.nonzero(self.suits(sort)[0])[0].tolist()
            known = self._names[key] = frozenset(
                self.name(offer) for offer in (self.offers[one] for one in chosen) if zone is None or offer.zone == zone
            )
        return known

    def fits(self, sort: int) -> Mask:
        """Which offers hold such a pod and are what it selects."""
        known = self._fitting.get(self.kin[sort])
        if known is None:
            known = self.suits(sort)[0] & self.holds(sort)
            self._fitting[self.kin[sort]] = known
        return known

    def holds(self, sort: int) -> Mask:
        """Which offers are large enough, whatever such a pod selects."""
        large: Mask = (self.sizes[sort] <= self.rooms).all(axis=1)
        return large

    def held(self) -> tuple[Mask, Mask]:
        """Of each sort: whether some offer holds such a pod and is what it selects, and whether some machine does."""
        if self._held is None:
            by_offer, at_home = np.zeros(len(self.models), dtype=bool), np.zeros(len(self.models), dtype=bool)
            alike: dict[int, list[int]] = defaultdict(list)
            for sort, choice in enumerate(self.choice):
                alike[choice].append(sort)
            for sorts in alike.values():
                offers, machines = self.suits(sorts[0])
                by_offer[sorts] = _some_holds(self.rooms[offers], self.sizes[sorts])
                at_home[sorts] = _some_holds(self.spare[machines], self.sizes[sorts])
            self._held = by_offer, at_home
        return self._held

    def zones_for(self, sort: int) -> frozenset[str]:
        """Those in which some offer holds it."""
        known = self._zones_for.get(self.kin[sort])
        if known is None:
            known = frozenset(self.offers[one].zone for one in np.nonzero(self.fits(sort))[0].tolist())
            self._zones_for[self.kin[sort]] = known
        return known

    def suits(self, sort: int) -> tuple[Mask, Mask]:
        """Which offers and which machines are what such a pod selects, room aside."""
        known = self._suiting.get(self.choice[sort])
        if known is None:
            pod = self.models[sort]
            known = self._suiting[self.choice[sort]] = (
                self._seen_offers.suit(affinity_with_arch(pod), pod.tolerations),
                self._seen_machines.suit(pod.affinity, pod.tolerations),
            )
        return known


class _Seen:
    """What pods see of many places, column by column: thousands of places have few different labels and taints."""

    def __init__(self, places: Sequence[tuple[str, Mapping[str, str], Sequence[Taint]]]) -> None:
        """Name, labels and taints of each."""
        self._places = places
        self._holding: dict[Requirement, Mask] = {}

    def suit(self, affinity: Sequence[Term], tolerations: tuple[Toleration, ...]) -> Mask:
        """Places that some term selects, and whose taints are all tolerated."""
        anywhere = np.ones(len(self._places), dtype=bool)
        found = np.zeros(len(self._places), dtype=bool) if affinity else anywhere
        for term in affinity:
            found = found | reduce(np.logical_and, map(self._hold, term), anywhere)
        return found & self._tolerated(tolerations)

    def _hold(self, requirement: Requirement) -> Mask:
        known = self._holding.get(requirement)
        if known is None:
            values = [
                (name or None) if requirement.key == NODE_NAME else labels.get(requirement.key)
                for name, labels, _ in self._places
            ]
            holds = {value: requirement_holds(requirement, value) for value in set(values)}
            known = self._holding[requirement] = np.array([holds[value] for value in values], dtype=bool)
        return known

    def _tolerated(self, tolerations: tuple[Toleration, ...]) -> Mask:
        several = [
            tuple(taint for taint in taints if taint.effect != "PreferNoSchedule") for *_, taints in self._places
        ]
        fine = {taints: all(tolerates(tolerations, taint) for taint in taints) for taints in set(several)}
        return np.array([fine[taints] for taints in several], dtype=bool)


def _some_holds(rooms: Amounts, sizes: Amounts) -> Mask:
    """Of each size, whether one of the rooms holds it."""
    found = np.zeros(len(sizes), dtype=bool)
    for room in _largest(rooms):
        found |= (sizes <= room).all(axis=1)
    return found


def _largest(rooms: Amounts) -> list[Amounts]:
    """Rooms such that no other is as large in everything."""
    kept: list[Amounts] = []
    for room in rooms[np.lexsort(tuple(-side for side in rooms.T))] if len(rooms) else ():
        if not any((room <= other).all() for other in kept):
            kept.append(room)
    return kept


def _free(machines: Sequence[Node], pods: Iterable[Pod]) -> Amounts:
    """After what runs there."""
    free: Amounts = np.array([vector(node.allocatable) for node in machines], dtype=np.int64).reshape(-1, 4)
    place = {node.name: number for number, node in enumerate(machines)}
    for pod in pods if machines else ():
        if pod.node in place and not pod.is_finished:
            free[place[pod.node]] -= np.array(wanted(pod), dtype=np.int64)
    return free


def _same_everywhere(offers: Sequence[Offer]) -> bool:
    zones = {offer.zone for offer in offers}
    found: dict[tuple[str, float], set[str]] = defaultdict(set)
    for offer in offers:
        found[_merged(offer), offer.kind.usd].add(offer.zone)
    return (
        len(zones) > 1
        and "" not in zones
        and all(offer.kind.available is None for offer in offers)
        and all(there == zones for there in found.values())
        and len(found) * len(zones) == len(offers)
    )


def _merged(offer: Offer) -> str:
    """The kind's name without its zone."""
    price = offer.price
    return "/".join(part for part in (offer.entry, price.instance_type, price.capacity_type) if part)


def affinity_with_arch(pod: Pod) -> tuple[Term, ...]:
    """Its node affinity; where that says nothing of the processor, the common one is asked for."""
    arch = Requirement(words.ARCH, "In", ("amd64",))
    if not pod.affinity:
        return ((arch,),)
    return tuple(
        term if any(one.key in (words.ARCH, words.INSTANCE_TYPE) for one in term) else (*term, arch)
        for term in pod.affinity
    )
