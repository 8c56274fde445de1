"""The scaling policy: the one file that the operator edits.

``stacks/`` builds the Auto Scaling groups from it, the autoscaler obeys it. :func:`read_policy` gives a frozen
``Policy``, or ``BadInput`` naming file, line, entry, key, value and what would be right.
"""

from __future__ import annotations

import difflib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, WithJsonSchema, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue

from autoscaler.config.document_keys import infrastructure, live
from autoscaler.config.documents import Document, Span, read_document
from autoscaler.config.labels_and_taints import Name, NodeLabels, TaintEntry, Taints
from autoscaler.config.notifications import Notification
from autoscaler.config.schedules import Budget, ClusterBudget, Limits, Schedule
from autoscaler.model.labels import PREFIX, may_kubelet_give
from autoscaler.model.resources import Resources, parse_quantity

_LARGEST_DISK = 64 * 2**40
"""Of gp3: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html."""
InstanceTypeName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
ReservationId = Annotated[str, StringConstraints(pattern=r"^cr-[0-9a-f]{8,17}$")]
_AMOUNTS: Final[JsonSchemaValue] = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "number"}]},
}
_OVERRIDES = 40
"""Types that a mixed instances policy takes.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-quotas.html"""


class GroupEntry(Document):
    """One kind of node that may be bought: becomes one Auto Scaling group in each of its zones."""

    name: Annotated[Name, infrastructure()] = Field(description="a short name for this group, e.g. gpu-a10g")
    formerly: Annotated[tuple[Name, ...], infrastructure()] = Field(
        default=(),
        description="names that this entry had before, until every stack has been brought up under the new one",
    )
    instance_type: Annotated[InstanceTypeName | None, infrastructure()] = Field(
        default=None, description="an EC2 instance type, e.g. g5.12xlarge"
    )
    instance_types: Annotated[tuple[InstanceTypeName, ...], infrastructure()] = Field(
        default=(),
        max_length=_OVERRIDES,
        description="in place of instance_type: several of one shape, the one to prefer first",
    )
    zones: Annotated[tuple[str, ...], infrastructure()] = Field(
        description="availability zones to buy in, e.g. [us-east-1a, us-east-1b]", min_length=1
    )
    capacity_type: Annotated[Literal["on-demand", "spot"], infrastructure()] = Field(
        default="on-demand", description="how its nodes are bought"
    )
    min: Annotated[int, infrastructure("nodes")] = Field(
        default=0, ge=0, description="nodes kept at all times, over all zones: the groups' MinSize"
    )
    max: Annotated[int, live("nodes")] = Field(
        ge=0, description="nodes at most, over all zones, e.g. 8; above the groups' MaxSize it waits for `pulumi up`"
    )
    usd_per_hour: Annotated[float | None, live("$/h")] = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="price of one node; asked of the AWS price list when absent",
    )
    labels: Annotated[NodeLabels, infrastructure()] = Field(
        default_factory=dict, description="more labels of its nodes, e.g. {example.com/tier: batch}"
    )
    taints: Annotated[Taints, infrastructure()] = Field(default=(), description="taints of its nodes")
    resources: Annotated[dict[str, str], WithJsonSchema(_AMOUNTS), infrastructure()] = Field(
        default_factory=dict,
        description="allocatable amounts that differ from what EC2 says of the type, e.g. {ephemeral-storage: 200Gi}",
    )
    disk: Annotated[str, infrastructure("bytes")] = Field(
        default="100Gi", description="size of the root volume, e.g. 200Gi"
    )
    efa: Annotated[bool, infrastructure()] = Field(
        default=False, description="Elastic Fabric Adapters, as many as the instance type has"
    )
    placement: Annotated[Literal["any", "cluster"], infrastructure()] = Field(
        default="any", description="cluster: nodes close together on the network, in one placement group"
    )

    capacity_reservation: Annotated[ReservationId | None, infrastructure()] = Field(
        default=None,
        description="id of a Capacity Reservation that its nodes are launched into, e.g. cr-0123456789abcdef0: as many "
        "as it has room for, and at no price, for it is paid anyway; it need not match open",
    )

    budget: Budget = Budget()
    headroom: Annotated[int, live("nodes")] = Field(
        default=0, ge=0, description="nodes kept free at all times, beyond what pods need, within all limits"
    )
    idle_after: Annotated[Span | None, live("time")] = Field(
        default=None, description="how long a node of it stands idle before it goes; absent: scale_down.idle_after"
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

    @model_validator(mode="before")
    @classmethod
    def _what_is_reserved_is_paid(cls, said: object) -> object:
        if isinstance(said, dict) and said.get("capacity_reservation") and said.get("usd_per_hour") is None:
            return {**said, "usd_per_hour": 0.0}
        return said

    @model_validator(mode="after")
    def _one_reservation_is_of_one_kind(self) -> GroupEntry:
        if self.capacity_reservation is None:
            return self
        wrong = "capacity_type: spot" if self.capacity_type == "spot" else ""
        wrong = wrong or (f"zones {', '.join(self.zones)}" if len(self.zones) > 1 else "")
        wrong = wrong or ("instance_types" if self.instance_types else "")
        if wrong:
            message = (
                f"capacity_reservation with {wrong}: a Capacity Reservation is of one instance type in one zone, on "
                "demand: write an entry for it alone"
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


class ScaleUp(Document):
    """When and how capacity is bought."""

    debounce: Annotated[Span, live("time")] = Field(
        default=timedelta(milliseconds=50), description="quiet time after a change before deciding"
    )
    debounce_at_most: Annotated[Span, live("time")] = Field(
        default=timedelta(milliseconds=250), description="decide at the latest this long after a change"
    )
    boot_timeout: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=15), description="an instance that has not joined by then is given up"
    )
    refusal_backoff: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=3),
        description="how long a group that EC2 refused is left alone; twice as long each time, ten times at most",
    )
    reserve: Annotated[bool, infrastructure()] = Field(
        default=True,
        description="new nodes keep other pods off until those that they were bought for are there; false: they do not",
    )


