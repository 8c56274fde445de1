"""The brake on draining: in an interval no more than a share of the EC2 nodes is taken from the pods that run on them.

Nodes that stop answering together, or that EC2 warns of together, are rarely as many faults: more often the network or
what watches them is. Idle nodes harm no pod when they go, so those of a finished job go together, without this brake;
so do nodes that EC2 takes back for certain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from autoscaler.config.documents import span_in_words
from autoscaler.config.policy import Drains, Policy
from autoscaler.model.actions import Memory
from autoscaler.model.cluster import Cluster
from autoscaler.planner.supply.fleet import Fleet

REST: Final = timedelta(hours=1)
"""A node that could not be emptied to save its price is tried again so long after it was begun with."""


@dataclass(slots=True)
class DrainBrake:
    """What one look may begin to drain still; counts what it is asked for."""

    rules: Drains
    nodes: int
    """EC2 nodes that there are."""
    now: datetime
    begun: dict[str, datetime]
    """As ``Memory.draining``: name of a node that is drained, or was not long ago -> since when."""
    resting: dict[str, datetime]
    """As ``Memory.resting``. A node that was begun with and is open need not be one: the replica that was to close
    it may have been killed before."""

    @classmethod
    def of(cls, cluster: Cluster, policy: Policy, fleet: Fleet, memory: Memory) -> DrainBrake:
        """Makes the brake of a look before anything is drained."""
        rules, now = policy.scale_down.drains, cluster.seen_at
        longest = max(policy.scale_down.consolidation.every, rules.every, REST)
        begun = {name: since for name, since in memory.draining.items() if now < since + longest}
        resting = {name: since for name, since in memory.resting.items() if now < since + REST}
        return cls(rules, len(fleet.group_of), now, begun, resting)

    def opens(self, nodes: Iterable[str]) -> dict[str, datetime]:
        """What rests once these are opened, of which some were not empty yet."""
        opened = {name: self.begun[name] for name in nodes if name in self.begun}
        return dict(sorted({**self.resting, **opened}.items()))

    def lets(self, node: str) -> bool:
        """Whether the node may be drained now; it is counted from now on."""
        if not self._is_counted(node):
            if self.why_held():
                return False
            self.begun[node] = self.now
        return True

    def why_held(self) -> str:
        """Why no other node may be begun with now, in words; empty where one may."""
        most, counted = max(1, int(self.rules.share * self.nodes)), sum(map(self._is_counted, self.begun))
        if counted < most:
            return ""
        return (
            f"scale_down.drains lets {most} of {self.nodes} EC2 nodes be drained in {span_in_words(self.rules.every)}, "
            f"and {counted} were begun with"
        )

    @property
    def eases_at(self) -> datetime | None:
        """When it lets another node be begun with; ``None`` where it does now."""
        ends = (since + self.rules.every for name, since in self.begun.items() if self._is_counted(name))
        return min(ends, default=None) if self.why_held() else None

    def _is_counted(self, node: str) -> bool:
        since = self.begun.get(node)
        return since is not None and self.now < since + self.rules.every
