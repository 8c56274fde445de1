"""Which of many places have room for a shape: one comparison of arrays before any place is asked by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autoscaler.model.feasibility import Amounts
from autoscaler.solver.lp.arrays import Mask


class RoomTable:
    """What is free on places, by resource. An amount that no array holds exactly counts as enough: ask the place."""

    def __init__(self, rooms: Sequence[Mapping[str, int]], names: Iterable[str]) -> None:
        """``names``: of the resources that are going to be asked for."""
        self._column = {name: number for number, name in enumerate(sorted(set(names)))}
        self._free = np.array([self._row(room) for room in rooms], dtype=float).reshape(len(rooms), len(self._column))

    def enough(self, amounts: Amounts) -> Mask:
        """By place, whether each amount is free there; necessary for room, and sufficient as far as floats tell."""
        columns = [self._column[name] for name, _ in amounts]
        wanted = np.array([amount for _, amount in amounts], dtype=float)
        found: Mask = np.all(self._free[:, columns] >= wanted, axis=1)
        return found

    def with_room(self, amounts: Amounts, *, behind: int) -> list[int]:
        """The places after this one where each amount is free."""
        columns = [self._column[name] for name, _ in amounts]
        enough = np.all(self._free[behind + 1 :, columns] >= [amount for _, amount in amounts], axis=1)
        return [behind + 1 + one for one in np.nonzero(enough)[0].tolist()]

    def most_behind(self) -> list[dict[str, float]]:
        """By place the most that is free of each resource on any place after it."""
        free = np.vstack([self._free, np.zeros((1, len(self._column)))])
        most = np.maximum.accumulate(free[::-1])[::-1][1:]
        return [dict(zip(self._column, row, strict=True)) for row in most.tolist()]

    def change(self, number: int, room: Mapping[str, int]) -> None:
        """So much is free on that place now."""
        self._free[number] = self._row(room)

    def _row(self, room: Mapping[str, int]) -> list[float]:
        return [float(room.get(name, 0)) for name in self._column]
