"""The cheapest set of nodes for pods over many kinds of node, with a proof: column generation; for few pods, exactly.

Pods that ask for the same are one *shape*; a *filling* says how many pods of each shape a node of a kind holds. Which
fillings to buy, and how often, is a cutting-stock problem: a linear program with one row for each shape and one column
for each filling, most of which are never written down.

1. **Relaxation.** Forget that pods are whole: those of a shape are spread over kinds of node in any fractions. This
   small linear program gives a price of every pod (its dual values) that is nearly right, and the first lower bound.
2. **Columns.** At those prices search fillings that are worth more than their node costs
   (:mod:`autoscaler.solver.pricing.knapsack`), add them to the linear program over the fillings known
   (:mod:`autoscaler.solver.lp.master`), take new prices from it, again. Prices are kept near the best known ones, or
   they would jump and most columns would be useless.
3. **Whole nodes** (:mod:`autoscaler.solver.rounding`). Round the master down, solve for the pods left over, and so on;
   then **improve** until the deadline: tear down the nodes that pay least for their price, pack their pods anew.

**The bound** holds whatever the search missed. Let ``d`` be any non-negative prices of pods and ``u(t)`` a number that
no filling of kind ``t`` exceeds in value (:func:`autoscaler.solver.lp.column_bounds.Scale` proves it). Every plan that
places all ``n(s)`` pods has ``sum d(s) n(s) <= sum over its nodes of u(kind)``. With ``k`` the largest
``u(t) / usd(t)`` over the kinds of which any number can be had, that is at most ``k * cost`` plus, for kinds in short
supply, ``available(t) * max(0, u(t) - k * usd(t))``. Solved for the cost this is Farley's bound.

No clock of seconds and no I/O: time is counted work. The same input gives the same plan on every machine; a deadline
cuts the same sequence of work shorter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from autoscaler.solver.column_generation import Generation
from autoscaler.solver.column_pool import ColumnPool
from autoscaler.solver.deadline import Watch, Work
from autoscaler.solver.few_pods import SELECTIONS, cheapest_for_few
from autoscaler.solver.lp.arrays import EPSILON
from autoscaler.solver.lp.capacity import Stock
from autoscaler.solver.neighbourhoods import PODS, TURNS, improved
from autoscaler.solver.problem import Cutting, Kind, Limit, Shape
from autoscaler.solver.rounding import Lot, Rounding
from autoscaler.solver.solution import Answer, Nodes


def cheapest(
    shapes: Sequence[Shape],
    kinds: Sequence[Kind],
    *,
    limits: Sequence[Limit] = (),
    known: ColumnPool | None = None,
    begun: Sequence[Nodes] = (),
    deadline: float = math.inf,
    clock: Work | None = None,
    rounds: int = 400,
    turns: int | None = None,
    few: int = SELECTIONS,
    neighbourhoods: int = TURNS,
    enumerated: float = 1.0,
    near: float = math.inf,
    proof: float = 0.0,
    effort: float = 0.0,
) -> Answer:
    """The cheapest nodes found for all pods until ``clock`` has gone on by ``deadline``, or after ``rounds``.

    ``known``: fillings that a search for some of the same pods found; those found now are added.
    ``begun``: a plan to begin with, as far as nodes of these kinds hold it; where it has all pods, none is dearer.
    ``turns``: of improving the whole plan at most, if not as many as rounds; without any nothing is proven closely.
    ``few``: selections of pods up to which all are asked about, if need be beyond the deadline.
    ``neighbourhoods``: of a plan for not many pods, to be packed anew when the time is over.
    ``enumerated``: the part of the deadline that does where all fillings of what is in short supply are enumerated
    first (:mod:`autoscaler.solver.pricing.maximal_fillings`); where those of some kinds are, as much less of it.
    ``proof``: by how much the clock may go on to prove more of a plan that seems to be dearer than its bound by more
    than ``near``, a part of that. For few pods more is proven in any case while there is time.
    ``effort``: as much as usual, times this, to prove what whole nodes cost at least.
    """
    watch = Watch(clock or Work()).within(deadline)
    market = Cutting.of(shapes, kinds, limits)
    if not market.problem.counts.any():
        return Answer((), 0.0, 0.0, tuple(shape.count for shape in shapes))
    exact = cheapest_for_few(market.problem, market.parts, few) if turns is None and market.apart is None else None
    if exact is not None:
        return market.answer(exact, shapes, lambda _: math.inf)
    generation = Generation(market.problem, watch)
    if rounds and market.apart is None:
        generation.search.enumerate(work=enumerated)
    generation.relax()
    if known and market.apart is None:
        market.recall(known, generation)
    if begun and market.apart is None:
        market.begin(begun, generation)
    generation.run(rounds=rounds)
    turns = rounds if turns is None else turns
    if turns and market.apart is None:
        generation.prove()
    if rounds and known is not None and market.apart is None:
        market.remember(known, generation)
    plans = _rounded(market, generation, generation.watch, rounds=turns, neighbourhoods=neighbourhoods)
    worths, bound = market.worths(generation, len(shapes)), partial(market.bound, generation)
    answer = replace(market.answer(plans, shapes, bound), worths=worths)
    if not turns or market.apart is not None:
        return answer
    if _proves_more(answer, generation, near=near, proof=proof):
        answer = replace(market.answer(plans, shapes, bound), worths=worths)
    return _whole(market, generation, answer, shapes, effort=effort)


def _proves_more(answer: Answer, generation: Generation, *, near: float, proof: float) -> bool:
    """Proves more where that is worth it and there is time; says whether it did."""
    is_far = answer.gap > near
    if not is_far and not generation.has_few_pods:
        return False
    more = max(generation.watch.left(), proof if is_far else 0.0)
    if more > 0:
        generation.prove_exactly(generation.watch.within(more))
    return more > 0


def _whole(
    market: Cutting, generation: Generation, answer: Answer, shapes: Sequence[Shape], *, effort: float
) -> Answer:
    """The same with a bound that knows that nodes are whole, or a cheaper plan, where few fillings make that easy."""
    is_asked = effort > 0 and generation.has_few_pods and answer.gap > EPSILON
    if not is_asked or len(market.parts) > 1 or any(answer.left):
        return answer
    found = generation.prove_whole(answer.usd, effort=effort)
    if found is None:
        return answer
    bound = max(answer.lower_bound, found.bound)
    if not len(found.kinds) or market.problem.usd[found.kinds].sum() > answer.usd - EPSILON:
        return replace(answer, lower_bound=bound)
    (part,), left, lots = market.parts, market.problem.counts.copy(), list[Lot]()
    for kind, places in zip(found.kinds.tolist(), found.pods, strict=True):
        pods = np.minimum(places, left)
        left -= pods
        lots += [Lot(kind, pods)] if pods.any() else []  # a plan that is not the cheapest may have a node too many
    return replace(market.answer({part: lots}, shapes, lambda _: bound), worths=answer.worths)


def lower_bound(shapes: Sequence[Shape], kinds: Sequence[Kind], limits: Sequence[Limit] = ()) -> float:
    """What no plan for all pods can undercut; from the relaxation alone."""
    market = Cutting.of(shapes, kinds, limits)
    if not market.problem.counts.any():
        return 0.0
    generation = Generation(market.problem, Watch(Work()))
    generation.relax()
    return max(0.0, market.bound(generation, market.problem.counts))


def _rounded(
    market: Cutting, generation: Generation, watch: Watch, *, rounds: int, neighbourhoods: int
) -> dict[str, list[Lot]]:
    """Whole nodes for each part, with its share of the time that is left."""
    stock = Stock(market.problem.available, market.problem.uses, market.problem.most)
    plans: dict[str, list[Lot]] = {}
    for turn, (part, counts) in enumerate(market.parts.items()):
        share = watch.share(len(market.parts) - turn)
        rounding = Rounding(generation, share, counts=counts, stock=stock)
        plans[part] = rounding.best(rounds=rounds)
        if rounds and market.apart is None and counts.sum() <= PODS:
            plans[part] = improved(market.problem, plans[part], stock, turns=neighbourhoods)
        for lot in plans[part]:
            stock.take(lot.kind, lot.times)
    return plans
