"""A plan without a cluster: pods, prices and machines from files in; nodes to buy, who goes where, and who waits, out.

Free machines are filled first, at no price, so that few of their GPUs are stranded. For what is left the cheapest nodes
are found by :mod:`columns`. A gang has a node for every pod or for none: under limits, gangs are taken by priority,
then in the order of the file, each if all taken so far can still be served with it.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from autoscaler import labels as words
from autoscaler.cluster import CPU, MEMORY, PODS, Node, Pod, Requirement, Resources, Taint
from autoscaler.columns import Kind, Shape, Vector, cheapest, lower_bound
from autoscaler.documents import parse_span
from autoscaler.failures import BadInput
from autoscaler.fit import why_not_on
from autoscaler.neighbours import FREE, Company, Neighbours, not_kept
from autoscaler.policy import Policy, read_policy
from autoscaler.workloads import Price, read_catalog, read_nodes, read_pods

_MODELLED = frozenset({CPU, MEMORY, words.GPU, PODS, "ephemeral-storage"})
_CENT = 1e-6
_TORN = "another pod of its gang has no zone"
_TELLING = 1.2e-5
"""Seconds kept back for each pod: who goes where is written down after the planning."""


@dataclass(frozen=True, slots=True)
class BoughtNode:
    """A node to buy."""

    name: str
    instance_type: str
    zone: str
    capacity_type: str
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class LeftWaiting:
    """A pod without a place."""

    pod: str
    reason: str
    would_fit_if: str


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """What to buy and who goes where."""

    nodes: tuple[BoughtNode, ...]
    placements: Mapping[str, str]
    waiting: tuple[LeftWaiting, ...]
    usd_per_hour: float
    lower_bound_usd_per_hour: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """As it is printed."""
        return {
            "nodes": [
                {
                    "name": node.name,
                    "instance_type": node.instance_type,
                    "zone": node.zone or None,
                    "capacity_type": node.capacity_type,
                    "usd_per_hour": node.usd_per_hour,
                }
                for node in self.nodes
            ],
            "placements": dict(self.placements),
            "waiting": [
                {"pod": one.pod, "reason": one.reason, "would_fit_if": one.would_fit_if} for one in self.waiting
            ],
            "usd_per_hour": self.usd_per_hour,
            "lower_bound_usd_per_hour": self.lower_bound_usd_per_hour,
            "seconds": round(self.seconds, 3),
        }


def plan_offline(
    pods: Sequence[Pod],
    prices: Sequence[Price],
    nodes: Sequence[Node] = (),
    *,
    policy: Policy | None = None,
    zones: Sequence[str] = (),
    deadline: timedelta = timedelta(seconds=1),
    clock: Callable[[], float] = lambda: 0.0,
) -> OfflinePlan:
    """The cheapest plan found within the deadline. ``zones``: to buy in, where the prices name none."""
    start = clock()
    names = _names(pods)
    offers = _offers(pods, prices, policy, zones)
    desk = _Desk(pods, names, offers, nodes, policy)
    gangs, waiting = desk.gangs()
    gangs, zoneless = desk.settle_zones(gangs)
    waiting += zoneless
    taken, refused = desk.admit(gangs)
    chosen = [number for gang in taken for number in gang]
    telling = min(_TELLING * len(pods), deadline.total_seconds() / 8)
    left = max(0.05, deadline.total_seconds() - (clock() - start) - telling)
    draft = desk.draft(chosen, deadline=left, clock=clock)
    if desk.broken(draft):
        draft = desk.draft(chosen)
    waiting += [one for gang in refused for one in desk.why(gang)]
    return desk.told(draft, chosen, waiting, seconds=clock() - start)


def run_plan(
    *,
    pods: str,
    catalog: Path,
    nodes: Path | None,
    policy: Path | None,
    zones: tuple[str, ...] = (),
    deadline: str,
    wants_json: bool,
    echo: Callable[[str], None],
) -> None:
    """The command: read, plan, tell."""
    try:
        span = parse_span(deadline)
    except ValueError as error:
        raise BadInput(f"--deadline = {deadline!r}: {error}") from None
    plan = plan_offline(
        read_pods(pods),
        read_catalog(catalog),
        read_nodes(nodes) if nodes else (),
        policy=read_policy(policy) if policy else None,
        zones=zones,
        deadline=span,
        clock=time.monotonic,
    )
    if wants_json:
        echo(json.dumps(plan.as_json()))
    else:
        show(plan, echo=echo)


@dataclass(frozen=True, slots=True)
class _Offer:
    """A kind of node that may be bought, with what pods see of it."""

    kind: Kind
    price: Price
    zone: str
    entry: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


@dataclass(slots=True)
class _Node:
    """A node that would be bought, and the pods on it by number."""

    offer: _Offer
    pods: list[int]
    company: Company


@dataclass(slots=True)
class _Draft:
    """Pods by number to machines that are there; the others to nodes that would be bought."""

    at_home: dict[int, int]
    nodes: list[_Node]
    left: list[int]
    lower_bound: float

    @property
    def is_whole(self) -> bool:
        """Whether everyone has a place."""
        return not self.left

    @property
    def usd(self) -> float:
        """Dollars per hour."""
        return math.fsum(node.offer.kind.usd for node in self.nodes)


def _names(pods: Sequence[Pod]) -> list[str]:
    """Plain names where they are unique, else with the namespace."""
    many = Counter(pod.name for pod in pods)
    names = [pod.name if many[pod.name] == 1 else pod.key for pod in pods]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput(f"pods: {twice[0]!r} is given more than once: every pod needs a name of its own")
    return names


def _offers(pods: Sequence[Pod], prices: Sequence[Price], policy: Policy | None, zones: Sequence[str]) -> list[_Offer]:
    if policy is not None:
        return list(_of_policy(prices, policy))
    zones = sorted(set(zones)) or _zones(pods)
    return [
        _offer(price, zone=zone, entry="", available=None)
        for price in prices
        for zone in ((price.zone,) if price.zone else zones)
    ]


def _zones(pods: Iterable[Pod]) -> list[str]:
    """Those that some pod names; where none does, zones do not matter."""
    asked = {
        value
        for affinity in {pod.affinity for pod in pods}
        for term in affinity
        for one in term
        if one.key == words.ZONE
        for value in one.values
    }
    return sorted(asked) or [""]


def _of_policy(prices: Sequence[Price], policy: Policy) -> Iterable[_Offer]:
    by_type: dict[str, Price] = {}
    for price in prices:
        by_type.setdefault(price.instance_type, price)
    for entry in policy.groups:
        for kind in entry.types:
            if kind not in by_type:
                raise BadInput(f"group {entry.name!r}: instance_type {kind!r} is not in the catalogue")
        types = [by_type[kind] for kind in entry.types]
        # Of a set any may come: count on what every one has, at the price of the dearest.
        least = {name: min(one.room[name] for one in types) for name in types[0].room}
        room = Resources({**least, **Resources.parse(entry.resources)})
        usd = max(one.usd for one in types) if entry.usd_per_hour is None else entry.usd_per_hour
        for zone in entry.zones:
            yield _offer(
                Price(" or ".join(entry.types), types[0].arch, room, usd, zone, entry.capacity_type),
                zone=zone,
                entry=entry.name,
                available=entry.max,
                labels={words.GROUP: entry.name, words.REGION: policy.region, **entry.labels},
                taints=tuple(taint.as_taint() for taint in entry.taints),
            )


def _offer(
    price: Price,
    *,
    zone: str,
    entry: str,
    available: int | None,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
) -> _Offer:
    seen = {
        **({} if " " in price.instance_type else {words.INSTANCE_TYPE: price.instance_type}),
        words.CAPACITY_TYPE: price.capacity_type,
        words.ORIGIN: words.EC2,
        words.ARCH: price.arch,
        words.OS: "linux",
        **({words.ZONE: zone} if zone else {}),
        **(labels or {}),
    }
    name = "/".join(part for part in (entry, price.instance_type, zone, price.capacity_type) if part)
    kind = Kind(name, _vector(price.room), price.usd, available)
    return _Offer(kind, price, zone, entry, seen, taints)


def _vector(amounts: Resources) -> Vector:
    return (amounts[CPU], amounts[MEMORY], amounts[words.GPU], amounts[PODS])


def _wanted(pod: Pod) -> Vector:
    cpu, memory, gpus, pods = _vector(pod.requests)
    return (cpu, memory, gpus, pods or 1)


@dataclass(slots=True)
class _Desk:
    """The input, made ready to be tried in several ways."""

    pods: Sequence[Pod]
    names: Sequence[str]
    offers: Sequence[_Offer]
    nodes: Sequence[Node]
    policy: Policy | None
    machines: list[Node] = field(default_factory=list)
    free: Any = None
    rooms: Any = None
    allowed: dict[Any, tuple[frozenset[str], Any]] = field(default_factory=dict)
    selected: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    neighbours: Neighbours = field(init=False)
    kin: list[int] = field(default_factory=list)
    """For each pod a number that it shares with those that ask the same of a node."""
    kinds_of: dict[tuple[int, str | None], frozenset[str]] = field(default_factory=dict)
    by_name: dict[str, _Offer] = field(default_factory=dict)
    zones_of: dict[int, frozenset[str]] = field(default_factory=dict)
    zone_of: dict[int, str] = field(default_factory=dict)
    """The zone of each pod, where zones matter."""

    def __post_init__(self) -> None:
        """What is free on the machines, after what runs there."""
        self.machines = [node for node in self.nodes if node.ready and not node.cordoned and not node.deleting]
        self.neighbours = Neighbours(self.pods)
        kin: dict[Any, int] = {}
        self.kin = [kin.setdefault((pod.requests, pod.affinity, pod.tolerations), len(kin)) for pod in self.pods]
        self.by_name = {offer.kind.name: offer for offer in self.offers}
        self.rooms = np.array([offer.kind.amounts for offer in self.offers], dtype=np.int64).reshape(-1, 4)
        place = {node.name: number for number, node in enumerate(self.machines)}
        self.free = np.array([_vector(node.allocatable) for node in self.machines], dtype=np.int64).reshape(-1, 4)
        for pod in self.pods:
            if pod.node in place and not pod.is_finished:
                self.free[place[pod.node]] -= np.array(_wanted(pod), dtype=np.int64)

    def gangs(self) -> tuple[list[list[int]], list[LeftWaiting]]:
        """Pods by number, together with those of their gang, first served first; and who cannot be planned at all."""
        members: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, pod in enumerate(self.pods):
            if pod.node is None and pod.phase == "Pending" and not pod.deleting and not pod.is_daemon:
                ref = pod.gang
                members[("gang", ref.namespace, ref.name) if ref else ("pod", str(number))].append(number)
        order = sorted(members.values(), key=lambda gang: (-max(self.pods[one].priority for one in gang), gang[0]))
        kept, waiting = [], []
        for gang in order:
            why = next((why for one in gang if (why := self._not_planned(self.pods[one]))), None)
            size = max((self.pods[one].gang.size or 0 for one in gang if self.pods[one].gang), default=0)  # type: ignore[union-attr]
            if why is None and size > len(gang):
                why = (f"its gang has {len(gang)} of {size} pods here", "the other pods of the gang are there")
            if why is None:
                kept.append(gang)
            else:
                waiting += [LeftWaiting(self.names[one], *why) for one in gang]
        return kept, waiting

    def _not_planned(self, pod: Pod) -> tuple[str, str] | None:
        """Rules that an offline plan does not follow: said, never guessed."""
        rules = [*pod.not_understood, *not_kept(pod)]
        if self.machines and _by_zone(pod):
            rules.append("rules by zone where machines are there already")
        rules += [name for name in pod.requests if name not in _MODELLED]
        if rules:
            return f"an offline plan does not know: {', '.join(rules)}", "it is planned by the autoscaler on a cluster"
        kinds, machines = self._places(pod)
        return None if kinds or machines.any() else self._too_big(pod)

    def settle_zones(self, gangs: list[list[int]]) -> tuple[list[list[int]], list[LeftWaiting]]:
        """Give each pod a zone, where some pod minds; gangs for which there is none wait."""
        if not self.neighbours.minds_zones or not all(offer.zone for offer in self.offers):
            return gangs, []
        found, refused = self.neighbours.zones(self.pods, (one for gang in gangs for one in gang), self._zones_of)
        torn = [gang for gang in gangs if any(one in refused for one in gang)]
        self.zone_of = found
        waiting = [
            LeftWaiting(self.names[one], refused.get(one, _TORN), "its rules by zone allow more zones")
            for gang in torn
            for one in gang
        ]
        return [gang for gang in gangs if not any(one in refused for one in gang)], waiting

    def _zones_of(self, number: int) -> frozenset[str]:
        known = self.zones_of.get(self.kin[number])
        if known is None:
            kinds = self._places(self.pods[number])[0]
            known = self.zones_of[self.kin[number]] = frozenset(self.by_name[name].zone for name in kinds)
        return known

    def _kinds_for(self, number: int) -> frozenset[str]:
        """Where it may go, in its zone."""
        key = (self.kin[number], self.zone_of.get(number))
        known = self.kinds_of.get(key)
        if known is None:
            kinds, zone = self._places(self.pods[number])[0], key[1]
            known = self.kinds_of[key] = (
                kinds if zone is None else frozenset(name for name in kinds if self.by_name[name].zone == zone)
            )
        return known

    def _too_big(self, pod: Pod) -> tuple[str, str]:
        cpu, memory, gpus, _ = _wanted(pod)
        asked = f"{cpu / 1000:g} cpu, {memory / 2**20:g} MiB and {gpus} GPUs"
        return f"no kind of node on offer holds it ({asked}) and is what it selects", f"a node with {asked} is offered"

    def _places(self, pod: Pod) -> tuple[frozenset[str], Any]:
        """Names of the kinds, and which machines, that the pod may run on."""
        key = (pod.requests, pod.affinity, pod.tolerations)
        known = self.allowed.get(key)
        if known is None:
            size = np.array(_wanted(pod))
            offers, machines = self._suits(pod)
            fitting = np.nonzero(offers & (size <= self.rooms).all(axis=1))[0]
            fits = (size <= np.maximum(self.free, 0)).all(axis=1)
            known = self.allowed[key] = (
                frozenset(self.offers[one].kind.name for one in fitting.tolist()),
                machines & fits,
            )
        return known

    def _suits(self, pod: Pod) -> tuple[Any, Any]:
        """Which offers and which machines are what the pod selects, room aside."""
        key = (pod.affinity, pod.tolerations)
        known = self.selected.get(key)
        if known is None:
            affinity = _with_arch(pod)
            offers = [
                why_not_on(affinity=affinity, tolerations=pod.tolerations, labels=offer.labels, taints=offer.taints)
                for offer in self.offers
            ]
            there = [
                why_not_on(
                    affinity=pod.affinity,
                    tolerations=pod.tolerations,
                    labels={words.HOSTNAME: node.name, **node.labels},
                    taints=node.taints,
                    name=node.name,
                )
                for node in self.machines
            ]
            known = self.selected[key] = (
                np.array([why is None for why in offers], dtype=bool),
                np.array([why is None for why in there], dtype=bool),
            )
        return known

    def admit(self, gangs: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
        """The gangs that can be served together, in order; and those that cannot. By doubling and halving."""
        if self._serves(gangs):
            return gangs, []
        taken: list[list[int]] = []
        refused: list[list[int]] = []
        position = 0
        while position < len(gangs):
            step = 1
            good = 0
            while position + good < len(gangs) and self._serves(taken + gangs[position : position + good + step]):
                good = min(good + step, len(gangs) - position)
                step *= 2
            while step > 1:
                step //= 2
                if good + step <= len(gangs) - position and self._serves(
                    taken + gangs[position : position + good + step]
                ):
                    good += step
            taken += gangs[position : position + good]
            position += good
            if position < len(gangs):
                refused.append(gangs[position])
                position += 1
        return taken, refused

    def _serves(self, gangs: list[list[int]]) -> bool:
        if self.policy is None and all(self._kinds_for(one) for gang in gangs for one in gang):
            return True  # anything can be bought: only a pod that fits machines alone may be left over
        return not self.broken(self.draft([one for gang in gangs for one in gang]))

    def broken(self, draft: _Draft) -> bool:
        """Whether someone is left over or a limit is not kept."""
        if not draft.is_whole:
            return True
        if self.policy is None:
            return False
        entries = Counter(node.offer.entry for node in draft.nodes)
        gpus = sum(node.offer.kind.amounts[2] for node in draft.nodes)
        nodes = len(draft.nodes)
        limits = self.policy.limits
        return (
            any(entries[entry.name] > entry.max for entry in self.policy.groups)
            or (limits.nodes is not None and nodes > limits.nodes)
            or (limits.gpus is not None and gpus > limits.gpus)
            or (limits.usd_per_hour is not None and draft.usd > limits.usd_per_hour + _CENT)
        )

    def draft(
        self, numbers: Sequence[int], *, deadline: float = 0.0, clock: Callable[[], float] | None = None
    ) -> _Draft:
        """Machines first, then the cheapest nodes; without a clock the first plan at hand."""
        at_home = self._fill_machines(numbers)
        rows: dict[Any, list[int]] = defaultdict(list)
        for number in numbers:
            if number not in at_home:
                needs, zone = self.neighbours.needs(number), self.zone_of.get(number)
                rows[self.kin[number], needs, zone].append(number)
        shapes = [
            Shape(_wanted(self.pods[row[0]]) + self.neighbours.needs(row[0]), len(row), self._kinds_for(row[0]))
            for row in rows.values()
        ]
        kinds = self._kinds()
        if clock is None:
            answer = cheapest(shapes, kinds, rounds=0, deadline=math.inf)
        else:
            answer = cheapest(shapes, kinds, deadline=deadline, clock=clock)
        wanted = [(self.by_name[nodes.kind], nodes.pods) for nodes in answer.nodes for _ in range(nodes.times)]
        seats, companies, left = self.neighbours.seat((places for _, places in wanted), list(rows.values()))
        nodes = [_Node(offer, pods, who) for (offer, _), pods, who in zip(wanted, seats, companies, strict=True)]
        return _Draft(at_home, nodes, self._squeeze(nodes, left), answer.lower_bound)

    def _kinds(self) -> list[Kind]:
        """What is on offer, with a place for one pod of each sort that wants a node for itself."""
        alone = (1,) * len(self.neighbours.exclusive)
        return [replace(offer.kind, amounts=offer.kind.amounts + alone) for offer in self.offers]

    def _squeeze(self, nodes: list[_Node], left: Sequence[int]) -> list[int]:
        """Seat those who did not get on: where there is room beside others, else on more nodes. Who stays left."""
        if not left:
            return []
        free = np.array([self._free_on(node) for node in nodes], dtype=np.int64).reshape(-1, 4)
        bought = Counter(node.offer.kind.name for node in nodes)
        still = []
        for number in left:
            size, kinds = np.array(_wanted(self.pods[number]), dtype=np.int64), self._kinds_for(number)
            stance = self.neighbours.stances[number]
            fits = np.nonzero((size <= free).all(axis=1))[0].tolist()
            place = next(
                (one for one in fits if nodes[one].offer.kind.name in kinds and nodes[one].company.admits(stance)), None
            )
            if place is None:
                offer = self._cheapest_of(kinds, bought)
                if offer is None:
                    still.append(number)
                    continue
                place = len(nodes)
                bought[offer.kind.name] += 1
                nodes.append(_Node(offer, [], Company()))
                free = np.vstack([free, np.array(offer.kind.amounts, dtype=np.int64)])
            nodes[place].pods.append(number)
            nodes[place].company.join(stance)
            free[place] -= size
        self._shrink(nodes, free, bought)
        return still

    def _cheapest_of(self, kinds: frozenset[str], bought: Mapping[str, int]) -> _Offer | None:
        offers = (self.by_name[name] for name in kinds)
        return min(
            (offer for offer in offers if _is_left(offer.kind, bought)),
            key=lambda one: (one.kind.usd, one.kind.name),
            default=None,
        )

    def _free_on(self, node: _Node) -> Any:
        used = np.array([_wanted(self.pods[one]) for one in node.pods], dtype=np.int64).reshape(-1, 4).sum(axis=0)
        return np.array(node.offer.kind.amounts, dtype=np.int64) - used

    def _shrink(self, nodes: list[_Node], free: Any, bought: Counter[str]) -> None:
        """Nodes that hold less than was planned: the cheapest kind that is large enough; none for nobody."""
        rooms = np.array([offer.kind.amounts for offer in self.offers], dtype=np.int64)
        usd = np.array([offer.kind.usd for offer in self.offers])
        for node, rest in zip(nodes, free, strict=True):
            if not node.pods:
                continue
            used = np.array(node.offer.kind.amounts, dtype=np.int64) - rest
            fits = np.nonzero((rooms >= used).all(axis=1) & (usd < node.offer.kind.usd))[0]
            fits = fits[np.argsort(usd[fits], kind="stable")]
            suits = [self._kinds_for(one) for one in node.pods]
            for one in fits.tolist():
                offer = self.offers[one]
                if _is_left(offer.kind, bought) and all(offer.kind.name in kinds for kinds in suits):
                    bought[node.offer.kind.name] -= 1
                    bought[offer.kind.name] += 1
                    node.offer = offer
                    break
        nodes[:] = [node for node in nodes if node.pods]

    def _fill_machines(self, numbers: Sequence[int]) -> dict[int, int]:
        """Biggest pods first, each on the machine where it strands the fewest GPUs and leaves the least over."""
        if not len(self.machines):
            return {}
        free = self.free.copy()
        scale = np.maximum(self.free.max(axis=0), 1)
        at_home: dict[int, int] = {}
        full: set[Any] = set()

        def order(number: int) -> tuple[Any, ...]:
            cpu, memory, gpus, _ = _wanted(self.pods[number])
            return (-self.pods[number].priority, -gpus, -max(cpu / scale[0], memory / scale[1]), number)

        for number in sorted(numbers, key=order):
            pod = self.pods[number]
            if self.neighbours.stances[number] != FREE or _by_zone(pod):
                continue  # who is on the machines already may mind
            size = _wanted(pod)
            key = (size, pod.affinity, pod.tolerations)
            if key in full:
                continue
            fits = self._places(pod)[1] & (np.array(size) <= free).all(axis=1)
            if not fits.any():
                full.add(key)
                continue
            rest = free[:, 0] / scale[0] + free[:, 1] / scale[1]
            machine = int(np.argmin(np.where(fits, free[:, 2] * 1000.0 + rest, np.inf)))
            free[machine] -= np.array(size, dtype=np.int64)
            at_home[number] = machine
        return at_home

    def why(self, gang: Sequence[int]) -> list[LeftWaiting]:
        """For a gang that the limits leave out."""
        reason = "the policy's limits leave no room for all of its gang" if len(gang) > 1 else "the limits are reached"
        if self.policy is None:
            reason = "the machines that it may run on are full"
        alone = self.draft(gang)
        if alone.is_whole:
            many = len(alone.nodes)
            wish = f"{alone.usd:g} $/h for {many} more nodes are allowed"
        else:
            wish = "a group that holds it may grow further"
        return [LeftWaiting(self.names[one], reason, wish) for one in gang]

    def told(self, draft: _Draft, chosen: Sequence[int], waiting: list[LeftWaiting], *, seconds: float) -> OfflinePlan:
        """In names."""
        placements = {number: self.machines[machine].name for number, machine in draft.at_home.items()}
        taken = {node.name for node in self.nodes}
        nodes: list[BoughtNode] = []
        numbers: Counter[str] = Counter()
        for bought in draft.nodes:
            offer = bought.offer
            name = _next_name(offer, numbers, taken)
            nodes.append(
                BoughtNode(name, offer.price.instance_type, offer.zone, offer.price.capacity_type, offer.kind.usd)
            )
            placements |= dict.fromkeys(bought.pods, name)
        usd = round(math.fsum(node.usd_per_hour for node in nodes), 6)
        return OfflinePlan(
            nodes=tuple(nodes),
            placements={self.names[number]: placements[number] for number in sorted(placements)},
            waiting=tuple(sorted(waiting, key=lambda one: one.pod)),
            usd_per_hour=usd,
            lower_bound_usd_per_hour=round(min(usd, self._bound(draft, chosen)), 6),
            seconds=seconds,
        )

    def _bound(self, draft: _Draft, chosen: Sequence[int]) -> float:
        """Of all ways to serve the same pods; where machines are there, of all ways to choose who goes on them."""
        if not draft.at_home and not self.zone_of:
            return draft.lower_bound
        alone = (1,) * len(self.neighbours.exclusive)
        machines: dict[Vector, list[int]] = defaultdict(list)
        for number, free in enumerate(np.maximum(self.free, 0).tolist()):
            machines[tuple(free)].append(number)
        groups = list(machines.values())
        kinds = self._kinds()
        for number, group in enumerate(groups):
            room = tuple(int(one) for one in np.maximum(self.free[group[0]], 0))
            kinds.append(Kind(f"machine-{number}", room + alone, 0.0, len(group)))
        rows: Counter[Any] = Counter()
        allowed: dict[Any, frozenset[str]] = {}
        for number in chosen:
            pod = self.pods[number]
            key = (_wanted(pod) + self.neighbours.needs(number), pod.affinity, pod.tolerations)
            rows[key] += 1
            if key not in allowed:
                names, there = self._places(pod)
                homes = {f"machine-{number}" for number, group in enumerate(groups) if there[group].any()}
                allowed[key] = names | homes
        shapes = [Shape(key[0], many, allowed[key]) for key, many in rows.items()]
        return lower_bound(shapes, kinds)


def _is_left(kind: Kind, bought: Mapping[str, int]) -> bool:
    return kind.available is None or bought[kind.name] < kind.available


def _by_zone(pod: Pod) -> bool:
    """Whether it has a rule that counts pods by zone."""
    gang = pod.gang
    return bool(
        pod.near_to
        or any(one.topology_key == words.ZONE for one in pod.spread)
        or (gang is not None and gang.topology == words.ZONE)
    )


def _with_arch(pod: Pod) -> Any:
    """Who says nothing of the processor gets the common one."""
    arch = Requirement(words.ARCH, "In", ("amd64",))
    if not pod.affinity:
        return ((arch,),)
    return tuple(
        term if any(one.key in (words.ARCH, words.INSTANCE_TYPE) for one in term) else (*term, arch)
        for term in pod.affinity
    )


def _next_name(offer: _Offer, numbers: Counter[str], taken: set[str]) -> str:
    stem = "-".join(part for part in (offer.entry or offer.price.instance_type, offer.zone) if part).replace(".", "-")
    while True:
        numbers[stem] += 1
        name = f"{stem}-{numbers[stem]}"
        if name not in taken:
            return name


def show(plan: OfflinePlan, *, echo: Callable[[str], None]) -> None:
    """A short table for people."""
    counted: dict[tuple[str, str, str, float], int] = defaultdict(int)
    for node in plan.nodes:
        counted[node.instance_type, node.zone, node.capacity_type, node.usd_per_hour] += 1
    echo(f"{'NODES':>6}  {'INSTANCE TYPE':<20} {'ZONE':<12} {'CAPACITY':<10} {'$/H EACH':>10} {'$/H':>12}")
    for (kind, zone, capacity, usd), many in sorted(counted.items(), key=lambda item: -item[0][3] * item[1]):
        echo(f"{many:>6}  {kind:<20} {zone or 'any':<12} {capacity:<10} {usd:>10.4f} {usd * many:>12.4f}")
    bound = plan.lower_bound_usd_per_hour
    gap = f", at most {plan.usd_per_hour / bound - 1:.2%} above the cheapest there is" if bound > 0 else ""
    echo(f"{plan.usd_per_hour:.4f} $/h for {len(plan.nodes)} nodes (no plan costs less than {bound:.4f} $/h{gap})")
    echo(f"{len(plan.placements)} pods placed, {len(plan.waiting)} waiting, {plan.seconds:.2f} s")
    for (reason, wish), pods in _by_reason(plan.waiting).items():
        echo(f"waiting: {len(pods)} pods ({', '.join(pods[:3])}{', ...' if len(pods) > 3 else ''}): {reason}")  # noqa: PLR2004 - a few
        echo(f"         would fit if {wish}")


def _by_reason(waiting: Iterable[LeftWaiting]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in waiting:
        found[one.reason, one.would_fit_if].append(one.pod)
    return found
