"""The scaling policy: the one file that the operator edits.

``stacks/`` builds the Auto Scaling groups from it, the autoscaler obeys it. :func:`read_policy` gives a frozen
``Policy``, or ``BadInput`` naming file, line, entry, key, value and what would be right.
"""

from __future__ import annotations

import difflib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from autoscaler.config.document_keys import infrastructure, live
from autoscaler.config.documents import Document, Span, read_document
from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.labels_and_taints import Name
from autoscaler.config.notifications import Notification
from autoscaler.config.schedules import ClusterBudget, Limits, Schedule


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
    """When nodes are terminated."""

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
        default=timedelta(seconds=15),
        description="how long a job's size stays as it is after a change, and how long a new job has been there before "
        "others shrink so that it grows, e.g. 1m",
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
    dcgm: Annotated[bool, live()] = Field(
        default=False,
        description="true: errors of GPUs that the DCGM exporter tells of are faults, too: these Xids, uncorrectable "
        "ECC errors, rows of memory that cannot be remapped",
    )
    xids: Annotated[tuple[int, ...], live()] = Field(
        default=(48, 63, 64, 74, 79, 95),
        description="Xids after which a GPU wants a reset or a technician; those of programs (13, 31, 43, 45) are not",
    )


class IdleGpus(Document):
    """GPUs that pods hold and do not use, by what the DCGM exporter measures."""

    enabled: Annotated[bool, live()] = Field(default=False, description="true: the exporter's pods are asked")
    below: Annotated[float, live("share")] = Field(
        default=0.05, gt=0, le=1, description="a pod whose busiest GPU is used less than that does not use them"
    )
    told_after: Annotated[Span, live("time")] = Field(
        default=timedelta(minutes=30), description="how long it has not before its owner is told"
    )
    freed_after: Annotated[Span | None, live("time")] = Field(
        default=None, description="how long after it was told it is evicted, e.g. 2h; absent: never"
    )
    gangs: Annotated[bool, live()] = Field(
        default=False, description="true: a gang of which no pod uses its GPUs is evicted, too, as a whole"
    )


class Policy(Document):
    """What may be bought, within which limits, and when it is terminated."""

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
    dcgm_exporter: Annotated[str, live()] = Field(
        default="app.kubernetes.io/name=dcgm-exporter",
        min_length=1,
        description="label selector of the exporter's pods, for `idle_gpus` and `faults.dcgm`; of the GPU operator: "
        "app=nvidia-dcgm-exporter",
    )
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
        close = difflib.get_close_matches(self.region, named, n=1, cutoff=0.85)
        if close and len(named) == 1 and self.region not in named:  # a typo, rather than zones of another region
            message = (
                f"region {self.region!r} has none of the zones that the groups name, which are all in {close[0]}: "
                f"write region: {close[0]}, or zones such as {self.region}a"
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
