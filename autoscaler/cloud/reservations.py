"""Capacity Reservations and Capacity Blocks: how many instances each has room for, read before anything is bought.

What is launched into one is paid for already. To the planner it is a quota of vCPUs of its own: its instances draw on
the account's from when it was made. https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservation-overview.html

A Capacity Block is a reservation of that type, for a time: one that is to begin has the room that it will have then.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-purchase.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Final

from autoscaler.cloud.errors import one_failure_alone
from autoscaler.cloud.quotas import Quota
from autoscaler.model.cluster import CapacityBlock

if TYPE_CHECKING:
    from types_boto3_ec2.client import EC2Client

READ_AGAIN: Final = 30.0
"""Seconds: what we launch is counted at once, what others launch or end, then. EC2 refuses what we do not know."""
_BLOCK: Final = "capacity-block"
_GONE: Final = ("InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed")


class Reservations:
    """Those that groups are launched into."""

    def __init__(
        self, ec2: EC2Client, *, warn: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``warn`` is told of one that is not active, or that cannot be read."""
        self._ec2 = ec2
        self._warn = warn
        self._clock = clock
        self._known: dict[str, Quota] = {}
        self._blocks: dict[str, CapacityBlock] = {}
        self._read_at: dict[str, float] = {}

    def read(self, vcpus_of: Mapping[str, int], coming: Mapping[str, int], *, blocks: Collection[str] = ()) -> None:
        """Where it is time for that. ``vcpus_of``: id of a reservation -> vCPUs of one of its instances.

        ``coming``: by id, vCPUs of what no instance shows yet. ``blocks``: ids that groups launch into as into Capacity
        Blocks.
        """
        now = self._clock()
        for one, vcpus in vcpus_of.items():
            if now < self._read_at.get(one, -READ_AGAIN) + READ_AGAIN:
                continue
            self._read_at[one] = now  # also where it fails: every look would ask again
            with one_failure_alone(self._warn, f"what Capacity Reservation {one} has room for, so that EC2 may refuse"):
                self._known[one] = self._asked(one, vcpus, as_block=one in blocks)
                self.took(one, coming.get(one, 0))

    def of(self, code: str) -> Quota | None:
        """``None`` where it is not known, or no reservation."""
        return self._known.get(code)

    def block(self, code: str) -> CapacityBlock | None:
        """When it may be used, where it is a Capacity Block and known."""
        return self._blocks.get(code)

    def holds(self, code: str, vcpus: int) -> None:
        """Counts at least so much as in use or on its way: what is being launched EC2 does not count yet."""
        if code in self._known:
            self._known[code].used = max(self._known[code].used, vcpus)

    def took(self, code: str, vcpus: int) -> None:
        """Counts so much more of it as in use."""
        if code in self._known:
            self._known[code].used += vcpus

    def _asked(self, one: str, vcpus: int, *, as_block: bool) -> Quota:
        from botocore.exceptions import ClientError  # noqa: PLC0415 - slow to import

        try:
            (found,) = self._ec2.describe_capacity_reservations(CapacityReservationIds=[one])["CapacityReservations"]
        except ClientError as error:
            if error.response["Error"].get("Code") not in _GONE:
                raise
            self._warn(f"Capacity Reservation {one} is not there: nothing is launched into it")
            return Quota(one, "not there", 0, 0)
        state, total = found["State"], found["TotalInstanceCount"]
        is_block = found.get("ReservationType") == _BLOCK
        if is_block != as_block:
            what = "a Capacity Block" if is_block else "no Capacity Block"
            self._warn(f"{one} is {what}: nothing is launched into it until its entry's capacity_type says so")
            return Quota(one, f"{what}, other than its entry says", 0, 0)
        if is_block and "EndDate" in found:
            starts, ends = found.get("StartDate", found["EndDate"]), found["EndDate"]
            self._blocks[one] = CapacityBlock(starts.astimezone(UTC), ends.astimezone(UTC), total)
        if is_block and state == "scheduled":
            return Quota(one, "Capacity Block", total * vcpus, 0)
        if state != "active":
            self._warn(f"Capacity Reservation {one} is {state}: nothing is launched into it")
            return Quota(one, f"Capacity Reservation, {state}", 0, 0)
        used = total - found["AvailableInstanceCount"]
        return Quota(one, "Capacity Reservation", total * vcpus, used * vcpus)
