"""Free room on machines, which can be taken, given back, and restored to what it was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from autoscaler.model.labels import GPU
from autoscaler.model.resources import CPU, MEMORY, Resources
from autoscaler.planner.elastic.values import Machine

_MANY: Final = 16
"""So many of the largest pods beside each other waste next to nothing."""
_SMALL: Final = 4
"""Pods this much smaller than the largest find a gap anywhere; there are not enough of them to fill them all."""


class Room:
    """What is free by machine. Machines that are there come first, then those that cost the least; fullest first."""

    def __init__(self, machines: Iterable[Machine], usd_per_hour: float, sizes: Iterable[Resources] = ()) -> None:
        """``usd_per_hour``: what may be spent on machines that are to be bought; ``sizes``: of pods yet to come."""
        self._machines = {machine.name: machine for machine in machines}
        self._free = {name: machine.free for name, machine in self._machines.items()}
        self._bought: frozenset[str] = frozenset()
        self._usd = usd_per_hour
        self._sizes = {name: tuple(sorted({size[name] for size in sizes if size[name]})) for name in (GPU, CPU)}

    @property
    def bought(self) -> tuple[str, ...]:
        """Machines that have to be bought for what has been taken."""
        return tuple(sorted(self._bought))

    def mark(self) -> tuple[dict[str, Resources], frozenset[str], float]:
        """What :meth:`restore` takes."""
        return dict(self._free), self._bought, self._usd

    def restore(self, mark: tuple[dict[str, Resources], frozenset[str], float]) -> None:
        """Forget what was taken and given back since."""
        self._free, self._bought, self._usd = dict(mark[0]), mark[1], mark[2]

    def give(self, name: str, size: Resources) -> None:
        """A pod on that machine ends. Machines that are not in the look (gone by now) are passed over."""
        if name in self._free:
            self._free[name] += size

    def take(self, size: Resources, *, own: bool = False) -> str | None:
        """The machine on which it fits best, taken; ``None``: there is none. ``own``: none is bought for it."""
        found = min(
            (self._rank(name, free, size) for name, free in self._free.items() if self._holds(name, free, size, own)),
            default=None,
        )
        if found is None:
            return None
        name = found[-1]
        if self._price(name):
            self._usd -= self._price(name)
            self._bought |= {name}
        self._free[name] -= size
        return name

    def take_all(self, sizes: Sequence[Resources], *, own: bool = False) -> tuple[str, ...] | None:
        """A machine for each, the largest first; or ``None``, and nothing is taken."""
        mark, places = self.mark(), {}
        for number in sorted(range(len(sizes)), key=lambda one: (-sizes[one]["cpu"], one)):
            place = self.take(sizes[number], own=own)
            if place is None:
                self.restore(mark)
                return None
            places[number] = place
        return tuple(places[number] for number in range(len(sizes)))

    def _price(self, name: str) -> float:
        return 0.0 if name in self._bought else self._machines[name].usd_per_hour

    def _holds(self, name: str, free: Resources, size: Resources, own: bool) -> bool:  # noqa: FBT001 - within this class
        price = self._price(name)
        return size.fits_in(free) and price <= self._usd and not (own and price)

    def _rank(self, name: str, free: Resources, size: Resources) -> tuple[float, int, tuple[int, ...], str]:
        """Price; then how much less of the machine can be used once it is there; then how full the machine is."""
        what = GPU if size[GPU] else CPU
        wasted = _wasted(free[what] - size[what], self._sizes[what]) - _wasted(free[what], self._sizes[what])
        return self._price(name), wasted, (free[GPU], free[CPU], free[MEMORY]), name


@lru_cache(maxsize=4096)
def _wasted(free: int, sizes: tuple[int, ...]) -> int:
    """What is left of ``free`` by the best filling with pods of these sizes; 0 where there is room for many of them."""
    if not sizes or free > _MANY * sizes[-1]:
        return 0
    counted = [size for size in sizes if _SMALL * size > sizes[-1]]
    return min((_wasted(free - size, sizes) for size in counted if size <= free), default=max(0, free))
