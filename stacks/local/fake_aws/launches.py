"""``LaunchInstances``, which moto lacks: instances of a group within the call, or at once why there are none.

As AWS documents it:

- the group has a launch template, no warm pool, and buys either on demand or spot; one zone for each call;
- what is launched counts towards the desired capacity, which goes up by it, and by no more: with ``RetryStrategy``
  ``none``, the default, nothing is tried again;
- some of the instances may come and others not: ``Instances`` and ``Errors`` of one answer;
- the same ``ClientToken`` gives the same answer, and with other parameters ``IdempotentParameterMismatchError``.

AWS does not say for how long it knows a token: here for an hour, so that nothing is built on more. Nor does it say that
a refusal is a line of the group's history: here it is none. A fault that is known ``late`` to a group is known at once.
``retry-with-group-configuration`` raises the desired capacity by all that was asked for; time does the rest.
https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_LaunchInstances.html
https://docs.aws.amazon.com/autoscaling/ec2/userguide/launch-instances-synchronously.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from moto.autoscaling.exceptions import AutoscalingClientError
from moto.core.exceptions import ServiceException

from stacks.local.fake_aws.auto_scaling import AutoScaling, Group, Member, now_in_words, refused
from stacks.local.fake_aws.reconciler import LAUNCH, launched, next_is_spot, places, types

_MOST: Final = 100
"""Instances of one call."""
_ALL: Final = 100
"""Per cent."""
TOKEN_LIVES: Final = 3600.0
"""Seconds."""


@dataclass(frozen=True)
class Asked:
    """The parameters of one call; two calls with the same are the same."""

    group: str
    count: int
    zones: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    retry: str = "none"


def launch_instances(region: AutoScaling, asked: Asked, *, token: str) -> dict[str, Any]:
    """The answer, as the API has it. Raises moto's errors in AWS's words."""
    now = region.world.clock()
    known = region.launch_tokens
    for old in [one for one, (at, _, _) in known.items() if at + TOKEN_LIVES <= now]:
        del known[old]
    if token in known:
        _, before, answer = known[token]
        if before != asked:
            message = "The parameters do not match those of a previous request with the same client token."
            raise AutoscalingClientError("IdempotentParameterMismatch", message)
        return answer
    answer = _launch(region, region.group(asked.group), asked) | {
        "AutoScalingGroupName": asked.group,
        "ClientToken": token,
    }
    known[token] = (now, asked, answer)
    return answer


def _launch(region: AutoScaling, group: Group, asked: Asked) -> dict[str, Any]:
    zone, subnet = _place(group, asked)
    _check(group, asked)
    desired = group.desired_capacity or 0
    came: list[Member] = []
    errors: list[dict[str, Any]] = []
    while sum(one.weight for one in came) < asked.count and len(came) < _MOST and not errors:
        member = _one_more(region, group, zone=zone, subnet=subnet, errors=errors)
        if member is not None:
            came.append(member)
    retries = asked.retry == "retry-with-group-configuration"
    group.set_desired_capacity(desired + (asked.count if retries else sum(one.weight for one in came)))
    return {"Instances": _grouped(came), "Errors": errors}


def _check(group: Group, asked: Asked) -> None:
    if group.ec2_launch_template is None:
        raise refused("LaunchInstances is only supported for Auto Scaling groups that use a launch template.")
    if group.warm_pool is not None:
        message = "LaunchInstances is not supported for Auto Scaling groups with a warm pool."
        raise AutoscalingClientError("UnsupportedOperation", message)
    distribution = (group.mixed_instances_policy or {}).get("InstancesDistribution") or {}
    share = int(distribution.get("OnDemandPercentageAboveBaseCapacity", _ALL))
    if share not in (0, _ALL) or (share == 0 and int(distribution.get("OnDemandBaseCapacity") or 0)):
        raise refused(
            "LaunchInstances is only supported for mixed instances policies that are all On-Demand or all Spot."
        )
    wanted = (group.desired_capacity or 0) + asked.count
    if wanted > (group.max_size or 0):
        raise refused(
            f"The requested capacity {asked.count} would take the AutoScalingGroup to {wanted}, above max value "
            f"{group.max_size}."
        )


def _place(group: Group, asked: Asked) -> tuple[str, str | None]:
    """The zone and subnet of the call."""
    found = places(group)
    fitting = [
        (zone, subnet)
        for zone, subnet in found
        if (not asked.zones or zone in asked.zones) and (not asked.subnets or subnet in asked.subnets)
    ]
    if not fitting:
        where = ", ".join((*asked.zones, *asked.subnets))
        raise refused(f"{where} is not among the zones and subnets of the AutoScalingGroup.")
    if len({zone for zone, _ in found}) > 1 and not (asked.zones or asked.subnets):
        raise refused("AvailabilityZones or SubnetIds must be specified for an AutoScalingGroup of several zones.")
    return fitting[0]


def _one_more(
    region: AutoScaling, group: Group, *, zone: str, subnet: str | None, errors: list[dict[str, Any]]
) -> Member | None:
    """Launches the first type that EC2 grants; what it says of the others is an error where it grants none."""
    said = []
    for instance_type, weight in types(group):
        try:
            member = launched(group, instance_type=instance_type, zone=zone, subnet=subnet)
        except ServiceException as why:
            said.append(
                {
                    "InstanceType": instance_type,
                    "MarketType": "Spot" if next_is_spot(group) else "OnDemand",
                    "AvailabilityZone": zone,
                    "SubnetId": subnet,
                    "ErrorCode": why.code,
                    "ErrorMessage": why.message,
                }
            )
            continue
        if weight is not None:
            member.weight, member.weighted_capacity = weight, str(weight)
        cause = f"At {now_in_words()} a user request of LaunchInstances launched an instance."
        member.activity = region.note(group, f"{LAUNCH}: {member.instance.id}", cause)
        group.instance_states.append(member)
        return member
    errors.extend(said)
    return None


def _grouped(came: list[Member]) -> list[dict[str, Any]]:
    """Instances of one type, market and subnet together."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for one in came:
        market = "Spot" if one.instance.lifecycle == "spot" else "OnDemand"
        place = (one.instance.instance_type, market, one.instance.subnet_id, one.availability_zone)
        found.setdefault(place, []).append(one.instance.id)
    names = ("InstanceType", "MarketType", "SubnetId", "AvailabilityZone")
    return [dict(zip(names, place, strict=True)) | {"InstanceIds": ids} for place, ids in found.items()]
