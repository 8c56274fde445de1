"""What EC2 nodes cost, counted look by look and written down each minute; and budgets that are spent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from autoscaler.config.policy import Policy
from autoscaler.config.schedules import Budget
from autoscaler.kube.client import Refused
from autoscaler.kube.ledger_configmaps import LedgerBooks, months_at
from autoscaler.model.cluster import Cluster
from autoscaler.model.errors import Unavailable
from autoscaler.model.ledger import Ledger, counted
from autoscaler.model.pauses import Pause, budget_of

COUNTED_EVERY: Final = timedelta(seconds=10)
"""It takes 60 ms at 15,000 EC2 nodes."""
WRITTEN_EVERY: Final = timedelta(minutes=1)
"""What is lost by a SIGKILL is counted again by the next one, from what still runs."""


class Bookkeeper:
    """The ledger of the acting autoscaler. Used by the loop's thread alone."""

    def __init__(self, books: LedgerBooks) -> None:
        self._books = books
        self._ledger: Ledger | None = None
        """Unknown until what was written is read."""
        self._written_at: datetime | None = None

    def look(self, cluster: Cluster, policy: Policy) -> tuple[Pause, ...]:
        """Count what runs; gives what is not bought any more, because its budget is spent."""
        now = cluster.seen_at
        if self._ledger is None:
            try:
                self._ledger = self._books.read(months_at(now))
            except (Unavailable, Refused):  # buying goes on: the next look asks again
                return ()
        known = self._ledger.costs.keys()
        if self._ledger.until is None or now - self._ledger.until >= COUNTED_EVERY:
            upfront = {entry.name: entry.upfront_usd for entry in policy.groups if entry.upfront_usd}
            self._ledger = counted(self._ledger, cluster, upfront=upfront)
        is_due = self._written_at is None or now - self._written_at >= WRITTEN_EVERY
        if is_due or self._ledger.costs.keys() != known:
            self._written_at = now
            self._books.write(self._ledger)
        return tuple(spent(self._ledger, policy, now))

    def forget(self) -> None:
        """Another autoscaler may count now."""
        self._ledger = self._written_at = None

    def close(self) -> None:
        """Write down what was counted."""
        if self._ledger is not None:
            self._books.write(self._ledger)
        self.forget()


def spent(ledger: Ledger, policy: Policy, now: datetime) -> Iterator[Pause]:
    """A pause of buying for each budget that is spent: until the next day or month of UTC begins."""
    budgets: list[tuple[dict[str, str], Budget]] = [
        ({}, policy.budget),
        *(({"entry": entry.name}, entry.budget) for entry in policy.groups),
        *(({"namespace": name}, budget) for name, budget in policy.budget.namespaces.items()),
        *(({"owner": name}, budget) for name, budget in policy.budget.owners.items()),
    ]
    for whose, budget in budgets:
        found = [
            (end, limit, what)
            for limit, begin, end, what in _periods(budget, now)
            if ledger.usd(since=begin, **whose) >= limit
        ]
        if found:
            end, limit, what = max(found)
            because = f"the budget of {limit:g} $ for this {what} is spent"
            yield Pause(budget_of(**whose), because, "the policy", until=end)


def _periods(budget: Budget, now: datetime) -> Iterator[tuple[float, date, datetime, str]]:
    """Each limit with the first day of its period, its end, and its name."""
    today = now.astimezone(UTC).date()
    if budget.usd_per_day is not None:
        yield budget.usd_per_day, today, _midnight(today + timedelta(days=1)), "day"
    if budget.usd_per_month is not None:
        first = today.replace(day=1)
        yield budget.usd_per_month, first, _midnight((first + timedelta(days=32)).replace(day=1)), "month"


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
