"""Who else there is room for when a plan is made: in order, all of a gang or none.

To find a plan soon a little of what is scarce is kept back (:mod:`autoscaler.planner.admission.admit`), and whole nodes
leave some of it over. So those who wait are gone through once more: beside others where least is left over, on machines
or on nodes that are bought, else on another node within limits. For whom no place is found the plan has no room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np

from autoscaler.planner.admission.proposals import Gang
from autoscaler.planner.admission.zone_balance import Evenness
from autoscaler.planner.demand.pod_rules import FREE, Company, by_zone
from autoscaler.planner.placement.consolidation import Fresh, Tidying
from autoscaler.planner.placement.drafts import Draft, Drafting
from autoscaler.planner.placement.first_fit import is_within
from autoscaler.planner.supply.capacity import Amounts, Mask
from autoscaler.solver.lp.capacity import Stock

_SPARED = 1000.0
"""Whoever asks for no GPU goes where GPUs are free only if there is nothing else."""
_GPUS = 2

_Size = tuple[int, ...]


class FillUp:
    """The places of a draft, machines first, and what may still be bought."""

    def __init__(
        self,
        drafting: Drafting,
        draft: Draft,
        waiting: Iterable[Gang],
        *,
        usd_per_hour: float | None,
        even: Evenness,
    ) -> None:
        """``usd_per_hour``: what nodes may cost together. ``even``: knows of those who are on the draft."""
        self._drafting, self._draft, self._even = drafting, draft, even
        self._sorts, self._room, self._rules = drafting.sorts, drafting.room, drafting.rules
        self._zones = np.array([offer.zone for offer in self._room.offers])
        offers = [self._room.number_of[node.offer.kind.name, node.offer.zone] for node in draft.nodes]
        self._offers: Amounts = np.array(offers, dtype=np.int64)
        self._pods: list[list[int]] = [[] for _ in self._room.machines] + [list(node.pods) for node in draft.nodes]
        self._planned = [node.planned for node in draft.nodes]
        self._companies = [*self._at_home(), *(node.company for node in draft.nodes)]
        self._scale = np.maximum(1, self._room.rooms.max(axis=0, initial=1))[:_GPUS]
        self._free = self._left_free()
        self._rest = (self._free[:_GPUS] / self._scale[:, None]).sum(axis=0)
        self._stock = self._to_be_had(usd_per_hour)
        self._alike = Counter(self._room.kin[self._sorts[one]] for gang in waiting for one in gang)
        """Pods that ask for the same and wait."""
        self._failed: dict[tuple[int, str, int], list[_Size]] = {}

    def fill(
        self, gangs: Sequence[Gang], served: set[int], *, core: Mapping[int, int], in_time: Callable[[], bool]
    ) -> list[Gang]:
        """Give places to as many as possible, in order; who was not tried when the time was over.

        ``served``: the first pods of gangs that have their places; those that find theirs now are added. ``core``: of
        pods that an elastic gang could do without one that it cannot.
        """
        for number, gang in enumerate(gangs):
            if not in_time():
                return list(gangs[number:])
            if core.get(gang[0], gang[0]) in served or gang[0] not in core:
                if self._even.admits(gang) and self._take(gang):
                    self._even.join(gang)
                    served.add(gang[0])
                for one in gang:
                    self._alike[self._room.kin[self._sorts[one]]] -= 1
        return []

    def draft(self, *, tidied: bool) -> Draft:
        """With everyone who has a place now. ``tidied``: on cheaper nodes, where more places were bought than taken."""
        machines = len(self._room.machines)
        at_home = {one: machine for machine, pods in enumerate(self._pods[:machines]) for one in pods}
        nodes = [
            Fresh(self._room.offers[offer], list(pods), company, planned)
            for offer, pods, company, planned in zip(
                self._offers.tolist(), self._pods[machines:], self._companies[machines:], self._planned, strict=True
            )
        ]
        if tidied:
            nodes = Tidying(self._sorts, self._room, self._rules, self._drafting.shaping.zone_of).shrunk(nodes)
        return replace(self._draft, at_home=self._draft.at_home | at_home, nodes=nodes)

    def _at_home(self) -> list[Company]:
        """Of each machine those who are on it; of those who run there already the spread was asked when they came."""
        companies = [Company() for _ in self._room.machines]
        place = {node.name: number for number, node in enumerate(self._room.machines)}
        for number, pod in enumerate(self._drafting.pods if companies and len(self._rules.stances) > 1 else ()):
            stance = self._rules.stance(self._sorts[number])
            if number in self._draft.at_home:
                companies[self._draft.at_home[number]].join(stance)
            elif pod.node in place and not pod.is_finished:
                companies[place[pod.node]].join(stance.as_bound())
        return companies

    def _left_free(self) -> Amounts:
        """By amount and place."""
        free: Amounts = np.concatenate([self._room.free, self._room.rooms[self._offers]])
        machines = len(self._room.machines)
        held = [(one, machine) for one, machine in self._draft.at_home.items()]
        held += [(one, machines + number) for number, node in enumerate(self._draft.nodes) for one in node.pods]
        pods, places = np.array(held, dtype=np.int64).reshape(-1, 2).T
        np.subtract.at(free, places, self._room.sizes[np.array(self._sorts, dtype=np.int64)[pods]])
        return np.ascontiguousarray(free.T)

    def _to_be_had(self, usd_per_hour: float | None) -> Stock:
        """By offer."""
        kinds = [offer.kind for offer in self._room.offers]
        own = np.array([np.inf if kind.available is None else kind.available for kind in kinds], dtype=float)
        limits = [([one.uses.get(kind.name, 0.0) for kind in kinds], one.most) for one in self._drafting.limits]
        if usd_per_hour is not None:
            limits.append(([kind.usd for kind in kinds], usd_per_hour))
        uses = np.array([each for each, _ in limits], dtype=float).reshape(len(limits), len(kinds))
        stock = Stock(own, uses, np.array([most for _, most in limits], dtype=float))
        for offer, many in Counter(self._offers.tolist()).items():
            stock.take(offer, many)
        return stock

    def _take(self, gang: Gang) -> bool:
        """All of it or nobody."""
        nodes, company_of, placed = len(self._offers), dict[int, Company](), list[tuple[int, int]]()
        order = (
            sorted(gang, key=lambda one: (tuple(-self._room.sizes[self._sorts[one]][::-1]), one)) if gang[1:] else gang
        )
        for number in order:
            sort, zone = self._sorts[number], self._drafting.shaping.zone_of.get(number, "")
            size, stance = self._room.sizes[sort], self._rules.stance(sort)
            failed = self._failed.setdefault((self._room.choice[sort], zone, self._rules.number[sort]), [])
            asked = tuple(size.tolist())
            if any(is_within(less, asked) for less in failed):
                break
            place = self._place(sort, zone)
            if place is None:
                if not placed:
                    failed.append(asked)
                break
            if stance != FREE:
                company_of.setdefault(place, self._companies[place])
                self._companies[place] = deepcopy(self._companies[place])
                self._companies[place].join(stance)
            self._change(place, -size)
            placed.append((number, place))
        else:
            for number, place in placed:
                self._pods[place].append(number)
            return True
        for number, place in placed:
            self._change(place, self._room.sizes[self._sorts[number]])
        for place, company in company_of.items():
            self._companies[place] = company
        self._give_back(nodes)
        return False

    def _place(self, sort: int, zone: str) -> int | None:
        """Where such a pod goes; a new node, where there is no other place for it."""
        size, stance = self._room.sizes[sort], self._rules.stance(sort)
        offers, machines = self._room.suits(sort)
        if by_zone(self._room.models[sort]):
            machines = np.zeros_like(machines)
        fits: Mask = np.concatenate([machines, self._in(zone, offers)[self._offers]])
        for side in range(len(size)):
            fits &= self._free[side] >= size[side]
        wait = np.where(fits, self._rest, np.inf)
        if not size[_GPUS]:
            wait += _SPARED * (self._free[_GPUS] > 0)
        while len(wait) and wait[place := int(np.argmin(wait))] < np.inf:
            if stance == FREE or self._companies[place].admits(stance):
                return place
            wait[place] = np.inf
        return self._bought(sort, zone)

    def _bought(self, sort: int, zone: str) -> int | None:
        """A node on which such pods are cheapest, for as many of them as wait."""
        size = self._room.sizes[sort]
        fits = np.nonzero(self._in(zone, self._room.fits(sort)) & (self._stock.left >= 1))[0]
        if not len(fits):
            return None
        asked = size > 0
        each = (self._room.rooms[fits][:, asked] // size[asked]).min(axis=1)
        each = np.clip(each, 1, max(1, self._alike[self._room.kin[sort]]))
        usd = np.array([self._room.offers[one].kind.usd for one in fits.tolist()]) / each
        best = int(np.argmin(usd))
        offer = int(fits[best])
        self._stock.take(offer, 1)
        self._offers = np.append(self._offers, offer)
        self._pods.append([])
        self._planned.append(int(each[best]))
        self._companies.append(Company())
        self._free = np.hstack([self._free, self._room.rooms[offer][:, None]])
        self._rest = np.append(self._rest, 0.0)
        self._change(len(self._rest) - 1, np.zeros_like(size))
        return len(self._rest) - 1

    def _give_back(self, nodes: int) -> None:
        """All nodes but so many of the first."""
        if nodes == len(self._offers):
            return
        for offer in self._offers[nodes:].tolist():
            self._stock.take(offer, -1)
        places = len(self._room.machines) + nodes
        del self._planned[nodes:], self._pods[places:], self._companies[places:]
        self._offers, self._free, self._rest = self._offers[:nodes], self._free[:, :places], self._rest[:places]

    def _change(self, place: int, size: Amounts) -> None:
        self._free[:, place] += size
        self._rest[place] = (self._free[:_GPUS, place] / self._scale).sum()

    def _in(self, zone: str, offers: Mask) -> Mask:
        chosen: Mask = offers & (self._zones == zone) if zone else offers
        return chosen
