"""Why a gang found no place, in words: what no machine could ever hold, what limits are in the way, what is full."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from autoscaler.model.actions import BUSY, CAUSES, IMPOSSIBLE, LIMIT, MONEY, PAUSED, QUOTA, REFUSED
from autoscaler.model.cluster import Group
from autoscaler.model.constraints import Taint
from autoscaler.model.enumeration import counted
from autoscaler.model.feasibility import (
    NODE_NAME,
    Amounts,
    Reason,
    amount_in_words,
    sum_up,
    sum_up_by_name,
    why_no_room,
    why_not_on,
    why_not_tied,
)
from autoscaler.model.instance_types import quota_in_words
from autoscaler.model.labels import GPU, HOSTNAME
from autoscaler.model.resources import ATTACHMENTS, CPU, PODS
from autoscaler.planner.obstacles.search import Found, Search
from autoscaler.planner.obstacles.unbuilt_groups import ADDED, unbuilt_groups
from autoscaler.planner.placement.gang_packing import Demand
from autoscaler.planner.placement.offerings import CENT, Ceilings
from autoscaler.planner.supply.candidate_nodes import Shape
from autoscaler.planner.supply.node_places import labels_of

_KNOWN_PRICE: Final = 0.005
"""Dollars per hour: what costs less has a price that is not known."""


class _Kind(NamedTuple):
    """A machine, empty, or all that differ from it in name only."""

    name: str
    """Of a machine, or of an entry of groups."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    room: Mapping[str, int]
    told: list[str]
    """Entries of groups, and machines that are in none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The words, without the pod."""

    because: str
    cause: str = BUSY


@dataclass(frozen=True, slots=True)
class _Over:
    """A ceiling that a purchase would break."""

    cause: str
    says: str
    leaves: float
    needs: float
    amount: str = ""
    """What is bought, as this ceiling counts it."""

    @property
    def words(self) -> str:
        """What it leaves; and that others have asked for it before, where it would do for this one alone."""
        left = max(0.0, self.leaves)
        figure = f"{math.floor(left * 100) / 100:.2f}" if self.cause == MONEY else f"{left:g}"
        others = ", which those before it in turn wait for" if self.needs <= self.leaves + CENT else ""
        return f"{self.says} {figure}{others}"


