"""What a new node of an Auto Scaling group will have and be called: by the group's tags, the policy and its types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from autoscaler.config.policy import GroupEntry
from autoscaler.model import labels as words
from autoscaler.model.constraints import Effect, Taint
from autoscaler.model.instance_types import InstanceType
from autoscaler.model.resources import CPU, MEMORY, Resources, parse_quantity

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef, TagDescriptionTypeDef


def types_of(raw: AutoScalingGroupTypeDef, entry: GroupEntry | None) -> tuple[str, ...]:
    """The policy's word; for a group that it does not know, what one of its instances or its tags say."""
    if entry is not None:
        return entry.types
    here = [one.get("InstanceType", "") for one in raw.get("Instances", [])]
    return (next(iter(here), "") or dict(_under(raw, words.TEMPLATE_LABEL)).get(words.INSTANCE_TYPE, ""),)


def allocatable_of(
    raw: AutoScalingGroupTypeDef, entry: GroupEntry | None, types: Sequence[str], known: Mapping[str, InstanceType]
) -> Resources:
    """Template tags are the last word; what they leave out, the policy or the type's formula says.

    Of a set of types the smallest amount of each: any of them may come. Raises ``KeyError`` for a type not ``known``.
    """
    tagged = dict(_under(raw, words.TEMPLATE_RESOURCE))
    amounts = dict(Resources.parse(tagged))
    if CPU in amounts and MEMORY in amounts:
        return Resources(amounts)
    disk = int(parse_quantity(entry.disk if entry else "100Gi"))
    offered = [known[kind].allocatable(disk=disk) for kind in types]
    formula = {name: min(one[name] for one in offered) for name in offered[0]}
    chosen = dict(Resources.parse(entry.resources)) if entry else {}
    return Resources(formula | chosen | amounts)


def labels_of(
    raw: AutoScalingGroupTypeDef, entry: GroupEntry | None, types: Sequence[str], known: Mapping[str, InstanceType]
) -> dict[str, str]:
    """What a new node will carry, but for host name, region and capacity type; one of a set of types has no type."""
    first = known.get(types[0])
    usual = {
        words.ORIGIN: words.EC2,
        words.GROUP: tag_of(raw, words.TAG_GROUP),
        words.ZONE: raw["AvailabilityZones"][0],
        **({words.INSTANCE_TYPE: types[0]} if len(types) == 1 else {}),
        words.ARCH: first.arch if first else "amd64",
        words.OS: "linux",
    }
    return usual | (entry.labels if entry else {}) | dict(_under(raw, words.TEMPLATE_LABEL))


def taints_of(raw: AutoScalingGroupTypeDef, entry: GroupEntry | None) -> tuple[Taint, ...]:
    """The policy's, and those of the tags, which are the last word."""
    taints = {(one.key, one.effect): one.as_taint() for one in (entry.taints if entry else ())}
    for key, text in _under(raw, words.TEMPLATE_TAINT):
        value, _, effect = text.rpartition(":")
        known: Effect = effect if effect in ("NoSchedule", "PreferNoSchedule", "NoExecute") else "NoSchedule"  # type: ignore[assignment]
        taints[key, known] = Taint(key, value, known)
    return tuple(taints.values())


def tag_of(raw: AutoScalingGroupTypeDef, key: str) -> str:
    """Its value; empty where the group has no such tag."""
    return next((tag.get("Value", "") for tag in _tags(raw) if tag.get("Key") == key), "")


def _under(raw: AutoScalingGroupTypeDef, prefix: str) -> Iterator[tuple[str, str]]:
    for tag in _tags(raw):
        key = tag.get("Key", "")
        if key.startswith(prefix):
            yield key.removeprefix(prefix), tag.get("Value", "")


def _tags(raw: AutoScalingGroupTypeDef) -> list[TagDescriptionTypeDef]:
    return raw.get("Tags", [])
