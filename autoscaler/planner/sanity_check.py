"""A look in which much of the cluster is gone is doubted, until a second, independent look says the same.

A watch that broke, an API server that came back with an empty cache, or a list of groups that AWS cut short would else
be acted on: nodes bought for pods that run, instances ended that seem to have no node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.model.cluster import Cluster

_FEW: Final = 4
"""Of so few at least: in a smaller cluster half of it is often one machine."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a look shows."""

    nodes: int
    instances: int

    @classmethod
    def of(cls, cluster: Cluster) -> Counts:
        """Of one look."""
        return cls(len(cluster.nodes), sum(len(group.instances) for group in cluster.groups))

    def why_doubted(self, before: Counts) -> str:
        """What half or more is gone of since the look ``before``; empty where nothing is."""
        lost = [
            f"{was} {what} before, {now} now"
            for what, was, now in (
                ("nodes", before.nodes, self.nodes),
                ("instances", before.instances, self.instances),
            )
            if was >= _FEW and 2 * now <= was
        ]
        return f"half of the cluster or more seems gone ({'; '.join(lost)})" if lost else ""

    def is_confirmed_by(self, fresh: Counts) -> bool:
        """Whether an independent look shows no more than this one."""
        return fresh.nodes <= self.nodes + 1 and fresh.instances <= self.instances + 1
