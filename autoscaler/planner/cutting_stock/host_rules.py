"""Rules by host between pods that nodes are bought for together: anti-affinity, topology spread, host ports.

Kept in the strict sense: the node of a pod with a spread gets at most ``maxSkew`` of the pods that it counts, as if
some node had none, so that the pods may be bound in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from autoscaler.model.constraints import Term
from autoscaler.model.feasibility import term_holds
from autoscaler.model.labels import HOSTNAME
from autoscaler.planner.supply.candidate_nodes import Shape

Key = int
"""Number of a selector with the namespaces in which it selects."""
Port = tuple[str, int]
_Selector = tuple[Term, frozenset[str]]
_MOST_EXCLUSIVE: Final = 2
_FEW: Final = 0.02
"""Part of all pods: of those that need a node each and are fewer, there are nodes enough."""


@dataclass(frozen=True, slots=True)
class Stance:
    """What the rules by host say of a pod and the others on its node; pods of one stance are alike in that."""

    repels: frozenset[Key] = frozenset()
    """Pods that it keeps off its node."""
    known_by: frozenset[Key] = frozenset()
    """Selectors of such pods that select it."""
    counted: frozenset[Key] = frozenset()
    """Spreads by host that count it."""
    spread: tuple[tuple[Key, int], ...] = ()
    """Its own spreads by host, each with how many of those that it counts may be on its node, itself among them."""
    ports: frozenset[tuple[str, int]] = frozenset()


FREE = Stance()


@dataclass(slots=True)
class Company:
    """The pods of one node."""

    repelled: set[Key] = field(default_factory=set)
    known: set[Key] = field(default_factory=set)
    counts: dict[Key, int] = field(default_factory=dict)
    most: dict[Key, int] = field(default_factory=dict)
    ports: set[tuple[str, int]] = field(default_factory=set)

    def admits(self, stance: Stance) -> bool:
        """Whether such a pod may join."""
        if (
            not self.known.isdisjoint(stance.repels)
            or not self.repelled.isdisjoint(stance.known_by)
            or not self.ports.isdisjoint(stance.ports)
        ):
            return False
        for key in stance.counted if self.most else ():
            if key in self.most and self.counts.get(key, 0) >= self.most[key]:
                return False
        for key, most in stance.spread:  # noqa: SIM110 - asked for every pod: a loop is twice as fast
            if self.counts.get(key, 0) + (key in stance.counted) > most:
                return False
        return True

    def join(self, stance: Stance) -> None:
        """Counts one more pod of that stance on the node."""
        self.repelled |= stance.repels
        self.known |= stance.known_by
        self.ports |= stance.ports
        for key in stance.counted:
            self.counts[key] = self.counts.get(key, 0) + 1
        for key, most in stance.spread:
            self.most[key] = min(most, self.most.get(key, most))


class HostRules:
    """The stance of each shape."""

    def __init__(self, counts: Mapping[Shape, int]) -> None:
        """``counts``: pods of each shape."""
        self._selectors: dict[_Selector, Key] = {}
        for shape in counts:
            for selector in (*_repelled(shape), *(selector for selector, _ in _spread(shape))):
                self._selectors.setdefault(selector, len(self._selectors))
        self._apart = {self._selectors[one] for shape in counts for one in _repelled(shape)}
        self._spreads = {self._selectors[one] for shape in counts for one, _ in _spread(shape)}
        self.stances = [FREE]
        """By number."""
        self._numbers: dict[Stance, int] = {FREE: 0}
        self._number_of: dict[Shape, int] = {}
        alone: Counter[Key | Port] = Counter()
        for shape, many in counts.items():
            alone.update(dict.fromkeys(_exclusive(self.stance(shape)), many))
        self.exclusive = tuple(
            key for key, many in alone.most_common(_MOST_EXCLUSIVE) if many > _FEW * sum(counts.values())
        )
        """Of the pods that each of these means, those that keep the others off need a node each: told to the solver."""

    def number(self, shape: Shape) -> int:
        """Returns the number of the shape's stance."""
        if shape not in self._number_of:
            stance = self._stance(shape)
            if stance not in self._numbers:
                self._numbers[stance] = len(self.stances)
                self.stances.append(stance)
            self._number_of[shape] = self._numbers[stance]
        return self._number_of[shape]

    def stance(self, shape: Shape) -> Stance:
        """What the rules by host say of such pods."""
        return self.stances[self.number(shape)]

    def needs(self, shape: Shape) -> tuple[int, ...]:
        """How many of each exclusive place such a pod takes; a node has one of each."""
        if not self.exclusive:
            return ()
        alone = set(_exclusive(self.stance(shape)))
        return tuple(int(key in alone) for key in self.exclusive)

    def _stance(self, shape: Shape) -> Stance:
        if not self._selectors and not shape.host_ports:
            return FREE
        means = frozenset(
            key
            for (selector, namespaces), key in self._selectors.items()
            if shape.namespace in namespaces and term_holds(selector, shape.labels)
        )
        return Stance(
            repels=frozenset(self._selectors[one] for one in _repelled(shape)),
            known_by=means & self._apart,
            counted=means & self._spreads,
            spread=tuple((self._selectors[one], most) for one, most in _spread(shape)),
            ports=shape.host_ports,
        )


def _repelled(shape: Shape) -> Iterator[_Selector]:
    return ((term.selector, term.namespaces) for term in shape.apart_from if term.topology_key == HOSTNAME)


def _spread(shape: Shape) -> Iterator[tuple[_Selector, int]]:
    namespaces = frozenset({shape.namespace})
    return (((one.selector, namespaces), one.max_skew) for one in shape.spread if one.topology_key == HOSTNAME)


def _exclusive(stance: Stance) -> Iterable[Key | Port]:
    """What two such pods may not share a node for."""
    yield from stance.repels & stance.known_by
    yield from stance.ports
    yield from (key for key, most in stance.spread if most == 1 and key in stance.counted)
