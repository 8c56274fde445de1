"""What EC2 nodes have cost so far: dollars and hours by day, group, namespace and owner, added up look by look.

Prices are those that the policy or AWS's price list says, before discounts; days are those of UTC, as AWS bills.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

from autoscaler.model.cluster import CapacityBlock, Cluster, Group, Node
from autoscaler.model.labels import GPU, OWNER
from autoscaler.model.pod_index import NO_LOAD, Load, pod_index_of
from autoscaler.model.resources import CPU

IDLE: Final = "(idle)"
"""In place of a namespace: what no pod had asked for."""
UNKNOWN: Final = "(unknown)"
"""In place of a namespace: of a time in which no autoscaler looked."""
_LOOKED: Final = timedelta(minutes=10)
"""Between two looks that are further apart, what ran on a node is not known."""
_HOUR: Final = timedelta(hours=1)
_FREE: Final[Mapping[str, float]] = MappingProxyType({})


class Holder(NamedTuple):
    """Whose pods hold a part of a node."""

    namespace: str
    owner: str = ""
    """By the pods' label ``spillway.dev/owner``; empty where they have none."""


_Parts = Mapping[Holder, float]
_NOBODY: Final = Holder(IDLE)
_UNUSED: Final[_Parts] = MappingProxyType({_NOBODY: 1.0})
_UNSEEN: Final[_Parts] = MappingProxyType({Holder(UNKNOWN): 1.0})


class Account(NamedTuple):
    """What a sum is for."""

    day: date
    entry: str
    """Name of the policy entry."""
    holder: Holder


class Cost(NamedTuple):
    """A sum."""

    usd: float = 0.0
    hours: float = 0.0
    """Of nodes; a node that two holders share counts for each by its part."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """All sums, and until when they are counted."""

    costs: Mapping[Account, Cost] = field(default_factory=dict)
    until: datetime | None = None
    """``None``: nothing was counted yet."""

    def usd(self, *, since: date, entry: str = "", namespace: str = "", owner: str = "") -> float:
        """Dollars from that day on; of all groups or one, of all namespaces or one, of all owners or one."""
        return sum(
            cost.usd
            for (day, group, holder), cost in self.costs.items()
            if day >= since
            and entry in ("", group)
            and namespace in ("", holder.namespace)
            and owner in ("", holder.owner)
        )


def counted(ledger: Ledger, cluster: Cluster, *, upfront: Mapping[str, float] = _FREE) -> Ledger:
    """The ledger with what the instances of this look have cost since the last one.

    ``upfront``: policy entry -> dollars that its Capacity Block cost, spread over its time: what runs in it has its
    part, and what nothing runs in is idle, without node hours.

    An instance that was launched and ended between two looks is not seen; while an autoscaler
    runs that is a matter of seconds.
    """
    since, now = ledger.until, cluster.seen_at
    if since is None or since >= now:
        return Ledger(ledger.costs, now if since is None else since)
    costs = defaultdict(Cost, ledger.costs)
    nodes = {node.instance_id: node for node in cluster.nodes if node.instance_id}
    loads, is_long_ago = pod_index_of(cluster.pods).loads, now - since > _LOOKED
    for group in cluster.groups:
        parts: dict[datetime, dict[Holder, float]] = {}
        """From when -> holder -> nodes."""
        for instance in group.instances:
            begin = max(since, instance.launched or since)
            shares = _UNSEEN if is_long_ago else _shares(nodes.get(instance.id), loads)
            sums = parts.setdefault(begin, defaultdict(float))
            for holder, share in shares.items():
                sums[holder] += share
        for begin, sums in parts.items():
            for day, hours in _by_day(begin, now):
                for holder, share in sums.items():
                    account, part = Account(day, group.entry, holder), hours * share
                    usd, before = costs[account]
                    costs[account] = Cost(usd + part * group.usd_per_hour, before + part)
        if group.entry in upfront and group.block is not None:
            running = [_UNSEEN] if is_long_ago else [_shares(nodes.get(one.id), loads) for one in group.instances]
            for account, usd in _spread(upfront[group.entry], group, group.block, running, since=since, until=now):
                costs[account] = Cost(costs[account].usd + usd, costs[account].hours)
    return Ledger(dict(costs), now)


def _spread(
    upfront: float,
    group: Group,
    block: CapacityBlock,
    running: Sequence[_Parts],
    *,
    since: datetime,
    until: datetime,
) -> Iterator[tuple[Account, float]]:
    """What a block that was paid beforehand costs from one moment to another, as far as these are within its time."""
    whole = (block.ends - block.starts) / _HOUR
    for day, hours in _by_day(max(since, block.starts), min(until, block.ends)):
        for holder, share in _parts_of(block, running).items():
            yield Account(day, group.entry, holder), upfront * share * hours / whole


def _parts_of(block: CapacityBlock, running: Sequence[_Parts]) -> _Parts:
    """Holder -> its part of all that the block has; of one whose size is not known, of what runs in it."""
    found: dict[Holder, float] = defaultdict(float)
    whole = len(running) if running == [_UNSEEN] else max(block.instances, len(running), 1)
    for shares in running:
        for holder, share in shares.items():
            found[holder] += share / whole
    found[_NOBODY] += max(0.0, 1.0 - sum(found.values()))
    return {holder: share for holder, share in found.items() if share}


def _shares(node: Node | None, loads: Mapping[str, Load]) -> _Parts:
    """Holder -> its part of the node: of its GPUs where it has some, else of its CPUs."""
    residents = loads.get(node.name, NO_LOAD).residents if node is not None else ()
    if node is None or not residents:
        return _UNUSED
    resource = GPU if node.allocatable[GPU] else CPU
    whole = node.allocatable[resource] or 1
    found: dict[Holder, float] = defaultdict(float)
    for pod in residents:
        found[Holder(pod.namespace, pod.labels.get(OWNER, ""))] += pod.requests[resource] / whole
    taken = sum(found.values())
    if taken > 1.0:
        return {holder: share / taken for holder, share in found.items()}
    return {**{holder: share for holder, share in found.items() if share}, _NOBODY: 1.0 - taken}


def _by_day(begin: datetime, end: datetime) -> Iterator[tuple[date, float]]:
    """Hours between two moments, parted at midnight."""
    while begin < end:
        day = begin.astimezone(UTC).date()
        midnight = datetime.combine(day + timedelta(days=1), time(), UTC)
        yield day, (min(end, midnight) - begin) / _HOUR
        begin = midnight
