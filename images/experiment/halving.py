"""Which trials of a search are worth going on with: asynchronous successive halving, by what they have reported.

Li et al., A System for Massively Parallel Hyperparameter Tuning: https://arxiv.org/abs/1810.05934. In the form that
stops trials instead of pausing them, as nothing that runs is started again: a trial that comes to a rung goes on where
it is among the best ``1 / reduction`` of those that came there until then, itself included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from autoscaler.model.errors import BadInput


@dataclass(frozen=True, slots=True)
class Report:
    """What a trial said of itself."""

    trial: int
    step: int
    """From 1: epochs, or whatever the trial counts."""
    at: float
    """Seconds since the epoch."""
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Halving:
    """The rule: at the rungs ``first``, ``first * reduction``, ... only the best go on."""

    metric: str
    """Of the reports, e.g. ``loss``."""
    mode: Literal["min", "max"] = "min"
    first: int = 1
    """Steps until the first rung."""
    reduction: int = 3
    """One in so many goes on."""
    most: int = 81
    """Steps of a whole trial: the last rung is below."""

    def __post_init__(self) -> None:
        """Refuse what makes no rungs."""
        if self.mode not in ("min", "max") or not 1 <= self.first <= self.most or self.reduction < 2:  # noqa: PLR2004
            raise BadInput(f"{self}: mode is min or max, first from 1 to most, and reduction 2 or more")

    def rungs(self) -> tuple[int, ...]:
        """Steps at which trials are compared."""
        found, rung = [], self.first
        while rung < self.most:
            found.append(rung)
            rung *= self.reduction
        return tuple(found)


def losers(reports: Iterable[Report], rule: Halving) -> frozenset[int]:
    """Trials that were not among the best when they came to a rung; ``reports`` in any order.

    A trial that passes a rung without a report of just that step counts there by its next one. A value that is no
    number is the worst of all. The first of a rung goes on: it is the best so far.
    """
    at_rung: dict[int, list[float]] = {rung: [] for rung in rule.rungs()}
    passed: dict[int, int] = {}
    lost: set[int] = set()
    for one in sorted(reports, key=lambda one: (one.at, one.trial, one.step)):
        if rule.metric not in one.values or one.trial in lost:
            continue
        badness = _badness(one.values[rule.metric], rule)
        for rung in rule.rungs()[passed.get(one.trial, 0) :]:
            if one.step < rung:
                break
            passed[one.trial] = passed.get(one.trial, 0) + 1
            before = at_rung[rung]
            better = sum(other <= badness for other in before)
            before.append(badness)
            if better >= max(1, len(before) // rule.reduction):
                lost.add(one.trial)
                break
    return frozenset(lost)


def _badness(value: float, rule: Halving) -> float:
    if value != value:  # noqa: PLR0124 - NaN alone
        return float("inf")
    return value if rule.mode == "min" else -value
