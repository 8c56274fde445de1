"""Decides again what a record has, with the same planner, and says where it comes out otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Final

from autoscaler.model.actions import Memory, Plan
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.plan import plan
from autoscaler.planner.quarantine import Planner, plan_or_tell
from autoscaler.record.decisions import Decision
from autoscaler.record.reader import decision_at, read_record

_SHOWN: Final = 5
"""Lines of a list that differs."""


@dataclass(slots=True)
class Tally:
    """What a replay has come to."""

    same: int = 0
    differ: int = 0
    doubted: int = 0
    """Looks that were not acted on: there was nothing to decide."""
    unread: int = 0

    def __str__(self) -> str:
        """Sums up in one line how decisions compare."""
        parts = [f"{self.same} decided the same again", f"{self.differ} otherwise"]
        parts += [f"{self.doubted} not decided, for the look was doubted"] if self.doubted else []
        parts += [f"{self.unread} places that cannot be read"] if self.unread else []
        return ", ".join(parts)


def replay(path: Path, *, at: datetime | None, tally: Tally, planner: Planner = plan) -> Iterator[str]:
    """A line for each difference, and for what cannot be read. ``at``: only the decision that held then.

    Raises ``BadInput`` where there is no record.
    """
    found = read_record(path) if at is None else [one for one in (decision_at(path, at),) if one is not None]
    for one in found:
        if isinstance(one, str):
            tally.unread += 1
            yield one
        elif one.doubt:
            tally.doubted += 1
        else:
            lines = list(differences(one.plan, again(one, planner)))
            tally.differ += bool(lines)
            tally.same += not lines
            yield from (f"{one.cluster.seen_at:%Y-%m-%d %H:%M:%S.%f} {line}" for line in lines)


def again(decision: Decision, planner: Planner = plan) -> Plan:
    """What the planner decides about it now, from nothing but what was written down."""
    return plan_or_tell(planner, decision.cluster, decision.policy, decision.memory)


def differences(was: Plan, now: Plan) -> Iterator[str]:
    """What differs, part by part, in words."""
    if was.steps != now.steps:
        yield from _of_lists(
            "steps", [f"{describe(s)}: {s!r}" for s in was.steps], [f"{describe(s)}: {s!r}" for s in now.steps]
        )
    if was.waiting != now.waiting:
        yield from _of_lists("waiting", [repr(one) for one in was.waiting], [repr(one) for one in now.waiting])
    for name in ("usd_per_hour", "lower_bound_usd_per_hour", "warnings", "wake_at", "kept"):
        if getattr(was, name) != getattr(now, name):
            yield f"{name}: was {getattr(was, name)!r}, is {getattr(now, name)!r}"
    for part in fields(Memory):
        old, new = getattr(was.memory, part.name), getattr(now.memory, part.name)
        if old != new:
            items = [sorted(map(str, one.items() if hasattr(one, "items") else one)) for one in (old, new)]
            yield from _of_lists(f"memory.{part.name}", *items)


def _of_lists(name: str, was: list[str], now: list[str]) -> Iterator[str]:
    gone, new = [one for one in was if one not in now], [one for one in now if one not in was]
    if not gone and not new:
        yield f"{name}: the same, in another order"
    for sign, lines in (("was", gone), ("is", new)):
        yield from (f"{name}: {sign} {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"{name}: {sign} {len(lines) - _SHOWN} more"