class Waiting(Document):
    """When a job waits for machines that we own rather than have some bought. Absent: never."""

    patience: Annotated[Span, live("time")] = Field(
        default=timedelta(0),
        description="how long a job waits at most for room that is expected to become free on-prem, e.g. 30m",
    )
    usd_per_hour: Annotated[float | None, live("$/h")] = Field(
        default=None,
        ge=0,
        description="what an hour of a job's waiting is worth: it waits only while buying costs more",
    )
    least_usd: Annotated[float, live("$")] = Field(
        default=0,
        ge=0,
        allow_inf_nan=False,
        description="a job waits only where buying for it would cost at least so much in all",
    )


class Consolidation(Document):
    """When pods are evicted from an EC2 node to save its price."""

    enabled: Annotated[bool, live()] = Field(default=True, description="false: no pod is evicted to save money")
    saving_usd_per_hour: Annotated[float, live("$/h")] = Field(
        default=0.1, ge=0, allow_inf_nan=False, description="a node is emptied only where that saves more, in $/h"
    )
    after: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=10),
        description="how long all pods of a node have run before they are moved, e.g. 10m",
    )
    nodes: Annotated[int, live("nodes")] = Field(
        default=1, ge=1, description="nodes emptied at a time, and begun with in each window"
    )
    every: Annotated[Span, live("time")] = Field(default=timedelta(minutes=10), description="the window, e.g. 10m")
    timeout: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=15),
        description="a node that is not empty by then, for a PodDisruptionBudget or otherwise, is opened again",
    )


class Drains(Document):
    """How fast EC2 nodes are taken from the pods that run on them; idle nodes are not held back by it."""

    share: Annotated[float, live("share")] = Field(
        default=0.1,
        ge=0,
        le=1,
        description="of the EC2 nodes, begun with in each interval, one always may be: emptied to save their price, "
        "terminated as not ready, or emptied since EC2 warns of them",
    )
    every: Annotated[Span, live("time")] = Field(default=timedelta(minutes=10), description="the interval, e.g. 10m")


class ScaleDown(Document):
    """When capacity is given back."""

    enabled: Annotated[bool, live()] = Field(default=True, description="false: no node is terminated")
    idle_after: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=10), description="how long an EC2 node stands idle before it goes, e.g. 10m"
    )
    unready_after: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=10),
        description="an EC2 node that has not been ready for so long is terminated though pods are on it, e.g. 10m",
    )
    drains: Drains = Drains()
    consolidation: Consolidation = Consolidation()


class Elastic(Document):
    """How jobs with roles of MIN..MAX tasks change their size while they run."""

    interval: Annotated[Span, live("time")] = Field(
        default=timedelta(seconds=15), description="how long a job's size stays as it is after a change, e.g. 1m"
    )
    usd_per_hour: Annotated[float, live("$/h")] = Field(
        default=0,
        ge=0,
        allow_inf_nan=False,
        description="what nodes that only tasks above its minimum need may cost for each job that does not say",
    )


class Faults(Document):
    """Nodes that are closed since a condition of the Node says that their hardware is at fault, on-prem ones, too."""

    conditions: Annotated[dict[str, bool], live()] = Field(
        default={"AcceleratedHardwareReady": False},
        description="what a fault is: type of a node's condition, and which status of it, e.g. "
        "{AcceleratedHardwareReady: false} of the EKS node monitoring agent; {}: nothing is",
    )
    after: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=1),
        description="how long a condition has said so before the node is closed, or has not before it is opened again",
    )
    share: Annotated[float, live("share")] = Field(
        default=0.2,
        ge=0,
        le=1,
        description="of all nodes, closed at one time; one always may be; others are told and stay open: "
        "where so many are at fault, it is rather what watches them",
    )


