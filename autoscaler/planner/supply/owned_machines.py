"""Machines that are there, as the solver sees them: kinds of node that cost nothing, and of which there are so many.

Who goes to them is then decided together with what is bought: those stay at home whose nodes would cost most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from autoscaler.planner.supply.capacity import Amounts, Room
from autoscaler.solver.problem import Kind
from autoscaler.solver.size_clusters import crowded

GROUPED = 64
"""Kinds of machine at most that are told apart for a plan."""
_GROUPS = 24


class MachineKinds(Protocol):
    """Machines that are there, as kinds of node."""

    def kinds(self) -> list[Kind]:
        """For the solver."""

    def names(self, sort: int, offered: frozenset[str]) -> frozenset[str]:
        """Of the kinds that pods of the sort may run on, besides those on offer."""


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


class MachineGroups:
    """Machines that suit the same pods and have about the same room, as kinds that have the room of the largest."""

    def __init__(self, room: Room, sorts: Iterable[int], alone: Sequence[int]) -> None:
        """``sorts``: of the pods that may go there. ``alone``: places of each sort of which a machine has few."""
        self._room, self._alone = room, tuple(alone)
        self._groups: list[Amounts] = []
        if room.machines:
            suiting = {id(mask): mask for mask in (room.suits(sort)[1] for sort in sorts)}
            signs: dict[bytes, int] = {}
            sign_of = [signs.setdefault(column.tobytes(), len(signs)) for column in np.array(list(suiting.values())).T]
            like = np.stack([np.array(sign_of, dtype=np.int64), room.spare[:, 2]], axis=1)
            self._groups = crowded(room.spare, np.ones(len(like), dtype=np.int64), like, many=_GROUPS)
        self._first = np.array([group[0] for group in self._groups], dtype=np.int64)
        self._names: dict[frozenset[str], frozenset[str]] = {}

    def kinds(self) -> list[Kind]:
        """For the solver."""
        spare, alone = self._room.spare, self._alone
        return [
            Kind(
                f"machine-{number}",
                (*spare[group].max(axis=0).tolist(), *alone),
                0.0,
                len(group),
                np.hstack([spare[group], np.ones((len(group), len(alone)), dtype=np.int64)]),
            )
            for number, group in enumerate(self._groups)
        ]

    def names(self, sort: int, offered: frozenset[str]) -> frozenset[str]:
        """Of the kinds that pods of the sort may run on, besides those on offer."""
        there = self._room.suits(sort)[1][self._first]
        found = offered | {f"machine-{one}" for one in np.nonzero(there)[0].tolist()}
        return self._names.setdefault(found, found)


def machine_kinds(room: Room, sorts: Sequence[int], alone: Sequence[int]) -> MachineKinds:
    """As few as a plan can be made with: one by one, or else about alike."""
    if not alone and room.machines:
        found = FreeKinds(room, sorts)
        if len(found) <= GROUPED:
            return found
    return MachineGroups(room, sorts, alone)
