"""A plan for pods of many sizes, improved: a few nodes at a time are packed anew by greed, many such at once.

Large neighbourhood search (Shaw 1998, "Using constraint programming and local search methods to solve vehicle routing
problems") for vector bin packing with nodes of many kinds. Nodes are drawn by what they cost above what their pods are
worth, torn down two to five at a time, and put together again node by node: of some kinds, each filled with the largest
pods that fit in a few orders, that is taken which holds most value for its price, and becomes the cheapest kind that
holds its pods. What costs no less is forgotten. The draws are the same every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from autoscaler.solver.lp.arrays import CPU, EPSILON, GPUS, MEMORY, Floats, Mask, Whole, dot
from autoscaler.solver.pricing.best_fit import paid

_PODS = 120
"""Of the nodes that are packed anew together; nodes of more pods stay as they are."""
_CHUNK = 100
"""Pods that are packed together where there are no nodes yet."""
_NODES = (2, 6)
"""So many nodes at a time, less than the second."""
_KINDS, _OWN, _ANY = 8, 4, 3
"""Kinds that are tried at a time; those of the nodes themselves among them, and some that are drawn from all."""
_PROMISING = 12
_TWICE = 0.3
"""Part of the rounds for each of two plans."""
_WORTH_TWO = 4
"""Of these rounds: fewer are for one plan."""
_NOISE = 0.1
"""Part by which the order of the pods is disturbed, so that no two tries are the same."""
_NEVER = 1e18
"""More than any node has."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Pods one by one, each of which some kind holds, and kinds of node, of each of which there is one at least."""

    sizes: Floats
    """[pod, resource]"""
    worth: Floats
    """Of each pod, dollars per hour: no node's pods are worth more than it costs."""
    classes: Whole
    """Of each pod the row of ``may``."""
    may: Mask
    """[class, kind]: pods of the class may run there, room aside."""
    rooms: Floats
    """[kind, resource]"""
    usd: Floats
    """By kind, the cheapest first."""
    available: Floats
    """By kind: so many nodes are to be had at most."""
    uses: Floats
    """[limit, kind]: what a node takes of a limit that kinds share."""
    most: Floats
    """By limit."""

    def used(self, nodes: Iterable[Node]) -> Scarce:
        """Returns what these take."""
        many = np.bincount([node.kind for node in nodes], minlength=len(self.usd)).astype(float)
        return Scarce(many, dot(self.uses, many))

    def left(self, nodes: Iterable[Node]) -> Scarce:
        """Returns what is to be had beside these."""
        return Scarce(self.available, self.most).less(self.used(nodes))

    def cheapest(self, pods: Whole) -> int:
        """The first kind that holds all these pods; of which there is no end, if there is such a one."""
        fits: Mask = (self.rooms >= self.sizes[pods].sum(axis=0)).all(axis=1)
        fits &= self.may[list(set(self.classes[pods].tolist()))].all(axis=0)
        endless = fits & np.isinf(self.available)
        return int(np.argmax(endless if endless.any() else fits))


class Scarce(NamedTuple):
    """Nodes, and what they take of limits that kinds share."""

    nodes: Floats
    """By kind."""
    limits: Floats
    """By limit."""

    def is_there(self, before: Scarce | None = None) -> bool:
        """Whether, of what is left, no more has been taken than there is; or no more than had been ``before``."""
        nodes, limits = (0.0, 0.0) if before is None else (np.minimum(0.0, one) for one in before)
        return bool((self.nodes >= nodes).all() and (self.limits >= limits - EPSILON).all())

    def less(self, other: Scarce) -> Scarce:
        """Returns what remains without that."""
        return Scarce(self.nodes - other.nodes, self.limits - other.limits)


class Node(NamedTuple):
    """One node."""

    kind: int
    pods: Whole
    """Numbers of its pods."""


