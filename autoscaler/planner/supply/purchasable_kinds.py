"""What may be bought: kinds of node, and limits that several of them share."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.solver.problem import Kind, Limit


@dataclass(frozen=True, slots=True)
class Shop:
    """What may be bought."""

    kinds: Sequence[Kind]
    limits: Sequence[Limit]

    def without(self, bought: Mapping[str, int]) -> Shop:
        """What is left when so many of each kind were bought."""
        return Shop(
            [
                kind if kind.available is None else replace(kind, available=max(0, kind.available - bought[kind.name]))
                for kind in self.kinds
            ],
            [
                replace(one, most=one.most - sum(one.uses.get(name, 0) * many for name, many in bought.items()))
                for one in self.limits
            ],
        )

    def only(self, names: Container[str]) -> Shop:
        """The kinds of these names."""
        return Shop([kind for kind in self.kinds if kind.name in names], self.limits)