class IdleGpus(Document):
    """GPUs that pods hold and do not use, by what the DCGM exporter measures."""

    enabled: Annotated[bool, live()] = Field(default=False, description="true: the exporter's pods are asked")
    exporter: Annotated[str, live()] = Field(
        default="app.kubernetes.io/name=dcgm-exporter",
        min_length=1,
        description="label selector of its pods; of the GPU operator: app=nvidia-dcgm-exporter",
    )
    below: Annotated[float, live("share")] = Field(
        default=0.05, gt=0, le=1, description="a pod whose busiest GPU is used less than that does not use them"
    )
    told_after: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=30), description="how long it has not before its owner is told"
    )
    freed_after: Annotated[Span | None, live("time")] = Field(
        default=None, description="how long after that it is evicted, e.g. 2h; absent: never"
    )
    gangs: Annotated[bool, live()] = Field(
        default=False, description="true: a gang of which no pod uses its GPUs is evicted, too, as a whole"
    )


class Policy(Document):
    """What may be bought, within which limits, and when it is given back."""

    cluster: Annotated[Name, infrastructure()] = Field(
        description="the cluster's name: only Auto Scaling groups tagged with it are touched"
    )
    region: Annotated[str, infrastructure()] = Field(
        default="us-east-1", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region, e.g. us-east-1"
    )
    groups: Annotated[tuple[GroupEntry, ...], infrastructure()] = Field(
        description="the kinds of node that may be bought"
    )
    limits: Limits = Limits()
    budget: ClusterBudget = ClusterBudget()
    schedules: Annotated[tuple[Schedule, ...], live()] = Field(
        default=(), description="times of the week in which other limits hold; where several do, the last one wins"
    )
    scale_up: ScaleUp = ScaleUp()
    waiting: Waiting = Waiting()
    scale_down: ScaleDown = ScaleDown()
    elastic: Elastic = Elastic()
    faults: Faults = Faults()
    idle_gpus: IdleGpus = IdleGpus()
    notifications: Annotated[tuple[Notification, ...], live()] = Field(
        default=(), description="what is posted outside the cluster, and where to"
    )

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

    @field_validator("notifications")
    @classmethod
    def _rules_once(cls, rules: tuple[Notification, ...]) -> tuple[Notification, ...]:
        names = [rule.name for rule in rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            message = f"two rules are named {twice[0]!r}: names must differ"
            raise ValueError(message)
        return rules

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

    @model_validator(mode="after")
    def _schedules_fit(self) -> Policy:
        names = [one.name for one in self.schedules]
        for one in self.schedules:
            if names.count(one.name) > 1:
                raise ValueError(f"two schedules are named {one.name!r}: names must differ")
            for name, group in one.groups.items():
                entry = self.entry(name)
                if entry is None:
                    known = ", ".join(entry.name for entry in self.groups)
                    raise ValueError(f"schedule {one.name!r} names group {name!r}, which the policy has not: {known}")
                if group.max is not None and group.max < entry.min:
                    raise ValueError(
                        f"schedule {one.name!r}: max {group.max} of group {name!r} is below min {entry.min}"
                    )
        return self

    def at(self, now: datetime) -> Policy:
        """The policy that holds at an aware ``now``: with the schedules that are in force."""
        holding = [one for one in self.schedules if one.holds_at(now)]
        if not holding:
            return self
        limits, groups = self.limits, self.groups
        for one in holding:
            limits = one.changed(limits)
            groups = tuple(entry.model_copy(update=one.changed_group(entry.name)) for entry in groups)
        return self.model_copy(update={"limits": limits, "groups": groups})

    def next_turn(self, now: datetime) -> datetime | None:
        """When a schedule begins or ends next."""
        return min((at for one in self.schedules for at in one.turns_after(now)), default=None)

    def idle_after(self, entry: str) -> timedelta:
        """How long a node of the entry stands idle before it goes."""
        found = self.entry(entry)
        return found.idle_after if found and found.idle_after is not None else self.scale_down.idle_after

    def entry(self, name: str) -> GroupEntry | None:
        """The group entry that is named so, or was."""
        return next((group for group in self.groups if name in (group.name, *group.formerly)), None)


def read_policy(path: Path) -> Policy:
    """Read and check a policy file. Raises ``BadInput``."""
    return read_document(path, Policy, what="policy")


def interruption_queue(cluster: str) -> str:
    """Name of the queue in which a cluster's autoscaler reads what EC2 is about to take back."""
    return f"{cluster}-interruptions"


def asg_name(cluster: str, entry: str, zone: str) -> str:
    """Name of the Auto Scaling group of a policy entry in one zone."""
    return f"{cluster}-{entry}-{zone}"
