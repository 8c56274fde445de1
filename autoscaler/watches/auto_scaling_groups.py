"""From EC2's Auto Scaling groups to the store: described now and then, more often while something is on its way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from autoscaler.cloud import errors
from autoscaler.cloud.autoscaling_groups import Ec2
from autoscaler.kube.cache import Store
from autoscaler.kube.retry_delay import RetryDelay
from autoscaler.model.cluster import Cluster, Group
from autoscaler.model.errors import Unavailable

ON_ITS_WAY: Final = 2.0
"""Seconds between two looks at AWS while capacity comes or goes."""
QUIET: Final = 30.0
"""Seconds between two looks at AWS otherwise."""


class GroupWatch:
    """A thread that looks at the groups now and then, more often while something is on its way."""

    def __init__(self, *, ec2: Ec2, store: Store, outage: Callable[[str, str], None]) -> None:
        self._ec2 = ec2
        self._store = store
        self._outage = outage
        self._stopping = threading.Event()
        self._soon = threading.Event()

    def look(self) -> None:
        """Describes the groups once. Raises ``Unavailable`` or ``errors.Refused``."""
        asked_at = time.monotonic()
        self._store.saw_groups(self._ec2.groups(), asked_at=asked_at)

    def start(self) -> None:
        """Look now and then until :meth:`stop`."""
        threading.Thread(target=self._keep, name="groups", daemon=True).start()

    def soon(self) -> None:
        """Something was set in motion."""
        self._soon.set()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._soon.set()

    def _keep(self) -> None:
        delay = RetryDelay(least=1.0)
        while not self._stopping.is_set():
            self._soon.clear()
            try:
                self.look()
            except (Unavailable, errors.Refused) as error:
                self._outage("AWS", str(error))
                self._stopping.wait(delay.longer())
                continue
            self._outage("AWS", "")
            delay.reset()
            self._wait()

    def _wait(self) -> None:
        """Waits until it is time, or something is set in motion during a quiet time."""
        quiet = not something_is_on_its_way(self._store.cluster(datetime.now(UTC)))
        if quiet and self._soon.wait(QUIET):
            return
        if not quiet:
            self._stopping.wait(ON_ITS_WAY)


def something_is_on_its_way(cluster: Cluster) -> bool:
    """Whether a group is not yet what it is wanted to be, or an instance is not yet a node."""
    joined = {node.instance_id for node in cluster.nodes}
    return any(_is_moving(group, joined) for group in cluster.groups)


def _is_moving(group: Group, joined: set[str | None]) -> bool:
    return group.desired != len(group.instances) or any(
        instance.state != "in-service" or instance.id not in joined for instance in group.instances
    )
