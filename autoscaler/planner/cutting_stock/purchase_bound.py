"""What the nodes that a plan buys cost at least, whatever plan for the same pods is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from autoscaler.planner.cutting_stock.clustered_packing import SizeClusters
from autoscaler.planner.cutting_stock.cutting_plan import Want
from autoscaler.planner.cutting_stock.cutting_problem import cutting_problem
from autoscaler.planner.cutting_stock.joint_packing import Proof
from autoscaler.planner.placement.gang_packing import Packing
from autoscaler.planner.placement.offerings import CENT, Market
from autoscaler.planner.supply.candidate_nodes import Shape
from autoscaler.solver.problem import Kind
from autoscaler.solver.solve import lower_bound

_FAR: Final = 5.0
"""Dollars per hour by which a purchase may be dearer than is proven of it before it is asked about in pieces, too."""


def purchase_bound(packing: Packing, shapes: Mapping[str, Shape], market: Market, proof: Proof) -> float:
    """The bound in dollars per hour. ``shapes``: of each pod, by key. ``proof``: of the joint purchase, for its pods.

    What a joint purchase has proven holds, if it was found together with all that is there. Where that is not so, or
    not all that was bought, pods of one kind could have had the place of others: so all pods are asked for, and all
    that was free counts as one machine that costs nothing, as if pods could be cut in pieces. Limits and rules between
    pods are left out: either can only cost more.
    """
    if packing.usd_per_hour <= 0:
        return 0.0
    homes = packing.homes
    proven = 0.0
    if proof.usd and all(place.price or key in proof.at_hand for key, place in homes.items()):
        proven = min(proof.usd, packing.usd_per_hour)
        if proof.bought >= packing.usd_per_hour - CENT and packing.usd_per_hour - proven < _FAR:
            return proven
    counts = Counter(Want(shapes[key], "") for key in homes if key in shapes)
    problem = cutting_problem(counts, market, limited=False)
    free: Counter[str] = Counter()
    names = {name for want in counts for name, _ in want.shape.amounts}
    for place in market.snapshot.places:
        if not place.price:
            for name in names:
                free[name] += max(0, place.free.get(name, 0))
    for key, place in homes.items():
        if not place.price and key in shapes:
            for name, amount in shapes[key].amounts:
                free[name] += amount
    endless = (len(homes),) * len(problem.rules.exclusive)
    [room] = problem.vectors([free], up=True, exclusive=endless)
    there = Kind("what is there", room, 0.0, 1)
    rows = [problem.row(want, many, also=there.name) for want, many in counts.items()]
    clusters = SizeClusters.of(rows)
    shapes_of = rows if clusters is None else clusters.shapes
    return max(proven, min(packing.usd_per_hour, lower_bound(shapes_of, [*problem.kinds, there])))
