"""A look in which much of the cluster is gone, or idle, is doubted until a second, independent look says the same.

A watch that broke, an API server that came back with an empty cache, or a list of groups that AWS cut short would else
be acted on: nodes bought for pods that run, instances ended that seem to have no node, nodes closed that seem to have
no pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.model.cluster import Cluster
from autoscaler.model.pod_index import pod_index_of

_FEW: Final = 4
"""Of so few at least: in a smaller cluster half of it is often one machine."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a look shows."""

    nodes: int
    instances: int
    busy: int
    """Nodes that a pod is on which did not come with them and has not finished."""

    @classmethod
    def of(cls, cluster: Cluster) -> Counts:
        """Counts what one look shows."""
        loads = pod_index_of(cluster.pods).loads
        return cls(
            nodes=len(cluster.nodes),
            instances=sum(len(group.instances) for group in cluster.groups),
            busy=sum(bool(load.residents) for load in loads.values()),
        )

    def why_doubted(self, before: Counts) -> str:
        """What half or more is gone of since the look ``before``; empty where nothing is."""
        lost = [
            f"{was} {what} before, {now} now"
            for what, was, now in (
                ("nodes", before.nodes, self.nodes),
                ("instances", before.instances, self.instances),
                ("nodes with pods", before.busy, self.busy),
            )
            if was >= _FEW and 2 * now <= was
        ]
        return f"half of the cluster or more seems gone or idle ({'; '.join(lost)})" if lost else ""

    def is_confirmed_by(self, fresh: Counts) -> bool:
        """Whether an independent look shows no more than this one."""
        return all(
            then <= now + 1
            for then, now in (
                (fresh.nodes, self.nodes),
                (fresh.instances, self.instances),
                (fresh.busy, self.busy),
            )
        )
