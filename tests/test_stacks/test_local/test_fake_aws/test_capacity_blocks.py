"""Capacity Blocks for ML at the stand-in for AWS, seen through boto3."""

from __future__ import annotations

from datetime import time, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.test_stacks.stand_in import StandIn, eventually

TYPE = "p4d.24xlarge"


def buy(here: StandIn, *, after: float = 0, count: int = 2, hours: int = 24) -> dict[str, Any]:
    """A block that begins in so many seconds."""
    asked = {"StartDateRange": here.world.now() + timedelta(seconds=after)} if after else {}
    found = here.ec2.describe_capacity_block_offerings(
        InstanceType=TYPE, InstanceCount=count, CapacityDurationHours=hours, **asked
    )
    (offer,) = found["CapacityBlockOfferings"]
    bought = here.ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    return dict(bought["CapacityReservation"])


def group_of(here: StandIn, block: dict[str, Any], *, market: str | None = "capacity-block") -> str:
    """A group that launches into it."""
    target = {"CapacityReservationTarget": {"CapacityReservationId": block["CapacityReservationId"]}}
    options = {"InstanceMarketOptions": {"MarketType": market}} if market else {}
    template = here.new_template(InstanceType=TYPE, CapacityReservationSpecification=target, **options)
    return here.group(
        LaunchTemplate={"LaunchTemplateId": template, "Version": "$Latest"}, VPCZoneIdentifier=here.subnets[0]
    )


def launch(here: StandIn, group: str, count: int = 1) -> dict[str, Any]:
    """The answer."""
    return dict(
        here.asg.launch_instances(
            AutoScalingGroupName=group,
            RequestedCapacity=count,
            AvailabilityZones=["us-east-1a"],
            ClientToken=f"token-{next(here.numbers)}",
        )
    )


def codes(answer: dict[str, Any]) -> list[str]:
    """Of its errors."""
    return [one["ErrorCode"] for one in answer["Errors"]]


def state(here: StandIn, block: dict[str, Any]) -> tuple[str, int]:
    """And what it has room for."""
    ids = [block["CapacityReservationId"]]
    (one,) = here.ec2.describe_capacity_reservations(CapacityReservationIds=ids)["CapacityReservations"]
    return one["State"], one["AvailableInstanceCount"]


def test_a_block_begins_is_used_and_ends_with_what_is_in_it(here: StandIn) -> None:
    """At 11:30 UTC; half an hour before, EC2 terminates its instances, and launches none any more."""
    block = buy(here, after=3600)
    assert (block["ReservationType"], block["EndDateType"]) == ("capacity-block", "limited")
    assert block["EndDate"].time() == time(11, 30)
    assert abs(block["EndDate"] - block["StartDate"] - timedelta(hours=24)) <= timedelta(hours=12)
    group = group_of(here, block)
    assert state(here, block) == ("scheduled", 0)
    assert codes(launch(here, group)) == ["InvalidCapacityReservationState"]
    here.pass_time(3601)
    assert state(here, block) == ("active", 2)
    assert codes(launch(here, group, 3)) == ["ReservationCapacityExceeded"]
    here.pass_time(10)
    eventually(lambda: here.states(group) == ["InService"] * 2)
    assert here.instance(here.ids(group)[0])["InstanceLifecycle"] == "capacity-block"
    here.asg.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    eventually(lambda: all(one.startswith("Terminating") for one in here.states(group)))
    here.pass_time(10)
    eventually(lambda: not here.ids(group))
    launch(here, group)
    (one,) = here.ids(group)
    left = (block["EndDate"] - block["StartDate"] - timedelta(minutes=30)).total_seconds()
    here.pass_time(left - 60)
    assert here.ids(group) == [one]
    here.pass_time(60)
    eventually(lambda: here.instance(one)["State"]["Name"] == "terminated")
    assert codes(launch(here, group)) == ["InvalidCapacityReservationState"]
    here.pass_time(1800)
    assert state(here, block) == ("expired", 0)


def test_a_launch_says_its_market_and_a_block_is_not_changed(here: StandIn) -> None:
    """Neither into a block on demand, nor into a plain reservation as into a block, nor into no reservation."""
    block = buy(here)
    plain = here.ec2.create_capacity_reservation(
        InstanceType=TYPE, InstancePlatform="Linux/UNIX", AvailabilityZone="us-east-1a", InstanceCount=1
    )["CapacityReservation"]
    for one, market in ((block, None), (plain, "capacity-block")):
        assert codes(launch(here, group_of(here, one, market=market))) == ["InvalidParameterCombination"]
    key = block["CapacityReservationId"]
    for call, more in (("modify_capacity_reservation", {"InstanceCount": 9}), ("cancel_capacity_reservation", {})):
        with pytest.raises(ClientError, match="OperationNotPermitted"):
            getattr(here.ec2, call)(CapacityReservationId=key, **more)


@pytest.mark.parametrize(("hours", "count"), [(25, 1), (0, 1), (15 * 24, 1), (4368 + 168, 1), (24, 65)])
def test_what_is_not_sold_is_refused(here: StandIn, hours: int, count: int) -> None:
    """By the day up to 14 days, then by the week up to 182; 64 instances at most."""
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        buy(here, hours=hours, count=count)


@pytest.mark.parametrize("days", [1, 14, 21, 182])
def test_what_is_sold_ends_nearest_to_what_was_asked_for(here: StandIn, days: int) -> None:
    """Within twelve hours."""
    block = buy(here, hours=24 * days)
    assert abs(block["EndDate"] - block["StartDate"] - timedelta(days=days)) <= timedelta(hours=12)
