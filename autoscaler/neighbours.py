"""What pods mind about each other, for a plan without a cluster: who may share a node, and who goes to which zone.

Kept: anti-affinity and topology spread by host, affinity and topology spread by zone, host ports, gangs that ask for
one zone. A spread by host is kept in the strict sense: the node of a pod that has it gets at most ``maxSkew`` of the
pods that it counts, as if some node had none, so that the pods may be bound in any order.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.cluster import Pod, PodTerm, Spread, Term
from autoscaler.fit import term_holds
from autoscaler.labels import HOSTNAME, ZONE

Key = tuple[Term, frozenset[str]]
"""A selector, and the namespaces in which it selects."""


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


FREE = Stance()


@dataclass(slots=True)
class Company:
    """The pods of one node."""

    repelled: set[Key] = field(default_factory=set)
    known: set[Key] = field(default_factory=set)
    counts: Counter[Key] = field(default_factory=Counter)
    most: dict[Key, int] = field(default_factory=dict)
    ports: set[tuple[str, int]] = field(default_factory=set)

    def admits(self, stance: Stance) -> bool:
        """Whether such a pod may join."""
        return (
            not (stance.repels & self.known)
            and not (stance.known_by & self.repelled)
            and not (stance.ports & self.ports)
            and all(self.counts[key] < self.most[key] for key in stance.counted if key in self.most)
            and all(self.counts[key] + (key in stance.counted) <= most for key, most in stance.spread)
        )

    def join(self, stance: Stance) -> None:
        """One more."""
        self.repelled |= stance.repels
        self.known |= stance.known_by
        self.ports |= stance.ports
        self.counts.update(stance.counted)
        for key, most in stance.spread:
            self.most[key] = min(most, self.most.get(key, most))


class Neighbours:
    """The rules of all pods, and each pod's stance."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        """``pods``: all that are read, also those that run already."""
        self._apart = {_key(term) for pod in pods for term in pod.apart_from if term.topology_key == HOSTNAME}
        self._by_host = {_spread_key(pod, one) for pod in pods for one in _spreads(pod, HOSTNAME)}
        self._by_zone = {_spread_key(pod, one) for pod in pods for one in _spreads(pod, ZONE)}
        self._meant: dict[tuple[str, frozenset[tuple[str, str]]], frozenset[Key]] = {}
        quiet = not (self._apart or self._by_host or self._by_zone)
        self.stances = [FREE if quiet and not pod.host_ports else self._stance(pod) for pod in pods]
        alone = Counter(key for stance in self.stances for key in stance.repels & stance.known_by)
        self.exclusive = tuple(key for key, many in alone.most_common(_EXCLUSIVE) if many > 1)
        """Of the pods that each of these means, those that keep the others off need a node each: told to the solver."""
        self.minds_zones = bool(self._by_zone) or any(_together(pod) for pod in pods)

    def needs(self, number: int) -> tuple[int, ...]:
        """How many of each exclusive place the pod takes."""
        stance = self.stances[number]
        return tuple(int(key in stance.repels and key in stance.known_by) for key in self.exclusive)

    def zones(
        self, pods: Sequence[Pod], numbers: Iterable[int], allowed: Callable[[int], frozenset[str]]
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Each pod's zone; and of those for which there is none, why. Those that stay together first."""
        groups: dict[object, list[int]] = defaultdict(list)
        for number in numbers:
            groups[_together(pods[number]) or number].append(number)
        counts: dict[Key, Counter[str]] = defaultdict(Counter)
        load: Counter[str] = Counter()
        found: dict[int, str] = {}
        refused: dict[int, str] = {}
        for group in sorted(groups.values(), key=lambda group: (-len(group), group[0])):
            options = frozenset.intersection(*(allowed(number) for number in group))
            if not options:
                refused |= dict.fromkeys(group, "no zone is allowed for all pods that must be in one zone")
                continue
            counted = [key for number in group for key in self._means(pods[number]) & self._by_zone]
            zone = min(options, key=lambda one: (sum(counts[key][one] for key in counted), load[one], one))
            why = next((why for number in group if (why := _uneven(pods[number], zone, counts, allowed(number)))), "")
            if why and len(group) == 1:
                refused[group[0]] = why
                continue
            load[zone] += len(group)
            for key in counted:
                counts[key][zone] += 1
            found |= dict.fromkeys(group, zone)
        return found, refused

    def seat(
        self, wanted: Iterable[Iterable[tuple[int, int]]], rows: Sequence[Sequence[int]]
    ) -> tuple[list[list[int]], list[Company], list[int]]:
        """Pods for the places of each node, (row, how many), so that they get on; their company; and who is left."""
        queues = [self._queue(row) for row in rows]
        nodes, companies = [], []
        for places in wanted:
            company, guests = Company(), list[int]()
            for row, many in places:
                for _ in range(many):
                    guest = _next(queues[row], company)
                    if guest is None:
                        break
                    guests.append(guest)
            nodes.append(guests)
            companies.append(company)
        return nodes, companies, sorted(number for queue in queues for line in queue.values() for number in line)

    def _queue(self, row: Sequence[int]) -> dict[Stance, deque[int]]:
        """Those with a spread by host first, so that few nodes are kept free of their like; the largest crowd first."""
        lines: dict[Stance, deque[int]] = defaultdict(deque)
        for number in row:
            lines[self.stances[number]].append(number)
        return dict(
            sorted(lines.items(), key=lambda item: (not item[0].spread, not item[0].repels, -len(item[1]), item[1][0]))
        )

    def _stance(self, pod: Pod) -> Stance:
        means = self._means(pod)
        repels = frozenset(_key(term) for term in pod.apart_from if term.topology_key == HOSTNAME)
        return Stance(
            repels=repels,
            known_by=means & self._apart,
            counted=means & self._by_host,
            spread=tuple((_spread_key(pod, one), one.max_skew) for one in _spreads(pod, HOSTNAME)),
            ports=pod.host_ports,
        )

    def _means(self, pod: Pod) -> frozenset[Key]:
        """The selectors that mean the pod."""
        like = (pod.namespace, frozenset(pod.labels.items()))
        known = self._meant.get(like)
        if known is None:
            keys = (*self._apart, *self._by_host, *self._by_zone)
            known = self._meant[like] = frozenset(
                key for key in keys if pod.namespace in key[1] and term_holds(key[0], pod.labels)
            )
        return known


_EXCLUSIVE = 4


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


def _next(queue: dict[Stance, deque[int]], company: Company) -> int | None:
    for stance, line in queue.items():
        if line and company.admits(stance):
            company.join(stance)
            return line.popleft()
    return None


def _uneven(pod: Pod, zone: str, counts: Mapping[Key, Counter[str]], zones: frozenset[str]) -> str:
    for one in _spreads(pod, ZONE):
        key = _spread_key(pod, one)
        there = counts[key]
        fewest = min(there[other] for other in zones)
        if one.min_domains is not None and len(zones) < one.min_domains:
            fewest = 0
        if there[zone] + term_holds(one.selector, pod.labels) - fewest > one.max_skew:
            return "would be spread unevenly over zones"
    return ""


def _together(pod: Pod) -> object:
    """Pods with the same of this must be in one zone; ``None``: with nobody."""
    near = next((_key(term) for term in pod.near_to if term.topology_key == ZONE), None)
    if near is not None:
        return near
    gang = pod.gang
    return (gang.namespace, gang.name) if gang is not None and gang.topology == ZONE else None


def _key(term: PodTerm) -> Key:
    return term.selector, term.namespaces


def _spread_key(pod: Pod, spread: Spread) -> Key:
    return spread.selector, frozenset({pod.namespace})


def _spreads(pod: Pod, topology_key: str) -> Iterable[Spread]:
    return (one for one in pod.spread if one.topology_key == topology_key)
