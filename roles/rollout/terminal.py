"""A plan as it is read in a terminal: counts first, details where they are few, and how to see the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autoscaler.model.enumeration import counted
from roles.engine.disruption import Disruption
from roles.engine.host_plan import Change, HostPlan, state

MANY = 12
"""Changes of a machine beyond which its roles are counted, each on a line."""
_DIFF = 20
"""Lines of one change that are shown."""


def plan_lines(plans: Iterable[HostPlan], *, full: bool | None = False) -> Iterator[str]:
    """Every machine that is not clean, and last the counts of all; nothing where all are.

    ``full``: each change with its whole diff; ``None``: counted, by a command that has no such option.
    """
    plans = tuple(plans)
    for plan in plans:
        if not plan.is_clean:
            yield _headline(plan)
            short = len(plan.changes) > MANY and not full
            yield from _roles(plan) if short else _changes(plan, most=None if full else _DIFF)
            yield from (f"  {refusal.resource}: refused: {refusal.reason}" for refusal in plan.refused)
    if not all(plan.is_clean for plan in plans):
        yield _counts(plans, told=full is False)


def _headline(plan: HostPlan) -> str:
    why = plan.unreachable or plan.failed
    parts = [
        counted(len(plan.changes), "change") if plan.changes else "",
        f"{len(plan.refused)} refused" if plan.refused else "",
        f"needs: {plan.disruption}" if plan.disruption else "",
    ]
    return ": ".join(filter(None, (plan.host, state(plan), why or ", ".join(filter(None, parts)))))


def _roles(plan: HostPlan) -> Iterator[str]:
    """A line for each role, in the order in which they are done."""
    by_role: dict[str, list[Change]] = {}
    for change in plan.changes:
        by_role.setdefault(change.role, []).append(change)
    for role, changes in by_role.items():
        worst = max(change.disruption for change in changes)
        yield f"  {role}: {counted(len(changes), 'change')}{_class(worst)}"


def _changes(plan: HostPlan, *, most: int | None) -> Iterator[str]:
    for change in plan.changes:
        yield f"  {change.resource}{_class(change.disruption)}"
        lines = (change.diff or "\n".join(command.splitlines()[0] for command in change.commands)).splitlines()
        yield from (f"      {line}" for line in lines[:most])
        if most is not None and len(lines) > most:
            yield f"      ... {counted(len(lines) - most, 'more line')}"


def _counts(plans: tuple[HostPlan, ...], *, told: bool) -> str:
    drifted, changes = sum(bool(plan.changes) for plan in plans), sum(len(plan.changes) for plan in plans)
    refused = sum(len(plan.refused) for plan in plans)
    said = f"{counted(len(plans), 'machine')}: {counted(changes, 'change')} on {drifted}, {refused} refused"
    rest = "; each change with its diff: --full, or --html FILE" if changes and told else ""
    return f"{said}{rest}"


def _class(worst: Disruption) -> str:
    return f"  [{worst}]" if worst else ""
