"""What new nodes may be had: offerings, the ceilings over all of them, and fresh nodes that a snapshot can be given.

Fresh are nodes that are at hand (idle, cordoned by us, on their way; the bill has them already) and those that would be
bought. What is opened is taken back with the snapshot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from autoscaler.model.cluster import Group
from autoscaler.model.feasibility import Amounts
from autoscaler.model.labels import GPU, HOSTNAME
from autoscaler.planner.placement.room_table import RoomTable
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import COMING_TIER, Place, Shape
from autoscaler.planner.supply.fleet import NEVER
from autoscaler.solver.problem import Limit

CENT = 1e-9
"""Dollars: less than that is rounding."""
PREPAID = 1e-4
"""Dollars: more than what is at hand is counted with, so that this is filled first; no part of any bill or limit."""
_FIRST = 8


@dataclass(frozen=True, slots=True)
class Offering:
    """A group that new nodes can be bought in."""

    group: Group
    new_place: Callable[[str], Place]
    """A new node of it, by that name."""
    buyable: int
    """Within the group's own maximum; zero while it is closed."""
    failed: datetime = NEVER
    """As in ``Fleet.failed_of``."""

    @property
    def usd(self) -> float:
        """Dollars per hour of one node; of one that is paid for already a little, which tells it from one at hand."""
        return self.group.usd_per_hour or PREPAID

    @property
    def rank(self) -> tuple[datetime, str]:
        """Returns what orders offerings of one price: first what has not failed of late, or not for longer."""
        return self.failed, self.group.name


