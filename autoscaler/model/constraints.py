"""Scheduling constraints: what a node keeps off it, and what a pod asks of a node and of the pods around.

Plain values; ``feasibility.py`` says whether they hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps pods off a node unless they tolerate it."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"

    def __str__(self) -> str:
        """Writes the taint as kubectl does: ``key=value:effect``."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration of a pod. No key with ``Exists`` tolerates everything; no effect means every effect.

    ``Gt`` and ``Lt`` tolerate taints whose value is a whole number above or below theirs (Kubernetes 1.35 and later).
    """

    key: str = ""
    operator: Literal["Exists", "Equal", "Gt", "Lt"] = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One match expression on labels. A node selector entry is ``Requirement(key, "In", (value,))``."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


Term = tuple[Requirement, ...]
"""All of these must hold."""
NOTHING: Final[Term] = (Requirement("", "In"),)
"""Holds of no labels at all."""


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required pod (anti-)affinity term: pods matching ``selector`` in ``namespaces``, in one ``topology_key``."""

    topology_key: str
    selector: Term
    namespaces: frozenset[str]
    namespace_selector: Term | None = None
    """Namespaces with such labels are meant too; no expression at all means every namespace."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint with ``whenUnsatisfiable: DoNotSchedule``."""

    topology_key: str
    max_skew: int
    selector: Term
    min_domains: int | None = None
