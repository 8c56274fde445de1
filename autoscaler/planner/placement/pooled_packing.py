"""What many gangs need, bought together: cheaper than gang by gang where one's nodes have room for another's pods.

Gang by gang comes first and says what is placed, in order of priority, within all limits. Then the same gangs are
placed once more: in the same order on what is there, and what is left of all of them in one plan for new nodes
(:mod:`autoscaler.solver.solve`). The cheaper of the two is kept. Gangs with rules between pods, or that must be in one
zone, and those that were planned before, are placed as ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from autoscaler.model.labels import GPU
from autoscaler.model.resources import ATTACHMENTS, CPU, MEMORY, PODS
from autoscaler.planner.placement.gang_packing import Demand, Placed, pack
from autoscaler.planner.placement.offerings import Market, Offering
from autoscaler.planner.placement.options import fill_standing
from autoscaler.planner.supply.candidate_nodes import Place, Shape
from autoscaler.solver import problem
from autoscaler.solver.solution import Nodes
from autoscaler.solver.solve import cheapest

ROUNDS: Final = 4
"""Of looking for better fillings and of tearing down: no clock, for the same look must give the same plan."""
_POOL_AT_LEAST: Final = 2
_CENT: Final = 1e-6
_MEBI: Final = 2**20

Found = dict[str, Placed | None]


def place_together(demands: Sequence[Demand], found: Mapping[str, Placed | None], market: Market, start: int) -> Found:
    """The cheaper of what was ``found`` and one plan for all; the snapshot holds what is given back.

    ``start`` is the snapshot's mark before any of the demands was placed. What found no place is tried again last.
    """
    pooled = {demand.name for demand in demands if found[demand.name] is not None and may_be_pooled(demand, market)}
    buying = [one for name in pooled if (one := found[name]) is not None and one.bought]
    if len(buying) < _POOL_AT_LEAST:
        return dict(found)
    placed = [demand for demand in demands if found[demand.name] is not None]
    usd = _usd(found)
    market.snapshot.undo(start)
    together = _together(placed, pooled, market)
    if together is None or _usd(together) > usd - _CENT:
        market.snapshot.undo(start)
        return dict(found) | {demand.name: _alone(demand, market) for demand in placed}
    return together | {demand.name: _alone(demand, market) for demand in demands if demand.name not in together}


def _usd(found: Mapping[str, Placed | None]) -> float:
    return sum(one.usd for one in found.values() if one is not None)


def _alone(demand: Demand, market: Market) -> Placed | None:
    return pack([demand], market).placed[demand.name]


def may_be_pooled(demand: Demand, market: Market) -> bool:
    """Nothing but room decides where its pods go, and all of them go or none."""
    return _is_free(demand) and all(map(market.snapshot.stands_alone, {shape for _, shape in demand.pods}))


def may_be_bought_jointly(demand: Demand, market: Market) -> bool:
    """The same, or rules by host or zone, with which a purchase for many pods of many gangs knows how to deal."""
    snapshot = market.snapshot
    return _is_free(demand) and all(
        snapshot.stands_alone(shape) or snapshot.has_common_rules(shape)
        for shape in {shape for _, shape in demand.pods}
    )


def _is_free(demand: Demand) -> bool:
    whole = demand.minimum is None or demand.minimum >= len(demand.pods)
    return whole and not (demand.topology or demand.assignments)


@dataclass(slots=True)
class _Pool:
    """Pods for which new nodes are wanted, by shape; each shape's in the order in which their gangs are served."""

    pods: dict[Shape, list[str]] = field(default_factory=lambda: defaultdict(list))
    places: dict[str, Place] = field(default_factory=dict)
    """Pod key -> where it goes."""
    bought: list[Place] = field(default_factory=list)


def _together(demands: Sequence[Demand], pooled: set[str], market: Market) -> Found | None:
    """All of them; ``None`` where one finds no place this way."""
    snapshot = market.snapshot
    found: Found = {}
    pool = _Pool()
    for demand in demands:
        mark = snapshot.mark()
        free = pack([demand], market, buy=demand.name not in pooled).placed[demand.name]
        if free is not None:
            found[demand.name] = free
        elif demand.name not in pooled:
            return None
        else:
            snapshot.undo(mark)
            way, rest = fill_standing(demand.ranked, snapshot, None)
            pool.places |= {key: place for key, _, place in way}
            for key, shape in rest:
                pool.pods[shape].append(key)
    if not _bought(pool, market):
        return None
    owner = {key: demand.name for demand in demands for key, _ in demand.pods}
    payer = {place.name: owner[place.guests[0]] for place in pool.bought}
    for demand in demands:
        if demand.name not in found:
            places = tuple((key, pool.places[key]) for key, _ in demand.pods)
            bought = tuple(place for place in pool.bought if place.price and payer[place.name] == demand.name)
            found[demand.name] = Placed(places=places, bought=bought)
    return {demand.name: found[demand.name] for demand in demands}


def _bought(pool: _Pool, market: Market) -> bool:
    """Whether there are nodes for all of the pool, which are opened and filled."""
    shapes = list(pool.pods)
    offerings = {offering.group.name: offering for offering in market.offerings if market.buyable(offering)}
    answer = cheapest(*_as_columns(pool, offerings, market), rounds=ROUNDS)
    if any(answer.left):
        return False

    def fill(nodes: Nodes) -> bool:
        contents = [shapes[number] for number, many in nodes.pods for _ in range(many)]
        return all(_fill(pool, offerings[nodes.kind], contents, market) for _ in range(nodes.times))

    return all(map(fill, answer.nodes))


def _fill(pool: _Pool, offering: Offering, contents: Sequence[Shape], market: Market) -> bool:
    """One node that holds so many of each shape."""
    place = market.open(
        offering, lambda fresh: all(market.snapshot.why_not(shape, fresh) is None for shape in contents)
    )
    if place is None:
        return False
    pool.bought.append(place)
    for shape in contents:
        if market.snapshot.why_not(shape, place) is not None:
            return False
        key = pool.pods[shape].pop(0)
        market.snapshot.put(shape, place, key)
        pool.places[key] = place
    return True


def _as_columns(
    pool: _Pool, offerings: Mapping[str, Offering], market: Market
) -> tuple[list[problem.Shape], list[problem.Kind]]:
    """In the solver's words."""
    asked = {name for shape in pool.pods for name, _ in shape.amounts}
    names = (CPU, MEMORY, GPU, PODS, *sorted(asked - {CPU, MEMORY, GPU, PODS}))
    samples = {name: market.sample(offering) for name, offering in offerings.items()}
    shapes = []
    for shape, keys in pool.pods.items():
        takers = frozenset(
            name for name, sample in samples.items() if market.snapshot.why_not_new(shape, sample) is None
        )
        amounts = dict(shape.amounts)
        vector = tuple(-(-amounts.get(name, 0) // _unit(name)) for name in names)
        shapes.append(problem.Shape(vector, len(keys), takers))
    most = sum(map(len, pool.pods.values()))
    kinds = []
    for name, sample in samples.items():
        room = tuple(max(0, sample.free.get(one, 0)) // _unit(one) for one in names)
        many = market.buyable(offerings[name])
        kinds.append(problem.Kind(name, room, offerings[name].usd, None if many >= most else many))
    return shapes, kinds


def _unit(resource: str) -> int:
    """Bytes are counted in MiB: sizes in one problem should not be a billion apart."""
    counted = resource in (CPU, GPU, PODS) or "/" in resource or resource.startswith(ATTACHMENTS)
    return 1 if counted else _MEBI
