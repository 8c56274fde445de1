"""What a new node of an Auto Scaling group will have and be called: by the group's tags, the policy and its types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoscaler.cloud.purchases import held, living
from autoscaler.config.group_entry import DISK, GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.model import labels as words
from autoscaler.model.cluster import CapacityType
from autoscaler.model.constraints import Effect, Taint
from autoscaler.model.instance_types import InstanceType
from autoscaler.model.resources import CPU, MEMORY, Resources, parse_quantity

if TYPE_CHECKING:
    from types_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What a new node of one group offers, as AWS describes the group now."""

    raw: AutoScalingGroupTypeDef
    entry: GroupEntry | None
    """Of the policy, if it has one for it."""
    tags: Mapping[str, str]
    types: tuple[str, ...]
    """Those that stand: of its mixed instances policy, or of its tags; else the policy's word, or an instance's type.

    An edit of the policy that ``pulumi up`` has not built yet changes no machine.
    """
    capacity_type: CapacityType
    """As its tags say; else the policy's word."""
    _labels: Mapping[str, str]
    """Those of its tags."""

    @classmethod
    def of(cls, raw: AutoScalingGroupTypeDef, policy: Policy) -> NodeTemplate:
        """Makes the template of a group from its tags and what the policy's entry says."""
        tags = tags_of(raw)
        entry, labels = policy.entry(tags.get(words.TAG_GROUP, "")), _under(tags, words.TEMPLATE_LABEL)
        capacity_type = labels.get(words.CAPACITY_TYPE) or (entry.capacity_type if entry else "")
        return cls(
            raw,
            entry,
            tags,
            types=_types(raw, entry, labels.get(words.INSTANCE_TYPE, "")),
            capacity_type=capacity_type if capacity_type in ("spot", "capacity-block") else "on-demand",  # type: ignore[arg-type]
            _labels=labels,
        )

    @property
    def group(self) -> str:
        """The entry that it was built for; empty where its tags name none."""
        return self.tags.get(words.TAG_GROUP, "")

    @property
    def reservation(self) -> str:
        """Id of the Capacity Reservation that it launches into; empty where there is none."""
        return self.tags.get(words.TAG_RESERVATION, "")

    @property
    def built_from(self) -> str:
        """What it was built from by a program whose tags tell all that the policy says of its nodes; else empty."""
        return self.tags.get(words.TAG_BUILT_FROM, "")

    @property
    def wanted(self) -> int:
        """Nodes that it has or is to get, for what draws on a quota or a reservation; also those held at their end."""
        return max(self.raw["DesiredCapacity"], living(self.raw)) + held(self.raw)

    @property
    def coming(self) -> int:
        """Nodes that it is to get, and has no instance for."""
        return max(0, self.raw["DesiredCapacity"] - living(self.raw))

    def allocatable(self, known: Mapping[str, InstanceType]) -> Resources:
        """Template tags are the last word; what they leave out, the policy or the type's formula says.

        Of a set of types the smallest amount of each: any of them may come. Raises ``ValueError`` for a type not
        ``known``.
        """
        amounts = dict(Resources.parse(_under(self.tags, words.TEMPLATE_RESOURCE)))
        if CPU in amounts and MEMORY in amounts:
            return Resources(amounts)
        if unknown := [kind for kind in self.types if kind not in known]:
            raise ValueError(
                f"EC2 does not say what {unknown[0] or 'its instance type'} holds (ec2:DescribeInstanceTypes), nor do "
                f"tags {words.TEMPLATE_RESOURCE}cpu and .../memory"
            )
        tagged_disk = self.tags.get(words.TAG_DISK, "")
        disk = self.entry.disk_bytes if self.entry and not tagged_disk else int(parse_quantity(tagged_disk or DISK))
        offered = [known[kind].allocatable(disk=disk) for kind in self.types]
        formula = {name: min(one[name] for one in offered) for name in offered[0]}
        chosen = dict(Resources.parse(self.entry.resources)) if self.entry and not self.built_from else {}
        return Resources(formula | chosen | amounts)

    def labels(self, known: Mapping[str, InstanceType]) -> dict[str, str]:
        """What a new node will carry, but for host name and region; one of a set of types has no type."""
        first = known.get(self.types[0])
        usual = {
            words.CAPACITY_TYPE: self.capacity_type,
            words.ORIGIN: words.EC2,
            words.GROUP: self.group,
            words.ZONE: self.raw["AvailabilityZones"][0],
            **({words.INSTANCE_TYPE: self.types[0]} if len(self.types) == 1 else {}),
            words.ARCH: first.arch if first else "amd64",
            words.OS: "linux",
        }
        own = self.entry.labels if self.entry and not self.built_from else {}
        return {**usual, **own, **self._labels}

    def taints(self) -> tuple[Taint, ...]:
        """Those of the tags; the policy's where the group was tagged by nothing that knows of them."""
        own = self.entry.taints if self.entry and not self.built_from else ()
        taints = {(one.key, one.effect): one.as_taint() for one in own}
        for key, text in _under(self.tags, words.TEMPLATE_TAINT).items():
            value, _, effect = text.rpartition(":")
            known: Effect = effect if effect in ("NoSchedule", "PreferNoSchedule", "NoExecute") else "NoSchedule"  # type: ignore[assignment]
            taints[key, known] = Taint(key, value, known)
        return tuple(taints.values())


def tags_of(raw: AutoScalingGroupTypeDef) -> dict[str, str]:
    """Tags of a group, with their values."""
    return {tag.get("Key", ""): tag.get("Value", "") for tag in raw.get("Tags", [])}


def _types(raw: AutoScalingGroupTypeDef, entry: GroupEntry | None, tagged: str) -> tuple[str, ...]:
    template = raw.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
    several = tuple(one.get("InstanceType", "") for one in template.get("Overrides", []))
    if all(several) and (several or tagged):
        return several or (tagged,)
    if entry is not None:
        return entry.types
    here = [one.get("InstanceType", "") for one in raw.get("Instances", [])]
    return (next(iter(here), ""),)


def _under(tags: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): value for key, value in tags.items() if key.startswith(prefix)}
