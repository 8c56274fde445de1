"""What pods mind about each other, for a plan without a cluster: who may share a node, and who goes to which zone.

Kept: anti-affinity and topology spread by host, affinity and topology spread by zone, host ports, gangs that ask for
one zone. A spread by host is kept in the strict sense: the node of a pod that has it gets at most ``maxSkew`` of the
pods that it counts, as if some node had none, so that the pods may be bound in any order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import PodTerm, Spread, Term
from autoscaler.model.feasibility import term_holds
from autoscaler.model.labels import HOSTNAME, ZONE

Key = int
"""Number of a selector with the namespaces in which it selects."""
Port = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Stance:
    """What a pod minds about the others on its node; pods of one stance are alike in that."""

    repels: frozenset[Key] = frozenset()
    """Whom it keeps off its node."""
    known_by: frozenset[Key] = frozenset()
    """Selectors of others that mean it."""
    counted: frozenset[Key] = frozenset()
    """Spreads by host that count it."""
    spread: tuple[tuple[Key, int], ...] = ()
    """Its own spreads by host, each with how many of those that it counts may be on its node, itself among them."""
    ports: frozenset[tuple[str, int]] = frozenset()

    def as_bound(self) -> Stance:
        """Of a pod that runs already: it is counted and met, but its own spread was asked when it was bound."""
        return replace(self, spread=()) if self.spread else self


FREE = Stance()
_Selector = tuple[Term, frozenset[str]]


@dataclass(slots=True)
class Company:
    """The pods of one node."""

    repelled: set[Key] = field(default_factory=set)
    known: set[Key] = field(default_factory=set)
    counts: dict[Key, int] = field(default_factory=dict)
    most: dict[Key, int] = field(default_factory=dict)
    ports: set[tuple[str, int]] = field(default_factory=set)

    @classmethod
    def of(cls, stances: Iterable[Stance]) -> Company:
        """Of these pods."""
        company = cls()
        for stance in stances:
            if stance is not FREE:
                company.join(stance)
        return company

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
        """One more."""
        self.repelled |= stance.repels
        self.known |= stance.known_by
        self.ports |= stance.ports
        for key in stance.counted:
            self.counts[key] = self.counts.get(key, 0) + 1
        for key, most in stance.spread:
            self.most[key] = min(most, self.most.get(key, most))


class Neighbours:
    """The rules of all pods, and the stance of each sort."""

    def __init__(self, models: Sequence[Pod], counts: Sequence[int]) -> None:
        """``models``: of each sort of pods one, with how many there are, also of those that run already."""
        self.models = models
        self._selectors: dict[_Selector, Key] = {}
        minding = [pod for pod in models if pod.apart_from or pod.spread]
        self._apart = {self._key(term) for pod in minding for term in pod.apart_from if term.topology_key == HOSTNAME}
        self._by_host = {self.spread_key(pod, one) for pod in minding for one in spreads(pod, HOSTNAME)}
        self._by_zone = {self.spread_key(pod, one) for pod in minding for one in spreads(pod, ZONE)}
        self._meant: dict[tuple[str, frozenset[tuple[str, str]]], frozenset[Key]] = {}
        quiet = not (self._apart or self._by_host or self._by_zone)
        stances = [FREE if quiet and not pod.host_ports else self._stance(pod) for pod in models]
        numbers: dict[Stance, int] = {FREE: 0}
        self.number = [0 if stance is FREE else numbers.setdefault(stance, len(numbers)) for stance in stances]
        """Of each sort's stance."""
        self.stances = list(numbers)
        alone: Counter[Key | Port] = Counter()
        for stance, many in zip(stances, counts, strict=True) if len(numbers) > 1 else ():
            alone.update(dict.fromkeys(_alone(stance), many))
        self.exclusive = tuple(key for key, many in alone.most_common(_EXCLUSIVE) if many > _FEW * sum(counts))
        """Of the pods that each of these means, those that keep the others off need a node each: told to the solver."""
        self._needs = [tuple(int(key in _alone(stance)) for key in self.exclusive) for stance in self.stances]
        self.minds_zones = bool(self._by_zone) or any((pod.near_to or pod.gang) and _together(pod) for pod in models)

    def stance(self, sort: int) -> Stance:
        """What such pods mind."""
        return self.stances[self.number[sort]]

    def needs(self, sort: int) -> tuple[int, ...]:
        """How many of each exclusive place such a pod takes."""
        return self._needs[self.number[sort]]

    def zones(
        self, crowds: Mapping[int, Sequence[int]], allowed: Callable[[int], frozenset[str]]
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Each pod's zone; and of those for which there is none, why. Those that stay together first, then the choosy.

        ``crowds``: the pods of each sort. ``allowed``: the zones for a sort.
        """
        groups: dict[object, list[int]] = defaultdict(list)
        for sort in crowds:
            groups[_together(self.models[sort]) or sort].append(sort)
        sizes = {key: sum(len(crowds[sort]) for sort in sorts) for key, sorts in groups.items()}
        desk = _Zoning(self, crowds, allowed)
        for key, sorts in sorted(
            groups.items(),
            key=lambda item: (isinstance(item[0], int), len(allowed(item[1][0])), -sizes[item[0]], item[1][0]),
        ):
            if isinstance(key, int):
                desk.one_by_one(key)
            else:
                desk.together(sorts)
        return desk.found, desk.refused

    def means(self, sort: int) -> frozenset[Key]:
        """The selectors that mean such pods."""
        return self._means(self.models[sort])

    def counted_by_zone(self, sort: int) -> tuple[Key, ...]:
        """Spreads by zone that count such pods."""
        return tuple(key for key in self.means(sort) if key in self._by_zone)

    def _stance(self, pod: Pod) -> Stance:
        means = self._means(pod)
        repels = frozenset(self._key(term) for term in pod.apart_from if term.topology_key == HOSTNAME)
        return Stance(
            repels=repels,
            known_by=means & self._apart,
            counted=means & self._by_host,
            spread=tuple((self.spread_key(pod, one), one.max_skew) for one in spreads(pod, HOSTNAME)),
            ports=pod.host_ports,
        )

    def _means(self, pod: Pod) -> frozenset[Key]:
        like = (pod.namespace, frozenset(pod.labels.items()))
        known = self._meant.get(like)
        if known is None:
            known = self._meant[like] = frozenset(
                key
                for (selector, namespaces), key in self._selectors.items()
                if pod.namespace in namespaces and term_holds(selector, pod.labels)
            )
        return known

    def _key(self, term: PodTerm) -> Key:
        return self._selectors.setdefault((term.selector, term.namespaces), len(self._selectors))

    def spread_key(self, pod: Pod, spread: Spread) -> Key:
        """The number of its selector."""
        selector = (spread.selector, frozenset({pod.namespace}))
        return self._selectors.setdefault(selector, len(self._selectors))


class _Zoning:
    """Zones given out so far."""

    def __init__(
        self, rules: Neighbours, crowds: Mapping[int, Sequence[int]], allowed: Callable[[int], frozenset[str]]
    ) -> None:
        self.rules, self.crowds, self.allowed = rules, crowds, allowed
        self.counts: dict[Key, Counter[str]] = defaultdict(Counter)
        self.load: Counter[str] = Counter()
        self.found: dict[int, str] = {}
        self.refused: dict[int, str] = {}

    def together(self, sorts: Sequence[int]) -> None:
        """All pods of these sorts in one zone: where fewest are of those that they are counted with, then of all."""
        pods = [number for sort in sorts for number in self.crowds[sort]]
        options = frozenset.intersection(*(self.allowed(sort) for sort in sorts))
        if not options:
            self.refused |= dict.fromkeys(pods, "no zone is allowed for all pods that must be in one zone")
            return
        counted = [(key, len(self.crowds[sort])) for sort in sorts for key in self.rules.counted_by_zone(sort)]
        zone = min(options, key=lambda one: (sum(self.counts[key][one] for key, _ in counted), self.load[one], one))
        self.load[zone] += len(pods)
        for key, many in counted:
            self.counts[key][zone] += many
        self.found |= dict.fromkeys(pods, zone)

    def one_by_one(self, sort: int) -> None:
        """Each pod where fewest are of those that it is counted with, then of all."""
        pods, options = self.crowds[sort], sorted(self.allowed(sort))
        if not options:
            return
        counts = [self.counts[key] for key in self.rules.counted_by_zone(sort)]
        rules = any(spreads(self.rules.models[sort], ZONE))
        load = self.load
        if not counts and not rules:
            self._evenly(pods, options)
            return
        for number in pods:
            zone = min(options, key=lambda one: (sum([there[one] for there in counts]), load[one]))
            why = self._uneven(sort, zone, options) if rules else ""
            if why:
                self.refused[number] = why
                continue
            load[zone] += 1
            for there in counts:
                there[zone] += 1
            self.found[number] = zone

    def _uneven(self, sort: int, zone: str, zones: Sequence[str]) -> str:
        pod = self.rules.models[sort]
        for one in spreads(pod, ZONE):
            key = self.rules.spread_key(pod, one)
            there = self.counts[key]
            fewest = min(there[other] for other in zones)
            if one.min_domains is not None and len(zones) < one.min_domains:
                fewest = 0
            if there[zone] + (key in self.rules.means(sort)) - fewest > one.max_skew:
                return "would be spread unevenly over zones"
        return ""

    def _evenly(self, pods: Sequence[int], options: Sequence[str]) -> None:
        """Fill up the emptiest zones; the pods of one sort in equal parts, or nodes would be hard to fill."""
        many, over = divmod(len(pods), len(options))
        order = sorted(options, key=lambda one: (self.load[one], one))
        start = 0
        for position, zone in enumerate(order):
            end = start + many + (position < over)
            self.found |= dict.fromkeys(pods[start:end], zone)
            self.load[zone] += end - start
            start = end


_EXCLUSIVE = 2
_FEW = 0.02
"""Part of all pods: of those that need a node each and are fewer, there are nodes enough."""


def _alone(stance: Stance) -> Iterable[Key | Port]:
    """What two such pods may not share a node for."""
    yield from stance.repels & stance.known_by
    yield from stance.ports
    yield from (key for key, most in stance.spread if most == 1 and key in stance.counted)


def not_kept(pod: Pod) -> list[str]:
    """The rules of a pod that are not kept here, in words."""
    rules = [f"pod anti-affinity by {term.topology_key}" for term in pod.apart_from if term.topology_key != HOSTNAME]
    for term in pod.near_to:
        if term.topology_key != ZONE:
            rules.append(f"pod affinity by {term.topology_key}")
        elif not (pod.namespace in term.namespaces and term_holds(term.selector, pod.labels)):
            rules.append("pod affinity to pods of another kind")
    if len(pod.near_to) > 1:
        rules.append("more than one pod affinity")
    rules += [
        f"topology spread by {one.topology_key}" for one in pod.spread if one.topology_key not in (HOSTNAME, ZONE)
    ]
    if pod.gang is not None and pod.gang.topology not in (None, ZONE):
        rules.append(f"a gang within one {pod.gang.topology}")
    return list(dict.fromkeys(rules))


def _together(pod: Pod) -> object:
    """Pods with the same of this must be in one zone; ``None``: with nobody."""
    near = next(((term.selector, term.namespaces) for term in pod.near_to if term.topology_key == ZONE), None)
    if near is not None:
        return near
    gang = pod.gang
    return (gang.namespace, gang.name) if gang is not None and gang.topology == ZONE else None


def by_zone(pod: Pod) -> bool:
    """Whether it has a rule that counts pods by zone."""
    gang = pod.gang
    return bool(pod.near_to or any(spreads(pod, ZONE)) or (gang is not None and gang.topology == ZONE))


def spreads(pod: Pod, topology_key: str) -> Iterable[Spread]:
    """Its topology spreads by that key."""
    return (one for one in pod.spread if one.topology_key == topology_key)
