"""What EC2 tells of an instance beforehand, by EventBridge, and then does: interruption, rebalance, maintenance.

moto delivers what a rule's pattern matches to the rule's queue; it makes none of these events by itself. A spot
instance that is taken back is gone at once: no lifecycle hook holds it, and its group launches another where it still
wants one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final, Literal

from moto.events.models import events_backends
from pydantic import Field

from autoscaler.config.documents import Document, Span
from autoscaler.model.errors import BadInput
from stacks.local.fake_aws.auto_scaling import AutoScaling, Member
from stacks.local.fake_aws.instances import World

_DETAIL_TYPES: Final = {
    "interruption": "EC2 Spot Instance Interruption Warning",
    "rebalance": "EC2 Instance Rebalance Recommendation",
    "maintenance": "AWS Health Event",
}


class Interruption(Document):
    """What EC2 is to tell of an instance of a group."""

    instance: str = Field(description="its id")
    kind: Literal["interruption", "rebalance", "maintenance"] = Field(default="interruption", description="what it is")
    after: Span = Field(default=timedelta(minutes=2), description="from the notice to the instance's end, e.g. 2m")


def interrupt(asked: Interruption, regions: Iterable[AutoScaling], world: World) -> None:
    """Tell it now, and end the instance later but for a mere recommendation. Raises ``BadInput``: no group has it."""
    region, member = _found(asked.instance, regions)
    for bus in events_backends[region.account_id][region.region_name].event_buses.values():
        for rule in bus.rules.values():
            rule.send_to_targets(_event(asked, region), transform_input=False)
    if asked.kind != "rebalance":
        member.taken_back_at = world.clock() + asked.after.total_seconds()


def _found(instance: str, regions: Iterable[AutoScaling]) -> tuple[AutoScaling, Member]:
    for region in regions:
        for group in region.autoscaling_groups.values():
            for member in group.instance_states:
                if member.instance.id == instance:
                    return region, member
    raise BadInput(f"instance: no group has {instance}")


def _event(asked: Interruption, region: AutoScaling) -> Any:
    now = datetime.now(UTC)
    detail: dict[str, Any] = {"instance-id": asked.instance}
    if asked.kind == "interruption":
        detail["instance-action"] = "terminate"
    if asked.kind == "maintenance":
        detail = {
            "service": "EC2",
            "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "startTime": format_datetime(now + asked.after, usegmt=True),
            "affectedEntities": [{"entityValue": asked.instance}],
        }
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": _DETAIL_TYPES[asked.kind],
        "source": "aws.health" if asked.kind == "maintenance" else "aws.ec2",
        "account": region.account_id,
        "time": now.timestamp(),  # moto delivers it in words
        "region": region.region_name,
        "resources": [f"arn:aws:ec2:{region.region_name}:{region.account_id}:instance/{asked.instance}"],
        "detail": detail,
    }
