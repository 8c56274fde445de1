"""Capacity Reservations, which moto's EC2 does not have: made, described, cancelled; instances are launched into them.

As AWS documents it: of one instance type in one zone; a launch that targets one gets its capacity from it alone, and
``ReservationCapacityExceeded`` where it has too little left. One that is cancelled leaves its instances running.
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.responses import EC2Response

_FULL: Final = (
    "The requested capacity exceeds the available capacity of the targeted Capacity Reservation {id}. Either increase "
    "the instance quantity for the targeted Capacity Reservation, or target a different Capacity Reservation."
)


@dataclass
class Reserved:
    """One reservation."""

    id: str
    instance_type: str
    zone: str
    total: int
    matches: str
    state: str = "active"


@dataclass
class CapacityReservations:
    """Those of one region."""

    known: dict[str, Reserved] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)
    """Id of an instance -> that of the reservation that it was launched into."""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def create(self, instance_type: str, zone: str, count: int, matches: str) -> Reserved:
        """A new one, active at once."""
        made = Reserved(f"cr-{next(self._numbers):017x}", instance_type, zone, count, matches)
        self.known[made.id] = made
        return made

    def get(self, key: str) -> Reserved:
        """By id, whatever its state."""
        if key not in self.known:
            message = f"The Capacity Reservation '{key}' does not exist."
            raise EC2ClientError("InvalidCapacityReservationId.NotFound", message)
        return self.known[key]

    def available(self, one: Reserved) -> int:
        """Instances that it has room for."""
        return one.total - Counter(self.uses.values())[one.id] if one.state == "active" else 0

    def check(self, key: str, instance_type: str, zone: str, count: int) -> None:
        """Whether so many instances may be launched into it. Raises EC2's refusals."""
        one = self.get(key)
        if one.state != "active":
            raise EC2ClientError("InvalidCapacityReservationState", f"The Capacity Reservation {key} is {one.state}.")
        if (one.instance_type, one.zone) != (instance_type, zone):
            message = f"The Capacity Reservation {key} is of {one.instance_type} in {one.zone}."
            raise EC2ClientError("InvalidParameterValue", message)
        if count > self.available(one):
            raise EC2ClientError("ReservationCapacityExceeded", _FULL.format(id=key))


class CapacityReservationCalls(EC2Response):
    """EC2's calls for them."""

    def create_capacity_reservation(self) -> ActionResult:
        """Of so many instances."""
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
        """Its number of instances."""
        self._reservations.get(self._get_param("CapacityReservationId")).total = int(self._get_param("InstanceCount"))
        return ActionResult({"Return": True})

    def cancel_capacity_reservation(self) -> ActionResult:
        """Its instances run on, on demand."""
        self._reservations.get(self._get_param("CapacityReservationId")).state = "cancelled"
        return ActionResult({"Return": True})

    def _as_told(self, one: Reserved) -> dict[str, Any]:
        return {
            "CapacityReservationId": one.id,
            "InstanceType": one.instance_type,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": one.zone,
            "Tenancy": "default",
            "TotalInstanceCount": one.total,
            "AvailableInstanceCount": self._reservations.available(one),
            "State": one.state,
            "EndDateType": "unlimited",
            "InstanceMatchCriteria": one.matches,
        }

    @property
    def _reservations(self) -> CapacityReservations:
        backend: EC2Backend = self.ec2_backend
        found: CapacityReservations = backend.capacity_reservations  # type: ignore[attr-defined]  # `Ec2` has them
        return found