@dataclass(slots=True)
class Ceilings:
    """What may still be bought in all; ``None`` stands for no limit."""

    usd: float | None = None
    nodes: int | None = None
    gpus: int | None = None
    entries: dict[str, int] = field(default_factory=dict)
    """Policy entry -> nodes."""
    quotas: dict[str, int] = field(default_factory=dict)
    """Code of a quota of the AWS account -> vCPUs."""

    def why_not(self, group: Group) -> str:
        """Which ceiling one more node of the group would break; empty where none."""
        if self.entries.get(group.entry, 1) < 1:
            return "max"
        if self.usd is not None and group.usd_per_hour > self.usd + CENT:
            return "usd_per_hour"
        if self.nodes is not None and self.nodes < 1:
            return "nodes"
        if self.gpus is not None and group.allocatable[GPU] > self.gpus:
            return "gpus"
        if group.vcpus > self.quotas.get(group.quota, group.vcpus):
            return "quota"
        return ""

    def of_entry(self, group: Group, most: int) -> int:
        """How many nodes of the group its entry leaves, ``most`` at most; what groups share is told by ``shared``."""
        return max(0, min(most, self.entries.get(group.entry, most)))

    def nodes_left(self, group: Group, most: int) -> int:
        """How many nodes of the group alone could still be bought, ``most`` at most."""
        bounds = [most]
        if group.entry in self.entries:
            bounds.append(self.entries[group.entry])
        if self.nodes is not None:
            bounds.append(self.nodes)
        if self.gpus is not None and group.allocatable[GPU] > 0:
            bounds.append(self.gpus // group.allocatable[GPU])
        if self.usd is not None and group.usd_per_hour > 0:
            bounds.append(int((self.usd + CENT) / group.usd_per_hour))
        if group.quota in self.quotas and group.vcpus > 0:
            bounds.append(self.quotas[group.quota] // group.vcpus)
        return max(0, min(bounds))

    def shared(self, groups: Sequence[Group], nodes: int) -> Iterator[Limit]:
        """What these groups may not exceed together, as the solver counts it. No plan has more than so many nodes."""
        if self.usd is not None:
            yield Limit({group.name: group.usd_per_hour for group in groups}, self.usd)
        if self.nodes is not None and self.nodes < nodes:
            yield Limit({group.name: 1.0 for group in groups}, self.nodes)
        if self.gpus is not None:
            yield Limit({group.name: float(group.allocatable[GPU]) for group in groups}, self.gpus)
        members: dict[str, list[str]] = defaultdict(list)
        for group in groups:
            members[group.entry].append(group.name)
        for entry, names in members.items():
            if len(names) > 1 and self.entries.get(entry, nodes) < nodes:
                yield Limit(dict.fromkeys(names, 1.0), self.entries[entry])
        for code, vcpus in self.quotas.items():
            uses = {group.name: float(group.vcpus) for group in groups if group.quota == code}
            if max(uses.values(), default=0.0) * nodes > vcpus:
                yield Limit(uses, vcpus)

    def copy(self) -> Ceilings:
        """Another one, as of now."""
        return Ceilings(self.usd, self.nodes, self.gpus, dict(self.entries), dict(self.quotas))

    def take(self, group: Group, nodes: int = 1) -> None:
        """Count nodes as bought; a negative number gives them back."""
        if group.entry in self.entries:
            self.entries[group.entry] -= nodes
        if self.usd is not None:
            self.usd -= group.usd_per_hour * nodes
        if self.nodes is not None:
            self.nodes -= nodes
        if self.gpus is not None:
            self.gpus -= group.allocatable[GPU] * nodes
        if group.quota in self.quotas:
            self.quotas[group.quota] -= group.vcpus * nodes


class Market:
    """Fresh nodes: at hand or to be bought, within the ceilings. What is opened is taken back with the snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        offerings: Iterable[Offering],
        ceilings: Ceilings,
        *,
        kept: Collection[str] = (),
        samples: dict[str, Place] | None = None,
        thorough: bool = True,
    ) -> None:
        """``kept``: names of fresh nodes that a pod was planned on before: others take them last.

        ``samples``: group name -> a new node, as far as known; those made here are added.
        ``thorough``: several ways to hold a gang are compared; else the first that holds it will do.
        """
        self.thorough = thorough
        self._kept = kept
        self.snapshot = snapshot
        self.offerings = sorted(offerings, key=lambda one: (one.usd, *one.rank))
        self._by_name = {one.group.name: one for one in self.offerings}
        self.ceilings = ceilings
        self.bought: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        self.opened: list[Place] = []
        self._samples = {} if samples is None else samples
        self._at_hand: dict[str, list[Place]] = defaultdict(list)
        self._table: RoomTable | None = None
        self._asked: set[str] = set()
        """Resources that the table knows."""
        self._capacity: dict[tuple[str, int], int] = {}
        for place in snapshot.places:
            if place.group is not None and not place.standing:
                self._at_hand[place.group.name].append(place)
        for places in self._at_hand.values():
            places.sort(key=lambda place: (place.name in kept, place.tier, place.name))

    def relaxed(self, offerings: Iterable[Offering], ceilings: Ceilings, *, thorough: bool) -> Market:
        """The same fresh nodes and the same names, other offerings and ceilings: to ask what would be, and undo it."""
        market = Market(self.snapshot, offerings, ceilings, kept=self._kept, thorough=thorough)
        market.bought, market.cancelled = Counter(self.bought), Counter(self.cancelled)
        known = {one.group.name: one.new_place for one in self.offerings}
        alike = [one.group.name for one in market.offerings if known.get(one.group.name) is one.new_place]
        if len(alike) == len(market.offerings) == len(self.offerings):  # they differ in how many may be bought alone
            market._samples, market._capacity = self._samples, self._capacity
            market._table, market._asked = self._table, set(self._asked)
        else:
            market._samples = {name: self._samples[name] for name in alike if name in self._samples}
        return market

    def with_more(self, offerings: Iterable[Offering]) -> Market:
        """The same nodes, names and ceilings, and more offerings."""
        return self.relaxed([*self.offerings, *offerings], self.ceilings, thorough=self.thorough)

    def at_hand(self, offering: Offering) -> Sequence[Place]:
        """Its fresh nodes that cost nothing more, the readiest first."""
        return self._at_hand[offering.group.name]

    def offering(self, group: str) -> Offering:
        """The one of that group."""
        return self._by_name[group]

    def buyable(self, offering: Offering) -> int:
        """How many may still be bought within its own bounds; zero where a ceiling forbids even one."""
        name = offering.group.name
        left = offering.buyable - self.bought.get(name, 0) + self.cancelled.get(name, 0)
        return left if left > 0 and not self.ceilings.why_not(offering.group) else 0

    def may_come(self, sample: Place) -> bool:
        """Whether one more node like the sample may still be bought."""
        return sample.group is not None and self.buyable(self.offering(sample.group.name)) > 0

    def sample(self, offering: Offering) -> Place:
        """A new node of it to ask questions of; it is in no snapshot."""
        name = offering.group.name
        if name not in self._samples:
            self._samples[name] = offering.new_place(f"{name}+?")
        return self._samples[name]

    def next_name(self, offering: Offering) -> str:
        """What the next node bought of it will be called."""
        return f"{offering.group.name}+{self.bought[offering.group.name] + 1}"

    def capacity(self, offering: Offering, shape: Shape) -> int:
        """How many pods of that shape a new node of it holds, other pods aside."""
        key = (offering.group.name, shape.number)
        if key not in self._capacity:
            self._capacity[key] = _capacity(self.snapshot, self.sample(offering), shape)
        return self._capacity[key]

    def offers(self, shape: Shape) -> bool:
        """Whether a node that may be had holds a pod of that shape."""
        return any(
            (self.buyable(offering) or self.at_hand(offering)) and self.capacity(offering, shape)
            for offering in self.with_room(shape.amounts)
        )

    def with_room(self, amounts: Amounts) -> Iterator[Offering]:
        """The offerings of which an empty node has so much room, the cheapest first."""
        if self._table is None or not self._asked.issuperset(name for name, _ in amounts):
            self._asked |= {name for name, _ in amounts}
            self._table = RoomTable([self.sample(one).free for one in self.offerings], self._asked)
        found = self._table.enough(amounts).nonzero()[0]
        for some in (found[:_FIRST], found[_FIRST:]):  # most askers are content with one of the first
            for number in some.tolist():
                yield self.offerings[number]

    def open(
        self, offering: Offering, fits: Callable[[Place], bool], *, buy: bool = True, at_hand: bool = True
    ) -> Place | None:
        """A fresh node for which ``fits`` holds: the readiest at hand, else a bought one.

        A gang that may not buy takes none that is spoken for: its owner would have to buy another.
        """
        if not at_hand:
            return self._buy(offering, fits) if self.buyable(offering) else None
        fresh = self._at_hand[offering.group.name]
        for position, place in enumerate(fresh):
            if (buy or not self.is_spoken_for(place)) and fits(place):
                return self._take(fresh, position)
        return self._buy(offering, fits) if buy and self.buyable(offering) else None

    def is_spoken_for(self, place: Place) -> bool:
        """Whether it is on its way for a pod, or a pod was planned on it before."""
        return place.tier == COMING_TIER or self.is_kept(place)

    def is_kept(self, place: Place) -> bool:
        """Whether a pod was planned on it before: what takes it makes that one buy another."""
        return place.name in self._kept

    def settle(self, place: Place, shape: Shape) -> bool:
        """Whether a pod of the shape may go to that very place, which counts as opened then if it was fresh."""
        if self.snapshot.why_not(shape, place) is not None:
            return False
        if not place.standing and place.group is not None:
            self.take(place)
        return True

    def take(self, place: Place) -> None:
        """Open that very node, which is at hand."""
        at_hand = self._at_hand[place.group.name if place.group is not None else ""]
        self._take(at_hand, at_hand.index(place))

    def cancel(self, bought: Iterable[Place], *, but: Iterable[Place]) -> list[Place]:
        """What was bought is not, ``but`` these: their like may be bought again. The snapshot changes for good."""
        kept = {id(place) for place in but}
        cancelled = [place for place in bought if id(place) not in kept]
        for place in cancelled:
            if place.group is not None:
                self.cancelled[place.group.name] += 1
                self.ceilings.take(place.group, -1)
            self.snapshot.remove(place)
        return cancelled

    def _take(self, at_hand: list[Place], position: int) -> Place:
        place = at_hand.pop(position)
        self.opened.append(place)

        def put_back() -> None:
            self.opened.pop()
            at_hand.insert(position, place)

        self.snapshot.note(put_back)
        return place

    def _buy(self, offering: Offering, fits: Callable[[Place], bool]) -> Place | None:
        name = offering.group.name
        place = offering.new_place(self.next_name(offering))
        place.price = offering.usd
        mark = self.snapshot.mark()
        self.snapshot.add(place)
        if not fits(place):
            self.snapshot.undo(mark)
            return None
        self.bought[name] += 1
        self.ceilings.take(offering.group)
        self.opened.append(place)

        def give_back() -> None:
            self.opened.pop()
            self.bought[name] -= 1
            self.ceilings.take(offering.group, -1)

        self.snapshot.note(give_back)
        return place


def _capacity(snapshot: Snapshot, sample: Place, shape: Shape) -> int:
    if snapshot.why_not_new(shape, sample) is not None:
        return 0
    most = min(sample.free.get(name, 0) // amount for name, amount in shape.amounts)
    alone = bool(shape.host_ports) or any(term.topology_key == HOSTNAME for term in shape.apart_from)
    return min(most, 1) if alone else most
