"""What a new node of an Auto Scaling group will have and be called: by the group's tags, the policy and its types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from autoscaler.config.group_entry import DISK, GroupEntry
from autoscaler.model import labels as words
from autoscaler.model.cluster import CapacityType
from autoscaler.model.constraints import Effect, Taint
from autoscaler.model.instance_types import InstanceType
from autoscaler.model.resources import CPU, MEMORY, Resources, parse_quantity

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef, TagDescriptionTypeDef


def types_of(raw: AutoScalingGroupTypeDef, entry: GroupEntry | None) -> tuple[str, ...]:
    """Those that stand: of its mixed instances policy, or of its tags; else the policy's word, or an instance's type.

    An edit of the policy that ``pulumi up`` has not built yet changes no machine.
    """
    template = raw.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    several = tuple(one.get("InstanceType", "") for one in template.get("Overrides", []))
    tagged = dict(_under(raw, words.TEMPLATE_LABEL)).get(words.INSTANCE_TYPE, "")
    if all(several) and (several or tagged):
        return several or (tagged,)
    if entry is not None:
        return entry.types
    here = [one.get("InstanceType", "") for one in raw.get("Instances", [])]
    return (next(iter(here), ""),)


def capacity_type_of(raw: AutoScalingGroupTypeDef, entry: GroupEntry | None) -> CapacityType:
    """As its tags say; else the policy's word."""
    tagged = dict(_under(raw, words.TEMPLATE_LABEL)).get(words.CAPACITY_TYPE)
    said = tagged or (entry.capacity_type if entry else "")
    return "spot" if said == "spot" else "capacity-block" if said == "capacity-block" else "on-demand"


def allocatable_of(
    raw: AutoScalingGroupTypeDef, entry: GroupEntry | None, types: Sequence[str], known: Mapping[str, InstanceType]
) -> Resources:
    """Template tags are the last word; what they leave out, the policy or the type's formula says.

    Of a set of types the smallest amount of each: any of them may come. Raises ``ValueError`` for a type not ``known``.
    """
    tagged = dict(_under(raw, words.TEMPLATE_RESOURCE))
    amounts = dict(Resources.parse(tagged))
    if CPU in amounts and MEMORY in amounts:
        return Resources(amounts)
    if unknown := [kind for kind in types if kind not in known]:
        raise ValueError(
            f"EC2 does not say what {unknown[0] or 'its instance type'} holds (ec2:DescribeInstanceTypes), nor do tags "
            f"{words.TEMPLATE_RESOURCE}cpu and .../memory"
        )
    tagged_disk = tag_of(raw, words.TAG_DISK)
    disk = entry.disk_bytes if entry and not tagged_disk else int(parse_quantity(tagged_disk or DISK))
    offered = [known[kind].allocatable(disk=disk) for kind in types]
    formula = {name: min(one[name] for one in offered) for name in offered[0]}
    chosen = dict(Resources.parse(entry.resources)) if entry and not _is_tagged(raw) else {}
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
    own = entry.labels if entry and not _is_tagged(raw) else {}
    return usual | own | dict(_under(raw, words.TEMPLATE_LABEL))


def taints_of(raw: AutoScalingGroupTypeDef, entry: GroupEntry | None) -> tuple[Taint, ...]:
    """Those of the tags; the policy's where the group was tagged by nothing that knows of them."""
    own = entry.taints if entry and not _is_tagged(raw) else ()
    taints = {(one.key, one.effect): one.as_taint() for one in own}
    for key, text in _under(raw, words.TEMPLATE_TAINT):
        value, _, effect = text.rpartition(":")
        known: Effect = effect if effect in ("NoSchedule", "PreferNoSchedule", "NoExecute") else "NoSchedule"  # type: ignore[assignment]
        taints[key, known] = Taint(key, value, known)
    return tuple(taints.values())


def _is_tagged(raw: AutoScalingGroupTypeDef) -> bool:
    """Whether it was built by a program that writes everything that the policy says of its nodes into its tags."""
    return bool(tag_of(raw, words.TAG_BUILT_FROM))


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
