"""How many nodes of each kind are still to be had, of the kind itself and within limits that several kinds share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscaler.solver.lp.arrays import Floats, dot

_WHOLE = 1e-9


class Stock:
    """Nodes that are left, while a plan takes some and gives some back."""

    def __init__(self, own: Floats, uses: Floats, most: Floats) -> None:
        """``own``: by kind. ``uses``: [limit, kind] what one node takes of it. ``most``: by limit."""
        self.own, self.uses, self.most = own.copy(), uses, most.copy()
        self._left: Floats | None = None

    @property
    def left(self) -> Floats:
        """Returns how many of each kind are left, if no other is taken."""
        if self._left is None:
            self._left = self.own.copy()
            for uses, most in zip(self.uses, self.most, strict=True):
                used = uses > 0
                self._left[used] = np.minimum(self._left[used], np.floor(most / uses[used] + _WHOLE))
        return self._left

    def left_of(self, kind: int) -> float:
        """Returns how many of one kind are left, if no other is taken."""
        uses = self.uses[:, kind]
        used = uses > 0
        return float(np.floor(self.most[used] / uses[used] + _WHOLE).min(initial=self.own[kind]))

    def has(self, kinds: Sequence[int]) -> bool:
        """Whether a node of each of these kinds is to be had, all of them together."""
        many = np.bincount(np.asarray(kinds, dtype=np.int64), minlength=len(self.own))
        return bool(np.all(many <= self.own) and np.all(dot(self.uses, many) <= self.most + _WHOLE))

    def copy(self) -> Stock:
        """Returns a copy, to be taken from apart."""
        return Stock(self.own, self.uses, self.most)

    def less(self, part: float, *, whole: bool = True) -> Stock:
        """Returns the stock without that part of it; ``whole``: of nodes, not of parts of them."""
        own = self.own * (1 - part)
        return Stock(np.floor(own) if whole else own, self.uses, self.most * (1 - part))

    def take(self, kind: int, times: int) -> None:
        """Takes so many nodes; less than none are given back."""
        self.own[kind] -= times
        if len(self.most):
            self.most -= self.uses[:, kind] * times
        self._left = None