def packed(packing: Packing, pods: Whole) -> list[Node]:
    """Nodes for these pods, also more of a kind than are to be had."""
    if not len(pods):
        return []
    draw = np.random.default_rng(0)
    parts = np.array_split(draw.permutation(pods), -(-len(pods) // _CHUNK))
    promising = _promising(packing, pods)
    many = min(len(promising), 2 * _PROMISING)
    kinds = np.array([draw.choice(promising, many, replace=False) for _ in parts])
    usable = np.ones((len(parts), len(packing.usd)), dtype=bool)
    return [node for nodes in _Tries(packing, parts, kinds, usable, draw).packed() for node in nodes]


def joined(packing: Packing, nodes: Sequence[Node], pods: Whole) -> tuple[list[Node], Whole]:
    """The nodes with those of these further pods for which they have room, and the others.

    The largest first, each where least is left.
    """
    held = [node.pods.tolist() for node in nodes]
    rooms = packing.rooms[[node.kind for node in nodes]]
    free = rooms - np.array([packing.sizes[some].sum(axis=0) for some in held]).reshape(rooms.shape)
    may = packing.may[:, [node.kind for node in nodes]]
    whole = np.where(rooms > 0, rooms, 1.0)
    left = []
    for pod in pods[np.argsort(-packing.worth[pods], kind="stable")].tolist():
        rest = free - packing.sizes[pod]
        fits = (rest >= 0).all(axis=1) & may[packing.classes[pod]]
        if not fits.any():
            left.append(pod)
            continue
        node = int(np.argmin(np.where(fits, (rest / whole).sum(axis=1), np.inf)))
        free[node] = rest[node]
        held[node].append(pod)
    found = [Node(node.kind, np.array(some, dtype=np.int64)) for node, some in zip(nodes, held, strict=True)]
    return found, np.array(left, dtype=np.int64)


def improved(packing: Packing, nodes: Sequence[Node], *, rounds: int) -> list[Node]:
    """The same pods on nodes that cost no more; in each round most nodes are packed anew once.

    For the first of many rounds beside a plan that greed makes of nothing; the better one is gone on with.
    """
    if not nodes or not rounds:
        return list(nodes)
    everything = np.concatenate([node.pods for node in nodes])
    search = _Search(packing, _promising(packing, everything).tolist(), np.random.default_rng(0))
    some = round(rounds * _TWICE)
    plan = search.improved(list(nodes), some)
    other = packed(packing, everything) if some >= _WORTH_TWO else []
    if other and packing.left(other).is_there():
        plan = min(plan, search.improved(other, some), key=lambda plan: _usd(packing, plan))
    return search.improved(plan, rounds - some)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    packing: Packing
    promising: Sequence[int]
    draw: np.random.Generator

    def improved(self, plan: list[Node], rounds: int) -> list[Node]:
        """Improves the plan in so many rounds."""
        for _ in range(rounds):
            groups = _drawn(self.packing, plan, self.draw)
            if groups:
                plan = self._repacked(plan, groups)
        return plan

    def _repacked(self, plan: list[Node], groups: Sequence[Sequence[int]]) -> list[Node]:
        left = self.packing.left(plan)
        usable = np.array([self._usable([plan[one].kind for one in group], left) for group in groups])
        usual = [kind for kind, _ in Counter(node.kind for node in plan).most_common(_PROMISING)]
        tried = [kind for kind in dict.fromkeys([*usual, *self.promising]) if left.nodes[kind] >= 1]
        kinds = np.array(
            [
                self._kinds([plan[one].kind for one in group], tried, row)
                for group, row in zip(groups, usable, strict=True)
            ]
        )
        parts = [np.concatenate([plan[one].pods for one in group]) for group in groups]
        gone, new = set[int](), list[Node]()
        for group, found in zip(groups, _Tries(self.packing, parts, kinds, usable, self.draw).packed(), strict=True):
            old = [plan[one] for one in group]
            if _usd(self.packing, found) >= _usd(self.packing, old) - EPSILON:
                continue
            beside = left.less(self.packing.used(found).less(self.packing.used(old)))
            if beside.is_there(left):
                gone.update(group)
                new += found
                left = beside
        return [node for one, node in enumerate(plan) if one not in gone] + new

    def _usable(self, own: Sequence[int], left: Scarce) -> Mask:
        """By kind: whether a node of it may take the place of nodes of these."""
        free = left.limits + self.packing.uses[:, list(own)].sum(axis=1)
        usable: Mask = (left.nodes >= 1) & (self.packing.uses <= free[:, None] + EPSILON).all(axis=0)
        usable[list(own)] = True
        return usable

    def _kinds(self, own: Sequence[int], tried: Sequence[int], usable: Mask) -> list[int]:
        """Kinds to pack some nodes anew with."""
        usual = self.draw.choice(np.array([one for one in tried if usable[one]] or own), _KINDS - _ANY).tolist()
        drawn = self.draw.choice(np.nonzero(usable)[0], _ANY).tolist()
        return [*[*own[:_OWN], *usual][: _KINDS - _ANY], *drawn]


def _usd(packing: Packing, nodes: Sequence[Node]) -> float:
    return float(packing.usd[[node.kind for node in nodes]].sum())


def _promising(packing: Packing, pods: Whole) -> Whole:
    """Kinds that hold most value for their price when they are filled as if pods could be cut; of each class some."""
    found: dict[int, None] = {}
    sizes, worth = packing.sizes[pods], packing.worth[pods]
    for of_class in sorted(set(packing.classes[pods].tolist())):
        for devices in (False, True):
            mine = (packing.classes[pods] == of_class) & ((sizes[:, GPUS] > 0) == devices)
            if not mine.any():
                continue
            held = packing.may[of_class] & np.ones((int(mine.sum()), 1), dtype=bool)
            for one in range(sizes.shape[1]):
                held &= sizes[mine, one, None] <= packing.rooms[None, :, one]
            value = paid(held.astype(float), sizes[mine], worth[mine], packing.rooms, packing.usd)
            found |= dict.fromkeys(np.argsort(-value, kind="stable")[:_PROMISING].tolist())
    return np.array(list(found), dtype=np.int64)


def _drawn(packing: Packing, plan: Sequence[Node], draw: np.random.Generator) -> list[list[int]]:
    """Numbers of nodes, a few at a time: those that cost most above what their pods are worth come first together.

    Drawn without putting back, by exponential arrivals (Efraimidis and Spirakis 2006).
    """
    many = np.array([len(node.pods) for node in plan])
    held = np.repeat(np.arange(len(plan)), many)
    worth = np.bincount(held, packing.worth[np.concatenate([node.pods for node in plan])], len(plan))
    lost = np.maximum(EPSILON, packing.usd[[node.kind for node in plan]] - worth)
    groups: list[list[int]] = [[]]
    pods, wanted = 0, int(draw.integers(*_NODES))
    for one in np.argsort(draw.standard_exponential(size=len(plan)) / lost, kind="stable").tolist():
        if many[one] > _PODS:
            continue
        if len(groups[-1]) == wanted or pods + many[one] > _PODS:
            groups.append([])
            pods, wanted = 0, int(draw.integers(*_NODES))
        groups[-1].append(one)
        pods += int(many[one])
    return [group for group in groups if len(group) > 1]


class _Tries:
    """Groups of pods that are packed beside each other, each on kinds of its own, in several orders."""

    def __init__(
        self, packing: Packing, groups: Sequence[Whole], kinds: Whole, usable: Mask, draw: np.random.Generator
    ) -> None:
        """``kinds``: which are tried, [group, kind]. ``usable``: those that nodes of a group may be of."""
        self.packing, self.kinds, self.usable = packing, kinds, usable
        longest = max(map(len, groups))
        self.pods = np.full((len(groups), longest), -1, dtype=np.int64)
        for number, group in enumerate(groups):
            self.pods[number, : len(group)] = group
        self.waits = self.pods >= 0
        self.sizes = np.where(self.waits[:, :, None], packing.sizes[self.pods], _NEVER)
        self.worth = np.where(self.waits, packing.worth[self.pods], 0.0)
        self.ranks = self._ranks() * (1 + _NOISE * draw.random((len(groups), 1, longest)))

    def _ranks(self) -> Floats:
        """[group, order, pod]: by the largest share, by cpu, by memory, by worth."""
        asked = np.where(self.waits[:, :, None], self.sizes, 0.0)
        total = asked.sum(axis=1, keepdims=True)
        shares = asked / np.where(total > 0, total, 1.0)
        largest = shares[:, :, : GPUS + 1].max(axis=2)
        found: Floats = np.stack([largest, shares[:, :, CPU], shares[:, :, MEMORY], self.worth], axis=1)
        return found

    def packed(self) -> list[list[Node]]:
        """Returns the nodes of each group, packed anew."""
        found: list[list[Node]] = [[] for _ in self.pods]
        while (alive := np.nonzero(self.waits.any(axis=1))[0]).size:
            for group, node, places in self._nodes(alive):
                found[group].append(node)
                self.waits[group, places] = False
        return found

    def _nodes(self, alive: Whole) -> list[tuple[int, Node, Whole]]:
        """The best node for each of these groups, and which of its pods are on it."""
        waits = self.waits[alive]
        most = int(waits.sum(axis=1).max())
        ranks = np.where(waits[:, None], self.ranks[alive], -1.0)
        order = np.argsort(-ranks, axis=2, kind="stable")[:, :, :most]
        taken, used = self._filled(alive, order)
        worth = np.take_along_axis(np.where(waits, self.worth[alive], 0.0)[:, None], order, axis=2)
        kinds = self._cheapest(alive, order, taken, used)
        value = (taken * worth[:, None]).sum(axis=3) + EPSILON * taken.sum(axis=3)
        per_dollar = np.where(taken.any(axis=3), value / self.packing.usd[kinds], -1.0).reshape(len(alive), -1)
        found = []
        for number, (group, best) in enumerate(zip(alive.tolist(), per_dollar.argmax(axis=1).tolist(), strict=True)):
            kind, way = divmod(best, order.shape[1])
            places = order[number, way][taken[number, kind, way]]
            node = Node(int(kinds[number, kind, way]), self.pods[group, places])
            if not len(places):
                places = np.nonzero(waits[number])[0][:1]
                node = Node(self.packing.cheapest(self.pods[group, places]), self.pods[group, places])
            found.append((group, node, places))
        return found

    def _filled(self, alive: Whole, order: Whole) -> tuple[Mask, Floats]:
        """[group, kind, order, pod]: which pods a node takes in turn; [group, kind, order, resource]: what they use."""
        kinds = self.kinds[alive]
        waits = np.take_along_axis(self.waits[alive][:, None], order, axis=2)
        sizes = np.take_along_axis(self.sizes[alive][:, None], order[..., None], axis=2)
        sizes = np.where(waits[..., None], sizes, _NEVER)[:, None]
        rooms = self.packing.rooms[kinds][:, :, None]
        free = np.repeat(rooms, order.shape[1], axis=2)
        taken = np.empty((*free.shape[:3], order.shape[2]), dtype=bool)
        several = len(self.packing.may) > 1
        classes = np.take_along_axis(self.packing.classes[self.pods[alive]][:, None], order, axis=2)
        for turn in range(order.shape[2]):
            size = sizes[:, :, :, turn]
            fits: Mask = np.all(free >= size, axis=3)
            if several:
                fits &= self.packing.may[classes[:, None, :, turn], kinds[:, :, None]]
            free -= np.where(fits[..., None], size, 0.0)
            taken[..., turn] = fits
        return taken, rooms - free

    def _cheapest(self, alive: Whole, order: Whole, taken: Mask, used: Floats) -> Whole:
        """[group, kind, order]: the cheapest kind that holds what was taken."""
        fits = np.tile(self.usable[alive][:, None, None], (1, *used.shape[1:3], 1))
        for one in range(used.shape[3]):
            fits &= used[..., one, None] <= self.packing.rooms[:, one]
        if len(self.packing.may) > 1:
            classes = np.take_along_axis(self.packing.classes[self.pods[alive]][:, None], order, axis=2)
            for number, may in enumerate(self.packing.may):
                there: Mask = np.any(taken & (classes == number)[:, None], axis=3)
                fits &= ~there[..., None] | may
        found: Whole = np.argmax(fits, axis=3)
        return found
