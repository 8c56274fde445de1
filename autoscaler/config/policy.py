"""The scaling policy: the one file that the operator edits.

``stacks/`` builds the Auto Scaling groups from it, the autoscaler obeys it. :func:`read_policy` gives a frozen
``Policy``, or ``BadInput`` naming file, line, entry, key, value and what would be right.
"""

from __future__ import annotations

import difflib
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from autoscaler.config.documents import Document, Span, read_document
from autoscaler.model.constraints import Taint
from autoscaler.model.labels import PREFIX, may_kubelet_give
from autoscaler.model.resources import Resources, parse_quantity

LABEL_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
LABEL_VALUE_IS = "at most 63 letters, digits, dashes, dots and underscores, a letter or digit at either end"
_LARGEST_DISK = 64 * 2**40
"""Of gp3: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html."""
NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z"


def _named_well(name: str) -> str:
    if not re.match(NAME_PATTERN, name):
        message = (
            "must be lower-case letters, digits and dashes (at most 63), beginning and ending with a letter or digit"
        )
        raise ValueError(message)
    return name


def _spelled(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if key.startswith(f"{PREFIX}/"):
            message = f"sets {key!r}, but labels under {PREFIX}/ are Spillway's own: choose another prefix"
            raise ValueError(message)
        if not re.fullmatch(LABEL_KEY, key):
            message = f"sets {key!r}, which is not the key of a label: write one such as example.com/tier"
            raise ValueError(message)
        if not re.fullmatch(LABEL_VALUE, value):
            message = f"sets {key} to {value!r}: {LABEL_VALUE_IS}"
            raise ValueError(message)
    return labels


Name = Annotated[str, AfterValidator(_named_well)]
NodeLabels = Annotated[dict[str, str], AfterValidator(_spelled)]
"""Labels that a person gives to nodes, as Kubernetes takes them."""
InstanceTypeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
_OVERRIDES = 40
"""Types that a mixed instances policy takes.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-quotas.html"""


class TaintEntry(Document):
    """A taint on every node of a group."""

    key: str = Field(description="the taint's key, e.g. nvidia.com/gpu")
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"

    def as_taint(self) -> Taint:
        """The noun."""
        return Taint(key=self.key, value=self.value, effect=self.effect)


def _tainted(taints: tuple[TaintEntry, ...]) -> tuple[TaintEntry, ...]:
    seen = set()
    for taint in taints:
        if not re.fullmatch(LABEL_KEY, taint.key) or not re.fullmatch(LABEL_VALUE, taint.value):
            message = f"has {taint.key}={taint.value}: key and value are spelled as those of a label"
            raise ValueError(message)
        if (taint.key, taint.effect) in seen:
            message = f"has {taint.key}:{taint.effect} twice: one taint of that key and effect is enough"
            raise ValueError(message)
        seen.add((taint.key, taint.effect))
    return taints


Taints = Annotated[tuple[TaintEntry, ...], AfterValidator(_tainted)]


class GroupEntry(Document):
    """One kind of node that may be bought: becomes one Auto Scaling group in each of its zones."""

    name: Name = Field(description="a short name for this group, e.g. gpu-a10g")
    formerly: tuple[Name, ...] = Field(
        default=(),
        description="names that this entry had before, until every stack has been brought up under the new one",
    )
    instance_type: InstanceTypeName | None = Field(default=None, description="an EC2 instance type, e.g. g5.12xlarge")
    instance_types: tuple[InstanceTypeName, ...] = Field(
        default=(),
        max_length=_OVERRIDES,
        description="in place of instance_type: several of one shape, the one to prefer first",
    )
    zones: tuple[str, ...] = Field(
        description="availability zones to buy in, e.g. [us-east-1a, us-east-1b]", min_length=1
    )
    capacity_type: Literal["on-demand", "spot"] = "on-demand"
    min: int = Field(default=0, ge=0, description="nodes kept at all times, over all zones")
    max: int = Field(ge=0, description="nodes at most, over all zones, e.g. 8")
    usd_per_hour: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="price of one node; asked of the AWS price list when absent",
    )
    labels: NodeLabels = Field(default_factory=dict)
    taints: Taints = ()
    resources: dict[str, str] = Field(
        default_factory=dict,
        description="allocatable amounts that differ from what EC2 says of the type, e.g. {ephemeral-storage: 200Gi}",
    )
    disk: str = Field(default="100Gi", description="size of the root volume, e.g. 200Gi")
    efa: bool = Field(default=False, description="Elastic Fabric Adapters, as many as the instance type has")
    placement: Literal["any", "cluster"] = Field(
        default="any", description="cluster: nodes close together on the network, in one placement group"
    )

    @property
    def types(self) -> tuple[str, ...]:
        """What its nodes may be: the type, or those of the set, the preferred one first."""
        return self.instance_types or (self.instance_type or "",)

    @field_validator("labels")
    @classmethod
    def _a_node_brings_them(cls, labels: dict[str, str]) -> dict[str, str]:
        for key in labels:
            if not may_kubelet_give(key):
                message = (
                    f"sets {key!r}, which no kubelet may give its own node: a new one would come without it, or not at "
                    f"all: choose another prefix, e.g. example.com/{key.rpartition('/')[2]}"
                )
                raise ValueError(message)
        return labels

    @field_validator("taints")
    @classmethod
    def _is_nobodys(cls, taints: tuple[TaintEntry, ...]) -> tuple[TaintEntry, ...]:
        for taint in taints:
            if taint.key.startswith(f"{PREFIX}/"):
                message = f"has {taint.key}, which Spillway puts on and takes off itself: choose another key"
                raise ValueError(message)
        return taints

    @field_validator("zones", "instance_types", "formerly")
    @classmethod
    def _each_once(cls, listed: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({one for one in listed if listed.count(one) > 1})
        if twice:
            message = f"names {twice[0]} twice"
            raise ValueError(message)
        return listed

    @field_validator("resources", mode="before")
    @classmethod
    def _resources_are_quantities(cls, resources: object) -> object:
        if not isinstance(resources, dict):
            return resources
        written = {key: str(value) for key, value in resources.items()}
        for key, amount in Resources.parse(written).items():
            if amount < 0:
                message = f"{key}: {written[key]} is less than nothing"
                raise ValueError(message)
        return written

    @field_validator("disk")
    @classmethod
    def _disk_is_a_quantity(cls, disk: str) -> str:
        if parse_quantity(disk) < 8 * 2**30:
            message = "must be at least 8Gi: the operating system's image needs it"
            raise ValueError(message)
        if parse_quantity(disk) > _LARGEST_DISK:
            message = "must be at most 64Ti: no gp3 volume is larger"
            raise ValueError(message)
        return disk

    @model_validator(mode="after")
    def _one_way_to_say_the_type(self) -> GroupEntry:
        if bool(self.instance_type) == bool(self.instance_types):
            message = (
                f"gives {'both' if self.instance_type else 'neither'} of instance_type and instance_types: "
                "write instance_type: g5.12xlarge, or instance_types: [g5.12xlarge, g5.24xlarge] for a set of one shape"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _close_together_in_one_zone(self) -> GroupEntry:
        asked = "efa: true" if self.efa else "placement: cluster"
        if (self.efa or self.placement == "cluster") and len(self.zones) > 1:
            message = (
                f"{asked} with zones {', '.join(self.zones)}: neither an EFA's traffic nor a cluster placement group "
                "crosses zones: write one entry for each zone"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _min_within_max(self) -> GroupEntry:
        if self.min > self.max:
            message = f"min {self.min} is above max {self.max}: max must be at least min"
            raise ValueError(message)
        return self


class Limits(Document):
    """Ceilings over all groups together. Absent: none."""

    usd_per_hour: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="dollars per hour of all running EC2 nodes at most"
    )
    nodes: int | None = Field(default=None, ge=0, description="EC2 nodes at most")
    gpus: int | None = Field(default=None, ge=0, description="EC2 GPUs at most")


class ScaleUp(Document):
    """When and how capacity is bought."""

    debounce: Span = Field(default=timedelta(milliseconds=50), description="quiet time after a change before deciding")
    debounce_at_most: Span = Field(
        default=timedelta(milliseconds=250), description="decide at the latest this long after a change"
    )
    boot_timeout: Span = Field(
        default=timedelta(minutes=15), description="an instance that has not joined by then is given up"
    )
    refusal_backoff: Span = Field(
        default=timedelta(minutes=3), description="how long a group that EC2 refused is left alone"
    )
    reserve: bool = Field(
        default=True,
        description="new nodes keep other pods off until those that they were bought for are there; false: they do not",
    )


class Waiting(Document):
    """When a job waits for machines that we own rather than have some bought. Absent: never."""

    patience: Span = Field(
        default=timedelta(0),
        description="how long a job waits at most for room that is expected to become free on-prem, e.g. 30m",
    )
    usd_per_hour: float | None = Field(
        default=None,
        ge=0,
        description="what an hour of a job's waiting is worth: it waits only while buying costs more",
    )


class ScaleDown(Document):
    """When capacity is given back."""

    enabled: bool = True
    idle_after: Span = Field(
        default=timedelta(minutes=10), description="how long an EC2 node stands idle before it goes, e.g. 10m"
    )
    unready_after: Span = Field(
        default=timedelta(minutes=10),
        description="an EC2 node that has not been ready for so long is terminated though pods are on it, e.g. 10m",
    )


class Policy(Document):
    """What may be bought, within which limits, and when it is given back."""

    cluster: Name = Field(description="the cluster's name: only Auto Scaling groups tagged with it are touched")
    region: str = Field(
        default="us-east-1", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region, e.g. us-east-1"
    )
    groups: tuple[GroupEntry, ...] = Field(description="the kinds of node that may be bought")
    limits: Limits = Limits()
    scale_up: ScaleUp = ScaleUp()
    waiting: Waiting = Waiting()
    scale_down: ScaleDown = ScaleDown()

    @field_validator("groups")
    @classmethod
    def _names_once(cls, groups: tuple[GroupEntry, ...]) -> tuple[GroupEntry, ...]:
        names = [group.name for group in groups]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            message = f"two groups are named {twice[0]!r}: names must differ"
            raise ValueError(message)
        former = [name for group in groups for name in group.formerly]
        for name in former:
            if name in names:
                message = f"formerly names {name!r}, which is an entry of this policy: a name goes to one entry"
                raise ValueError(message)
            if former.count(name) > 1:
                message = f"two entries were formerly {name!r}: a name goes to one entry"
                raise ValueError(message)
        return groups

    @model_validator(mode="after")
    def _zones_in_region(self) -> Policy:
        named = {zone[:-1] for group in self.groups for zone in group.zones}
        meant = difflib.get_close_matches(self.region, named, n=1, cutoff=0.85)
        if meant and len(named) == 1 and self.region not in named:  # a typo, rather than zones of another region
            message = (
                f"region {self.region!r} has none of the zones that the groups name, which are all in {meant[0]}: "
                f"write region: {meant[0]}, or zones such as {self.region}a"
            )
            raise ValueError(message)
        for group in self.groups:
            for zone in group.zones:
                if not zone.startswith(self.region) or zone == self.region:
                    message = (
                        f"group {group.name!r} names zone {zone!r}, which is not in region {self.region}: "
                        f"its zones are named {self.region}a and so on"
                    )
                    raise ValueError(message)
        return self

    def entry(self, name: str) -> GroupEntry | None:
        """The group entry of that name."""
        return next((group for group in self.groups if group.name == name), None)


def read_policy(path: Path) -> Policy:
    """Read and check a policy file. Raises ``BadInput``."""
    return read_document(path, Policy, what="policy")


def asg_name(cluster: str, entry: str, zone: str) -> str:
    """Name of the Auto Scaling group of a policy entry in one zone."""
    return f"{cluster}-{entry}-{zone}"
