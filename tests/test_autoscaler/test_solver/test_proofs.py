"""Bounds by the best filling of each kind, and the work that is counted for them."""

from __future__ import annotations

import numpy as np
import pytest

from autoscaler.solver.column_generation import Generation
from autoscaler.solver.deadline import Watch, Work
from autoscaler.solver.lp.column_bounds import BestFilling, best_filling
from autoscaler.solver.problem import Cutting, Kind, Shape
from autoscaler.solver.proofs import Proofs

_SIMPLE, _HARD = ((500, 1000), (1000, 2000)), ((311, 1013), (577, 1999), (733, 907), (919, 1213), (1213, 733))
_ROOM = (9973, 19_997)


def _best(sizes: tuple[tuple[int, int], ...]) -> BestFilling:
    """Pods that are worth what they weigh, a little less the larger they are."""
    values = np.array([(cpu + memory) ** 0.97 for cpu, memory in sizes])
    many, held = np.full(len(sizes), 40), np.ones(len(sizes), dtype=bool)
    return best_filling(values, np.array(sizes, dtype=float), many, held, np.array(_ROOM, dtype=float))


def test_a_filling_that_is_hard_to_prove_takes_more_steps() -> None:
    """Of the simplex method: pods that fill the node leave nothing to branch on."""
    assert _best(_SIMPLE).iterations < _best(_HARD).iterations
    assert _best(()) == BestFilling(0.0, 0)


@pytest.mark.parametrize("sizes", [_SIMPLE, _HARD])
def test_no_filling_is_worth_more(sizes: tuple[tuple[int, int], ...]) -> None:
    """Of two shapes, tried one by one; of more, what is found by greed."""
    values = [(cpu + memory) ** 0.97 for cpu, memory in sizes]
    most = 0.0
    for first, second in ((a, b) for a in range(len(sizes)) for b in range(len(sizes))):
        for many in range(41):
            left = [room - many * used for room, used in zip(_ROOM, sizes[first], strict=True)]
            if min(left) < 0:
                break
            more = min(40, *(room // used for room, used in zip(left, sizes[second], strict=True)))
            most = max(most, many * values[first] + more * values[second])
    assert most <= _best(sizes).most


def test_the_work_of_a_proof_is_counted_as_it_is() -> None:
    """Many shapes do not make a kind hard: by the square of their number one kind took as much as these eight."""
    shapes = [Shape((100 + 10 * one, 200 + 20 * one, 0, 1), 5) for one in range(60)]
    kinds = [Kind(f"kind-{one}", (4000 + 10 * one, 8000 + 20 * one, 0, 110), 1.0 + one / 300) for one in range(8)]
    problem = Cutting.of(shapes, kinds, []).problem
    clock = Work()
    watch = Watch(clock, deadline=1000.0)
    generation = Generation(problem, watch)
    generation.relax()
    generation.run(rounds=10)
    proofs, begun = Proofs(problem, generation.columns.usd, generation.search.weights), clock.done
    prices = generation.prices * 1.02
    proofs.by_best_fillings(prices, generation.columns.worth(prices), np.zeros(0), watch.within(1000.0))
    assert 8 * 4.0 <= clock.done - begun < 60**2 / 24


def test_a_proof_that_is_begun_is_ended_by_no_clock() -> None:
    """What is left of the counted work was a limit in seconds on the solver: on a slow machine less was proven."""
    shapes = [Shape((cpu, memory, 0, 1), 40) for cpu, memory in _HARD]
    problem = Cutting.of(shapes, [Kind("kind", (*_ROOM, 0, 110), 1.0)], []).problem
    clock = Work()
    generation = Generation(problem, Watch(clock, deadline=1000.0))
    generation.relax()
    generation.run(rounds=10)
    bounds = []
    for units in (1e-6, 1000.0):
        proofs, prices = Proofs(problem, generation.columns.usd, generation.search.weights), generation.prices
        watch = Watch(clock, clock(), units)
        proofs.by_best_fillings(prices, generation.columns.worth(prices), np.zeros(0), watch)
        bounds.append(proofs.bound(problem.counts))
    assert bounds[0] == bounds[1] > 0