@dataclass(slots=True)
class Reasons:
    """The reasons of one plan, and of what would be if something were left out."""

    search: Search
    _reasons: dict[object, Reason | None] = field(default_factory=dict)
    """What labels and taints have against it: of all that these rules cannot tell apart."""
    _machines: list[_Kind] = field(default_factory=list)
    _distinct: list[_Kind] = field(default_factory=list)

    def impossible(self, shape: Shape) -> Verdict | None:
        """Where not even one pod of the shape could run on an empty machine of any kind."""
        kinds = self._kinds(shape)
        if not kinds:
            return Verdict("there is no machine, and the policy names no group", IMPOSSIBLE)
        amounts = tuple((name, amount) for name, amount in shape.amounts if not name.startswith(ATTACHMENTS))
        shut_out: list[tuple[str, Reason]] = []
        for name, labels, taints, room, told in kinds:
            values = tuple([name if key == NODE_NAME else labels.get(key) for key in shape.asked_keys])
            alike = (shape.affinity, shape.ties, shape.tolerations, taints, values)
            if alike not in self._reasons:
                self._reasons[alike] = why_not_on(
                    affinity=shape.affinity, tolerations=shape.tolerations, labels=labels, taints=taints, name=name
                ) or why_not_tied(shape.ties, labels, name)
            reason, lack = self._reasons[alike], why_no_room(amounts, room)
            if reason is None and lack is None:
                return None
            shut_out += [(each, reason) for each in told] if reason is not None and lack is None else []
        if not shut_out:
            return _too_big(amounts, kinds)
        words = sum_up_by_name(shut_out)
        return Verdict(f"no machine that is large enough, here or to be bought, takes it: {words}", IMPOSSIBLE)

    def _kinds(self, shape: Shape) -> list[_Kind]:
        """Every kind of machine that there is or may be, empty. Machines that differ in name only are one kind."""
        if not self._machines:
            for offering in self.search.market.offerings:
                entry, sample = offering.group.entry, self.search.market.sample(offering)
                self._machines.append(_Kind(entry, sample.labels, sample.taints, sample.free, [entry]))
            for group in unbuilt_groups(self.search.cluster, self.search.policy):
                labels, room = labels_of(group, group.name), dict(group.allocatable.items())
                self._machines.append(_Kind(group.entry, labels, group.taints, room, [group.entry]))
            for node in self.search.cluster.nodes:
                of = self.search.fleet.group_of.get(node.name)
                told = [of.entry if of is not None else node.name]
                self._machines.append(_Kind(node.name, node.labels, node.taints, node.allocatable, told))
        if HOSTNAME in shape.asked_keys or NODE_NAME in shape.asked_keys:
            return self._machines
        if not self._distinct:
            found: dict[object, _Kind] = {}
            for one in self._machines:
                alike = frozenset(item for item in one.labels.items() if item[0] != HOSTNAME)
                kind = found.setdefault((alike, one.taints, frozenset(one.room.items())), one._replace(told=[]))
                kind.told.extend(one.told)
            self._distinct = list(found.values())
        return self._distinct

    def limited(self, found: Found, left: Ceilings) -> Verdict | None:
        """Where EC2 could hold it but for limits, maxima, quotas, pauses or refusals: all of them."""
        bought = [place.group for place in found.placed.bought if place.group is not None and place.group.name != ADDED]
        if not bought:
            return None
        over = list(self._over_ceilings(bought, left))
        against = [(one.cause, one.words) for one in over] + list(self._shut(bought))
        if not against:
            return None
        usd = sum(group.usd_per_hour for group in bought)
        unpriced = "at a price that is not known yet" if usd else "paid for already"
        price = f"{usd:.2f} $/h" if usd >= _KNOWN_PRICE else unpriced
        entries = Counter(group.entry for group in bought)
        more = " and ".join(counted(count, f"more {name} node") for name, count in sorted(entries.items()))
        what = "".join(f" with {one.amount}" for one in over if one.amount)
        order = list(CAUSES)
        cause = min((cause for cause, _ in against), key=order.index)
        return Verdict(f"needs {more} ({price}){what}, but {', and '.join(words for _, words in against)}", cause)

    def _over_ceilings(self, bought: Sequence[Group], left: Ceilings) -> Iterator[_Over]:
        """Each that is broken, with what it leaves now; what those before it in turn wait for counts as taken."""
        limits, now = self.search.policy.limits, self.search.market.ceilings
        for name, count in sorted(Counter(group.entry for group in bought).items()):
            if count > left.entries.get(name, count):
                entry = self.search.policy.entry(name)
                most = entry.max if entry else 0
                yield _Over(LIMIT, f"max {most} of group {name} leaves", now.entries[name], count)
        usd = sum(group.usd_per_hour for group in bought)
        if now.usd is not None and left.usd is not None and usd > left.usd + CENT:
            yield _Over(MONEY, f"limits.usd_per_hour {limits.usd_per_hour:g} leaves", now.usd, usd)
        gpus = sum(group.allocatable[GPU] for group in bought)
        if now.gpus is not None and left.gpus is not None and gpus and gpus > left.gpus:
            yield _Over(LIMIT, f"limits.gpus {limits.gpus} leaves", now.gpus, gpus, f"{gpus} GPUs")
        if now.nodes is not None and left.nodes is not None and len(bought) > left.nodes:
            yield _Over(LIMIT, f"limits.nodes {limits.nodes} leaves", now.nodes, len(bought))
        for code, most in sorted(left.quotas.items()):
            vcpus = sum(group.vcpus for group in bought if group.quota == code)
            if vcpus and vcpus > most:
                words = f"{quota_in_words(code)} leaves"
                yield _Over(QUOTA, words, now.quotas[code], vcpus, f"{vcpus} vCPUs")

    def _shut(self, bought: Sequence[Group]) -> Iterator[tuple[str, str]]:
        """What keeps single groups from growing."""
        there = {group.name for group in self.search.cluster.groups}
        counts = Counter(group.name for group in bought)
        groups = {group.name: group for group in bought}
        for pause in dict.fromkeys(pause for group in groups.values() for pause in self.search.pauses_of(group)):
            yield PAUSED, str(pause)
        for name, count in sorted(counts.items()):
            group, closed = groups[name], self.search.fleet.closed.get(name)
            if closed is not None:
                why = (
                    f"{group.instance_type} in {group.zone} is left alone until {closed.until:%Y-%m-%d %H:%M:%S} UTC "
                    f"({closed.code}), and nothing else that may be bought holds it"
                )
                yield REFUSED, why
            room = max(0, group.maximum - self.search.fleet.size_of(group)) if name in there else 0
            if name not in there:
                yield LIMIT, f"group {group.entry} has no Auto Scaling group in {group.zone} yet"
            elif count > room and not self._is_over_max(group):
                yield LIMIT, f"the MaxSize of Auto Scaling group {name} leaves {room}"

    def _is_over_max(self, group: Group) -> bool:
        """Its entry's maximum is no more than what the group may grow to: that is told."""
        entry = self.search.policy.entry(group.entry)
        return entry is not None and entry.max <= group.maximum

    def busy(self, demand: Demand) -> Verdict:
        """Where only machines that are there could hold it, and they are full or closed."""
        shape = min((shape for _, shape in demand.pods), key=lambda shape: shape.rank)
        words = [sum_up(self.search.market.snapshot.reasons(shape)) or self._why_no_new_node(shape)]
        shut = Counter(self.search.fleet.unusable.values())
        words += [f"{counted(count, 'node')}: {why}" for why, count in sorted(shut.items())]
        many = f"its {len(demand.pods)} pods do not fit together" if len(demand.pods) > 1 else "it fits nowhere now"
        told = "; ".join(one for one in words if one)
        return Verdict(f"{many}, and what may be bought does not change that: {told or 'no node'}")

    def _why_no_new_node(self, shape: Shape) -> str:
        """Where no node is there: what is against a new one."""
        market = self.search.market
        whys = ((one.group.entry, market.snapshot.why_not(shape, market.sample(one))) for one in market.offerings)
        return sum_up_by_name((name, why) for name, why in whys if why is not None)


