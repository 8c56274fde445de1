"""Capacity Reservations: what they have room for, as the door counts it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from autoscaler.cloud.errors import refusal_code
from autoscaler.cloud.reservations import READ_AGAIN, Reservations

ID = "cr-0123456789abcdef0"


class Account:
    """EC2 as far as it is asked."""

    def __init__(self, **said: Any) -> None:
        self.said = {"State": "active", "TotalInstanceCount": 4, "AvailableInstanceCount": 3} | said
        self.error = ""
        self.asked: list[str] = []
        self.told: list[str] = []
        self.now = 0.0
        self.reservations = Reservations(self, warn=self.told.append, clock=lambda: self.now)  # type: ignore[arg-type]

    def describe_capacity_reservations(self, *, CapacityReservationIds: list[str]) -> dict[str, Any]:  # noqa: N803
        """As boto3."""
        self.asked += CapacityReservationIds
        if self.error:
            raise ClientError({"Error": {"Code": self.error, "Message": "no"}}, "DescribeCapacityReservations")
        return {"CapacityReservations": [self.said]}

    def left(self) -> int | None:
        """VCPUs, after another look."""
        self.reservations.read({ID: 96})
        found = self.reservations.of(ID)
        return found.left if found is not None else None


def test_it_is_read_now_and_then_and_what_is_launched_meanwhile_counts() -> None:
    """In vCPUs, as quotas are."""
    account = Account()
    assert account.left() == 3 * 96
    account.reservations.took(ID, 96)
    assert (account.left(), account.asked) == (2 * 96, [ID])
    account.now += READ_AGAIN
    assert (account.left(), account.asked) == (3 * 96, [ID, ID])


@pytest.mark.parametrize("state", ["pending", "scheduled", "expired", "cancelled", "failed"])
def test_one_that_is_not_active_has_no_room_and_is_told(state: str) -> None:
    """Nothing is launched into it."""
    account = Account(State=state)
    assert account.left() == 0
    assert account.told == [f"Capacity Reservation {ID} is {state}: nothing is launched into it"]


def test_one_that_is_not_there_has_no_room() -> None:
    """A typing error of the policy."""
    account = Account()
    account.error = "InvalidCapacityReservationId.NotFound"
    assert account.left() == 0
    assert "is not there" in account.told[0]


def test_without_the_right_to_read_it_is_not_known() -> None:
    """EC2 refuses what it has no room for: that is learnt then."""
    account = Account()
    account.error = "UnauthorizedOperation"
    assert account.left() is None
    assert "so that EC2 may refuse" in account.told[0]


@pytest.mark.parametrize(
    "said",
    [
        "ReservationCapacityExceeded",
        "The requested capacity exceeds the available capacity of the targeted Capacity Reservation cr-1.",
    ],
)
def test_a_refusal_of_a_full_one_is_told_from_ec2_having_no_capacity(said: str) -> None:
    """Other groups of the type may get some."""
    assert refusal_code(said) == "ReservationCapacityExceeded"
