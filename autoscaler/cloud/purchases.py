"""Buying in an Auto Scaling group: at once by ``LaunchInstances`` where that is allowed, else by its desired capacity.

``LaunchInstances`` answers with the instances' ids, or with what EC2 refused: nothing is left ordered that would have
to be cancelled. It takes a group with a launch template, without a warm pool or weights, all on demand or all spot, and
the rights ``autoscaling:LaunchInstances``, ``ec2:CreateFleet`` and ``ec2:DescribeLaunchTemplateVersions``.
https://docs.aws.amazon.com/autoscaling/ec2/userguide/launch-instances-synchronously.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from autoscaler.cloud.errors import refusal_code
from autoscaler.model.cluster import Group, Instance, Refusal

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

AT_MOST: Final = 100
"""Instances that one call of ``LaunchInstances`` launches."""
HELD: Final = "Terminating:Wait"
"""State of an instance whose end waits for us: it runs."""
_ALL: Final = 100
"""Per cent."""


@dataclass(frozen=True, slots=True)
class Bought:
    """What came of an order."""

    desired: int
    """The group's desired capacity after it."""
    instances: tuple[Instance, ...] = ()
    """Those that were launched at once; none where the group launches them later."""
    refusals: tuple[Refusal, ...] = ()
    """What EC2 refused at once."""

    def of(self, group: Group) -> Group:
        """The group with what was bought."""
        return replace(
            group,
            desired=self.desired,
            instances=(*group.instances, *self.instances),
            refusals=(*self.refusals, *group.refusals),
        )


def why_not_at_once(raw: AutoScalingGroupTypeDef) -> str:
    """What AWS's description of a group says against ``LaunchInstances``; empty where nothing does."""
    if raw.get("WarmPoolConfiguration"):
        return "it has a warm pool"
    policy = raw.get("MixedInstancesPolicy")
    if policy is None:
        return "it has a launch configuration" if raw.get("LaunchConfigurationName") else ""
    if any("WeightedCapacity" in one for one in policy.get("LaunchTemplate", {}).get("Overrides", [])):
        return "its instance types have weights"
    distribution = policy.get("InstancesDistribution", {})
    share = distribution.get("OnDemandPercentageAboveBaseCapacity", _ALL)
    if share not in (0, _ALL) or (share == 0 and distribution.get("OnDemandBaseCapacity", 0)):
        return "it mixes spot and on-demand instances"
    return ""


def token_of(*, group: str, was: int, to: int, at: datetime) -> str:
    """The ``ClientToken`` of an order: the same for the same order, whichever process gives it."""
    order = f"{group} {was} {to} {at.timestamp():.6f}"
    return f"spillway-{hashlib.sha256(order.encode()).hexdigest()[:40]}"


def living(raw: AutoScalingGroupTypeDef) -> int:
    """How many of its instances are not being ended."""
    return sum(not one["LifecycleState"].startswith("Terminating") for one in raw.get("Instances", []))


def held(raw: AutoScalingGroupTypeDef) -> int:
    """How many of its instances a lifecycle hook keeps from being ended: they run."""
    return sum(one["LifecycleState"] == HELD for one in raw.get("Instances", []))


def launched(answer: Mapping[str, Any], *, at: datetime) -> tuple[Instance, ...]:
    """The instances in an answer of ``LaunchInstances``."""
    return tuple(
        Instance(id=one, zone=many.get("AvailabilityZone", ""), launched=at, state="pending")
        for many in answer.get("Instances", [])
        for one in many.get("InstanceIds", [])
    )


def refused(answer: Mapping[str, Any], *, at: datetime) -> tuple[Refusal, ...]:
    """The errors in an answer of ``LaunchInstances``, each code once."""
    found: dict[str, Refusal] = {}
    for error in answer.get("Errors", []):
        code, message = error.get("ErrorCode", ""), error.get("ErrorMessage", "")
        known = refusal_code(f"{code}: {message}")
        found.setdefault(known, Refusal(at=at, code=known, message=message))
    return tuple(found.values())


def in_words(bought: Bought, *, asked: int) -> str:
    """What EC2 refused of one order."""
    came, said = len(bought.instances), "; ".join(one.message for one in bought.refusals)
    return f"{came} of {asked} nodes came ({said})" if came else said
