"""What Auto Scaling refuses of groups and their lifecycle hooks, and EC2 of placement groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from stacks.local.wire.aws_protocol import Refused
from tests.fakes.aws_services.validation.launch_templates import check_exists
from tests.fakes.aws_services.validation.lookups import Known, invalid

_PAGE: Final = 100
_OVERRIDES: Final = 40
_GROUP_NAME: Final = re.compile(r"[^:\x00-\x1f\x7f]{1,255}")
_HOOK_NAME: Final = re.compile(r"[A-Za-z0-9\-_/]{1,255}")
_SECONDS: Final = (30, 7200)
_ALLOCATIONS: Final = {
    "OnDemandAllocationStrategy": ("prioritized", "lowest-price"),
    "SpotAllocationStrategy": (
        *("lowest-price", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized"),
    ),
}
_TRANSITIONS: Final = ("autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING")
_NOT_FULLY_FORMED: Final = "You must use a valid fully-formed launch template. "


def create_group(asked: Mapping[str, Any], known: Known) -> None:
    """Name, sizes, and what it refers to."""
    name = str(asked.get("AutoScalingGroupName", ""))
    if not _GROUP_NAME.fullmatch(name):
        raise invalid(
            f"1 validation error detected: Value '{name}' at 'autoScalingGroupName' failed to satisfy constraint: "
            "Member must have length between 1 and 255 and hold no colon"
        )
    for parameter in ("MinSize", "MaxSize"):
        if asked.get(parameter) is None:
            where = parameter[0].lower() + parameter[1:]
            raise invalid(
                f"1 validation error detected: Value null at '{where}' failed to satisfy constraint: "
                "Member must not be null"
            )
    _group_refers_to_what_is_there(asked, known)


def page(asked: Mapping[str, Any], _: Known) -> None:
    """As many as a page holds."""
    size = str(asked.get("MaxRecords", "1"))
    if not (size.isdigit() and 1 <= int(size) <= _PAGE):
        raise invalid(
            f"1 validation error detected: Value '{size}' at 'maxRecords' failed to satisfy constraint: "
            f"Member must have value less than or equal to {_PAGE}"
        )


def update_group(asked: Mapping[str, Any], known: Known) -> None:
    """What it refers to."""
    _group_refers_to_what_is_there(asked, known)


def _group_refers_to_what_is_there(asked: Mapping[str, Any], known: Known) -> None:
    for subnet in filter(None, str(asked.get("VPCZoneIdentifier", "")).split(",")):
        if not known.has_subnet(subnet):
            raise invalid(f"The subnet ID '{subnet}' does not exist")
    placement = asked.get("PlacementGroup")
    if placement and not known.has_placement_group(placement):
        raise invalid(f"The Placement Group '{placement}' is unknown.")
    policy = asked.get("MixedInstancesPolicy") or {}
    mixed = policy.get("LaunchTemplate") or {}
    if policy and asked.get("LaunchTemplate"):
        raise invalid(
            "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or "
            "MixedInstancesPolicy parameter."
        )
    _distribution(policy.get("InstancesDistribution") or {})
    specification = asked.get("LaunchTemplate") or mixed.get("LaunchTemplateSpecification")
    if not specification:
        return
    data = known.launch_template(specification)
    if data is None:
        raise invalid(_NOT_FULLY_FORMED + "The specified launch template, with template ID or name, does not exist.")
    if mixed:
        _overrides(mixed.get("Overrides") or [], data)
    types = [one.get("InstanceType") for one in mixed.get("Overrides") or []] or [data.get("InstanceType")]
    try:
        for instance_type in types:
            check_exists({**data, "InstanceType": instance_type}, known)
    except Refused as reason:
        raise invalid(f"{_NOT_FULLY_FORMED}{reason}") from None


def _distribution(asked: Mapping[str, Any]) -> None:
    for key, allowed in _ALLOCATIONS.items():
        if asked.get(key) is not None and asked[key] not in allowed:
            raise invalid(f"Invalid value '{asked[key]}' for {key}: it must be one of {', '.join(allowed)}")
    share = str(asked.get("OnDemandPercentageAboveBaseCapacity", "100"))
    if not (share.isdigit() and int(share) <= 100):
        raise invalid(f"Invalid value '{share}' for OnDemandPercentageAboveBaseCapacity: it must be from 0 to 100")


def _overrides(overrides: list[Mapping[str, Any]], template: Mapping[str, Any]) -> None:
    types = [one.get("InstanceType") for one in overrides]
    if len(types) > _OVERRIDES:
        raise invalid(f"The number of overrides {len(types)} exceeds the limit of {_OVERRIDES}.")
    if len(set(types)) != len(types):
        raise invalid("Duplicate instance types in the overrides: each may be given once.")
    if template.get("InstanceMarketOptions"):
        raise invalid(
            "Incompatible launch template: a launch template that has InstanceMarketOptions cannot be used with a "
            "MixedInstancesPolicy."
        )


def put_lifecycle_hook(asked: Mapping[str, Any], _: Known) -> None:
    """Name, transition, result and time."""
    name, transition = str(asked.get("LifecycleHookName", "")), asked.get("LifecycleTransition")
    if not _HOOK_NAME.fullmatch(name):
        raise invalid(f"Value '{name}' at 'lifecycleHookName' must have 1 to 255 letters, digits, -, _ and /")
    if transition is not None and transition not in _TRANSITIONS:
        raise invalid(
            f"Invalid value '{transition}' for LifecycleTransition: it must be one of {', '.join(_TRANSITIONS)}"
        )
    result = asked.get("DefaultResult", "ABANDON")
    if result not in ("CONTINUE", "ABANDON"):
        raise invalid(f"Lifecycle Action Result must be either CONTINUE or ABANDON, not '{result}'")
    seconds = str(asked.get("HeartbeatTimeout", _SECONDS[0]))
    if not (seconds.isdigit() and _SECONDS[0] <= int(seconds) <= _SECONDS[1]):
        raise invalid(f"HeartbeatTimeout {seconds} must be between {_SECONDS[0]} and {_SECONDS[1]} seconds")


def create_placement_group(asked: Mapping[str, Any], _: Known) -> None:
    """Name, and strategy with what belongs to it."""
    name, strategy = str(asked.get("GroupName", "")), asked.get("Strategy", "cluster")
    if not 1 <= len(name) <= 255 or not name.isascii():
        raise Refused(
            "InvalidParameterValue", f"Value ({name}) for parameter groupName is invalid: 1 to 255 ASCII characters."
        )
    if strategy not in ("cluster", "partition", "spread"):
        raise Refused("InvalidParameterValue", f"Value ({strategy}) for parameter strategy is invalid.")
    if asked.get("PartitionCount") and strategy != "partition":
        raise Refused("InvalidParameterCombination", "PartitionCount may be given with the strategy partition only.")
