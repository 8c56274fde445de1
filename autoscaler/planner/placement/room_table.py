"""Which of many places have room for a shape: one comparison of arrays before any place is asked by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autoscaler.model.feasibility import Amounts
from autoscaler.solver.lp.arrays import Floats, Mask


class RoomTable:
    """What is free on places, by resource. An amount that no array holds exactly counts as enough: ask the place."""

    def __init__(self, rooms: Sequence[Mapping[str, int]], names: Iterable[str]) -> None:
        """``names``: of the resources that are going to be asked for."""
        self._free: dict[str, Floats] = {
            name: np.array([room.get(name, 0) for room in rooms], dtype=float) for name in sorted(set(names))
        }
        self._all = np.ones(len(rooms), dtype=bool)

    def enough(self, amounts: Amounts, *, start: int = 0) -> Mask:
        """Says by place, from ``start`` on, whether each amount is free there; necessary for room.

        It is sufficient as far as floats tell.
        """
        found: Mask = self._all[start:]
        for name, amount in amounts:
            found = found & (self._free[name][start:] >= amount)
        return found

    def with_room(self, amounts: Amounts, *, behind: int) -> list[int]:
        """The places after this one where each amount is free."""
        start = behind + 1
        return (start + self.enough(amounts, start=start).nonzero()[0]).tolist()

    def most_behind(self) -> list[dict[str, float]]:
        """Returns by place the most that is free of each resource on any place after it."""
        most = {
            name: np.maximum.accumulate(np.append(free, 0.0)[::-1])[::-1][1:].tolist()
            for name, free in self._free.items()
        }
        return [dict(zip(most, row, strict=True)) for row in zip(*most.values(), strict=True)]

    def change(self, number: int, room: Mapping[str, int]) -> None:
        """Sets what is free on that place now."""
        for name, free in self._free.items():
            free[number] = room.get(name, 0)
