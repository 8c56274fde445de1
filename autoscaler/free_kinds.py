"""Machines that are there, as the solver sees them: kinds of node that cost nothing, and of which there are so many.

Who goes to them is then decided together with what is bought: those stay at home whose nodes would cost most.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from autoscaler.columns import Kind
from autoscaler.room import Room


class FreeKinds:
    """Machines that have the same room left, for the same pods."""

    def __init__(self, room: Room, sorts: Iterable[int]) -> None:
        """``sorts``: of the pods that may go there."""
        self._room = room
        masks = {id(mask): mask for mask in (room.suits(sort)[1] for sort in sorts)}
        signs = np.array(list(masks.values()), dtype=np.int64).T
        groups: dict[bytes, list[int]] = {}
        for machine, (spare, sign) in enumerate(zip(room.spare, signs, strict=True)):
            groups.setdefault(spare.tobytes() + sign.tobytes(), []).append(machine)
        self._machines = {f"machines like {room.machines[group[0]].name}": group for group in groups.values()}
        self._names: dict[tuple[frozenset[str], int], frozenset[str]] = {}

    def __len__(self) -> int:
        """How many kinds."""
        return len(self._machines)

    def kinds(self) -> list[Kind]:
        """For the solver."""
        return [
            Kind(name, tuple(self._room.spare[group[0]].tolist()), 0.0, len(group))
            for name, group in self._machines.items()
        ]

    def names(self, sort: int, offered: frozenset[str]) -> frozenset[str]:
        """Of the kinds that pods of the sort may run on, besides those on offer."""
        key = (offered, self._room.choice[sort])
        known = self._names.get(key)
        if known is None:
            suits = self._room.suits(sort)[1]
            known = self._names[key] = offered | {name for name, group in self._machines.items() if suits[group[0]]}
        return known

    def taken(self, kind: str) -> int | None:
        """The next machine of the kind; ``None``: it is to be bought."""
        return self._machines[kind].pop(0) if kind in self._machines else None
