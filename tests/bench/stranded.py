"""How useful the free room of machines stays: where the planner places pods, beside first-fit and best-fit.

The pods of the openb trace on a quarter of its machines, the biggest first for the two others, in the order of the file
for the planner, which serves the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscaler.inputs.offline_plan import plan_offline
from autoscaler.inputs.tables import read_asked, read_nodes
from autoscaler.model.labels import GPU as GPUS
from autoscaler.model.resources import CPU, MEMORY, PODS, Resources
from tests.bench.figure import Figure

GPU = 2
EVERY = 4
Amounts = NDArray[np.int64]
Chooser = Callable[[Amounts, Amounts, Amounts], int]
"""The machine for a pod: of what is free, the pod's size, and the machines that hold it."""


def stranded(pods: Path, nodes: Path) -> Iterator[Figure]:
    """Idle GPUs by rule."""
    asked, machines = read_asked(str(pods)), read_nodes(nodes)[::EVERY]
    sizes = _vectors([pod.requests + Resources({PODS: 1}) for pod in asked.pods])
    free = _vectors([node.allocatable for node in machines])
    total = int(free[:, GPU].sum())
    number = {pod.name: one for one, pod in enumerate(asked.pods)}
    placed = {"the planner": [number[name] for name in plan_offline(asked, (), machines).placements]}
    order = _biggest_first(sizes, free)
    for name, chooser in (("first-fit", _first), ("best-fit", _best)):
        placed[name] = list(_filled(order, sizes, free.copy(), chooser))
    for name, there in placed.items():
        idle = total - int(sizes[there, GPU].sum())
        yield Figure(f"openb on {len(machines)} machines, {name}: GPUs idle while pods wait", idle, f"of {total}")


def _vectors(amounts: list[Resources]) -> Amounts:
    return np.array([[one[CPU], one[MEMORY], one[GPUS], one[PODS]] for one in amounts], dtype=np.int64)


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
