"""A cutting plan: the nodes to be bought, the pods that each of them holds, and those that are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from autoscaler.planner.cutting_stock.at_hand_kinds import AtHandKinds
from autoscaler.planner.supply.candidate_nodes import Shape


class Want(NamedTuple):
    """What a pod wants of a node that is bought."""

    shape: Shape
    zone: str
    """Empty where any will do."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """Nodes of one kind that hold the same."""

    kind: str
    times: int
    pods: tuple[tuple[Want, int], ...]
    """(what pods want, how many of them on each node)"""


@dataclass(frozen=True, slots=True)
class PartialPurchase:
    """Nodes for all pods of a pool but a few."""

    purchases: tuple[Purchase, ...]
    left: tuple[tuple[frozenset[Want], int], ...]
    """Of pods of about one size so many are left out."""
    bound: float
    """Of what any nodes for these pods cost; zero where zones that were given out may cost more than others."""
    there: AtHandKinds | None = None
    """The kinds that cost nothing more, all of their places still free."""
