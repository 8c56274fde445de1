"""Which gangs an offline plan serves: all of a gang or none, first served first, and why the others wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.cluster import Pod
from autoscaler.model.feasibility import in_words, sum_up, why_not_on
from autoscaler.model.resources import CPU, MEMORY, PODS
from autoscaler.planner.admission.backfill import FillUp
from autoscaler.planner.admission.proposals import Gang, Likely, Proposal
from autoscaler.planner.admission.zone_balance import Evenness
from autoscaler.planner.demand.pod_rules import FREE, by_zone, not_kept
from autoscaler.planner.placement.drafts import Draft, Drafting
from autoscaler.planner.supply.capacity import Amounts
from autoscaler.solver.deadline import Watch

_MODELLED = frozenset({CPU, MEMORY, words.GPU, PODS, "ephemeral-storage"})
_CENT = 1e-6
_EXPLORING, _PROPOSING, _PROPOSED, _ADMITTING = 0.22, 0.3, 0.38, 0.4
"""Parts of the time after which no more is looked for that would serve more, nor that would serve somebody else, nobody
else is proposed, and nobody tried."""
_FEW_PODS = 300
"""Drafts tell who of so few is refused."""
_IN_FULL = 0.25
"""Part of the time after which there is too little for a draft and then for a plan."""
_SECONDS = 0.05
"""For a plan at least."""
_FEW_LEFT = 20
"""For each pod that is left over so many at most may wait with it, where there is time for no other plan."""
_ANYBODY = 2.0
"""Part of the time until which somebody is sought who can be served."""
_DRAFT, _TRIAL = 0.2, 0.08
"""Parts of the time for a first draft, and for a plan where that was only too dear."""
_MANY, _LESS, _HURRIED = 100, 0.9, 0.6
"""Of more gangs not all that can probably be served are tried first; and parts of those for whom there was room."""
_KEPT_BACK, _KEPT_BACK_AT_MOST, _PASSES = 0.03, 0.9, 4
"""Parts of what is scarce, at first and at most; and so many times that less or more of it is kept back."""
_UNTRIED = ("there was no time to try it", "the --deadline is longer")
_CORELESS = ("its gang waits for as many as must be together", "these fit")
_UNEVEN = ("would be spread unevenly over zones", "there is room for as many in the other zones")
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
        self.in_full = False
        """Whether it took all the time."""
        self._too_dear = False
        """Whether only dollars kept the one who was tried last from being served."""
        self._failed: Draft | None = None
        """Of those who were tried last in vain."""
        self._share = 1.0
        """Of those tried last in vain: how many of them there may be room for."""
        self._refused: set[int] = set()
        """For whom there is no room."""
        self._whys: dict[frozenset[tuple[int, int]], tuple[str, str]] = {}
        """By what a gang asks for."""
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

    def admit(self, gangs: list[Gang], watch: Watch) -> list[Gang]:
        """The gangs that can be served together, in order.

        Linear programs tell who probably can be (:mod:`autoscaler.planner.admission.proposals`), drafts of a plan who
        is. Who comes after one whom no draft served, and asks for no less, is not tried. When a part of the time is
        over, and some were taken, nobody is tried any more.
        """
        if not gangs or self.are_surely_served(gangs):
            return list(gangs)
        usd = self.policy.limits.usd_per_hour if self.policy else None
        likely = Likely(gangs, self.drafting, usd_per_hour=usd, in_time=lambda: watch.spent() < _ADMITTING)
        likely.explore(gangs, in_time=lambda: watch.spent() < _EXPLORING)
        taken = self._with_slack(likely, gangs, watch) if len(gangs) > _MANY else []
        served = {one[0] for one in taken}
        rest = [gang for gang in gangs if gang[0] not in served]
        likely.keep_back(0.0)
        while rest and watch.spent() <= (_ADMITTING if taken else _ANYBODY):
            rest = self._next(taken, rest, likely, watch)
        return taken

    def completed(self, draft: Draft, gangs: list[Gang], taken: list[Gang], *, in_time: Callable[[], bool]) -> Draft:
        """With those of the other gangs for whom there is room left; the rest wait.

        Where zones differ in what they have, some who are taken wait, too, or they would be spread unevenly.
        """
        if len(taken) == len(gangs) and not self.waiting:
            return draft
        even = Evenness(self.rules, self.sorts, self.drafting.shaping.zone_of, self.room.zones_for)
        even.join(one for gang in taken for one in gang)
        kept = even.kept(taken, core=self._core)
        served = {gang[0] for gang in kept}
        rest = [gang for gang in gangs if gang[0] not in served]
        draft = _without(draft, {one for gang in rest for one in gang}) if len(kept) < len(taken) else draft
        if not rest:
            return draft
        usd = self.policy.limits.usd_per_hour if self.policy else None
        filling = FillUp(self.drafting, draft, rest, usd_per_hour=usd, even=even)
        untried = {gang[0] for gang in filling.fill(rest, served, core=self._core, in_time=in_time)}
        taken[:] = kept + [gang for gang in rest if gang[0] in served]
        self._tell([gang for gang in rest if gang[0] not in served], untried - self._refused, even)
        found = filling.draft(tidied=True)
        return filling.draft(tidied=False) if self.broken(found) else found

    def _tell(self, gangs: Sequence[Gang], untried: Collection[int], even: Evenness) -> None:
        """Why these wait. ``untried``: first pods of gangs of whom it is not known whether they can be served."""
        lost = {one for gang in gangs for one in gang}
        for gang in gangs:
            if self._core.get(gang[0]) in lost:
                self._leave(gang, *_CORELESS)
            elif not even.admits(gang):
                self._leave(gang, *_UNEVEN)
            else:
                self._leave(gang, *(_UNTRIED if gang[0] in untried else self._why(gang)))

    def _next(self, taken: list[Gang], rest: list[Gang], likely: Likely, watch: Watch) -> list[Gang]:
        """Take or refuse some of the rest; gives the others."""

        def in_time() -> bool:
            return watch.spent() < _ADMITTING

        proposal = likely.proposed(taken, rest, core=self._core, lost=self._refused, looking=in_time, in_time=in_time)
        if sum(map(len, rest)) <= _FEW_PODS and proposal.refused:
            # The linear programs may have missed a filling: of a few pods drafts tell.
            first = min(proposal.refused)
            if not first:
                if not self._serves([*taken, rest[0]], watch):
                    return self._without(rest[0], rest[1:])
                taken.append(rest[0])
                return rest[1:]
            proposal = Proposal([one for one in proposal.few if one < first], looked=first)
        few = [rest[one] for one in proposal.few]
        good, sure = self._as_many(taken, few, watch)
        taken += few[:good]
        end = proposal.looked if good == len(few) else proposal.few[good]
        for one in range(end):
            if one in proposal.refused or one in proposal.coreless:
                self._refused.update(rest[one])
        return self._without(rest[end], rest[end + 1 :]) if sure else rest[end:]

    def _with_slack(self, likely: Likely, gangs: list[Gang], watch: Watch) -> list[Gang]:
        """Those who can be served with a little of what is scarce kept back: less and less of it, while there is time.

        The more there is left, the sooner a plan is found, and the cheaper it is.
        """
        taken: list[Gang] = []
        part = _KEPT_BACK
        for _ in range(_PASSES):
            likely.keep_back(part)
            proposal = likely.proposed(
                [],
                gangs,
                core=self._core,
                lost=self._refused,
                looking=lambda: watch.spent() < _PROPOSING,
                in_time=lambda: watch.spent() < _PROPOSED,
            )
            few = [gangs[one] for one in proposal.few]
            if part == _KEPT_BACK and watch.spent() > _IN_FULL:
                served = self._serves(few, watch, planned=True)
                if not served and self._failed is not None:
                    few, served = self._but_for_a_few(self._failed, few)
                self.in_full = served
            else:
                served = self._serves(few, watch)
                if not served and self._too_dear and watch.spent():
                    served = self._serves(few, watch.within(_TRIAL * watch.deadline), planned=True)
            if served:
                taken, part = few, part / 3
            elif taken:
                break
            else:
                part = min(_KEPT_BACK_AT_MOST, max(1.5 * part, 1 - (1 - part) * self._share + _KEPT_BACK))
            if watch.spent() > _ADMITTING:
                break
        return taken

    def _but_for_a_few(self, draft: Draft, gangs: list[Gang]) -> tuple[list[Gang], bool]:
        """The same plan without the gangs of those whom it leaves over; whether it then serves all the others."""
        lost = set(draft.left)
        kept = []
        for gang in gangs:
            if lost.isdisjoint(gang) and self._core.get(gang[0]) not in lost:
                kept.append(gang)
            else:
                lost.update(gang)
        found = _without(draft, lost)
        if len(lost) > _FEW_LEFT * len(draft.left) or self.broken(found):
            return gangs, False
        self.served = found
        return kept, True

    def _without(self, refused: Gang, gangs: Sequence[Gang]) -> list[Gang]:
        """Without those who ask for no less than one whom no draft served; these wait, as it does."""
        self._refused.update(refused)
        less, kept = self._asked(refused), []
        for gang in gangs:
            if self._core.get(gang[0]) in self._refused or self._asks_no_less(gang, less):
                self._refused.update(gang)
            else:
                kept.append(gang)
        return kept

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

    def _as_many(self, taken: list[Gang], few: list[Gang], watch: Watch) -> tuple[int, bool]:
        """How many of these can be served besides those that are taken; whether the one after them cannot."""
        low, high = 0, len(few) + 1
        tried = len(few)
        while low < len(few) and high - low > 1 and not ((taken or low) and watch.spent() > _ADMITTING):
            if self._serves(taken + few[:tried], watch):
                low, tried = tried, len(few) if high > len(few) else (tried + high) // 2
            elif low:
                high, tried = tried, (low + tried) // 2
            else:
                less = _LESS if watch.spent() < _ADMITTING else _HURRIED
                high, tried = tried, int(tried * less * self._share)
            tried = max(low + 1, min(high - 1, tried))
        return low, low < len(few) and high - low == 1

    def are_surely_served(self, gangs: list[Gang]) -> bool:
        """Whether there is something that can be bought without end for everyone."""
        if self.policy is not None and self.policy.limits.usd_per_hour is not None:
            return False
        return self.drafting.are_surely_served([one for gang in gangs for one in gang])

    def _serves(self, gangs: list[Gang], watch: Watch, *, planned: bool = False) -> bool:
        """By a first draft, or by a plan that takes all the time that is left."""
        numbers = [one for gang in gangs for one in gang]
        if planned:
            draft = self.drafting.draft(numbers, deadline=max(_SECONDS, watch.left()), clock=watch.clock)
        else:
            draft = self.drafting.first_draft(numbers, watch.within(_DRAFT * watch.deadline))
        if self.broken(draft):
            most = self.policy.limits.usd_per_hour if self.policy else None
            self._too_dear, self._failed = not draft.left, draft
            self._share = 1 - len(draft.left) / sum(map(len, gangs))
            self._share *= min(1.0, most / draft.usd) if most and draft.usd else 1.0
            return False
        self.served, self.in_full = draft, False
        return True

    def _why(self, gang: Gang) -> tuple[str, str]:
        """For a gang that the limits leave out; the nodes told would be enough, if not the cheapest."""
        asked = frozenset(self._asked(gang).items())
        known = self._whys.get(asked)
        if known is None:
            known = self._whys[asked] = self._told(gang)
        return known

    def _told(self, gang: Gang) -> tuple[str, str]:
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


def _without(draft: Draft, lost: Collection[int]) -> Draft:
    """The same, as far as it is for others."""
    nodes = [replace(node, pods=[one for one in node.pods if one not in lost]) for node in draft.nodes]
    at_home = {one: machine for one, machine in draft.at_home.items() if one not in lost}
    return replace(draft, at_home=at_home, nodes=[node for node in nodes if node.pods], left=[])


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
