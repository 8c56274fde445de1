"""Quotas of vCPUs of the account: how much of each is in use, and what it leaves, read before anything is bought.

A quota of EC2 is the account's in a region, over all zones, for a family of types on demand or as spot capacity. What
is in use is counted from all instances that run or start, whichever cluster they are of; reservations that stand unused
are not counted. https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from autoscaler.model.cluster import Refusal
from autoscaler.model.enumeration import counted
from autoscaler.model.instance_types import InstanceType, quota_of

if TYPE_CHECKING:
    from types_boto3_ec2.client import EC2Client

READ_AGAIN: Final = 300.0
"""Seconds: quotas seldom change. What we buy meanwhile is counted at once, what ends only then."""
NEARLY: Final = 0.8
"""The share in use from which on a person is told."""


@dataclass(slots=True)
class Quota:
    """One quota, as far as it is known."""

    code: str
    name: str
    most: int
    """vCPUs."""
    used: int

    @property
    def left(self) -> int:
        """VCPUs that may still be launched."""
        return max(0, self.most - self.used)

    def __str__(self) -> str:
        """Says how much of the quota is in use, for messages."""
        return f"quota {self.code} ({self.name}): {self.used} of {self.most} vCPUs are in use"


@dataclass(frozen=True, slots=True)
class Draw:
    """What a node of a group draws on."""

    vcpus: int
    """Of one node."""
    quota: Quota | None
    """As far as it is known."""
    is_reservation: bool = False
    """The quota is what a Capacity Reservation has room for."""

    @property
    def code(self) -> str:
        """Of the quota; empty where none is known."""
        return self.quota.code if self.quota is not None else ""

    def refuses(self, nodes: int, taken: Mapping[str, int], *, at: datetime) -> Refusal | None:
        """Why so many nodes are not to be asked for, if anything; ``taken``: code -> vCPUs that go before them."""
        if self.quota is None or nodes * self.vcpus <= self.quota.left - taken.get(self.code, 0):
            return None
        gone = f", {taken[self.code]} more are being bought" if taken.get(self.code) else ""
        said = f"{self.quota}{gone}, and {counted(nodes, 'node')} would be {nodes * self.vcpus} more"
        return Refusal(at, "ReservationCapacityExceeded" if self.is_reservation else "VcpuLimitExceeded", said)


class Quotas:
    """Those that the groups of a policy draw on."""

    def __init__(
        self,
        *,
        ec2: EC2Client,
        quotas: Callable[[], Any],
        warn: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``quotas`` makes a client of Service Quotas. ``warn`` is told when a quota is nearly used up."""
        self._ec2 = ec2
        self._client = quotas
        self._warn = warn
        self._clock = clock
        self._known: dict[str, Quota] = {}
        self._read_at: float | None = None
        self._told: set[str] = set()

    def holds(self, code: str, vcpus: int) -> None:
        """Counts at least so many as in use or on their way: what Auto Scaling is launching no instance shows yet."""
        quota = self._known.get(code)
        if quota is not None and quota.used < vcpus:
            quota.used = vcpus
            self._tell(quota)

    def read(
        self,
        codes: Collection[str],
        learn: Callable[[set[str]], Mapping[str, InstanceType]],
        coming: Mapping[str, int],
    ) -> None:
        """Where it is time for that. Raises botocore's errors.

        ``learn`` gives what EC2 says of instance types; ``coming``: by code, vCPUs of what no instance shows yet.
        """
        now = self._clock()
        if self._read_at is not None and now < self._read_at + READ_AGAIN:
            return
        self._read_at = now  # also where it fails: every look would ask again
        if not codes:
            return
        used = self._used(learn)
        client = self._client()
        for code in sorted(codes):
            said = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
            self._known[code] = Quota(code, said.get("QuotaName", ""), int(said["Value"]), used[code])
            self.took(code, coming.get(code, 0))

    def of(self, code: str) -> Quota | None:
        """``None`` where it is not known."""
        return self._known.get(code)

    def took(self, code: str, vcpus: int) -> None:
        """Counts so many more as in use."""
        quota = self._known.get(code)
        if quota is not None:
            quota.used += vcpus
            self._tell(quota)

    def _used(self, learn: Callable[[set[str]], Mapping[str, InstanceType]]) -> Counter[str]:
        """VCPUs in use, by code of the quota."""
        running = list(self._running())
        types = learn({kind for kind, _ in running})
        used: Counter[str] = Counter()
        for kind, is_spot in running:
            used[quota_of(kind, spot=is_spot)] += types[kind].vcpus
        return used

    def _running(self) -> Iterable[tuple[str, bool]]:
        states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        for page in self._ec2.get_paginator("describe_instances").paginate(Filters=states):  # type: ignore[arg-type]
            for reservation in page["Reservations"]:
                for one in reservation["Instances"]:
                    yield str(one["InstanceType"]), one.get("InstanceLifecycle") == "spot"

    def _tell(self, quota: Quota) -> None:
        """Warns once that the quota is nearly used up, until it is less used again."""
        if quota.used < NEARLY * quota.most:
            self._told.discard(quota.code)
        elif quota.code not in self._told:
            self._told.add(quota.code)
            self._warn(f"{quota}: ask AWS for more at Service Quotas, or nothing is bought beyond it")
