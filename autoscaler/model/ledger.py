"""What EC2 nodes have cost so far: dollars and hours by day, group and namespace, added up look by look.

Prices are those that the policy or AWS's price list says, before discounts; days are those of UTC, as AWS bills.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from autoscaler.model.cluster import Cluster, Node
from autoscaler.model.labels import GPU
from autoscaler.model.pod_index import NO_LOAD, Load, pod_index_of
from autoscaler.model.resources import CPU

IDLE: Final = "(idle)"
"""In place of a namespace: what no pod had asked for."""
UNKNOWN: Final = "(unknown)"
"""In place of a namespace: of a time in which no autoscaler looked."""
_LOOKED: Final = timedelta(minutes=10)
"""Between two looks that are further apart, what ran on a node is not known."""
_HOUR: Final = timedelta(hours=1)
_UNUSED: Final = MappingProxyType({IDLE: 1.0})
_UNSEEN: Final = MappingProxyType({UNKNOWN: 1.0})


class Account(NamedTuple):
    """What a sum is for."""

    day: date
    entry: str
    """Name of the policy entry."""
    namespace: str


class Cost(NamedTuple):
    """A sum."""

    usd: float = 0.0
    hours: float = 0.0
    """Of nodes; a node that two namespaces share counts for each by its part."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """All sums, and until when they are counted."""

    costs: Mapping[Account, Cost] = field(default_factory=dict)
    until: datetime | None = None
    """``None``: nothing was counted yet."""

    def usd(self, *, since: date, entry: str = "", namespace: str = "") -> float:
        """Dollars from that day on; of all groups or one, of all namespaces or one."""
        return sum(
            cost.usd
            for account, cost in self.costs.items()
            if account.day >= since and entry in ("", account.entry) and namespace in ("", account.namespace)
        )


def counted(ledger: Ledger, cluster: Cluster) -> Ledger:
    """The ledger with what the instances of this look have cost since the last one.

    An instance that was launched and ended between two looks is not seen; while an autoscaler
    runs that is a matter of seconds.
    """
    since, now = ledger.until, cluster.seen_at
    if since is None or since >= now:
        return Ledger(ledger.costs, now if since is None else since)
    costs = defaultdict(Cost, ledger.costs)
    nodes = {node.instance_id: node for node in cluster.nodes if node.instance_id}
    loads = pod_index_of(cluster.pods).loads
    for group in cluster.groups:
        parts: dict[datetime, dict[str, float]] = {}
        """From when -> namespace -> nodes."""
        for instance in group.instances:
            begin = max(since, instance.launched or since)
            shares = _UNSEEN if now - since > _LOOKED else _shares(nodes.get(instance.id), loads)
            sums = parts.setdefault(begin, defaultdict(float))
            for namespace, share in shares.items():
                sums[namespace] += share
        for begin, sums in parts.items():
            for day, hours in _by_day(begin, now):
                for namespace, share in sums.items():
                    account, part = Account(day, group.entry, namespace), hours * share
                    usd, before = costs[account]
                    costs[account] = Cost(usd + part * group.usd_per_hour, before + part)
    return Ledger(dict(costs), now)


def _shares(node: Node | None, loads: Mapping[str, Load]) -> Mapping[str, float]:
    """Namespace -> its part of the node: of its GPUs where it has some, else of its CPUs."""
    residents = loads.get(node.name, NO_LOAD).residents if node is not None else ()
    if node is None or not residents:
        return _UNUSED
    resource = GPU if node.allocatable[GPU] else CPU
    whole = node.allocatable[resource] or 1
    found: dict[str, float] = defaultdict(float)
    for pod in residents:
        found[pod.namespace] += pod.requests[resource] / whole
    taken = sum(found.values())
    if taken > 1.0:
        return {name: share / taken for name, share in found.items()}
    return {**{name: share for name, share in found.items() if share}, IDLE: 1.0 - taken}


def _by_day(begin: datetime, end: datetime) -> Iterator[tuple[date, float]]:
    """Hours between two moments, parted at midnight."""
    while begin < end:
        day = begin.astimezone(UTC).date()
        midnight = datetime.combine(day + timedelta(days=1), time(), UTC)
        yield day, (min(end, midnight) - begin) / _HOUR
        begin = midnight
