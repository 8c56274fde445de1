"""Pods of a pool for which nodes are wanted, those that want the same together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

from autoscaler.planner.cutting_stock.cutting_plan import Want


class WaitingPods:
    """Their keys by what they want, in the order in which they were added."""

    def __init__(self) -> None:
        """Begins without any pod."""
        self._keys: dict[Want, OrderedDict[str, None]] = {}

    def __bool__(self) -> bool:
        """Says whether any pod waits."""
        return bool(self._keys)

    @property
    def counts(self) -> dict[Want, int]:
        """How many want the same."""
        return {want: len(keys) for want, keys in self._keys.items()}

    @property
    def pods(self) -> list[tuple[Want, str]]:
        """Returns what each pod wants, and its key."""
        return [(want, key) for want, keys in self._keys.items() for key in keys]

    def first(self, want: Want, many: int) -> list[str]:
        """Returns so many of those that want it, or all where there are fewer."""
        return list(islice(self._keys.get(want, ()), many))

    def all(self, want: Want) -> list[str]:
        """Returns the keys of all pods that want it."""
        return list(self._keys.get(want, ()))

    def add(self, want: Want, key: str) -> None:
        """Adds a pod behind the others that want it."""
        self._keys.setdefault(want, OrderedDict())[key] = None

    def remove(self, want: Want, keys: Iterable[str]) -> None:
        """They have a place now."""
        left = self._keys[want]
        for key in keys:
            del left[key]
        if not left:
            del self._keys[want]
