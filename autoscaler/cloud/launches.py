"""What the history of an Auto Scaling group says of its launches: which were refused, and which are being tried."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final

from autoscaler.cloud.errors import refusal_code
from autoscaler.model.cluster import Instance, Refusal

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import ActivityTypeDef

REFUSALS_LAST: Final = timedelta(hours=1)
"""So long a refusal is told to the planner."""
_ENDED: Final = ("Successful", "Failed", "Cancelled")
_LAUNCH: Final = "Launching a new EC2 instance"
"""In AWS's words: what a launch is described with. The instance's id follows once there is one."""


def refusals(activities: Iterable[ActivityTypeDef]) -> tuple[Refusal, ...]:
    """Returns the launches that failed, the newest first."""
    found: list[Refusal] = []
    for activity in activities:
        at = activity.get("EndTime") or activity["StartTime"]
        if activity["StatusCode"] in ("Failed", "Cancelled"):
            message = activity.get("StatusMessage") or activity.get("Description", "")
            found.append(Refusal(at=at.astimezone(UTC), code=refusal_code(message), message=message))
    return tuple(sorted(found, key=lambda refusal: refusal.at, reverse=True))


def being_tried(activities: Iterable[ActivityTypeDef], instances: Iterable[Instance]) -> int:
    """How many launches have not ended, less those of which the group lists the instance already."""
    listed = {one.id for one in instances}
    open_ones = [one.get("Description", "") for one in activities if one["StatusCode"] not in _ENDED]
    launches = [said.removeprefix(_LAUNCH).strip(" :.") for said in open_ones if said.startswith(_LAUNCH)]
    return sum(instance not in listed for instance in launches)
