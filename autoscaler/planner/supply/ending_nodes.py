"""EC2 nodes on which everything ends soon: they are kept for that, and filled after all others that are there.

A pod that begins on one keeps it from going, so another EC2 node takes it where one has room. It is no reason to buy: a
node that is there costs no more than a new one.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from autoscaler.config.policy import Policy
from autoscaler.model.cluster import Group
from autoscaler.model.pod_index import Load


class EndingNodes:
    """Asks of single nodes, at one moment, whether all that runs there ends within the idle time of its group."""

    def __init__(self, now: datetime, policy: Policy) -> None:
        self._now = now
        self._policy = policy
        self._idle: dict[str, timedelta] = {}

    def __call__(self, group: Group | None, load: Load) -> bool:
        """Says whether all that runs on the node says when it ends, and ends within the idle time."""
        if load.ends is None or group is None or not self._policy.scale_down.enabled:
            return False
        if group.entry not in self._idle:
            self._idle[group.entry] = self._policy.idle_after(group.entry)
        return self._now < load.ends <= self._now + self._idle[group.entry]
