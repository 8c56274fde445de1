"""Capacity Reservations: what they have room for, as the door counts it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from autoscaler.cloud.errors import refusal_code
from autoscaler.cloud.reservations import READ_AGAIN, Reservations
from autoscaler.model.cluster import CapacityBlock

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

    def left(self, *blocks: str, coming: int = 0) -> int | None:
        """VCPUs, after another look. ``coming``: instances that were ordered."""
        self.reservations.read({ID: 96}, {ID: coming * 96}, blocks=blocks)
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


def test_what_our_groups_desire_counts_though_it_has_not_come() -> None:
    """Auto Scaling is launching it; what has come is in EC2's own figure. One that is not known stays unknown."""
    account = Account(TotalInstanceCount=4, AvailableInstanceCount=2)
    account.reservations.holds(ID, 3 * 96)
    assert account.left() == 2 * 96
    for held, left in ((96, 2), (3 * 96, 1), (5 * 96, 0)):
        account.reservations.holds(ID, held)
        assert account.left() == left * 96
    account.now += READ_AGAIN
    assert account.left() == 2 * 96
    account.now += READ_AGAIN
    assert account.left(coming=1) == 96, "beside what others have of it"


@pytest.mark.parametrize("state", ["pending", "scheduled", "expired", "cancelled", "failed"])
def test_one_that_is_not_active_has_no_room_and_is_told(state: str) -> None:
    """Nothing is launched into it."""
    account = Account(State=state)
    assert account.left() == 0
    assert account.told == [f"Capacity Reservation {ID} is {state}: nothing is launched into it"]


TODAY, TOMORROW = datetime(2026, 11, 21, 11, 30, tzinfo=UTC), datetime(2026, 11, 22, 11, 30, tzinfo=UTC)
A_BLOCK = {"ReservationType": "capacity-block", "StartDate": TODAY, "EndDate": TOMORROW}


@pytest.mark.parametrize(("state", "left"), [("scheduled", 4), ("active", 3), ("payment-pending", 0), ("expired", 0)])
def test_a_capacity_block_says_when_it_may_be_used(state: str, left: int) -> None:
    """One that is to begin has the room that it will have then: the planner knows when."""
    account = Account(**A_BLOCK, State=state)
    assert account.left(ID) == left * 96
    assert account.reservations.block(ID) == CapacityBlock(TODAY, TOMORROW, 4)
    assert bool(account.told) == (left == 0)


def test_a_reservation_that_ends_by_itself_is_no_capacity_block() -> None:
    """An ``EndDate`` is something that an On-Demand Capacity Reservation may have, too."""
    account = Account(StartDate=TODAY, EndDate=TOMORROW, EndDateType="limited")
    assert account.left() == 3 * 96
    assert account.reservations.block(ID) is None


@pytest.mark.parametrize(("said", "blocks"), [(A_BLOCK, ()), ({"ReservationType": "default"}, (ID,))], ids=str)
def test_what_is_not_of_the_type_that_its_entry_says_has_no_room(said: dict[str, Any], blocks: tuple[str, ...]) -> None:
    """Its launches name another market: EC2 would refuse each of them."""
    account = Account(**said)
    assert account.left(*blocks) == 0
    assert "until its entry's capacity_type says so" in account.told[0]


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


def test_each_reservation_is_read_when_it_is_time_for_it() -> None:
    """One that was read lately holds up no other."""
    account = Account()
    account.reservations.read({ID: 96}, {})
    account.reservations.read({ID: 96, "cr-2": 8}, {})
    assert account.asked == [ID, "cr-2"]
    assert account.reservations.of("cr-2") is not None
