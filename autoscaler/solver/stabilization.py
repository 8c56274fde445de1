"""Stabilized prices for :mod:`autoscaler.solver.column_generation`: the master's stay in a box around the best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Mask

_BOX, _WIDER, _TRUST, _LEAST_TRUST, _MOST_TRUST = 0.03, 1.3, 0.8, 0.5, 0.95
_BOX_AT_ONCE, _TRUST_AT_ONCE, _LEAST_TRUST_AT_ONCE = 0.5, 0.6, 0.3
"""Where all kinds are looked at each time, prices are known sooner."""
_WIDEST = 1e4
FEW = 4
"""Fewer new fillings than that show that what is looked for is not there."""


@dataclass(slots=True)
class Steady:
    """The best prices known, the box around them, and how far they are trusted."""

    centre: Floats
    height: float
    """What the best prices would prove if the search were perfect."""
    below: Floats
    above: Floats
    """Of each price the part of it by which the master may differ."""
    trust: float
    least_trust: float

    @classmethod
    def at(cls, centre: Floats, height: float, *, at_once: bool) -> Steady:
        """Begins at the first prices. ``at_once``: all kinds are looked at each time."""
        box, trust, least = (
            (_BOX_AT_ONCE, _TRUST_AT_ONCE, _LEAST_TRUST_AT_ONCE) if at_once else (_BOX, _TRUST, _LEAST_TRUST)
        )
        return cls(centre, height, np.full(len(centre), box), np.full(len(centre), box), trust, least)

    def widen(self, low: Mask, high: Mask) -> None:
        """Where the master would leave the box."""
        self.below = np.where(low, np.minimum(self.below * _WIDER, 1), self.below)
        self.above = np.where(high, np.minimum(self.above * _WIDER, _WIDEST), self.above)

    def between(self, asked: Floats) -> Floats:
        """The prices to look at."""
        prices: Floats = self.trust * self.centre + (1 - self.trust) * asked
        return prices

    def learn(self, prices: Floats, height: float, added: int) -> None:
        """What prices would prove, and how many fillings were new at them."""
        if height > self.height:
            self.height, self.centre = height, prices
            self.trust = max(min(self.least_trust, self.trust), self.trust - 0.1)
        elif added >= FEW:
            self.trust = max(self.trust, min(_MOST_TRUST, self.trust + (1 - self.trust) * 0.1))
        if added < FEW:
            self.trust = max(0.0, self.trust - 0.3) if added else 0.0
            self.below, self.above = np.minimum(self.below * 1.5, 1), np.minimum(self.above * 1.5, _WIDEST)
