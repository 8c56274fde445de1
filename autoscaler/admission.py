"""Which gangs an offline plan serves: all of a gang or none, first served first, and why the others wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler import labels as words
from autoscaler.cluster import Pod
from autoscaler.drafts import Draft, Drafting
from autoscaler.fit import in_words, sum_up, why_not_on
from autoscaler.neighbours import FREE, by_zone, not_kept
from autoscaler.policy import Policy
from autoscaler.resources import CPU, MEMORY, PODS
from autoscaler.room import Amounts

Gang = list[int]
"""Pods by number."""
_MODELLED = frozenset({CPU, MEMORY, words.GPU, PODS, "ephemeral-storage"})
_CENT = 1e-6
_REFINED = 3
"""Halvings that are done whatever the time: an eighth of those who could be served may stay untried."""
_UNTRIED = ("there was no time to try it", "the --deadline is longer")
_CORELESS = ("its gang waits for as many as must be together", "these fit")
_TORN = "another pod of its gang has no zone"


@dataclass(frozen=True, slots=True)
class LeftWaiting:
    """A pod without a place."""

    pod: str
    reason: str
    would_fit_if: str


class Admission:
    """Pods that wait, gang by gang."""

    def __init__(self, pods: Sequence[Pod], names: Sequence[str], drafting: Drafting, policy: Policy | None) -> None:
        self.pods, self.names, self.drafting, self.policy = pods, names, drafting, policy
        self.room, self.rules, self.sorts = drafting.room, drafting.rules, drafting.sorts
        self.waiting: list[LeftWaiting] = []
        self.served: Draft | None = None
        """Of the gangs taken, where one had to be made to know that they can be served."""
        self._share = 1.0
        """Of those tried last in vain: how many of them there may be room for."""
        self._core: dict[int, int] = {}
        """Of those that an elastic gang could do without: one of those that it cannot."""

    def gangs(self) -> list[Gang]:
        """Pods together with those of their gang, first served first; those that cannot be planned at all wait."""
        held = (self.room.held()[0] | self.room.held()[1]).tolist()
        whys = [self._not_planned(sort, held=held[sort]) for sort in range(len(self.room.models))]
        kept = []
        for gang in _ordered(self.pods):
            if self.pods[gang[0]].gang is None and whys[self.sorts[gang[0]]] is None:
                kept.append(gang)
                continue
            first = next((one for one in gang if whys[self.sorts[one]]), None)
            if first is not None:
                self._leave_for(first, gang, whys)
                continue
            size = max((ref.minimum or ref.size or 0 for one in gang if (ref := self.pods[one].gang)), default=0)
            if size > len(gang):
                self._leave(
                    gang, f"its gang has {len(gang)} of {size} pods here", "the other pods of the gang are there"
                )
            else:
                kept.append(gang)
        return [
            part
            for gang in self._settle_zones(kept)
            for part in (self._parts(gang) if self.pods[gang[0]].gang is not None else (gang,))
        ]

    def admit(self, gangs: list[Gang], *, in_time: Callable[[], bool]) -> list[Gang]:
        """The gangs that can be served together, in order; the others wait. By doubling and halving.

        Who comes later and asks for no less than one for whom there was no room need not be tried; when time is over
        and some were taken, nobody is any more.
        """
        if self._serves(gangs):
            return gangs
        taken: list[Gang] = []
        hopeless: list[Counter[int]] = []
        """What was asked for by those for whom there was no room."""
        position = 0
        refused: set[int] = set()
        while position < len(gangs):
            if self._core.get(gangs[position][0]) in refused:
                self._leave(gangs[position], *_CORELESS)
                position += 1
                continue
            if any(self._asks_no_less(gangs[position], less) for less in hopeless):
                refused.update(gangs[position])
                self._leave(gangs[position], *self._why(gangs[position]))
                position += 1
                continue
            if taken and not in_time():
                refused.update(gangs[position])
                self._leave(gangs[position], *_UNTRIED)
                position += 1
                continue
            good, sure = (
                self._as_many(taken, gangs, position, in_time=in_time)
                if taken or position
                else self._first(gangs, in_time=in_time)
            )
            taken += gangs[position : position + good]
            position += good
            if position < len(gangs) and sure:
                hopeless.append(self._asked(gangs[position]))
                refused.update(gangs[position])
                self._leave(gangs[position], *self._why(gangs[position]))
                position += 1
        return taken

    def broken(self, draft: Draft) -> bool:
        """Whether someone is left over or a limit is not kept."""
        if draft.left:
            return True
        if self.policy is None:
            return False
        entries = Counter(node.offer.entry for node in draft.nodes)
        gpus = sum(node.offer.kind.amounts[2] for node in draft.nodes)
        limits = self.policy.limits
        return (
            any(entries[entry.name] > entry.max for entry in self.policy.groups)
            or (limits.nodes is not None and len(draft.nodes) > limits.nodes)
            or (limits.gpus is not None and gpus > limits.gpus)
            or (limits.usd_per_hour is not None and draft.usd > limits.usd_per_hour + _CENT)
        )

    def _parts(self, gang: Gang) -> Iterator[Gang]:
        """Of an elastic gang the least that must be together, then the others, each of whom waits if the former do."""
        least = min((ref.minimum or len(gang) for one in gang if (ref := self.pods[one].gang)), default=len(gang))
        yield gang[:least]
        for one in gang[least:]:
            self._core[one] = gang[0]
            yield [one]

    def _leave(self, gang: Gang, reason: str, would_fit_if: str) -> None:
        self.waiting += [LeftWaiting(self.names[one], reason, would_fit_if) for one in gang]

    def _leave_for(self, first: int, gang: Gang, whys: Sequence[tuple[str, str] | None]) -> None:
        """Each for what keeps itself, or else for what keeps the first of its gang."""
        for one in gang:
            why = whys[self.sorts[one]]
            reason, remedy = why or whys[self.sorts[first]] or ("", "")
            self._leave([one], reason if why else f"its gang waits for {self.names[first]}: {reason}", remedy)

    def _not_planned(self, sort: int, *, held: bool) -> tuple[str, str] | None:
        """Rules that an offline plan does not follow: said, never guessed. ``held``: whether some node holds it."""
        pod = self.room.models[sort]
        rules = list(pod.not_understood)
        if pod.claims or pod.near_to or pod.apart_from:
            rules += pod.beyond_itself
        if pod.near_to or pod.apart_from or pod.spread or pod.gang is not None:
            rules += not_kept(pod)
            if self.room.machines and by_zone(pod):
                rules.append("rules by zone where machines are there already")
        rules += [name for name in pod.requests if name not in _MODELLED]
        if rules:
            return f"an offline plan does not know: {', '.join(rules)}", "it is planned by the autoscaler on a cluster"
        if held:
            return None
        return self._not_on_offer(sort)

    def _not_on_offer(self, sort: int) -> tuple[str, str]:
        """Of kinds of node that would hold such a pod, what keeps it away."""
        pod, size = self.room.models[sort], self.room.sizes[sort]
        cpu, memory, gpus, _ = size.tolist()
        asked = f"{cpu / 1000:g} cpu, {memory / 2**20:g} MiB and {gpus} GPUs"
        selected = " or ".join(" and ".join(map(in_words, term)) for term in pod.affinity)
        remedy = f"a node with {asked} is offered" + (f", where {selected}" if selected else "")
        large = [offer for offer, holds in zip(self.room.offers, self.room.holds(sort), strict=True) if holds]
        whys = (
            why_not_on(affinity=pod.affinity, tolerations=pod.tolerations, labels=offer.labels, taints=offer.taints)
            for offer in large
        )
        told = sum_up((why for why in whys if why), "offer")
        return f"nothing on offer takes it: {told}" if told else f"no kind of node on offer holds it ({asked})", remedy

    def _settle_zones(self, gangs: list[Gang]) -> list[Gang]:
        """Give each pod a zone, where zones matter; gangs for which there is none wait."""
        if self.rules.minds_zones and "" not in self.room.zones:
            crowds: dict[int, list[int]] = defaultdict(list)
            for gang in gangs:
                for one in gang:
                    crowds[self.sorts[one]].append(one)
            found, refused = self.rules.zones(crowds, self.room.zones_for)
        elif self.room.merges:
            found, refused = self._usual_zones(gangs), {}
        else:
            return gangs
        self.drafting.shaping.zone_of = found
        kept = [gang for gang in gangs if not any(one in refused for one in gang)] if refused else gangs
        for gang in gangs if refused else ():
            for one in gang if any(one in refused for one in gang) else ():
                self._leave([one], refused.get(one, _TORN), "its rules by zone allow more zones")
        return kept

    def _usual_zones(self, gangs: list[Gang]) -> dict[int, str]:
        """Where no rule counts by zone: those who may go to any go where most of the others go."""
        allowed = [self.room.zones_for(sort) for sort in range(len(self.room.models))]
        many = Counter(zone for gang in gangs for one in gang for zone in allowed[self.sorts[one]])
        usual = [min(zones, key=lambda zone: (-many[zone], zone), default="") for zones in allowed]
        return {one: usual[self.sorts[one]] for gang in gangs for one in gang if usual[self.sorts[one]]}

    def _asked(self, gang: Gang) -> Counter[int]:
        return Counter(self.sorts[one] for one in gang)

    def _asks_no_less(self, gang: Gang, less: Counter[int]) -> bool:
        """Whether it asks for all of that, or, where that is pods of one sort, for as many that are as large."""
        asked = self._asked(gang)
        if less <= asked:
            return True
        sort = next(iter(less))
        if len(less) > 1 or self.rules.stance(sort) != FREE or self.drafting.shaping.zone_of:
            return False
        large = (
            many
            for other, many in asked.items()
            if self.room.choice[other] == self.room.choice[sort]
            and (self.room.sizes[other] >= self.room.sizes[sort]).all()
        )
        return sum(large) >= less[sort]

    def _first(self, gangs: list[Gang], *, in_time: Callable[[], bool]) -> tuple[int, bool]:
        """How many of the first can be served, where all together cannot; whether the one after them cannot."""
        low, high, tries = 0, len(gangs), 0
        while high - low > 1 and (not low or tries < _REFINED or in_time()):
            middle = max(low + 1, min(int(high * self._share), (low + high) // 2))
            low, high = (middle, high) if self._serves(gangs[:middle]) else (low, middle)
            tries += 1
        return low, high - low == 1

    def _as_many(
        self, taken: list[Gang], gangs: list[Gang], position: int, *, in_time: Callable[[], bool]
    ) -> tuple[int, bool]:
        """How many of the next gangs can be served besides those that are taken; whether the one after them cannot."""
        left, good, step = len(gangs) - position, 0, 1
        while good < left and self._serves(taken + gangs[position : position + min(good + step, left)]):
            good = min(good + step, left)
            step *= 2
        halvings = 0
        while step > 1 and (halvings < _REFINED or in_time()):
            halvings += 1
            step //= 2
            if good + step <= left and self._serves(taken + gangs[position : position + good + step]):
                good += step
        return good, step == 1

    def _serves(self, gangs: list[Gang]) -> bool:
        numbers = [one for gang in gangs for one in gang]
        if self.policy is None and self.room.held()[0][[self.sorts[one] for one in numbers]].all():
            return True  # anything can be bought: only a pod that fits machines alone may be left over
        draft = self.drafting.draft(numbers)
        if self.broken(draft):
            most = self.policy.limits.usd_per_hour if self.policy else None
            self._share = 1 - len(draft.left) / len(numbers)
            self._share *= min(1.0, most / draft.usd) if most and draft.usd else 1.0
            return False
        self.served = draft
        return True

    def _why(self, gang: Gang) -> tuple[str, str]:
        """For a gang that the limits leave out; the nodes told would be enough, if not the cheapest."""
        reason = "the policy's limits leave no room for all of its gang" if len(gang) > 1 else "the limits are reached"
        if self.policy is None:
            reason = "the machines that it may run on are full"
        usd, nodes = 0.0, 0
        for sort, many in self._asked(gang).items():
            fits = np.nonzero(self.room.fits(sort))[0]
            if not len(fits):
                return reason, "a machine that it may run on is freed"
            each = _holding(self.room.rooms[fits], self.room.sizes[sort])
            more = np.ceil(many / each)
            prices = np.array([self.room.offers[one].kind.usd for one in fits.tolist()]) * more
            best = int(np.argmin(prices))
            usd, nodes = usd + float(prices[best]), nodes + int(more[best])
        return reason, f"{usd:g} $/h for {nodes} more nodes are allowed"


def _holding(rooms: Amounts, size: Amounts) -> Amounts:
    """How many such pods a node holds."""
    asked = size > 0
    each: Amounts = np.maximum(1, (rooms[:, asked] // size[asked]).min(axis=1))
    return each


def _ordered(pods: Sequence[Pod]) -> Iterator[Gang]:
    """Those of one gang together; the highest priority first, then the order of the file."""
    members: dict[object, Gang] = {}
    gangs: list[Gang] = []
    for number, pod in enumerate(pods):
        if pod.node is not None or pod.phase != "Pending" or pod.deleting or pod.is_daemon:
            continue
        if pod.gang is None:
            gangs.append([number])
        elif (known := members.get(key := (pod.gang.namespace, pod.gang.name))) is None:
            gangs.append(members.setdefault(key, [number]))
        else:
            known.append(number)
    if not any(pod.priority for pod in pods):
        return iter(gangs)
    # The sort is stable: of equal priority the first in the file stays first.
    return iter(sorted(gangs, key=lambda gang: -max(pods[one].priority for one in gang)))
