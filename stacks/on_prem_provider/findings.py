"""What was found wrong with a machine, told all at once and each with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.model.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and what mends it."""

    what: str
    remedy: str

    def __str__(self) -> str:
        """Says what is wrong and what would mend it."""
        return f"{self.what}: {self.remedy}"


class NotFit(Unavailable):
    """The machine cannot be taken as it is."""

    def __init__(self, machine: str, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        things = "1 thing is" if len(findings) == 1 else f"{len(findings)} things are"
        lines = "".join(f"\n  - {finding}" for finding in findings)
        super().__init__(f"{machine}: {things} in the way{lines}")
