"""What a look at the machines comes to: for each, what would change, what is refused, or why nothing is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from roles.engine.disruption import Disruption


class _OfRole(msgspec.Struct, frozen=True):
    resource: str
    """Role and operation, as a line of a checklist: ``containerd | Configuration``."""

    @property
    def role(self) -> str:
        """The part before the last bar: what is held of a role holds the rest of it."""
        return self.resource.rpartition(" | ")[0] or self.resource


class Change(_OfRole, frozen=True, kw_only=True):
    """One operation that would do something."""

    commands: tuple[str, ...]
    """With secrets masked."""
    disruption: Disruption = Disruption.NONE
    diff: str = ""


class Refusal(_OfRole, frozen=True):
    """Drift that is not mended, and why."""

    reason: str
    setting: str = ""
    """What asks for it, where no source of packages has that: nothing is begun on such a machine."""


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One machine. At most one of ``unreachable`` and ``failed`` is set, and then nothing is known of its drift."""

    host: str
    changes: tuple[Change, ...] = ()
    refused: tuple[Refusal, ...] = ()
    unreachable: str = ""
    failed: str = ""
    """Reached, but its state could not be read or the roles could not be planned."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    """What is installed, for the matrix of the fleet."""

    @property
    def is_clean(self) -> bool:
        """Known, and nothing to do."""
        return not (self.changes or self.refused or self.unreachable or self.failed)

    @property
    def disruption(self) -> Disruption:
        """The worst of its changes."""
        return max((change.disruption for change in self.changes), default=Disruption.NONE)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one machine that was applied to."""

    host: str
    applied: tuple[Change, ...] = ()
    held: tuple[Change, ...] = ()
    failed: str = ""
    alone: dict[str, str] = msgspec.field(default_factory=dict)
    """What could not be made and held up nothing else: resource to reason."""
    commands: tuple[tuple[str, bool, str], ...] = ()
    """What ran, whether it succeeded, and the end of what it said."""


CLEAN, DRIFT, UNREACHABLE, BOTH = 0, 2, 3, 4


def exit_status(plans: Iterable[HostPlan]) -> int:
    """0 all clean, 2 drift, 3 a machine of which nothing is known, 4 both."""
    plans = tuple(plans)
    drift = any(plan.changes or plan.refused for plan in plans)
    unknown = any(plan.unreachable or plan.failed for plan in plans)
    return {(False, False): CLEAN, (True, False): DRIFT, (False, True): UNREACHABLE, (True, True): BOTH}[drift, unknown]


def held(plan: HostPlan, allowed: Disruption) -> tuple[Change, ...]:
    """The changes that must wait: what disrupts more than is allowed, and what its role does after that."""
    waiting: list[Change] = []
    roles: set[str] = set()
    for change in plan.changes:
        if change.disruption > allowed or change.role in roles:
            waiting.append(change)
            roles.add(change.role)
    return tuple(waiting)


def identity(plan: HostPlan) -> str:
    """Equal for plans that would do the same: a change that comes back after it was made is a drift war."""
    said = [(change.resource, change.commands, change.diff) for change in plan.changes]
    return hashlib.sha256(repr(said).encode()).hexdigest()


def as_json(plans: Iterable[HostPlan]) -> list[dict[str, Any]]:
    """Plain values, disruption classes by name."""
    return [
        {
            "host": plan.host,
            "state": state(plan),
            "disruption": str(plan.disruption),
            "changes": [
                {
                    "resource": change.resource,
                    "disruption": str(change.disruption),
                    "commands": list(change.commands),
                    "diff": change.diff,
                }
                for change in plan.changes
            ],
            "refused": [{"resource": one.resource, "reason": one.reason} for one in plan.refused],
            "reason": plan.unreachable or plan.failed,
            "versions": plan.versions,
        }
        for plan in plans
    ]


def state(plan: HostPlan) -> str:
    """Says in one word: clean, drifted, refused, unreachable or unknown."""
    if plan.unreachable:
        return "unreachable"
    if plan.failed:
        return "unknown"
    if plan.changes:
        return "drifted"
    return "refused" if plan.refused else "clean"
