"""Capacity Reservations and Blocks, which moto's EC2 does not have: made, described; instances are launched into them.

As AWS documents it: of one instance type in one zone; a launch that targets one gets its capacity from it alone, and
``ReservationCapacityExceeded`` where it has too little left. One that is cancelled leaves its instances running.
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html

A Capacity Block is one for a time, bought by its offering, which ends at 11:30 UTC. A launch into it says its market
type; it is neither changed nor cancelled; half an hour before its end EC2 terminates what runs in it.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-purchase.html
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses import EC2Response

_FULL: Final = (
    "The requested capacity exceeds the available capacity of the targeted Capacity Reservation {id}. Either increase "
    "the instance quantity for the targeted Capacity Reservation, or target a different Capacity Reservation."
)
BLOCK: Final = "capacity-block"
"""Type of a reservation, and market type of a launch into it."""
_TAKEN_BACK: Final = timedelta(minutes=30)
"""Before a block's end."""
_ENDS_AT: Final = time(11, 30, tzinfo=UTC)
_DAY, _WEEK, _FORTNIGHT, _LONGEST = 24, 168, 336, 4368
"""Hours: a block is bought by the day up to 14 days, then by the week up to 182 days."""
_LARGEST: Final = 64


@dataclass(frozen=True)
class Offered:
    """A block that may be bought."""

    instance_type: str
    zone: str
    total: int
    starts: datetime
    ends: datetime


@dataclass
class Reserved:
    """One reservation."""

    id: str
    instance_type: str
    zone: str
    total: int
    matches: str
    state: str = "active"
    block: Offered | None = None
    """Where it is a Capacity Block: its state comes of the time."""

    def state_at(self, now: datetime) -> str:
        """Returns the state as EC2 tells it."""
        if self.block is None:
            return self.state
        return "scheduled" if now < self.block.starts else "active" if now < self.block.ends else "expired"


@dataclass
class CapacityReservations:
    """The capacity reservations of one region."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    offered: dict[str, Offered] = field(default_factory=dict)
    """By the offering's id."""
    known: dict[str, Reserved] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)
    """Id of an instance -> that of the reservation that it was launched into."""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def create(self, instance_type: str, zone: str, count: int, matches: str) -> Reserved:
        """A new one, active at once."""
        made = Reserved(f"cr-{next(self._numbers):017x}", instance_type, zone, count, matches)
        self.known[made.id] = made
        return made

    def offer(self, instance_type: str, zone: str, count: int, *, starts: datetime, hours: int) -> str:
        """A block that may be bought: the one whose end is nearest to what was asked for. Gives the offering's id."""
        if not 1 <= count <= _LARGEST:
            raise EC2ClientError("InvalidParameterValue", f"InstanceCount must be between 1 and {_LARGEST}.")
        step = _DAY if hours <= _FORTNIGHT else _WEEK
        if not _DAY <= hours <= _LONGEST or hours % step:
            raise EC2ClientError("InvalidParameterValue", f"CapacityDurationHours {hours} is no duration of a block.")
        ends = datetime.combine((starts + timedelta(hours=hours, minutes=30)).date(), _ENDS_AT)
        key = f"cb-{next(self._numbers):017x}"
        self.offered[key] = Offered(instance_type, zone, count, starts.replace(microsecond=0), ends)
        return key

    def buy(self, key: str) -> Reserved:
        """The block of an offering."""
        if key not in self.offered:
            raise EC2ClientError("InvalidCapacityBlockOfferingId.NotFound", f"The offering '{key}' does not exist.")
        block = self.offered.pop(key)
        made = self.create(block.instance_type, block.zone, block.total, "targeted")
        made.block = block
        return made

    def taken_back_in(self, instance: str) -> timedelta | None:
        """How long it is until EC2 terminates the instance; ``None`` where it is in no block."""
        one = self.known.get(self.uses.get(instance, ""))
        return one.block.ends - _TAKEN_BACK - self.now() if one is not None and one.block is not None else None

    def get(self, key: str) -> Reserved:
        """Returns a reservation by id, whatever its state."""
        if key not in self.known:
            message = f"The Capacity Reservation '{key}' does not exist."
            raise EC2ClientError("InvalidCapacityReservationId.NotFound", message)
        return self.known[key]

    def available(self, one: Reserved) -> int:
        """Instances that it has room for."""
        return one.total - Counter(self.uses.values())[one.id] if one.state_at(self.now()) == "active" else 0

    def changeable(self, key: str) -> Reserved:
        """One that may be modified or cancelled. Raises EC2's refusal."""
        one = self.get(key)
        if one.block is not None:
            raise EC2ClientError("OperationNotPermitted", f"The Capacity Block {key} cannot be modified or cancelled.")
        return one

    def check(self, key: str, instance_type: str, zone: str, count: int, *, market: str = "") -> None:
        """Whether so many instances may be launched into it. Raises EC2's refusals."""
        one = self.get(key)
        if (market == BLOCK) != (one.block is not None):
            message = f"The market type '{market}' does not suit the Capacity Reservation {key}."
            raise EC2ClientError("InvalidParameterCombination", message)
        state = one.state_at(self.now())
        if one.block is not None and self.now() >= one.block.ends - _TAKEN_BACK:
            state = "ending"
        if state != "active":
            raise EC2ClientError("InvalidCapacityReservationState", f"The Capacity Reservation {key} is {state}.")
        if (one.instance_type, one.zone) != (instance_type, zone):
            message = f"The Capacity Reservation {key} is of {one.instance_type} in {one.zone}."
            raise EC2ClientError("InvalidParameterValue", message)
        if count > self.available(one):
            raise EC2ClientError("ReservationCapacityExceeded", _FULL.format(id=key))


