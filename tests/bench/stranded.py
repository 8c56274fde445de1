"""How useful the free room of machines stays: the planner's rule for who goes where, beside first-fit and best-fit.

The pods of the openb trace on a quarter of its machines, in the same order for all three, the biggest first. A GPU is
*stranded* where it is idle and no pod that waits for GPUs fits its machine any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from autoscaler.inputs.tables import read_nodes, read_pods
from autoscaler.planner.demand.pod_classes import sorts_of
from autoscaler.planner.demand.pod_rules import Neighbours
from autoscaler.planner.placement.first_fit import Filling
from autoscaler.planner.supply.capacity import Amounts, Room
from tests.bench.figure import Figure

GPU = 2
EVERY = 4
Chooser = Callable[[Amounts, Amounts, Amounts], int]
"""The machine for a pod: of what is free, the pod's size, and the machines that hold it."""


def stranded(pods: Path, nodes: Path) -> Iterator[Figure]:
    """Idle GPUs by rule, and how many of them no waiting pod can use."""
    asked, machines = read_pods(str(pods)), read_nodes(nodes)[::EVERY]
    sorts, models = sorts_of(asked)
    room = Room([], machines, asked, models)
    filling = Filling(asked, sorts, room, Neighbours(models, [1] * len(models)), in_time=lambda: True)
    sizes = room.sizes[sorts]
    total = int(room.free[:, GPU].sum())
    placed = {"the planner": filling.place(range(len(asked)))}
    order = _biggest_first(sizes, room.free)
    for name, chooser in (("first-fit", _first), ("best-fit", _best)):
        placed[name] = _filled(order, sizes, room.free.copy(), chooser)
    for name, there in placed.items():
        idle = total - int(sizes[list(there), GPU].sum())
        yield Figure(f"openb on {len(machines)} machines, {name}: GPUs idle while pods wait", idle, f"of {total}")


def _biggest_first(sizes: Amounts, free: Amounts) -> list[int]:
    scale = np.maximum(free.max(axis=0), 1)
    share = np.maximum(sizes[:, 0] / scale[0], sizes[:, 1] / scale[1])
    order: list[int] = np.lexsort((np.arange(len(sizes)), -share, -sizes[:, GPU])).tolist()
    return order


def _filled(order: list[int], sizes: Amounts, free: Amounts, chooser: Chooser) -> dict[int, int]:
    there: dict[int, int] = {}
    for number in order:
        fits = np.nonzero((free >= sizes[number]).all(axis=1))[0]
        if len(fits):
            there[number] = machine = chooser(free, sizes[number], fits)
            free[machine] -= sizes[number]
    return there


def _first(_free: Amounts, _size: Amounts, fits: Amounts) -> int:
    return int(fits[0])


def _best(free: Amounts, size: Amounts, fits: Amounts) -> int:
    """Least left over, each resource as a part of the most that a machine has free."""
    left = (free[fits] - size) / np.maximum(free.max(axis=0), 1)
    return int(fits[np.argmin(left[:, :3].sum(axis=1))])
