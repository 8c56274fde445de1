"""What a benchmark measures: one number, and the bound that it must keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One number, and the highest that it may be (``None``: for comparison only)."""

    name: str
    value: float
    unit: str = ""
    bound: float | None = None

    def verdict(self) -> str:
        """In a word."""
        if self.bound is None:
            return "for comparison"
        return "kept" if self.value <= self.bound else "NOT KEPT"