class CapacityReservationCalls(EC2Response):
    """EC2's calls for capacity reservations."""

    def create_capacity_reservation(self) -> ActionResult:
        """Reserves so many instances."""
        made = self._reservations.create(
            self._get_param("InstanceType"),
            self._get_param("AvailabilityZone"),
            int(self._get_param("InstanceCount")),
            self._get_param("InstanceMatchCriteria", "open"),
        )
        return ActionResult({"CapacityReservation": self._as_told(made)})

    def describe_capacity_reservations(self) -> ActionResult:
        """All, or those of the ids that are given."""
        keys = self._get_param("CapacityReservationIds", []) or list(self._reservations.known)
        return ActionResult({"CapacityReservations": [self._as_told(self._reservations.get(key)) for key in keys]})

    def modify_capacity_reservation(self) -> ActionResult:
        """Changes the number of instances reserved."""
        one = self._reservations.changeable(self._get_param("CapacityReservationId"))
        one.total = int(self._get_param("InstanceCount"))
        return ActionResult({"Return": True})

    def cancel_capacity_reservation(self) -> ActionResult:
        """Its instances run on, on demand."""
        self._reservations.changeable(self._get_param("CapacityReservationId")).state = "cancelled"
        return ActionResult({"Return": True})

    def describe_capacity_block_offerings(self) -> ActionResult:
        """One in the region's first zone, from the time that is asked for; none of a type that is not sold so."""
        if BLOCK not in INSTANCE_TYPES.get(self._get_param("InstanceType"), {}).get("SupportedUsageClasses", ()):
            return ActionResult({"CapacityBlockOfferings": []})
        asked = self._get_param("StartDateRange")
        starts = asked if isinstance(asked, datetime) else self._reservations.now()
        key = self._reservations.offer(
            self._get_param("InstanceType"),
            f"{self.region}a",
            int(self._get_param("InstanceCount")),
            starts=starts if starts.tzinfo else starts.replace(tzinfo=UTC),
            hours=int(self._get_param("CapacityDurationHours")),
        )
        one = self._reservations.offered[key]
        told = {
            "CapacityBlockOfferingId": key,
            "InstanceType": one.instance_type,
            "AvailabilityZone": one.zone,
            "InstanceCount": one.total,
            "StartDate": one.starts,
            "EndDate": one.ends,
            "CapacityBlockDurationHours": (one.ends - one.starts) // timedelta(hours=1),
            "CurrencyCode": "USD",
            "Tenancy": "default",
        }
        return ActionResult({"CapacityBlockOfferings": [told]})

    def purchase_capacity_block(self) -> ActionResult:
        """It is paid for at once."""
        made = self._reservations.buy(self._get_param("CapacityBlockOfferingId"))
        return ActionResult({"CapacityReservation": self._as_told(made)})

    def _as_told(self, one: Reserved) -> dict[str, Any]:
        block = one.block
        dates = {"StartDate": block.starts, "EndDate": block.ends} if block is not None else {}
        return {
            "CapacityReservationId": one.id,
            "InstanceType": one.instance_type,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": one.zone,
            "Tenancy": "default",
            "TotalInstanceCount": one.total,
            "AvailableInstanceCount": self._reservations.available(one),
            "State": one.state_at(self._reservations.now()),
            "EndDateType": "limited" if block is not None else "unlimited",
            "ReservationType": BLOCK if block is not None else "default",
            **dates,
            "InstanceMatchCriteria": one.matches,
        }

    @property
    def _reservations(self) -> CapacityReservations:
        backend: EC2Backend = self.ec2_backend
        found: CapacityReservations = backend.capacity_reservations  # type: ignore[attr-defined]  # `Ec2` has them
        return found
