"""Batches: which steps of a plan are taken beside each other, so that a turn does not wait for one call after another.

Gangs are admitted together. Nodes are ordered together, but for one and the same gang group after group: where AWS
refuses the first order, the gang may be better off elsewhere, and the next would have been for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import groupby
from typing import Final

from autoscaler.model.actions import Admit, Grow, Step

ORDERS_AT_MOST: Final = 16
"""Orders of nodes in one batch: so many may be under way when the first of them is refused."""


def batches(steps: Iterable[Step], *, gangs_of: Callable[[Grow], Collection[Hashable]]) -> Iterator[tuple[Step, ...]]:
    """Yields every step once, in batches of one kind, in the order of the kinds.

    ``gangs_of``: what tells gangs apart that a step buys for, a pod without a gang by itself.
    """
    for kind, run in groupby(steps, type):
        if kind is Grow:
            yield from _orders([one for one in run if isinstance(one, Grow)], gangs_of)
        elif kind is Admit:
            yield tuple(run)
        else:
            yield from ((one,) for one in run)


def _orders(steps: list[Grow], gangs_of: Callable[[Grow], Collection[Hashable]]) -> Iterator[tuple[Grow, ...]]:
    """Each with none in its batch, or left for a later one, before it that is of the same gang or group."""
    left = [(step, {step.group, *gangs_of(step)}) for step in steps]
    while left:
        batch, later, busy = list[Grow](), list[tuple[Grow, set[Hashable]]](), set[Hashable]()
        for step, whose in left:
            if busy.isdisjoint(whose) and len(batch) < ORDERS_AT_MOST:
                batch.append(step)
            else:
                later.append((step, whose))
            busy |= whose
        yield tuple(batch)
        left = later