def _too_big(amounts: Amounts, kinds: Sequence[_Kind]) -> Verdict:
    """Each amount that no machine has; where each has one that has it, the machine that lacks the fewest."""
    rooms = {kind.name: kind.room for kind in kinds}
    most = {
        name: max(((room.get(name, 0), kind) for kind, room in rooms.items()), key=itemgetter(0)) for name, _ in amounts
    }
    lacking = sorted((one for one in amounts if one[1] > most[one[0]][0]), key=lambda one: one[0] != GPU)
    if lacking:
        return Verdict("; ".join(_more_than_any(name, asks, *most[name]) for name, asks in lacking), IMPOSSIBLE)
    short = {kind: [one for one in amounts if one[1] > room.get(one[0], 0)] for kind, room in rooms.items()}
    nearest = min(short, key=lambda kind: (len(short[kind]), -rooms[kind].get(CPU, 0)))
    wanted = " and ".join(f"{amount_in_words(name, asks)} {name}" for name, asks in amounts if name != PODS)
    has = " and ".join(f"{amount_in_words(name, rooms[nearest].get(name, 0))} {name}" for name, _ in short[nearest])
    return Verdict(
        f"asks {wanted} on one node; no machine has all of it: {nearest} comes nearest, with {has}", IMPOSSIBLE
    )


def _more_than_any(resource: str, asks: int, free: int, kind: str) -> str:
    """Says that no machine has enough of a resource."""
    asked = amount_in_words(resource, asks)
    if not free:
        return f"asks {asked} {resource}; no machine has any"
    return f"asks {asked} {resource} on one node; the largest machine has {amount_in_words(resource, free)} ({kind})"
