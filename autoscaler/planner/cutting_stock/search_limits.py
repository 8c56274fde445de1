"""How much is searched in one look, in counted work: the same look gives the same plan on a slow machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from autoscaler.solver.solution import Answer

_MUCH_MORE: Final = 2.0
"""Times the usual work: less than that is not worth beginning twice."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How much is searched in one look, in counted work."""

    work: float = 15.0
    """Of the solver for any pool; a unit is about a millisecond of a core of 2024."""
    work_of_few: float = 0.09
    """More for each of a few pods for which nodes are bought: rows are added with them. A few of their nodes at a time
    are packed anew at the end (:mod:`autoscaler.solver.neighbourhoods`), which does more for them."""
    few_pods: int = 100
    work_of_first: float = 0.25
    """More for each of the first pods beyond those."""
    first_pods: int = 500
    work_per_pod: float = 0.1
    """More for each further one."""
    work_per_row: float = 18.0
    """More for each row beyond those: what is as good as 112 rows of openb takes so much longer (199 rows: twice)."""
    few_rows: int = 112
    at_hand_kinds: int = 300
    """Kinds at most of places that cost nothing more, to be filled in the same problem as nodes are bought in."""
    tried_at_once: int = 32
    """Pods up to which it is tried first whether all have room: with 15,000 nodes to find their kinds takes 20 ms."""
    work_at_hand: float = 3.0
    """As much work as for a purchase alone, times this, for such a problem."""
    work_enumerated: float = 0.35
    """The part of that which does where the solver knows all that such places can hold from the start."""
    work_otherwise: float = 0.25
    """And for the purchase that is made where such places are filled first, which is compared with it."""
    neighbourhoods: int = 100
    """Of a plan for not many pods, to be packed anew."""
    neighbourhoods_at_hand: int = 10
    """The same with places that cost nothing more: pods that go there cost nothing, wherever it is."""
    work_of_repacking: float = 1000.0
    """Of a plan for pods of many sizes, pod by pod (:mod:`autoscaler.solver.repacking`): 300 to 2,000 pods on 949 types
    cost 3 % less by it on average, some 9 %; twice as much work saves a third of a percent more."""
    work_per_round: float = 0.02
    """A round takes so much for each pod."""
    rounds_of_repacking: int = 60
    """At most."""
    repacked_of_far: float = 0.5
    """As much of that, times this, where pods are of few enough sizes for the solver and what it finds is far above its
    bound: 58 mixes of pods without devices, of 3 to 155 sizes, cost 1.6 % less by it on average, one of them 17 %."""
    repacked_first: float = 1 / 3
    """As much of that, times this, before the next search, which begins with what it finds: with all of it 13 mixes
    cost 0.05 % less on average, in half as much time again; with none one of them costs 5 % more."""
    rounds_at_hand: int = 10
    """At most, with places that cost nothing more, where a look at little that is new shall take little: each takes a
    millisecond for 80 pods. Three times as many saved a percent more in one mix of five."""
    least_rounds: int = 3
    """What makes arrays of the pods takes as long."""
    turns: int = 12
    """Of buying for those that were left, where pods are of many sizes."""
    first: SearchLimits | None = None
    """Searched within these before; what is found is enough if it is as good as proven."""
    as_good_as_proven: float = 1e-4
    """Above the bound, as a part of it."""
    near: float = 0.02
    """The same: farther above it more is proven, and then searched, once."""
    near_usd: float = 5.0
    """And with places that cost nothing more, where what is proven is often far below: dollars per hour."""
    work_of_proof: float = 50.0
    """The first of that. Most kinds need 5 units, and few kinds matter where pods are of few sizes."""
    more_work_of_proof: float = 500.0
    """The same after the second search: of 300 pods of 40 sizes on 70 kinds it proves 2 % more than half of it."""
    effort_of_whole_proof: float = 1.0
    """As much as usual, times this, to prove what whole nodes cost at least (:mod:`autoscaler.solver.whole_proof`)."""
    more_work: float = 250.0
    """The second of that, and more for each row. 60 random mixes cost 1.4 % less by it on average, one of them 20 %;
    on an eighth fewer nodes than these take 14 of them cost 1 to 15 % less by it."""
    more_work_per_row: float = 2.0
    more_times_at_hand: float = 3.0
    """Instead, with places that cost nothing more: as much work as before times this, but no more than the next."""
    most_at_hand: float = 1000.0
    rounds: int = 400
    """Of pricing at most."""
    asked_whether_all: int = 500
    """Pods from which on it is asked first whether limits leave room for all: that takes a tenth of a search."""
    work_within_limits: float = 1.0
    """As much work as usual, times this, for a purchase within limits: on openb bounds are close after 1.5 s."""
    turns_within_limits: int = 3
    """Of admitting gangs and buying for them, where limits leave room for some only."""
    work_of_later_turns: float = 0.5
    """As much work as usual, times this, to find out which few are admitted then, and to buy for them."""
    work_of_admission: float = 3.0
    """As much work as for a purchase, times this, to find out which gangs limits leave room for."""
    left_out: float = 0.05
    """Part of the gangs that a purchase within limits may leave out, to be served in turn."""
    kept_back: tuple[float, ...] = (0.0, 0.01, 0.03, 0.1, 0.3)
    """Parts of what is scarce that are left for whole nodes, until a purchase is found."""

    @classmethod
    def within(cls, span: timedelta) -> SearchLimits:
        """Returns limits for a person: what a core of 2024 does in about that time, and for few pods less."""
        seconds = span.total_seconds()
        return cls(
            first=cls(),
            work=250 * seconds,
            work_of_few=0.1 * seconds,
            work_of_first=0.1 * seconds,
            work_per_pod=min(0.08 * seconds, 0.05 + 0.03 * seconds),
            work_per_row=8 * seconds,
            effort_of_whole_proof=min(max(1.0, 2 * seconds), 10.0),
            work_of_admission=1.0,
            work_at_hand=1.0,
            work_enumerated=1.0,
            work_of_repacking=max(1000.0, 500 * seconds),
            rounds_of_repacking=round(60 * max(1.0, seconds)),
            work_within_limits=1 + 0.5 / max(1.0, seconds),
        )

    def works_for(
        self, pods: int, rows: int, *, times: float, at_hand: bool, binding: bool, once: bool = False
    ) -> list[float]:
        """Budgets of one call of the solver after the other, until what is found :meth:`is_enough`.

        ``times``: as much work as usual; where it is less, nothing more. ``at_hand``: with places that cost nothing
        more. ``binding``: within limits. ``once``: pods stand for others of about their size, and what is found for
        them is improved in another way.
        """
        some, most = (
            times
            * (one.work_at_hand if at_hand else 1.0)
            * (one.work_within_limits if binding else 1.0)
            * one.work_for(pods, rows)
            for one in (self.first or self, self)
        )
        if self.first is not None:
            return [some, most] if most > _MUCH_MORE * some else [most]
        if once or times < 1:
            return [most]
        if at_hand:
            more = min(self.more_times_at_hand * most, self.most_at_hand)
            return [most, more] if more > most else [most]
        return [most, max(most, self.more_work + self.more_work_per_row * rows)]

    def repacked(self, pods: int, *, times: float) -> int:
        """Rounds of packing anew the nodes for so many pods of many sizes; none where these would be very few."""
        for_work = self.work_of_repacking / (self.work_per_round * max(1, pods))
        rounds = round(times * min(for_work, self.rounds_of_repacking))
        return rounds if rounds >= self.least_rounds else 0

    def is_enough(self, answer: Answer, *, at_hand: bool) -> bool:
        """Whether no more is searched for this.

        A person's search goes on for pods that are left; for the loop, limits decide about these.
        """
        if self.first is not None:
            return not any(answer.left) and answer.gap < self.as_good_as_proven
        return any(answer.left) or not self.is_far(answer, at_hand=at_hand)

    def is_far(self, answer: Answer, *, at_hand: bool) -> bool:
        """Whether it is so far above what is proven that more is done for it."""
        above = answer.usd - answer.lower_bound
        return answer.lower_bound > 0 and above >= max(
            self.near * answer.lower_bound, self.near_usd if at_hand else 0.0
        )

    def repacked_if_far(self, pods: int, *, times: float, at_hand: bool) -> tuple[int, int]:
        """Rounds of packing anew the nodes of a plan that is far above its bound, before the next search and at last.

        None of a plan that is compared only.
        """
        last = self.repacked(pods, times=self.repacked_of_far) if times >= 1 else 0
        last = min(last, self.rounds_at_hand) if at_hand else last
        return min(last, max(self.least_rounds, round(self.repacked_first * last))), last

    def work_for(self, pods: int, rows: int) -> float:
        """The budget of one call of the solver, the first of those."""
        for_pods = (
            self.work_of_few * min(pods, self.few_pods)
            + self.work_of_first * max(0, min(pods, self.first_pods) - self.few_pods)
            + self.work_per_pod * max(0, pods - self.first_pods)
        )
        return self.work + for_pods + self.work_per_row * max(0, rows - self.few_rows)
