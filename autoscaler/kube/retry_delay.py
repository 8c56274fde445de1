"""How long to wait before what failed is tried again."""

from __future__ import annotations

import random


class RetryDelay:
    """Longer and longer, up to half a minute, never twice the same."""

    def __init__(self, *, least: float = 0.2, most: float = 30.0) -> None:
        self._least = self._next = least
        self._most = most

    def longer(self) -> float:
        """Seconds to wait now; the next answer is twice as long."""
        now = self._next * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        self._next = min(self._next * 2, self._most)
        return now

    def reset(self) -> None:
        """Begins again with the shortest wait, after an attempt that worked."""
        self._next = self._least
